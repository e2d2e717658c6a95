/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grammar of fault rules, as two tables: the words that say when, and the words that say what. Pure; any thread.
 * One word that is not understood refuses the whole file, so that a test never runs with half of its faults.
 */
#include "fault.h"

#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum kind { K_FLAG, K_CODE, K_WORD, K_DURATION, K_DURATION_OPT, K_SIZE, K_BOOL, K_RANGE, K_NAME, K_NAME_OPT };

struct name {
	const char *text;
	uint32_t value;
};

static const struct name quiescent_names[] = {
    {"no", BERTH_QUIESCENT_NO}, {"yes", BERTH_QUIESCENT_YES}, {"unknown", BERTH_QUIESCENT_UNKNOWN}, {NULL, 0}};
static const struct name ending_names[] = {
    {"timeout", BERTH_ENDING_TIMEOUT},           {"cancelled", BERTH_ENDING_CANCELLED}, {"oom", BERTH_ENDING_OOM},
    {"session_lost", BERTH_ENDING_SESSION_LOST}, {"unknown", BERTH_ENDING_UNKNOWN},     {NULL, 0}};
static const struct name isolation_names[] = {
    {"unset", BERTH_ISOLATION_UNSET},   {"none", BERTH_ISOLATION_NONE},       {"container", BERTH_ISOLATION_CONTAINER},
    {"gvisor", BERTH_ISOLATION_GVISOR}, {"microvm", BERTH_ISOLATION_MICROVM}, {NULL, 0}};
/* The first stands for the bare word. */
static const struct name garbage_names[] = {{"all", GARBAGE_REF | GARBAGE_KIND},
					    {"ref", GARBAGE_REF},
					    {"nul", GARBAGE_NUL},
					    {"reason", GARBAGE_REASON},
					    {"kind", GARBAGE_KIND},
					    {"twice", GARBAGE_TWICE},
					    {"none", GARBAGE_NONE},
					    {"code", GARBAGE_CODE},
					    {NULL, 0}};

#define OPS_CUT (OPS_OUTPUT | OP_BIT(OP_FILE_READ) | OP_BIT(OP_EXPORT_TAR))
#define OPS_SESSION (OP_ALL & ~OPS_NO_SESSION)
#define OPS_ANSWER (OP_ALL & ~(OP_BIT(OP_OPEN) | OP_BIT(OP_CHECK)))
#define AT(field) offsetof(struct effect, field), sizeof(((struct effect *)0)->field)

static const struct what {
	const char *word;
	enum kind kind;
	size_t offset, size; /* in struct effect */
	uint32_t ops;        /* where it means something */
	const struct name *names;
} whats[FX_COUNT] = {
    [FX_CODE] = {"code", K_CODE, AT(code), OP_ALL, NULL},
    [FX_REASON] = {"reason", K_WORD, AT(reason), OP_ALL, NULL},
    [FX_RETRY_AFTER] = {"retry_after", K_DURATION, AT(retry_after_ms), OP_ALL, NULL},
    [FX_RETRYABLE] = {"retryable", K_BOOL, AT(retryable), OP_ALL, NULL},
    [FX_DELAY] = {"delay", K_DURATION, AT(delay_ms), OP_ALL, NULL},
    [FX_HANG] = {"hang", K_FLAG, 0, 0, OP_ALL, NULL},
    [FX_STALL] = {"stall", K_DURATION_OPT, AT(stall_ms), OP_ALL, NULL},
    [FX_LOST_REPLY] = {"lost_reply", K_FLAG, 0, 0, OPS_ANSWER, NULL},
    [FX_CUT] = {"cut", K_SIZE, AT(cut), OPS_CUT, NULL},
    [FX_READY_EARLY] = {"ready_early", K_DURATION, AT(ready_early_ms), OP_BIT(OP_AWAIT_READY), NULL},
    [FX_VANISH] = {"vanish", K_FLAG, 0, 0, OPS_SESSION, NULL},
    [FX_CLAMP] = {"clamp", K_DURATION, AT(clamp_ms), OP_BIT(OP_PROVISION) | OP_BIT(OP_RENEW), NULL},
    [FX_LATE] = {"late", K_DURATION, AT(late_ms), OP_BIT(OP_PROVISION), NULL},
    [FX_FLOOD] = {"flood", K_SIZE, AT(flood), OPS_OUTPUT, NULL},
    [FX_GAP] = {"gap", K_RANGE, AT(gap), OPS_OUTPUT, NULL},
    [FX_QUIESCENT] = {"quiescent", K_NAME, AT(quiescent), OPS_OUTPUT, quiescent_names},
    [FX_ENDING] = {"ending", K_NAME, AT(ending), OPS_OUTPUT, ending_names},
    [FX_ISOLATION] = {"isolation", K_NAME, AT(isolation), OP_BIT(OP_OPEN) | OPS_EMIT_SESSION, isolation_names},
    [FX_GARBAGE] = {"garbage", K_NAME_OPT, AT(garbage), OPS_OUTPUT | OPS_EMIT_SESSION, garbage_names},
};

