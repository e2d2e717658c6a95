/* SPDX-License-Identifier: Apache-2.0 */
/* host/obs/metrics.c: counting, and the text a scraper reads. */
#include "core/err.h"
#include "obs/metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const routes[] = {"none", "GET /a", "GET /b\"\\"};

static int setup(void **state)
{
	(void)state;
	metric_set_routes(routes, 3);
	return 0;
}

static char *render(void)
{
	struct buf out;

	buf_init(&out, 1 << 20);
	metrics_render(&out);
	assert_int_equal(out.error, 0);
	return out.ptr;
}

static void assert_line(const char *text, const char *line)
{
	char whole[256];

	snprintf(whole, sizeof(whole), "\n%s\n", line);
	if (!strstr(text, whole))
		fail_msg("no line \"%s\" in:\n%s", line, text);
}

static void test_counters(void **state)
{
	char *text;

	(void)state;
	metric_add(METRIC_HTTP_REQUESTS, 1, metric_status(200), 2);
	metric_add(METRIC_HTTP_REQUESTS, 1, metric_status(200), 1);
	metric_add(METRIC_HTTP_REQUESTS, 2, metric_status(999), 1);
	metric_add(METRIC_EXEC_ENDED, metric_place(METRIC_DIM_ENDING, "oom"), 0, 1);
	metric_add(METRIC_EXEC_ENDED, metric_place(METRIC_DIM_ENDING, "a new word"), 0, 1);
	metric_add(METRIC_EXEC_ENDED, metric_place(METRIC_DIM_ENDING, NULL), 0, 1);
	text = render();
	assert_line(text, "berth_http_requests_total{route=\"GET /a\",status=\"200\"} 3");
	assert_line(text, "berth_http_requests_total{route=\"GET /b\\\"\\\\\",status=\"other\"} 1");
	assert_line(text, "berth_executions_ended_total{ending=\"oom\"} 1");
	assert_line(text, "berth_executions_ended_total{ending=\"unknown\"} 2");
	assert_line(text, "berth_store_groups_total 0");
	assert_line(text, "# TYPE berth_store_groups_total counter");
	assert_null(strstr(text, "status=\"404\""));
	free(text);
}

static void test_histograms(void **state)
{
	char *text;

	(void)state;
	metric_observe_ns(METRIC_STORE_COMMIT_SECONDS, 0, 1000000);	      /* just inside 1 ms */
	metric_observe_ns(METRIC_STORE_COMMIT_SECONDS, 0, 1000001);	      /* just outside */
	metric_observe_ns(METRIC_STORE_COMMIT_SECONDS, 0, -5);		      /* a clock that went back */
	metric_observe_ns(METRIC_STORE_COMMIT_SECONDS, 0, INT64_C(7200000000000)); /* above all */
	text = render();
	assert_line(text, "berth_store_commit_duration_seconds_bucket{le=\"0.0005\"} 1");
	assert_line(text, "berth_store_commit_duration_seconds_bucket{le=\"0.001\"} 2");
	assert_line(text, "berth_store_commit_duration_seconds_bucket{le=\"0.0025\"} 3");
	assert_line(text, "berth_store_commit_duration_seconds_bucket{le=\"1800\"} 3");
	assert_line(text, "berth_store_commit_duration_seconds_bucket{le=\"+Inf\"} 4");
	assert_line(text, "berth_store_commit_duration_seconds_count 4");
	assert_line(text, "berth_store_commit_duration_seconds_sum 7200.002000001");
	free(text);
}

static void test_gauges(void **state)
{
	struct buf out;

	(void)state;
	buf_init(&out, 1 << 20);
	buf_puts(&out, "\n");
	metric_put(&out, METRIC_SESSIONS, "a\nb", true, 3);
	metric_put(&out, METRIC_SESSIONS, "c", false, 12345678901.0);
	metrics_render_process(&out);
	assert_line(out.ptr, "# TYPE berth_sessions gauge");
	assert_line(out.ptr, "berth_sessions{target=\"a\\nb\"} 3");
	assert_line(out.ptr, "berth_sessions{target=\"c\"} 12345678901");
	assert_non_null(strstr(out.ptr, "\nprocess_threads 1\n"));
	assert_null(strstr(out.ptr, "process_resident_memory_bytes 0\n"));
	buf_fini(&out);
}

