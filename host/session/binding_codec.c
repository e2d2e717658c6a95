/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stored form of a binding: one JSON row per task, key workspace/task. Owns the row's fields and words and what the GC's
 * column says. Pure, any thread. After decoding no string of a binding is NULL; the identity comes from the key, not the row.
 */
#include "session/binding.h"

#include <string.h>

#include "session/binding_private.h"

struct word {
	const char *word, *stage;
};

static const struct word state_words[] = {
#define X(name, word, stage) [BINDING_##name] = {word, stage},
	BINDING_STATES(X)
#undef X
};

static const char *const cause_words[] = {
#define X(name, word) [CAUSE_##name] = word,
	BINDING_CAUSES(X)
#undef X
};

static const struct json_field op_fields[] = {
	{"id", JSON_STR, JSON_REQUIRED, offsetof(struct binding_op, id)},
	{"kind", JSON_STR, JSON_REQUIRED, offsetof(struct binding_op, kind)},
	{"host", JSON_STR, JSON_REQUIRED, offsetof(struct binding_op, host)},
	{"until", JSON_I64, 0, offsetof(struct binding_op, until_ms), .min = 0, .max = INT64_MAX},
	{"lasts", JSON_I64, JSON_OMIT, offsetof(struct binding_op, lasts_ms), .min = 0, .max = INT64_MAX},
	{"ends", JSON_I64, JSON_OMIT, offsetof(struct binding_op, ends_ms), .min = 0, .max = INT64_MAX},
	{"waiting", JSON_BOOL, JSON_OMIT, offsetof(struct binding_op, waiting)},
	{0},
};

static const struct json_field stray_fields[] = {
	{"ref", JSON_STR, JSON_REQUIRED, offsetof(struct binding_stray, ref)},
	{"state", JSON_STR, JSON_OMIT, offsetof(struct binding_stray, state)},
	{0},
};

#define STR(key, field) {key, JSON_STR, JSON_OMIT, offsetof(struct binding, field)}
#define NUM(key, field, most) {key, JSON_I64, JSON_OMIT, offsetof(struct binding, field), .min = 0, .max = (most)}
/* Moments and durations; the latest may stand for never. */
#define I64(key, field) NUM(key, field, INT64_MAX)
/* Room to count on from whatever is read. */
#define COUNT(key, field) NUM(key, field, INT32_MAX)
#define SERIAL(key, field) NUM(key, field, INT64_MAX / 2)
#define ARR(key, kind, field, count, table, type)                                                                   \
	{key, kind, JSON_OMIT, offsetof(struct binding, field), offsetof(struct binding, count), table, type}
const struct json_field binding_fields[] = {
	{"state", JSON_STR, JSON_REQUIRED, offsetof(struct binding, state_word)},
	STR("cause", cause_word),
	STR("doom", doom_word),
	SERIAL("fence", fence),
	SERIAL("incarnation", incarnation),
	STR("target", target),
	STR("region", region),
	STR("owner", owner),
	I64("owner_until", owner_until_ms),
	STR("intent", intent),
	I64("create_until", create_until_ms),
	I64("settle", settle_ms),
	ARR("superseded", JSON_STRV, superseded, superseded_count, NULL, 0),
	STR("phase", phase),
	STR("warm", warm),
	STR("ref", ref),
	STR("sealed_state", sealed_state),
	STR("boot_id", boot_id),
	STR("root", root),
	STR("isolation", isolation),
	I64("created", created_ms),
	I64("provider_expires", provider_expires_ms),
	I64("live", live_ms),
	I64("ceiling", ceiling_ms),
	ARR("strays", JSON_ARR, strays, stray_count, stray_fields, sizeof(struct binding_stray)),
	{"active", JSON_BOOL, JSON_OMIT, offsetof(struct binding, active)},
	I64("lease_until", lease_until_ms),
	ARR("ops", JSON_ARR, ops, op_count, op_fields, sizeof(struct binding_op)),
	STR("fail_code", fail_code),
	STR("fail_reason", fail_reason),
	STR("fail_message", fail_message),
	SERIAL("fail_fence", fail_fence),
	I64("fail_until", fail_until_ms),
	COUNT("fail_count", fail_count),
	I64("teardown", teardown_ms),
	COUNT("release_tries", release_tries),
	I64("release_next", release_next_ms),
	STR("release_error", release_error),
	I64("updated", updated_ms),
	{0},
};

