/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of a session's life: found, made, agreed upon, tagged, listed, released. */
#include "rules.h"

/* Every look-up says the same of it. */
static void must_agree(struct check *check, const struct session *session, const struct berth_session_info *info,
		       const char *where)
{
	MUST(check, info, "%s does not report session %s", where, session->ref);
	MUST(check, str_is(info->workspace_id, session->workspace) && str_is(info->task_id, session->task),
	     "%s reports the identity %.60s/%.60s instead of %s/%s", where, info->workspace_id.ptr, info->task_id.ptr,
	     session->workspace, session->task);
	MUST(check, str_is(info->intent, session->intent), "%s reports the intent \"%.40s\" instead of %s", where,
	     info->intent.ptr, session->intent);
	MUST(check, !phase_is_over(info->phase), "%s reports a living session as dead", where);
}

static void find_must(struct check *check, const struct session *session, size_t times)
{
	struct call *call = check_call(check);
	struct err err = {0};
	size_t found, count;

	MUST(check, !call_find(call, session->workspace, session->task, &err), "find " OK_RC(err));
	session_among(call, session->ref, &found);
	call_sessions(call, &count);
	MUST(check, found == times, "find emits session %s %zu times instead of %zu", session->ref, found, times);
	MUST(check, count == times, "find emits %zu sessions instead of %zu", count, times);
}

void rule_find_none(struct check *check)
{
	struct call *call = check_call(check);
	struct err err = {0};
	char task[64];
	size_t count;

	session_name(check, task);
	MUST(check, !call_find(call, "conformance", task, &err), "find " OK_RC(err));
	call_sessions(call, &count);
	MUST(check, count == 0, "find emits %zu sessions of a task that has none", count);
}

void rule_created(struct check *check)
{
	struct session *session = session_plan(check, NULL);

	find_must(check, session, 0);
	session_provision(check, session, NULL);
	MUST(check, !session->rc, "provision " OK_RC(session->err));
	MUST(check, session->created == 1, "provision returned OK and called created() %u times", session->created);
	MUST(check, session->ref[0], "created() names no ref");
	find_must(check, session, 1);
}

void rule_agree(struct check *check)
{
	struct session *session = session_make(check, NULL);
	struct call *call = check_call(check);
	struct err err = {0};
	const struct berth_session_info *info;

	if (!session)
		return;
	MUST(check, !call_find(call, session->workspace, session->task, &err), "find " OK_RC(err));
	must_agree(check, session, session_among(call, session->ref, NULL), "find");
	MUST(check, !call_inspect(call, &session->abi, &err), "inspect " OK_RC(err));
	info = session_among(call, session->ref, NULL);
	must_agree(check, session, info, "inspect");
	MUST(check, check_failed(check) || str_is(info->boot_id, session->boot_id), "inspect reports another boot id");
	MUST(check, session_listed(check, session->ref) == 1, "list does not hold session %s exactly once",
	     session->ref);
}

void rule_listed_exactly(struct check *check)
{
	struct session *session = session_make(check, NULL);
	struct pages pages = {0};

	if (!session)
		return;
	while (session_list(check, &pages)) {
		if (session_among(pages.call, session->ref, NULL)) {
			must_agree(check, session, session_among(pages.call, session->ref, NULL), "list");
			return;
		}
	}
	check_fail(check, "list does not hold session %s", session->ref);
}

void rule_ready(struct check *check)
{
	struct session *session = session_make(check, NULL);

	if (!session)
		return;
	MUST(check, session->phase == BERTH_PHASE_READY, "await_ready returned OK and reports phase %u",
	     session->phase);
	MUST(check, session->root[0] == '/', "the workspace root \"%s\" is no absolute path", session->root);
	MUST(check, !session_await(check, session), "await_ready of a ready session " OK_RC(session->err));
}