/* ---- docs/metrics.md ---- */

#define PAGE "docs/metrics.md"

static const char *const labels[] = {
#define X(name, label, most) [METRIC_DIM_##name] = label,
	METRIC_DIMS(X)
#undef X
};

static char *read_page(void)
{
	FILE *file = fopen(BERTH_TEST_SOURCE_DIR "/" PAGE, "r");
	char *text = calloc(1, 1 << 18);

	assert_non_null(file);
	assert_non_null(text);
	assert_true(fread(text, 1, (1 << 18) - 1, file) > 0);
	fclose(file);
	return text;
}

/* Lines that begin so. */
static size_t count_rows(const char *text, const char *start)
{
	size_t count = 0;

	for (const char *at = text; (at = strstr(at, start)); at++)
		count++;
	return count;
}

static void put_labels(struct buf *out, const char *a, const char *b)
{
	if (*a)
		buf_printf(out, *b ? "`%s`, `%s`" : "`%s`", a, b);
	else
		buf_puts(out, "\u2013");
}

/* A line for each, as the table has it, and no other. */
static void test_each_is_written_down(void **state)
{
	static const struct {
		const char *name, *type, *unit, *doc;
		enum metric_dim a, b;
	} rows[] = {
#define COUNTER "counter"
#define GAUGE "gauge"
#define TOTAL "counter"
#define HISTOGRAM "histogram"
#define X(name, type, text, unit, a, b, doc) {text, type, unit, doc, METRIC_DIM_##a, METRIC_DIM_##b},
		METRIC_TABLE(X)
#undef X
	};
	char *text = read_page();

	(void)state;
	for (size_t i = 0; i < METRIC_COUNT; i++) {
		struct buf row;

		buf_init(&row, 4096);
		buf_printf(&row, "\n| `%s` | %s | %s | ", rows[i].name, rows[i].unit, rows[i].type);
		put_labels(&row, labels[rows[i].a], labels[rows[i].b]);
		buf_printf(&row, " | %s |\n", rows[i].doc);
		if (!strstr(text, row.ptr))
			fail_msg(PAGE " does not have: %s", row.ptr);
		buf_fini(&row);
	}
	assert_int_equal(count_rows(text, "\n| `berth_") + count_rows(text, "\n| `process_"), METRIC_COUNT);
	free(text);
}

/* The words of a label, all of them and in their order; those of routes and targets come from elsewhere. */
static void test_labels_are_written_down(void **state)
{
	char *text = read_page();

	(void)state;
	for (unsigned dim = METRIC_DIM_NONE + 1; dim < METRIC_DIM_COUNT; dim++) {
		struct buf row;

		buf_init(&row, 4096);
		buf_printf(&row, "\n| `%s` | ", labels[dim]);
		for (unsigned i = 0; dim != METRIC_DIM_ROUTE && dim != METRIC_DIM_TARGET && metric_word(dim, i); i++)
			buf_printf(&row, "`%s` ", metric_word(dim, i));
		if (dim != METRIC_DIM_ROUTE && dim != METRIC_DIM_TARGET)
			buf_puts(&row, "| ");
		if (!strstr(text, row.ptr))
			fail_msg(PAGE " does not have: %s", row.ptr);
		buf_fini(&row);
	}
	free(text);
}

/* No status that an error has is counted as "other". */
static void test_each_status_has_its_word(void **state)
{
	static const unsigned statuses[] = {
#define X(name, word, http, retry) http,
		ERR_TABLE(X)
#undef X
	};

	(void)state;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		char word[16];

		snprintf(word, sizeof(word), "%u", statuses[i]);
		assert_string_equal(metric_word(METRIC_DIM_STATUS, metric_status(statuses[i])), word);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_histograms),
		cmocka_unit_test(test_gauges),
		cmocka_unit_test(test_each_is_written_down),
		cmocka_unit_test(test_labels_are_written_down),
		cmocka_unit_test(test_each_status_has_its_word),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