static const struct when {
	const char *word;
	size_t offset;
} whens[] = {
    {"nth", offsetof(struct fault_rule, nth)},
    {"every", offsetof(struct fault_rule, every)},
    {"from", offsetof(struct fault_rule, from)},
    {"count", offsetof(struct fault_rule, count)},
};

uint32_t fault_allowed(enum op op)
{
	uint32_t allowed = 0;

	for (unsigned i = 0; i < FX_COUNT; i++)
		if (whats[i].ops & OP_BIT(op))
			allowed |= UINT32_C(1) << i;
	return allowed;
}

void fault_merge(struct effect *fx, const struct effect *more, uint32_t allowed)
{
	const uint32_t with_code = UINT32_C(1) << FX_CODE | UINT32_C(1) << FX_REASON | UINT32_C(1) << FX_RETRY_AFTER |
				   UINT32_C(1) << FX_RETRYABLE;
	uint32_t new = more->set & allowed & ~fx->set;

	if (effect_has(fx, FX_CODE))
		new &= ~with_code; /* they belong to the code beside them */
	for (unsigned i = 0; i < FX_COUNT; i++)
		if (new & UINT32_C(1) << i)
			memcpy((char *)fx + whats[i].offset, (const char *)more + whats[i].offset, whats[i].size);
	fx->set |= new;
}

static bool set_name(const struct name *names, const char *text, uint32_t *ret)
{
	for (; names->text; names++) {
		if (strcmp(names->text, text))
			continue;
		*ret = names->value;
		return true;
	}
	return false;
}

/* "<from>-<to>" into two neighbours, from below to. */
static bool set_range(char *text, uint64_t *ret)
{
	char *dash = strchr(text, '-');

	if (!dash)
		return false;
	*dash = '\0';
	return text_size(text, &ret[0]) && text_size(dash + 1, &ret[1]) && ret[0] < ret[1];
}

static bool set_bool(const char *text, uint64_t *ret)
{
	return text_number(text, ret) && *ret <= 1;
}

static bool set_word(char ret[BERTH_REASON_MAX + 1], const char *text)
{
	return text_word(text) && text_copy(ret, BERTH_REASON_MAX + 1, text_str(text));
}

/* value is NULL for a word without "=". */
static bool set_what(const struct what *what, char *value, struct effect *fx)
{
	void *at = (char *)fx + what->offset;

	switch (what->kind) {
	case K_FLAG:
		return !value;
	case K_CODE:
		return value && op_code_by_name(value, at);
	case K_WORD:
		return value && set_word(at, value);
	case K_DURATION:
		return value && text_duration(value, at);
	case K_DURATION_OPT:
		return !value || text_duration(value, at);
	case K_SIZE:
		return value && text_size(value, at);
	case K_BOOL:
		return value && set_bool(value, at);
	case K_RANGE:
		return value && set_range(value, at);
	case K_NAME:
		return value && set_name(what->names, value, at);
	case K_NAME_OPT:
		return set_name(what->names, value ? value : what->names->text, at);
	}
	return false;
}

