/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every event of a binding in every state: what the state becomes, or that the event is refused and nothing changes. And the
 * transition table itself: a move outside it aborts. One thread, no store.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "binding_rows.h"

#define LATE (T0 + INT64_C(86400000)) /* past every deadline but retention's */

static struct arena *arena;

struct result {
	int code;
	int outcome; /* of begin, teardown, gc; -1 = none */
	bool changed;
};

static struct result do_begin(struct binding *b, const char *op_id, const char *region, int64_t lasts)
{
	struct binding_begin in = begin_of(op_id);
	enum begin_outcome outcome = BEGIN_WAIT;
	struct result r = {0};
	int64_t retry_at;

	in.region = region;
	in.lasts_ms = lasts;
	r.code = binding_begin(arena, b, T0 + 1, &rules, &in, &outcome, &retry_at, &r.changed, NULL);
	r.outcome = r.code ? -1 : (int)outcome;
	return r;
}

static struct result do_end(struct binding *b, const char *op_id, bool proven, bool lost)
{
	struct result r = {.outcome = -1};

	binding_end(b, T0 + 1, &rules, op_id, proven, lost, &r.changed);
	return r;
}

static struct result do_gc(struct binding *b, int64_t now, bool owned)
{
	const struct binding_gc in = {.host = HOST, .fence = 1000, .owned = owned};
	struct result r = {0};

	r.outcome = (int)binding_gc(b, now, &rules, &in, &r.changed);
	return r;
}

static struct result do_teardown(struct binding *b, bool force)
{
	struct result r = {0};

	r.outcome = (int)binding_teardown(b, T0 + 1, &rules, force, 1000, &r.changed);
	return r;
}

static struct result coded(int code)
{
	return (struct result){.code = code, .outcome = -1, .changed = code == 0};
}

static struct result do_fail(struct binding *b)
{
	struct err why = {0};

	err_set(&why, ERR_PROVIDER, "it broke");
	return coded(binding_fail(arena, b, T0 + 1, b->fence, &why, NULL));
}

static struct result do_released(struct binding *b, bool ok)
{
	struct err why = {0};

	err_set(&why, ERR_PROVIDER, "it broke");
	return coded(binding_released(arena, b, T0 + 1, &rules, b->fence, ok, &why, NULL));
}

static struct result do_stray(struct binding *b)
{
	const struct binding_stray stray = {"ref-9", ""};

	return coded(binding_add_stray(arena, b, b->fence, &stray, NULL));
}

#define EVENTS(X)                                                                                                   \
	X(begin, do_begin(b, "op-2", "", 1000))                                                                     \
	X(begin_again, do_begin(b, "op-1", "", 1000))                                                               \
	X(begin_elsewhere, do_begin(b, "op-2", "us", 1000))                                                         \
	X(begin_too_long, do_begin(b, "op-2", "", rules.max_age_ms + 1))                                            \
	X(begin_rotating, do_begin(b, "op-2", "", rules.max_age_ms))                                                \
	X(end, do_end(b, "op-1", true, false))                                                                      \
	X(end_unproven, do_end(b, "op-1", false, false))                                                            \
	X(end_lost, do_end(b, "op-1", true, true))                                                                  \
	X(end_unknown, do_end(b, "op-9", false, true))                                                              \
	X(creating, coded(binding_creating(b, b->fence, T0 + 9, NULL)))                                             \
	X(creating_old, coded(binding_creating(b, b->fence - 1, T0 + 9, NULL)))                                     \
	X(created, coded(binding_created(arena, b, b->fence, session_of("ref-2"), NULL)))                           \
	X(created_old, coded(binding_created(arena, b, b->fence - 1, session_of("ref-2"), NULL)))                   \
	X(publish, coded(binding_publish(arena, b, T0 + 1, &rules, b->fence, session_of("ref-2"), NULL)))           \
	X(publish_old, coded(binding_publish(arena, b, T0 + 1, &rules, b->fence - 1, session_of("ref-2"), NULL)))   \
	X(fail, do_fail(b))                                                                                         \
	X(retoken, coded(binding_retoken(arena, b, b->fence, "token-2", NULL)))                                     \
	X(stray, do_stray(b))                                                                                       \
	X(teardown, do_teardown(b, false))                                                                          \
	X(teardown_force, do_teardown(b, true))                                                                     \
	X(gc_early, do_gc(b, T0, false))                                                                            \
	X(gc_late, do_gc(b, LATE, false))                                                                           \
	X(gc_late_owned, do_gc(b, LATE, true))                                                                      \
	X(released, do_released(b, true))                                                                           \
	X(release_failed, do_released(b, false))

enum event {
#define X(name, call) EVENT_##name,
	EVENTS(X)
#undef X
		EVENT_COUNT
};

static struct result run_event(enum event event, struct binding *b)
{
	switch (event) {
#define X(name, call)                                                                                               \
	case EVENT_##name:                                                                                          \
		return call;
		EVENTS(X)
#undef X
	case EVENT_COUNT:
		break;
	}
	abort();
}

