/* SPDX-License-Identifier: Apache-2.0 */
/* What the kit says: TAP or one JSON document on standard output, and a summary for people. Main thread. */
#include "kit.h"

#include <errno.h>

#include "core/json.h"

static const char *const capability_words[] = {
	"THREADSAFE", "REATTACH", "SIGNAL", "BULK", "CHANGES", "RENEW", "ASSIGN_TAGS", "NATIVE_POOL", "IDEMPOTENT_EXEC",
};
#define CAPABILITIES (sizeof(capability_words) / sizeof(*capability_words))
static const char *const verdict_words[] = {"passed", "failed", "skipped"};

static void add_word(char *ret, size_t size, const char *word)
{
	size_t len = strlen(ret);

	snprintf(ret + len, size - len, "%s%s", len ? ", " : "", word);
}

static void name_capabilities(uint64_t capabilities, char *ret, size_t size)
{
	*ret = '\0';
	for (size_t i = 0; i < CAPABILITIES; i++)
		if (capabilities & (UINT64_C(1) << i))
			add_word(ret, size, capability_words[i]);
}

void report_needs(const struct rule *rule, char *ret, size_t size)
{
	static const char *const words[] = {"commands", "files", "--stress", "HTTP"};

	name_capabilities(rule->capabilities, ret, size);
	for (unsigned i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (rule->needs & (1u << i))
			add_word(ret, size, words[i]);
	if (!*ret)
		snprintf(ret, size, "-");
}

void report_begin(FILE *out, const struct kit *kit, size_t count)
{
	const struct berth_provider *desc = &kit->desc;
	char capabilities[160];

	if (kit->opt->format != KIT_TAP)
		return;
	name_capabilities(kit->capabilities, capabilities, sizeof(capabilities));
	fprintf(out, "TAP version 13\n1..%zu\n# %s %s (%s), target %s: %s\n", count, desc->name, desc->version,
		desc->build_id, kit->conf->targets[0].name, capabilities);
	fflush(out);
}

/* A TAP description ends at a newline and at " # ". */
static void one_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == '#' || *text == 0x7f)
			*text = ' ';
}

void report_one(FILE *out, const struct kit *kit, size_t number, const struct outcome *outcome)
{
	char message[KIT_TEXT_MAX];

	if (kit->opt->format != KIT_TAP)
		return;
	snprintf(message, sizeof(message), "%s", outcome->message);
	one_line(message);
	fprintf(out, "%s %zu - %s%s%s\n", outcome->verdict == FAILED ? "not ok" : "ok", number, outcome->rule->id,
		outcome->verdict == SKIPPED ? " # SKIP " : "", outcome->verdict == SKIPPED ? message : "");
	if (outcome->verdict == FAILED) {
		struct buf text;

		buf_init(&text, 8 * KIT_TEXT_MAX);
		json_put_string(&text, outcome->message, strlen(outcome->message));
		fprintf(out, "  ---\n  rule: %s\n  message: %s\n  ms: %lld\n  ...\n", outcome->rule->sentence,
			text.ptr ? text.ptr : "\"\"", (long long)outcome->took_ms);
		buf_fini(&text);
	}
	fflush(out);
}

static void count_verdicts(const struct outcome *outcomes, size_t count, unsigned ret[3])
{
	memset(ret, 0, 3 * sizeof(*ret));
	for (size_t i = 0; i < count; i++)
		ret[outcomes[i].verdict]++;
}

struct doc {
	const char *kit, *plugin, *version, *build_id, *abi, *target, *deployment;
	int64_t date_ms;
	const char **capabilities;
	size_t capability_count;
	int64_t passed, failed, skipped;
	struct row {
		const char *id, *verdict, *sentence, *message;
		int64_t took_ms;
	} * rows;
	size_t row_count;
};

#define F(kind, key, field, ...)                                                                                       \
	{                                                                                                              \
		.name = key, .type = JSON_##kind, .off = offsetof(struct doc, field), __VA_ARGS__                      \
	}
#define R(kind, key, field, ...)                                                                                       \
	{                                                                                                              \
		.name = key, .type = JSON_##kind, .off = offsetof(struct row, field), __VA_ARGS__                      \
	}
static const struct json_field row_fields[] = {
	R(STR, "rule", id, 0),		 R(STR, "result", verdict, 0),
	R(STR, "sentence", sentence, 0), R(STR, "message", message, .flags = JSON_OMIT),
	R(I64, "ms", took_ms, 0),	 {0},
};
static const struct json_field doc_fields[] = {
	F(STR, "kit", kit, 0),
	F(STR, "abi", abi, 0),
	F(TIME, "date", date_ms, 0),
	F(STR, "plugin", plugin, 0),
	F(STR, "version", version, 0),
	F(STR, "build_id", build_id, 0),
	F(STR, "target", target, 0),
	F(STR, "deployment", deployment, 0),
	F(STRV, "capabilities", capabilities, .count_off = offsetof(struct doc, capability_count)),
	F(I64, "passed", passed, 0),
	F(I64, "failed", failed, 0),
	F(I64, "skipped", skipped, 0),
	F(ARR, "rules", rows, .count_off = offsetof(struct doc, row_count), .sub = row_fields,
	  .sub_size = sizeof(struct row)),
	{0},
};