static void fill_absent_strings(struct binding *b)
{
	for (const struct json_field *field = binding_fields; field->name; field++) {
		const char **at = (const char **)(void *)((char *)b + field->off);

		if (field->type == JSON_STR && !*at)
			*at = "";
	}
	for (size_t i = 0; i < b->stray_count; i++) {
		if (!b->strays[i].state)
			b->strays[i].state = "";
	}
}

static bool find_cause(const char *word, enum binding_cause *ret)
{
	for (size_t i = 0; i < CAUSE_COUNT; i++) {
		if (strcmp(cause_words[i], word) == 0) {
			*ret = (enum binding_cause)i;
			return true;
		}
	}
	return false;
}

static bool read_words(struct binding *b)
{
	for (size_t i = 0; i < BINDING_STATE_COUNT; i++) {
		if (strcmp(state_words[i].word, b->state_word) == 0) {
			b->state = (enum binding_state)i;
			return find_cause(b->cause_word, &b->cause) && find_cause(b->doom_word, &b->doom);
		}
	}
	return false;
}

int binding_decode(struct arena *arena, const struct ident *ident, const char *doc, size_t len, struct binding *ret,
		   struct err *err)
{
	int r = 0;

	memset(ret, 0, sizeof(*ret));
	if (doc)
		r = json_decode_text(arena, binding_fields, doc, len, ret, sizeof(*ret), err);
	else
		ret->state_word = state_words[BINDING_GONE].word;
	if (r)
		return r;
	fill_absent_strings(ret);
	if (!read_words(ret))
		return err_set(err, ERR_CORRUPT, "binding of task %s: state \"%.32s\" or its cause is not known",
			       ident->task, ret->state_word);
	ret->workspace_id = arena_strdup(arena, ident->workspace);
	ret->task_id = arena_strdup(arena, ident->task);
	if (!ret->workspace_id || !ret->task_id)
		return err_set(err, ERR_NOMEM, "binding: no memory is left for it");
	return 0;
}

int binding_encode(const struct binding *b, struct buf *buf)
{
	return json_encode(buf, binding_fields, b, 0);
}

const char *binding_state_word(enum binding_state state)
{
	return state_words[state].word;
}

const char *binding_cause_word(enum binding_cause cause)
{
	return cause_words[cause];
}

const char *binding_stage(const struct binding *b)
{
	if (b->state == BINDING_LIVE)
		return b->active ? "active" : "idle";
	return state_words[b->state].stage;
}

/* The earlier of two moments, where 0 is none. */
static int64_t earlier(int64_t a, int64_t b)
{
	if (!a || !b)
		return a ? a : b;
	return binding_min(a, b);
}

static int64_t first_op(const struct binding *b)
{
	int64_t first = 0;

	for (size_t i = 0; i < b->op_count; i++)
		first = earlier(first, b->ops[i].until_ms);
	return first;
}

static int64_t due_live(const struct binding *b, const struct binding_rules *rules)
{
	int64_t due = earlier(b->ceiling_ms, first_op(b));

	if (binding_active_ops(b) == 0)
		due = earlier(due, b->lease_until_ms);
	else if (b->teardown_ms)
		due = earlier(due, binding_after(b->teardown_ms, rules->teardown_wait_ms));
	if (b->stray_count)
		due = earlier(due, binding_max(b->release_next_ms, 1));
	return due;
}

int64_t binding_due(const struct binding *b, const struct binding_rules *rules)
{
	switch (b->state) {
	case BINDING_GONE:
		return binding_max(binding_after(b->updated_ms, rules->retention_ms), b->fail_until_ms);
	case BINDING_PROVISIONING:
	case BINDING_HYDRATING:
	case BINDING_CONDEMNED:
		return earlier(binding_max(b->owner_until_ms, 1), first_op(b));
	case BINDING_LIVE:
		return due_live(b, rules);
	case BINDING_CAPTURING:
	case BINDING_QUARANTINED:
		return binding_max(b->owner_until_ms, 1);
	case BINDING_RELEASING:
		return binding_max(binding_max(b->owner_until_ms, b->release_next_ms), 1);
	case BINDING_STATE_COUNT:
		break;
	}
	return 0;
}
