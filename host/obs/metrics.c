/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the counters and their text form. Any thread counts; a scrape reads while others count, so the parts of a
 * histogram may differ by what came meanwhile. Must never take a lock or allocate where something is counted.
 */
#include "obs/metrics.h"

#include <assert.h>
#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Upper bounds in ns: from a commit on a fast disk to the longest command. */
#define MS INT64_C(1000000)
static const int64_t bounds[] = {
	MS / 4,	  MS / 2,   MS,	      5 * MS / 2, 5 * MS,    10 * MS,	 25 * MS,    50 * MS,	  100 * MS,
	250 * MS, 500 * MS, 1000 * MS, 2500 * MS, 5000 * MS, 10000 * MS, 30000 * MS, 120000 * MS, 1800000 * MS,
};
#define BUCKETS (sizeof(bounds) / sizeof(bounds[0]))
#define PARTS (BUCKETS + 2) /* buckets (not cumulative), what is above the last, the sum in ns */

enum type { TYPE_COUNTER, TYPE_GAUGE, TYPE_TOTAL, TYPE_HISTOGRAM };
static const char *const type_words[] = {"counter", "gauge", "counter", "histogram"};

enum {
#define X(name, label, most) MOST_##name = (most),
	METRIC_DIMS(X)
#undef X
};

#define CELLS(type, a, b) (MOST_##a * MOST_##b * (TYPE_##type == TYPE_HISTOGRAM ? (int)PARTS : 1))
enum {
#define X(name, type, text, unit, a, b, doc) AT_##name, AFTER_##name = AT_##name + CELLS(type, a, b) - 1,
	METRIC_TABLE(X)
#undef X
		CELL_COUNT
};

static _Atomic uint64_t cells[CELL_COUNT];