/* Names that a careless encoding would mix up. */
void rule_identity_exact(struct check *check)
{
	char stem[64], names[5][132];
	struct session *made[5];

	session_name(check, stem);
	snprintf(names[0], sizeof(names[0]), "%s.a", stem);
	snprintf(names[1], sizeof(names[1]), "%s-a", stem);
	snprintf(names[2], sizeof(names[2]), "%s.A", stem);
	snprintf(names[3], sizeof(names[3]), "%s", stem);
	snprintf(names[4], sizeof(names[4]), "%s.", stem);
	memset(names[4] + strlen(names[4]), 'x', 128 - strlen(names[4]));
	names[4][128] = '\0';
	for (size_t i = 0; i < 5; i++) {
		made[i] = session_plan(check, names[i]);
		MUST(check, !session_provision(check, made[i], NULL), "provision of task %s " OK_FMT, names[i],
		     OK_ARGS(made[i]->err));
	}
	for (size_t i = 0; i < 5 && !check_failed(check); i++)
		find_must(check, made[i], 1);
}

void rule_find_every(struct check *check)
{
	struct session *one = session_plan(check, NULL), *two = session_plan(check, one->task);
	struct call *call = check_call(check);
	struct err err = {0};
	size_t times[2], count;

	MUST(check, !session_provision(check, one, NULL), "provision " OK_RC(one->err));
	session_provision(check, two, NULL);
	if (two->rc == ERR_CONFLICT)
		return find_must(check, one, 1);
	MUST(check, !two->rc, "a second provision of the same task " OK_RC(two->err));
	MUST(check, strcmp(one->ref, two->ref), "two provisions with different intents answered one ref");
	MUST(check, !call_find(call, one->workspace, one->task, &err), "find " OK_RC(err));
	session_among(call, one->ref, &times[0]);
	session_among(call, two->ref, &times[1]);
	call_sessions(call, &count);
	MUST(check, times[0] == 1 && times[1] == 1 && count == 2,
	     "find emits %zu sessions of a task that has two; the first %zu times, the second %zu times", count,
	     times[0], times[1]);
}

void rule_warm(struct check *check)
{
	struct session *session;
	struct call *call = check_call(check);
	const struct berth_session_info *info;
	struct err err = {0};

	if (!session_warm(check)) {
		check_skip(check, "with NATIVE_POOL no host asks for warm sessions");
		return;
	}
	session = session_make(check, "");
	if (!session)
		return;
	MUST(check, !call_inspect(call, &session->abi, &err), "inspect " OK_RC(err));
	info = session_among(call, session->ref, NULL);
	must_agree(check, session, info, "inspect of a warm session");
	MUST(check, session_listed(check, session->ref) == 1, "list does not hold the warm session exactly once");
}

void rule_assign(struct check *check)
{
	struct session *session = session_make(check, "");
	struct call *call = check_call(check);
	struct err err = {0};

	if (!session)
		return;
	snprintf(session->workspace, sizeof(session->workspace), "conformance");
	session_name(check, session->task);
	MUST(check, !call_assign(call, &session->abi, session->workspace, session->task, &err), "assign " OK_RC(err));
	must_agree(check, session, session_among(call, session->ref, NULL), "assign");
	MUST(check, !call_inspect(call, &session->abi, &err), "inspect " OK_RC(err));
	must_agree(check, session, session_among(call, session->ref, NULL), "inspect after assign");
	if (!check_failed(check))
		find_must(check, session, 1);
}

void rule_list_complete(struct check *check)
{
	unsigned count = check->kit->opt->stress ? 600 : 8;
	struct session **made = check_alloc(check, count * sizeof(struct session *));

	for (unsigned i = 0; i < count; i++) {
		made[i] = session_plan(check, i % 2 ? NULL : session_warm(check));
		MUST(check, !session_provision(check, made[i], NULL), "provision " OK_RC(made[i]->err));
	}
	for (unsigned i = 0; i < count; i += check->kit->opt->stress ? 37 : 1) {
		int times = session_listed(check, made[i]->ref);

		MUST(check, times == 1, "list holds session %u of %u %d times instead of once", i + 1, count, times);
	}
}

void rule_release(struct check *check)
{
	struct session *session = session_make(check, NULL);
	struct err err = {0};

	if (!session)
		return;
	find_must(check, session, 1);
	MUST(check, !session_release(check->kit, session, &err), "release " OK_RC(err));
	/* Whatever comes of it, the end of the rule tries again. */
	session->gone = false;
	if (!session_wait_gone(check, session))
		return;
	find_must(check, session, 0);
	MUST(check, check_failed(check) || session_listed(check, session->ref) == 0,
	     "list still holds a released session");
}