/* The state after the event, or "=" when nothing changed, or "!code" when it was refused; then the outcome, if any. L P W are
 * those of begin, G W U of teardown, N T R S D of gc. */
#define COLUMNS ROW_COUNT
static const char *const expected[EVENT_COUNT][COLUMNS] = {
	/* ABSENT, FAILED, PROVISIONING, HYDRATING, IDLE, BUSY, DOOMED, CAPTURING_EXPIRED, CAPTURING_TEARDOWN, CONDEMNED,
	 * QUARANTINED, RELEASING, GONE */
	[EVENT_begin] = {"provisioning P", "!capacity", "provisioning W", "hydrating W", "live L", "live L", "= W", "live L",
			 "= W", "= W", "= W", "= W", "provisioning P"},
	[EVENT_begin_again] = {"provisioning P", "!capacity", "= W", "= W", "live L", "= L", "= L", "live L", "= W", "= W",
			       "= W", "= W", "provisioning P"},
	[EVENT_begin_elsewhere] = {"provisioning P", "!capacity", "!region_conflict", "!region_conflict",
				   "!region_conflict", "!region_conflict", "!region_conflict", "!region_conflict", "= W",
				   "= W", "= W", "= W", "provisioning P"},
	[EVENT_begin_too_long] = {"!session_life", "!session_life", "!session_life", "!session_life", "!session_life",
				  "!session_life", "!session_life", "!session_life", "!session_life", "!session_life",
				  "!session_life", "!session_life", "!session_life"},
	[EVENT_begin_rotating] = {"provisioning P", "!capacity", "provisioning W", "hydrating W", "releasing W", "live W",
				  "= W", "releasing W", "= W", "= W", "= W", "= W", "provisioning P"},
	[EVENT_end] = {"=", "=", "provisioning", "hydrating", "=", "live", "releasing", "=", "=", "=", "=", "=", "="},
	[EVENT_end_unproven] = {"=", "=", "provisioning", "hydrating", "=", "quarantined", "quarantined", "=", "=", "=",
				"=", "=", "="},
	[EVENT_end_lost] = {"=", "=", "provisioning", "hydrating", "=", "releasing", "releasing", "=", "=", "=", "=", "=",
			    "="},
	[EVENT_end_unknown] = {"=", "=", "=", "=", "=", "=", "=", "=", "=", "=", "=", "=", "="},
#define ONLY_PROVISIONING(first, second)                                                                            \
	{"!conflict", "!conflict", first, second, "!conflict", "!conflict", "!conflict", "!conflict", "!conflict",        \
	 "!conflict", "!conflict", "!conflict", "!conflict"}
	[EVENT_creating] = ONLY_PROVISIONING("provisioning", "hydrating"),
	[EVENT_creating_old] = ONLY_PROVISIONING("!conflict", "!conflict"),
	[EVENT_created] = ONLY_PROVISIONING("provisioning", "hydrating"),
	[EVENT_created_old] = ONLY_PROVISIONING("!conflict", "!conflict"),
	[EVENT_publish] = ONLY_PROVISIONING("live", "live"),
	[EVENT_publish_old] = ONLY_PROVISIONING("!conflict", "!conflict"),
	[EVENT_fail] = {"!conflict", "=", "gone", "releasing", "!conflict", "!conflict", "!conflict", "!conflict",
			"!conflict", "!conflict", "!conflict", "!conflict", "!conflict"},
	[EVENT_retoken] = ONLY_PROVISIONING("provisioning", "hydrating"),
	[EVENT_stray] = ONLY_PROVISIONING("provisioning", "hydrating"),
	[EVENT_teardown] = {"= G", "= G", "condemned U", "condemned U", "releasing U", "live W", "live W", "capturing U",
			    "capturing U", "= U", "quarantined U", "= U", "= G"},
	[EVENT_teardown_force] = {"= G", "= G", "condemned U", "condemned U", "releasing U", "releasing U", "releasing U",
				  "releasing U", "releasing U", "= U", "quarantined U", "= U", "= G"},
	[EVENT_gc_early] = {"= N", "= N", "= N", "= N", "= N", "= N", "= N", "= N", "= N", "= N", "releasing R", "= N",
			    "= N"},
	[EVENT_gc_late] = {"= D", "= D", "provisioning T", "hydrating T", "releasing R", "releasing R", "releasing R",
			   "releasing R", "releasing R", "releasing R", "releasing R", "releasing R", "= D"},
	[EVENT_gc_late_owned] = {"= D", "= D", "provisioning N", "hydrating N", "releasing N", "releasing N", "releasing N",
				 "= N", "= N", "= N", "= N", "= N", "= D"},
	[EVENT_released] = {"=", "=", "!conflict", "!conflict", "!conflict", "!conflict", "!conflict", "!conflict",
			    "!conflict", "!conflict", "!conflict", "gone", "="},
	[EVENT_release_failed] = {"=", "=", "!conflict", "!conflict", "!conflict", "!conflict", "!conflict",
				  "!conflict", "!conflict", "!conflict", "!conflict", "releasing", "="},
};