static void put_json(FILE *out, const struct kit *kit, const struct outcome *outcomes, size_t count)
{
	const struct berth_provider *desc = &kit->desc;
	const char *capabilities[CAPABILITIES];
	unsigned counts[3];
	struct doc doc = {.kit = KIT_VERSION,
			  .plugin = desc->name,
			  .version = desc->version,
			  .build_id = desc->build_id,
			  .target = kit->conf->targets[0].name,
			  .deployment = kit->opt->deployment,
			  .date_ms = clock_wall_ms(),
			  .capabilities = capabilities,
			  .row_count = count};
	char abi[16];
	struct buf text;

	snprintf(abi, sizeof(abi), "%d.%d", BERTH_ABI_MAJOR, BERTH_ABI_MINOR);
	doc.abi = abi;
	count_verdicts(outcomes, count, counts);
	doc.passed = counts[PASSED];
	doc.failed = counts[FAILED];
	doc.skipped = counts[SKIPPED];
	for (size_t i = 0; i < CAPABILITIES; i++)
		if (kit->capabilities & (UINT64_C(1) << i))
			capabilities[doc.capability_count++] = capability_words[i];
	doc.rows = calloc(count + 1, sizeof(*doc.rows));
	if (!doc.rows)
		abort();
	for (size_t i = 0; i < count; i++)
		doc.rows[i] = (struct row){.id = outcomes[i].rule->id,
					   .verdict = verdict_words[outcomes[i].verdict],
					   .sentence = outcomes[i].rule->sentence,
					   .message = *outcomes[i].message ? outcomes[i].message : NULL,
					   .took_ms = outcomes[i].took_ms};
	buf_init(&text, 4 << 20);
	json_encode(&text, doc_fields, &doc, 0);
	fprintf(out, "%s\n", text.ptr ? text.ptr : "{}");
	buf_fini(&text);
	free(doc.rows);
}

void report_end(FILE *out, const struct kit *kit, const struct outcome *outcomes, size_t count)
{
	unsigned counts[3];

	count_verdicts(outcomes, count, counts);
	if (kit->opt->format == KIT_JSON)
		put_json(out, kit, outcomes, count);
	else
		fprintf(out, "# %u passed, %u failed, %u skipped\n", counts[PASSED], counts[FAILED], counts[SKIPPED]);
	fflush(out);
}

static void put_section(FILE *out, enum verdict verdict, const struct outcome *outcomes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (outcomes[i].verdict == verdict)
			fprintf(out, "| `%s` | %s | %s |\n", outcomes[i].rule->id, verdict_words[verdict],
				*outcomes[i].message ? outcomes[i].message : outcomes[i].rule->sentence);
}

int report_summary(const struct kit *kit, const struct outcome *outcomes, size_t count, struct err *err)
{
	const struct berth_provider *desc = &kit->desc;
	FILE *out = fopen(kit->opt->summary, "we");
	char date[32], capabilities[160];
	unsigned counts[3];

	if (!out)
		return err_set(err, ERR_IO, "%s: cannot be written: %s", kit->opt->summary, strerror(errno));
	clock_format(clock_wall_ms(), date);
	name_capabilities(kit->capabilities, capabilities, sizeof(capabilities));
	count_verdicts(outcomes, count, counts);
	fprintf(out,
		"# Berth conformance: %s %s\n\n| | |\n|---|---|\n| plugin | %s |\n| version | %s |\n| build | %s |\n| "
		"date | %s |\n"
		"| ABI | %d.%d |\n| kit | %s%s |\n| capabilities | %s |\n| result | **%s**: %u passed, %u failed, %u "
		"skipped |\n\n"
		"| rule | result | |\n|---|---|---|\n",
		desc->name, desc->version, desc->name, desc->version, desc->build_id, date, BERTH_ABI_MAJOR,
		BERTH_ABI_MINOR, KIT_VERSION, kit->opt->stress ? ", --stress" : "", capabilities,
		counts[FAILED] ? "failed" : "passed", counts[PASSED], counts[FAILED], counts[SKIPPED]);
	put_section(out, FAILED, outcomes, count);
	put_section(out, SKIPPED, outcomes, count);
	put_section(out, PASSED, outcomes, count);
	if (fclose(out))
		return err_set(err, ERR_IO, "%s: cannot be written: %s", kit->opt->summary, strerror(errno));
	return 0;
}