void rule_release_running(struct check *check)
{
	struct session *session = session_make(check, NULL);
	struct run *run;
	struct err err = {0};

	if (!session)
		return;
	run = run_plan(check, session, "echo on; sleep 20; echo off");
	run_start(run);
	MUST(check, run_wait_output(run, "on", 10000), "the command did not begin");
	MUST(check, !session_release(check->kit, session, &err),
	     "release of a session with a running command " OK_RC(err));
	MUST(check, run_wait(run, 6000), "execute does not return though its session was released");
	MUST(check, run->rc || run->ending.kind != BERTH_ENDING_EXIT,
	     "a command whose session was released under it ended with %s", run_ending_word(run));
}

void rule_not_found(struct check *check)
{
	struct session *session = session_make(check, NULL);
	struct err err = {0};
	int rc;

	if (!session || session_release(check->kit, session, &err) || !session_wait_gone(check, session))
		return;
	rc = call_inspect(check_call(check), &session->abi, &err);
	MUST(check, rc == ERR_NOT_FOUND || !rc, "inspect of a session that is gone " OK_RC(err));
}

/* An inspect and a find that have so little time that they may be caught anywhere. */
static bool certain_within(struct check *check, const struct session *session, int64_t ns)
{
	struct call *call = call_new(check->kit->target, clock_boot_ns() + ns, NULL);
	struct err err = {0};
	int inspected = call_inspect(call, &session->abi, &err), found;
	size_t count;

	call_free(call);
	call = call_new(check->kit->target, clock_boot_ns() + ns, NULL);
	found = call_find(call, session->workspace, session->task, &err);
	call_sessions(call, &count);
	call_free(call);
	MUST_OR(check, inspected != ERR_NOT_FOUND && inspected != ERR_SESSION_GONE, false,
		"with a deadline of %lld us inspect of a living session answers %s", (long long)ns / 1000,
		kit_code(inspected));
	MUST_OR(check, found || count == 1, false,
		"with a deadline of %lld us find answers OK and emits %zu sessions of 1", (long long)ns / 1000, count);
	return true;
}

void rule_not_found_certain(struct check *check)
{
	struct session *session = session_make(check, NULL);

	for (int round = 0; session && round < 5; round++)
		for (int64_t ns = 2000; ns < 4000000; ns += ns / 6)
			if (!certain_within(check, session, ns))
				return;
}

void rule_lost_session(struct check *check)
{
	struct session *session = session_make(check, NULL);
	struct err err = {0};
	int rc;

	if (!session || session_release(check->kit, session, &err) || !session_wait_gone(check, session))
		return;
	rc = session_await(check, session);
	MUST(check, rc == ERR_SESSION_GONE || rc == ERR_NOT_FOUND,
	     "await_ready of a session that is gone " OK_RC(session->err));
}

/* A session that list reports as alive, in words; NULL when there is none, and after check_fail. */
static const char *any_left(struct check *check)
{
	struct pages pages = {0};

	while (session_list(check, &pages)) {
		size_t count;
		const struct berth_session_info *infos = call_sessions(pages.call, &count);

		for (size_t i = 0; i < count; i++)
			if (!phase_is_over(infos[i].phase))
				return check_printf(check, "session %s of task \"%.*s\"", infos[i].ref.ptr,
						    (int)infos[i].task_id.len, infos[i].task_id.ptr);
	}
	return NULL;
}

/* A released session may be seen for as long as --gone says, that of the rules before, too. */
void rule_nothing_left(struct check *check)
{
	int64_t until = clock_after_ms(kit_ms(check->kit, 1000 * check->kit->opt->gone_s));
	const struct timespec tick = {.tv_nsec = 100000000};
	const char *left;

	session_drop_shared(check->kit);
	while ((left = any_left(check)) && clock_boot_ns() < until)
		nanosleep(&tick, NULL);
	MUST(check, !left, "%s is left", left);
}