static bool complain(char ret_error[FAULT_ERROR_MAX], unsigned line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool complain(char ret_error[FAULT_ERROR_MAX], unsigned line, const char *format, ...)
{
	int len = snprintf(ret_error, FAULT_ERROR_MAX, "line %u: ", line);
	va_list args;

	va_start(args, format);
	vsnprintf(ret_error + len, FAULT_ERROR_MAX - (size_t)len, format, args);
	va_end(args);
	return false;
}

static bool set_op(struct fault_rule *rule, const char *word)
{
	rule->ops = strcmp(word, "*") ? 0 : OP_ALL;
	for (unsigned i = 0; i < OP_COUNT; i++)
		if (!strcmp(word, op_table[i].name))
			rule->ops = OP_BIT(i);
	return rule->ops;
}

/* "task=": "*" or "<workspace>/<task>". */
static bool set_task(struct fault_rule *rule, const char *value)
{
	const char *slash = strchr(value, '/');

	if (!strcmp(value, "*"))
		return true;
	if (!slash || !text_ident((struct berth_str){value, (size_t)(slash - value)}) ||
	    !text_ident(text_str(slash + 1)))
		return false;
	rule->any_task = false;
	return text_copy(rule->task, sizeof(rule->task), text_str(value));
}

/* 1 = it was a word of the first table, 0 = not, -1 = it was, with a wrong value. */
static int set_when(struct fault_rule *rule, const char *word, const char *value)
{
	if (!strcmp(word, "task"))
		return value && set_task(rule, value) ? 1 : -1;
	for (size_t i = 0; i < sizeof(whens) / sizeof(whens[0]); i++) {
		uint64_t *at = (uint64_t *)(void *)((char *)rule + whens[i].offset);

		if (!strcmp(word, whens[i].word))
			return value && text_number(value, at) && *at ? 1 : -1;
	}
	return 0;
}

static bool parse_word(struct fault_rule *rule, char *word, char ret_error[FAULT_ERROR_MAX])
{
	char *value = strchr(word, '=');
	int rc;

	if (value)
		*value++ = '\0';
	rc = set_when(rule, word, value);
	if (rc < 0)
		return complain(ret_error, rule->line, "\"%s\" has a wrong value", word);
	for (unsigned i = 0; !rc && i < FX_COUNT; i++) {
		if (strcmp(whats[i].word, word))
			continue;
		if (!(whats[i].ops & rule->ops))
			return complain(ret_error, rule->line, "\"%s\" means nothing for this operation", word);
		if (!set_what(&whats[i], value, &rule->fx))
			return complain(ret_error, rule->line, "\"%s\" has a wrong value", word);
		rule->fx.set |= UINT32_C(1) << i;
		rc = 1;
	}
	return rc ? true : complain(ret_error, rule->line, "\"%.64s\" is no word of a fault rule", word);
}

static bool check_rule(const struct fault_rule *rule, char ret_error[FAULT_ERROR_MAX])
{
	static const unsigned with_code[] = {FX_REASON, FX_RETRY_AFTER, FX_RETRYABLE};

	if (!rule->fx.set)
		return complain(ret_error, rule->line, "the rule says when, but not what");
	for (size_t i = 0; i < sizeof(with_code) / sizeof(with_code[0]); i++)
		if (effect_has(&rule->fx, with_code[i]) && !effect_has(&rule->fx, FX_CODE))
			return complain(ret_error, rule->line, "\"%s\" needs \"code\"", whats[with_code[i]].word);
	return true;
}

/* Cuts the next word off *text; NULL at the end or where a comment begins. */
static char *next_word(char **text)
{
	char *word = *text + strspn(*text, " \t\r");

	if (!*word || *word == '#')
		return NULL;
	*text = word + strcspn(word, " \t\r");
	if (**text)
		*(*text)++ = '\0';
	return word;
}

static bool parse_line(struct fault_set *set, char *text, unsigned line, char ret_error[FAULT_ERROR_MAX])
{
	struct fault_rule *rule = &set->rules[set->count];
	char *word;

	if (strlen(text) > FAULT_LINE_MAX)
		return complain(ret_error, line, "longer than %d bytes", FAULT_LINE_MAX);
	word = next_word(&text);
	if (!word)
		return true;
	if (set->count == FAULT_RULES_MAX)
		return complain(ret_error, line, "more than %d rules", FAULT_RULES_MAX);
	rule->line = line;
	rule->any_task = true;
	if (!set_op(rule, word))
		return complain(ret_error, line, "\"%.64s\" is no operation", word);
	while ((word = next_word(&text)))
		if (!parse_word(rule, word, ret_error))
			return false;
	set->count++;
	return check_rule(rule, ret_error);
}

struct fault_set *fault_parse(char *text, char ret_error[FAULT_ERROR_MAX])
{
	struct fault_set *set = calloc(1, sizeof(*set));
	bool ok = set != NULL;

	if (!set)
		snprintf(ret_error, FAULT_ERROR_MAX, "no memory");
	for (unsigned line = 1; ok && text; line++) {
		char *end = strchr(text, '\n');

		if (end)
			*end = '\0';
		ok = parse_line(set, text, line, ret_error);
		text = end ? end + 1 : NULL;
	}
	if (!ok) {
		free(set);
		return NULL;
	}
	atomic_init(&set->refs, 1);
	return set;
}