static const struct {
	const char *name, *unit, *doc;
	enum type type;
	enum metric_dim a, b;
	unsigned at, most_a, most_b;
} table[METRIC_COUNT] = {
#define X(name_, type_, text, unit_, a_, b_, doc_)                                                                     \
	[METRIC_##name_] = {.name = text,                                                                              \
			    .unit = unit_,                                                                             \
			    .doc = doc_,                                                                               \
			    .type = TYPE_##type_,                                                                      \
			    .a = METRIC_DIM_##a_,                                                                      \
			    .b = METRIC_DIM_##b_,                                                                      \
			    .at = AT_##name_,                                                                          \
			    .most_a = MOST_##a_,                                                                       \
			    .most_b = MOST_##b_},
	METRIC_TABLE(X)
#undef X
};

static const char *const labels[METRIC_DIM_COUNT] = {
#define X(name, label, most) label,
	METRIC_DIMS(X)
#undef X
};

static const char *const statuses[] = {"0",   "200", "201", "202", "204", "206", "400", "401", "403",  "404", "405",
				       "408", "409", "410", "412", "413", "414", "415", "416", "417", "421", "422", "429", "431", "499",
				       "500", "501", "502", "503", "504", "507", "other"};
static const char *const endings[] = {"exit", "signal",	      "timeout", "cancelled",
				      "oom",  "session_lost", "not_run", "unknown"};
static const char *const limits[] = {"head", "body", "answer", "idle", "full"};
static const char *const outcomes[] = {"ok", "failed"};
static const char *const nothing[] = {""};

#define WORDS(list) {list, sizeof(list) / sizeof(list[0])}
static struct {
	const char *const *list;
	unsigned count;
} words[METRIC_DIM_COUNT] = {
	[METRIC_DIM_NONE] = WORDS(nothing),   [METRIC_DIM_ROUTE] = WORDS(nothing),
	[METRIC_DIM_STATUS] = WORDS(statuses), [METRIC_DIM_ENDING] = WORDS(endings),
	[METRIC_DIM_OUTCOME] = WORDS(outcomes), [METRIC_DIM_TARGET] = WORDS(nothing),
	[METRIC_DIM_LIMIT] = WORDS(limits),
};

_Static_assert(sizeof(statuses) / sizeof(statuses[0]) <= MOST_STATUS, "room for every status");
_Static_assert(sizeof(limits) / sizeof(limits[0]) <= MOST_LIMIT, "room for every limit");
_Static_assert(sizeof(endings) / sizeof(endings[0]) <= MOST_ENDING, "room for every ending");

/* ---- counting ---- */

static _Atomic uint64_t *cell(enum metric metric, unsigned a, unsigned b, unsigned parts)
{
	assert(a < table[metric].most_a && b < table[metric].most_b);
	return &cells[table[metric].at + (a * table[metric].most_b + b) * parts];
}

void metric_add(enum metric metric, unsigned a, unsigned b, uint64_t n)
{
	assert(table[metric].type == TYPE_COUNTER);
	atomic_fetch_add_explicit(cell(metric, a, b, 1), n, memory_order_relaxed);
}

uint64_t metric_value(enum metric metric, unsigned a, unsigned b)
{
	return atomic_load_explicit(cell(metric, a, b, 1), memory_order_relaxed);
}

void metric_observe_ns(enum metric metric, unsigned a, int64_t ns)
{
	_Atomic uint64_t *parts = cell(metric, a, 0, PARTS);
	size_t i = 0;

	assert(table[metric].type == TYPE_HISTOGRAM);
	while (i < BUCKETS && ns > bounds[i])
		i++;
	atomic_fetch_add_explicit(&parts[i], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&parts[BUCKETS + 1], ns > 0 ? (uint64_t)ns : 0, memory_order_relaxed);
}

unsigned metric_place(enum metric_dim dim, const char *word)
{
	unsigned i = 0;

	while (i + 1 < words[dim].count && strcmp(words[dim].list[i], word ? word : "") != 0)
		i++;
	return i;
}

const char *metric_word(enum metric_dim dim, unsigned place)
{
	return place < words[dim].count ? words[dim].list[place] : NULL;
}

unsigned metric_status(unsigned status)
{
	char word[4] = {(char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10), (char)('0' + status % 10)};

	return metric_place(METRIC_DIM_STATUS, status < 10 ? word + 2 : word);
}

void metric_set_routes(const char *const *list, unsigned count)
{
	assert(count > 0 && count <= MOST_ROUTE);
	words[METRIC_DIM_ROUTE].list = list;
	words[METRIC_DIM_ROUTE].count = count;
}

/* ---- text ---- */

/* Within HELP only backslash and newline are escaped, within a label also the quote. */
static void put_escaped(struct buf *out, const char *text, bool quote)
{
	for (; *text; text++) {
		if (*text == '\n')
			buf_puts(out, "\\n");
		else if (*text == '\\' || (quote && *text == '"'))
			buf_printf(out, "\\%c", *text);
		else
			buf_append(out, text, 1);
	}
}

void metric_put_head(struct buf *out, const char *name, const char *type, const char *doc)
{
	buf_printf(out, "# HELP %s ", name);
	put_escaped(out, doc, false);
	buf_printf(out, "\n# TYPE %s %s\n", name, type);
}

void metric_put_label(struct buf *out, const char *label, const char *value)
{
	buf_printf(out, "%s=\"", label);
	put_escaped(out, value, true);
	buf_puts(out, "\"");
}

static void put_table_head(struct buf *out, enum metric metric)
{
	char doc[320];

	snprintf(doc, sizeof(doc), "%s Unit: %s.", table[metric].doc, table[metric].unit);
	metric_put_head(out, table[metric].name, type_words[table[metric].type], doc);
}

void metric_put(struct buf *out, enum metric metric, const char *target, bool first, double value)
{
	if (first)
		put_table_head(out, metric);
	buf_puts(out, table[metric].name);
	if (target) {
		buf_puts(out, "{");
		metric_put_label(out, labels[table[metric].a], target);
		buf_puts(out, "}");
	}
	buf_printf(out, " %.17g\n", value);
}

/* name suffix {labels, more} */
static void put_series(struct buf *out, enum metric metric, const char *suffix, unsigned a, unsigned b,
		       const char *more)
{
	const enum metric_dim dims[] = {table[metric].a, table[metric].b};
	const unsigned places[] = {a, b};
	const char *separator = "{";

	buf_printf(out, "%s%s", table[metric].name, suffix);
	for (unsigned i = 0; i < 2; i++) {
		if (dims[i] == METRIC_DIM_NONE)
			continue;
		buf_puts(out, separator);
		metric_put_label(out, labels[dims[i]], words[dims[i]].list[places[i]]);
		separator = ",";
	}
	if (*more)
		buf_printf(out, "%s%s", separator, more);
	buf_puts(out, *more || *separator == ',' ? "} " : " ");
}

static void put_counter(struct buf *out, enum metric metric, unsigned a, unsigned b)
{
	uint64_t value = metric_value(metric, a, b);

	/* Of the many pairs of labels only those that were seen; a metric without labels always. */
	if (value == 0 && table[metric].most_a * table[metric].most_b > 2)
		return;
	put_series(out, metric, "", a, b, "");
	buf_printf(out, "%llu\n", (unsigned long long)value);
}

static void put_histogram(struct buf *out, enum metric metric, unsigned a)
{
	const _Atomic uint64_t *parts = cell(metric, a, 0, PARTS);
	uint64_t count = 0;
	char le[48];

	for (size_t i = 0; i <= BUCKETS; i++)
		count += atomic_load_explicit(&parts[i], memory_order_relaxed);
	if (count == 0 && table[metric].most_a > 1)
		return;
	count = 0;
	for (size_t i = 0; i <= BUCKETS; i++) {
		count += atomic_load_explicit(&parts[i], memory_order_relaxed);
		if (i < BUCKETS)
			snprintf(le, sizeof(le), "le=\"%g\"", (double)bounds[i] / 1e9);
		else
			snprintf(le, sizeof(le), "le=\"+Inf\"");
		put_series(out, metric, "_bucket", a, 0, le);
		buf_printf(out, "%llu\n", (unsigned long long)count);
	}
	put_series(out, metric, "_sum", a, 0, "");
	buf_printf(out, "%.9f\n", (double)atomic_load_explicit(&parts[BUCKETS + 1], memory_order_relaxed) / 1e9);
	put_series(out, metric, "_count", a, 0, "");
	buf_printf(out, "%llu\n", (unsigned long long)count);
}

void metrics_render(struct buf *out)
{
	for (unsigned m = 0; m < METRIC_COUNT; m++) {
		if (table[m].type != TYPE_COUNTER && table[m].type != TYPE_HISTOGRAM)
			continue;
		put_table_head(out, m);
		for (unsigned a = 0; a < words[table[m].a].count; a++) {
			for (unsigned b = 0; table[m].type == TYPE_COUNTER && b < words[table[m].b].count; b++)
				put_counter(out, m, a, b);
			if (table[m].type == TYPE_HISTOGRAM)
				put_histogram(out, m, a);
		}
	}
}

/* ---- the process ---- */

/* A field of /proc/self/statm or a line of /proc/self/status; 0 when it cannot be read. */
static double read_resident(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	unsigned long long size, resident = 0;

	if (file && fscanf(file, "%llu %llu", &size, &resident) != 2)
		resident = 0;
	if (file)
		fclose(file);
	return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static unsigned count_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	unsigned count = 0;

	if (!dir)
		return 0;
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

void metrics_render_process(struct buf *out)
{
	metric_put(out, METRIC_PROCESS_RSS, NULL, true, read_resident());
	metric_put(out, METRIC_PROCESS_FDS, NULL, true, count_entries("/proc/self/fd"));
	metric_put(out, METRIC_PROCESS_THREADS, NULL, true, count_entries("/proc/self/task"));
}
