/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the stored row of a binding, and the state machine on whatever the codec let through. The first bytes
 * choose the time and one event; the rest is the row.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "session/binding.h"
#include "session/warm.h"

static const struct ident ident = {"ws", "task"};
static const struct binding_rules rules = {
	.active_ms = 60000,
	.idle_ms = 60000,
	.op_ttl_ms = 30000,
	.owner_ttl_ms = 30000,
	.max_age_ms = 86400000,
	.teardown_wait_ms = 30000,
	.retention_ms = 86400000,
	.expiry_margin_ms = 5000,
	.release_retry_max_ms = 60000,
	.concurrency = 4,
	.waiting_max = 16,
};

static void check_strings(const struct binding *b)
{
	for (const struct json_field *field = binding_fields; field->name; field++) {
		const char *text;

		if (field->type != JSON_STR)
			continue;
		memcpy(&text, (const char *)b + field->off, sizeof(text));
		FUZZ_CHECK(text != NULL);
	}
	FUZZ_PLANTED(b->target, strlen(b->target));
	FUZZ_PLANTED(b->ref, strlen(b->ref));
	for (size_t i = 0; i < b->op_count; i++)
		FUZZ_CHECK(b->ops[i].id && b->ops[i].kind && b->ops[i].host);
	for (size_t i = 0; i < b->stray_count; i++)
		FUZZ_CHECK(b->strays[i].ref && b->strays[i].state);
	for (size_t i = 0; i < b->superseded_count; i++)
		FUZZ_CHECK(b->superseded[i] != NULL);
}

/* Written and read again it is the same row. */
static void check_again(struct arena *arena, const struct binding *b)
{
	struct binding again;
	struct buf first, second;

	buf_init(&first, 1 << 22);
	buf_init(&second, 1 << 22);
	FUZZ_CHECK(binding_encode(b, &first) == 0);
	FUZZ_CHECK(binding_decode(arena, &ident, first.ptr, first.len, &again, NULL) == 0);
	FUZZ_CHECK(binding_encode(&again, &second) == 0);
	FUZZ_CHECK(first.len == second.len && memcmp(first.ptr, second.ptr, first.len) == 0);
	FUZZ_CHECK(again.state == b->state && again.fence == b->fence && again.op_count == b->op_count);
	buf_fini(&first);
	buf_fini(&second);
}

static bool is_dead(void *arg, const char *host)
{
	(void)arg;
	return *host == 'd';
}

static bool is_open(void *arg, const struct binding_op *op)
{
	(void)arg;
	return *op->id == 's';
}

static void run_begin(struct arena *arena, struct binding *b, int64_t now, uint64_t fence)
{
	const struct binding_begin in = {
		.host = "h1",
		.op_id = "op_1",
		.op_kind = "file",
		.region = "",
		.lasts_ms = 1000,
		.intent = "0123",
		.fence = fence,
		.incarnation = fence,
		.target = "t",
		.target_region = "",
		.settle_ms = 1000,
	};
	enum begin_outcome outcome = BEGIN_WAIT;
	int64_t retry_at = 0;
	bool changed = false;

	if (binding_begin(arena, b, now, &rules, &in, &outcome, &retry_at, &changed, NULL) == 0 &&
	    outcome != BEGIN_WAIT)
		FUZZ_CHECK(b->op_count > 0);
}

static void run_event(struct arena *arena, struct binding *b, int64_t now, uint8_t event)
{
	/* The counter of fences is always ahead of every row. */
	uint64_t fence = (uint64_t)b->fence + 1;
	const struct binding_gc gc = {.host = "h1",
				      .fence = fence,
				      .certain = event & 64,
				      .owned = event & 128,
				      .dead = is_dead,
				      .open = is_open};
	bool changed = false;

	switch (event % 6) {
	case 0:
		binding_gc(b, now, &rules, &gc, &changed);
		break;
	case 1:
		run_begin(arena, b, now, fence);
		break;
	case 2:
		binding_restart(b, now, &rules, "h1", &changed);
		break;
	case 3:
		binding_teardown(b, now, &rules, event & 32, fence, &changed);
		break;
	case 4:
		binding_end(b, now, &rules, b->op_count ? b->ops[0].id : "", event & 32, event & 64, &changed);
		break;
	case 5:
		binding_released(arena, b, now, &rules, b->fence, event & 32, NULL, NULL);
		break;
	}
}

static void check_row(struct arena *arena, struct binding *b, int64_t now, uint8_t event)
{
	check_strings(b);
	check_again(arena, b);
	FUZZ_CHECK(b->fence >= 0 && b->incarnation >= 0);
	binding_due(b, &rules);
	FUZZ_CHECK(binding_stage(b) != NULL);
	if (b->fence >= INT64_MAX / 2) /* no counter gets ahead of it */
		return;
	run_event(arena, b, now, event);
	check_strings(b);
	check_again(arena, b);
	binding_due(b, &rules);
}

static void fuzz_warm(struct arena *arena, const char *doc, size_t len)
{
	struct warm_entry entry;
	struct err err = {0};

	if (warm_decode(arena, "target/0123", doc, len, &entry, &err) != 0) {
		FUZZ_CHECK(err.code == ERR_CORRUPT && err.msg[0]);
		return;
	}
	FUZZ_CHECK(entry.state > WARM_ABSENT && entry.state < WARM_STATE_COUNT && strcmp(entry.target, "target") == 0);
	FUZZ_CHECK(entry.intent && entry.pool_key && entry.owner && entry.ref && entry.task && entry.error);
	FUZZ_PLANTED(entry.ref, strlen(entry.ref));
	warm_counts(entry.state);
	warm_is_old(&entry, INT64_C(1700000000000));
	warm_fits(&entry, entry.pool_key, INT64_C(1700000000000), 30000, 60000);
	warm_release_failed(&entry, INT64_C(1700000000000), 60000, "why");
	warm_to_releasing(&entry, INT64_C(1700000000000));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	uint8_t event = fuzz_byte(&in);
	int64_t now = INT64_C(1700000000000) + (int64_t)fuzz_byte(&in) * 100000;
	struct arena *arena = arena_new(1 << 22);
	char *doc = fuzz_copy(in.ptr, in.len);
	struct binding b;
	struct err err = {0};

	if (event == 'w')
		fuzz_warm(arena, doc, in.len);
	else if (binding_decode(arena, &ident, doc, in.len, &b, &err) == 0)
		check_row(arena, &b, now, event);
	else
		FUZZ_CHECK(err.code == ERR_CORRUPT && err.msg[0]);
	free(doc);
	arena_free(arena);
	return 0;
}