static const char *const event_names[] = {
#define X(name, call) #name,
	EVENTS(X)
#undef X
};
static const char *const row_names[] = {
#define X(name) #name,
	ROWS(X)
#undef X
};

static char outcome_letter(enum event event, int outcome)
{
	if (outcome < 0)
		return 0;
	if (event == EVENT_teardown || event == EVENT_teardown_force)
		return "GWU"[outcome];
	if (event == EVENT_gc_early || event == EVENT_gc_late || event == EVENT_gc_late_owned)
		return "NTRSD"[outcome];
	return "LPW"[outcome];
}

/* Says in the table's words what happened. */
static void describe(enum event event, const struct binding *before, const struct binding *after, struct result r,
		     char *ret, size_t size)
{
	struct buf old, new;
	char letter = outcome_letter(event, r.outcome);
	const char *what = binding_state_word(after->state);

	buf_init(&old, 65536);
	buf_init(&new, 65536);
	binding_encode(before, &old);
	binding_encode(after, &new);
	if (strcmp(old.ptr, new.ptr) == 0)
		what = "=";
	else
		assert_true(r.changed);
	if (r.code)
		snprintf(ret, size, "!%s%s", err_name(r.code), strcmp(what, "=") == 0 ? "" : " and a change");
	else
		snprintf(ret, size, "%s%s%c", what, letter ? " " : "", letter);
	buf_fini(&old);
	buf_fini(&new);
}

static void deep_copy(const struct binding *b, struct binding *ret)
{
	struct ident ident = {"ws", "task"};
	struct buf doc;

	buf_init(&doc, 65536);
	assert_int_equal(binding_encode(b, &doc), 0);
	assert_int_equal(binding_decode(arena, &ident, doc.ptr, doc.len, ret, NULL), 0);
	buf_fini(&doc);
}

static void every_event_in_every_state(void **state)
{
	int wrong = 0;

	(void)state;
	for (size_t e = 0; e < EVENT_COUNT; e++) {
		for (size_t row = 0; row < ROW_COUNT; row++) {
			struct binding before, after;
			char got[64];
			struct result r;

			arena_reset(arena);
			row_make(arena, (enum row)row, &before);
			deep_copy(&before, &after);
			r = run_event((enum event)e, &after);
			describe((enum event)e, &before, &after, r, got, sizeof(got));
			if (strcmp(got, expected[e][row]) != 0) {
				print_error("%s in %s: expected \"%s\", got \"%s\"\n", event_names[e], row_names[row],
					    expected[e][row], got);
				wrong++;
			}
		}
	}
	assert_int_equal(wrong, 0);
}

/* Repeated after an unknown outcome, an event changes nothing more and is not refused. */
static void provisioner_events_can_be_repeated(void **state)
{
	static const enum event again[] = {EVENT_creating, EVENT_created, EVENT_publish, EVENT_fail, EVENT_retoken,
					   EVENT_stray};
	static const enum row rows[] = {ROW_PROVISIONING, ROW_HYDRATING};

	(void)state;
	for (size_t i = 0; i < sizeof(again) / sizeof(*again); i++) {
		for (size_t k = 0; k < 2; k++) {
			struct binding once, twice;
			char got[64];

			row_make(arena, rows[k], &once);
			assert_int_equal(run_event(again[i], &once).code, 0);
			deep_copy(&once, &twice);
			assert_int_equal(run_event(again[i], &twice).code, 0);
			describe(again[i], &once, &twice, (struct result){.outcome = -1}, got, sizeof(got));
			assert_string_equal(got, "=");
		}
	}
}

static bool aborts(enum binding_state from, enum binding_state to)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct binding b = {.state = from};
		int null = open("/dev/null", O_WRONLY);

		signal(SIGABRT, SIG_DFL);
		dup2(null, STDERR_FILENO);
		binding_move(&b, to, CAUSE_NONE, T0);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
}

static void moves_outside_the_table_abort(void **state)
{
	size_t allowed = 0;

	(void)state;
	for (int from = 0; from < BINDING_STATE_COUNT; from++) {
		for (int to = 0; to < BINDING_STATE_COUNT; to++) {
			bool may = binding_may_move((enum binding_state)from, (enum binding_state)to);

			allowed += may;
			assert_int_equal(aborts((enum binding_state)from, (enum binding_state)to), !may);
		}
	}
	assert_int_equal(allowed, 19);
}

static int make_arena(void **state)
{
	(void)state;
	arena = arena_new(64 << 20);
	return arena ? 0 : -1;
}

static int drop_arena(void **state)
{
	(void)state;
	arena_free(arena);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_event_in_every_state, make_arena, drop_arena),
		cmocka_unit_test_setup_teardown(provisioner_events_can_be_repeated, make_arena, drop_arena),
		cmocka_unit_test(moves_outside_the_table_abort),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
