/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of lost answers: what makes, tags and ends sessions. An operation whose answer is lost may have worked; then it
 * must not say that it did not, and must not have worked twice.
 */
#include "rules_lost.h"

/* ---- provision ---- */

/* Answers that do not say that nothing happened. */
static bool leaves_open(int rc)
{
	return rc == ERR_OUTCOME_UNKNOWN || rc == ERR_PROVIDER_TIMEOUT || rc == ERR_CONFLICT;
}

static void must_be_one(struct check *check, struct session *session, const char *words, unsigned at)
{
	struct call *call = check_call(check);
	const struct berth_session_info *infos;
	struct err err = {0};
	size_t count;

	MUST(check, !call_find(call, session->workspace, session->task, &err), "find " OK_RC(err));
	infos = call_sessions(call, &count);
	MUST(check, count <= 1, "a provision %s (exchange %u) made %zu sessions", words, at, count);
	MUST(check, session->created <= 1, "a provision called created() %u times", session->created);
	MUST(check, count == 1 || (session->rc && !session->created),
	     "a provision %s (exchange %u) answers OK, and find sees no session", words, at);
	if (!count)
		return;
	MUST(check, str_is(infos[0].intent, session->intent), "the session found has another intent");
	MUST(check, !session->created || str_is(infos[0].ref, session->ref), "created() named another ref than find");
	/* The end of the rule releases it, whatever the plugin knew. */
	session_take(session, &infos[0]);
	MUST(check, !session->rc || session->created || leaves_open(session->rc),
	     "a provision %s (exchange %u) made a session, and says that it did not: %s", words, at,
	     kit_code(session->rc));
}

static void provision_with(struct check *check, const struct misfortune *misfortune, unsigned at, uint64_t half)
{
	struct session *session = session_plan(check, NULL);
	struct berth_spec spec = session_spec(session);
	const struct fault *plain = &misfortune->fault;
	struct fault fault = *plain;

	fault.at = at;
	if (misfortune->half)
		fault.bytes = half;
	fault_arm(&fault);
	if (plain->kind == FAULT_DELAY)
		session_provision_ms(check, session, &spec, kit_ms(check->kit, LOST_DEADLINE_MS));
	else
		session_provision(check, session, &spec);
	fault_disarm();
	if (lost_said(check, session->rc, &session->err, "provision"))
		must_be_one(check, session, misfortune->words, at);
}

static const struct misfortune creates[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE}, false},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE}, false},
	{"whose answer broke off", {.kind = FAULT_CUT}, true},
	{"whose answer was short", {.kind = FAULT_SHORT}, true},
	{"whose answer was garbage", {.kind = FAULT_GARBAGE, .body = LOST_HTML}, false},
	{"that took effect and was answered with 500", {.kind = FAULT_AFTER, .status = 500, .body = LOST_HTML}, false},
	{"that took effect and was answered with 504", {.kind = FAULT_AFTER, .status = 504}, false},
	{"whose answer came after the deadline", {.kind = FAULT_DELAY}, false},
};

void rule_lost_provision(struct check *check)
{
	struct session *first = session_plan(check, NULL);
	uint64_t half[LOST_EXCHANGES];
	unsigned count;

	fault_arm(&(struct fault){.kind = FAULT_NONE});
	session_provision(check, first, NULL);
	count = fault_seen() < LOST_EXCHANGES ? fault_seen() : LOST_EXCHANGES;
	MUST(check, !first->rc, "provision, undisturbed, " OK_RC(first->err));
	for (unsigned i = 0; i < count; i++)
		half[i] = fault_body(i + 1) / 2;
	for (unsigned at = 1; at <= count; at++)
		for (size_t k = 0; k < LOST_COUNT(creates) && !check_failed(check); k++)
			provision_with(check, &creates[k], at, half[at - 1]);
}

/* ---- assign ---- */

static void assign_with(struct check *check, const struct misfortune *misfortune, unsigned at)
{
	struct session *session = session_make(check, "");
	struct fault fault = misfortune->fault;
	struct err err = {0};
	struct call *call;
	bool tagged;
	int rc;

	if (!session)
		return;
	snprintf(session->workspace, sizeof(session->workspace), "conformance");
	session_name(check, session->task);
	fault.at = at;
	if (misfortune->half)
		fault.bytes = 4; /* of whatever it is */
	fault_arm(&fault);
	call = check_call_ms(check, kit_ms(check->kit, fault.kind == FAULT_DELAY ? LOST_DEADLINE_MS : 30000), NULL);
	rc = call_assign(call, &session->abi, session->workspace, session->task, &err);
	fault_disarm();
	if (!lost_said(check, rc, &err, "assign"))
		return;
	call = check_call(check);
	MUST(check, !call_find(call, session->workspace, session->task, &err), "find " OK_RC(err));
	tagged = session_among(call, session->ref, NULL);
	MUST(check, tagged || rc, "an assign %s (exchange %u) answers OK, and find does not see the session",
	     misfortune->words, at);
	MUST(check, !tagged || !rc || leaves_open(rc),
	     "an assign %s (exchange %u) worked, and says that it did not: %s", misfortune->words, at, kit_code(rc));
}

void rule_lost_assign(struct check *check)
{
	struct session *session = session_make(check, "");
	struct err err = {0};
	char task[64];
	unsigned count;

	if (!session)
		return;
	session_name(check, task);
	fault_arm(&(struct fault){.kind = FAULT_NONE});
	MUST(check, !call_assign(check_call(check), &session->abi, "conformance", task, &err),
	     "assign, undisturbed, " OK_RC(err));
	count = fault_seen() < LOST_EXCHANGES ? fault_seen() : LOST_EXCHANGES;
	for (unsigned at = 1; at <= count; at++)
		for (size_t k = 0; k < LOST_COUNT(creates) && !check_failed(check); k++)
			assign_with(check, &creates[k], at);
	fault_disarm();
}

/* ---- release ---- */

static const struct misfortune releases[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE}, false},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE}, false},
	{"that took effect and was answered with 500", {.kind = FAULT_AFTER, .status = 500, .body = LOST_HTML}, false},
	{"that was answered with 500", {.kind = FAULT_ANSWER, .status = 500, .body = LOST_HTML}, false},
	{"that was answered by a stranger's 404", {.kind = FAULT_ANSWER, .status = 404, .body = LOST_HTML}, false},
	{"whose answer was garbage", {.kind = FAULT_GARBAGE, .body = LOST_HTML}, false},
};

static void release_with(struct check *check, const struct misfortune *misfortune, bool for_good)
{
	struct session *session = session_make(check, NULL);
	struct call *call = check_call_ms(check, kit_ms(check->kit, for_good ? LOST_DEADLINE_MS / 3 : 20000), NULL);
	struct fault fault = misfortune->fault;
	struct err err = {0};
	int rc;

	if (!session)
		return;
	fault.at = for_good ? 0 : 1;
	fault_arm(&fault);
	rc = call_release(call, &session->abi, &err);
	fault_disarm();
	if (!lost_said(check, rc, &err, "release"))
		return;
	/* OK is a promise; anything else is asked again, as the host does. */
	MUST(check, !rc || !session_release(check->kit, session, &err), "a release after one %s " OK_FMT,
	     misfortune->words, OK_ARGS(err));
	if (!session_wait_gone(check, session) && check_failed(check))
		return;
	session->gone = true;
}

void rule_lost_release(struct check *check)
{
	for (size_t k = 0; k < LOST_COUNT(releases) && !check_failed(check); k++) {
		release_with(check, &releases[k], false);
		if (!check_failed(check))
			release_with(check, &releases[k], true);
	}
}
