/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in every state for the tests of the binding's state machine, made by the machine's own events. */
#ifndef TEST_BINDING_ROWS_H
#define TEST_BINDING_ROWS_H

#include <assert.h>
#include <string.h>

#include "session/binding.h"
#include "session/binding_private.h"

#define T0 INT64_C(1000000)
#define HOST "host-a"

static const struct binding_rules rules = {
	.active_ms = 7200000,
	.idle_ms = 900000,
	.op_ttl_ms = 30000,
	.owner_ttl_ms = 30000,
	.max_age_ms = 86400000,
	.teardown_wait_ms = 30000,
	.retention_ms = 86400000,
	.expiry_margin_ms = 30000,
	.release_retry_max_ms = 30000,
	.concurrency = 2,
	.waiting_max = 3,
};

/* The rows the tables speak of. */
#define ROWS(X)                                                                                                     \
	X(ABSENT) X(FAILED) X(PROVISIONING) X(HYDRATING) X(IDLE) X(BUSY) X(DOOMED) X(CAPTURING_EXPIRED)              \
	X(CAPTURING_TEARDOWN) X(CONDEMNED) X(QUARANTINED) X(RELEASING) X(GONE)
enum row {
#define X(name) ROW_##name,
	ROWS(X)
#undef X
		ROW_COUNT
};

static inline struct binding_begin begin_of(const char *op_id)
{
	return (struct binding_begin){.host = HOST,
				      .op_id = op_id,
				      .op_kind = "execution",
				      .lasts_ms = 60000,
				      .intent = "token-new",
				      .fence = 900,
				      .incarnation = 901,
				      .target = "one",
				      .target_region = "eu",
				      .region = "",
				      .settle_ms = 5000};
}

static inline const struct binding_session *session_of(const char *ref)
{
	static struct binding_session s;

	s = (struct binding_session){.ref = ref, .sealed_state = "sealed", .boot_id = "boot", .root = "/work"};
	return &s;
}

static inline void row_empty(struct arena *a, struct binding *b)
{
	struct ident ident = {"ws", "task"};

	assert(binding_decode(a, &ident, NULL, 0, b, NULL) == 0);
}

static inline void row_provisioning(struct arena *a, struct binding *b, const char *op_id)
{
	struct binding_begin in = begin_of(op_id);
	enum begin_outcome outcome;
	int64_t retry_at;
	bool changed = false;

	in.intent = "token-1";
	in.fence = 10;
	in.incarnation = 11;
	row_empty(a, b);
	assert(binding_begin(a, b, T0, &rules, &in, &outcome, &retry_at, &changed, NULL) == 0);
	assert(outcome == BEGIN_PROVISION && changed);
}

static inline void row_live(struct arena *a, struct binding *b, const char *op_id)
{
	bool changed = false;

	row_provisioning(a, b, op_id ? op_id : "gone-soon");
	assert(binding_publish(a, b, T0, &rules, 10, session_of("ref-1"), NULL) == 0);
	if (!op_id)
		binding_end(b, T0, &rules, "gone-soon", true, false, &changed);
}

static inline void row_failed(struct arena *a, struct binding *b, bool created)
{
	struct err why = {0};

	row_provisioning(a, b, "op-1");
	err_set(&why, ERR_CAPACITY, "no room");
	err_reason(&why, "no_room");
	if (created)
		assert(binding_created(a, b, 10, session_of("ref-1"), NULL) == 0);
	assert(binding_fail(a, b, T0, 10, &why, NULL) == 0);
}

static inline void row_releasing(struct arena *a, struct binding *b)
{
	const struct binding_gc gc = {.host = HOST, .fence = 20};
	bool changed = false;

	row_live(a, b, NULL);
	binding_teardown(b, T0, &rules, true, 15, &changed);
	assert(binding_gc(b, T0, &rules, &gc, &changed) == GC_RELEASE);
}

static inline void row_make(struct arena *a, enum row row, struct binding *b)
{
	bool changed = false;

	switch (row) {
	case ROW_ABSENT:
		row_empty(a, b);
		break;
	case ROW_FAILED:
		row_failed(a, b, false);
		break;
	case ROW_PROVISIONING:
		row_provisioning(a, b, "op-1");
		break;
	case ROW_HYDRATING:
		row_provisioning(a, b, "op-1");
		assert(binding_created(a, b, 10, session_of("ref-1"), NULL) == 0);
		binding_move(b, BINDING_HYDRATING, CAUSE_NONE, T0);
		break;
	case ROW_IDLE:
		row_live(a, b, NULL);
		break;
	case ROW_BUSY:
		row_live(a, b, "op-1");
		break;
	case ROW_DOOMED:
		row_live(a, b, "op-1");
		binding_set_doom(b, CAUSE_CEILING);
		break;
	case ROW_CAPTURING_EXPIRED:
	case ROW_CAPTURING_TEARDOWN:
		row_live(a, b, NULL);
		binding_move(b, BINDING_CAPTURING,
			     row == ROW_CAPTURING_EXPIRED ? CAUSE_EXPIRED : CAUSE_TEARDOWN, T0);
		binding_own(b, HOST, T0 + 30000, 12);
		break;
	case ROW_CONDEMNED:
		row_provisioning(a, b, "op-1");
		binding_teardown(b, T0, &rules, false, 15, &changed);
		break;
	case ROW_QUARANTINED:
		row_live(a, b, "op-1");
		binding_end(b, T0, &rules, "op-1", false, false, &changed);
		break;
	case ROW_RELEASING:
		row_releasing(a, b);
		break;
	case ROW_GONE:
		row_releasing(a, b);
		assert(binding_released(a, b, T0, &rules, 20, true, NULL, NULL) == 0);
		break;
	case ROW_COUNT:
		assert(!"no such row");
	}
}

#endif
