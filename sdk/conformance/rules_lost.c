/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of answers that do not come, come late, in part, from strangers, or say "later": for providers that talk HTTP
 * through the host. Each operation is first run undisturbed to see how many exchanges it makes; then each of them goes
 * wrong in turn, so that nothing need be known of the protocol. The operations on commands are in rules_lost_run.c.
 */
#include "rules.h"

#include "fault.h"

#define HTML "<html><head><title>Not what you asked for</title></head><body>gateway</body></html>\n"
#define DEADLINE_MS 1000
#define FOR_GOOD_MS 120
#define RETRY_AFTER_MS 1000
/* An exchange that is sent a little early is not what the rule is about: clocks are read twice. */
#define RETRY_SLACK_MS 60
#define EXCHANGES_MAX 16

bool lost_said(struct check *check, int rc, const struct err *err, const char *what)
{
	bool tells = rc && fault_tells(err->msg, "an error's text");

	MUST_OR(check, !tells, false, "the text of %s's error holds a secret", what);
	MUST_OR(check, rc != ERR_INTERNAL, false, "%s " OK_FMT, what, OK_ARGS(*err));
	return true;
}

/* ---- operations that only look ---- */

struct look {
	const char *word;
	uint64_t capability;
	/* *ret_absent: it says that what is there is not there. */
	int (*fn)(struct check *check, struct session *session, struct call *call, bool *ret_absent, struct err *err);
};

static int look_check(struct check *check, struct session *session, struct call *call, bool *ret_absent,
		      struct err *err)
{
	(void)check;
	(void)session;
	(void)ret_absent;
	return call_check(call, err);
}

static int look_find(struct check *check, struct session *session, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_find(call, session->workspace, session->task, err);

	(void)check;
	*ret_absent = !rc && !session_among(call, session->ref, NULL);
	return rc;
}

static int look_inspect(struct check *check, struct session *session, struct call *call, bool *ret_absent,
			struct err *err)
{
	int rc = call_inspect(call, &session->abi, err);
	const struct berth_session_info *info = rc ? NULL : session_among(call, session->ref, NULL);

	(void)check;
	*ret_absent = rc == ERR_NOT_FOUND || rc == ERR_SESSION_GONE || (info && info->phase == BERTH_PHASE_DEAD);
	return rc;
}

/* The deployment of the kit has one page at most here. */
static int look_list(struct check *check, struct session *session, struct call *call, bool *ret_absent, struct err *err)
{
	int rc = call_list(call, NULL, err);

	(void)check;
	*ret_absent = !rc && !call_cursor(call) && !session_among(call, session->ref, NULL);
	return rc;
}

static int look_ready(struct check *check, struct session *session, struct call *call, bool *ret_absent,
		      struct err *err)
{
	int rc = call_await_ready(call, &session->abi, err);

	(void)check;
	*ret_absent = rc == ERR_NOT_FOUND || rc == ERR_SESSION_GONE;
	return rc;
}

static int look_renew(struct check *check, struct session *session, struct call *call, bool *ret_absent,
		      struct err *err)
{
	int rc = call_renew(call, &session->abi, clock_wall_ms() + 60000, err);

	(void)check;
	*ret_absent = rc == ERR_NOT_FOUND || rc == ERR_SESSION_GONE;
	return rc;
}

static const struct look looks[] = {
	{"check", 0, look_check}, {"find", 0, look_find},	  {"inspect", 0, look_inspect},
	{"list", 0, look_list},	  {"await_ready", 0, look_ready}, {"renew", BERTH_CAP_RENEW, look_renew},
};
#define LOOKS (sizeof(looks) / sizeof(*looks))
#define LOOK_FIND (&looks[1])
#define LATER_LOOKS 3 /* each of them waits */

/* Once, with whatever is armed. False: it broke a rule of all rules. */
static bool look(struct check *check, const struct look *one, struct session *session, int64_t ms, int *ret_rc,
		 bool *ret_absent, struct err *ret_err)
{
	struct call *call = call_new(check->kit->target, clock_after_ms(ms), NULL);
	bool ok;

	memset(ret_err, 0, sizeof(*ret_err));
	*ret_absent = false;
	*ret_rc = one->fn(check, session, call, ret_absent, ret_err);
	ok = lost_said(check, *ret_rc, ret_err, one->word);
	call_free(call);
	return ok;
}

/* How many exchanges it makes undisturbed. */
static unsigned look_exchanges(struct check *check, const struct look *one, struct session *session)
{
	struct err err;
	bool absent;
	int rc;

	fault_arm(&(struct fault){.kind = FAULT_NONE});
	if (!look(check, one, session, kit_ms(check->kit, 30000), &rc, &absent, &err))
		return 0;
	MUST_OR(check, !rc && !absent, 0, "%s, undisturbed, " OK_FMT, one->word, OK_ARGS(err));
	return fault_seen() < EXCHANGES_MAX ? fault_seen() : EXCHANGES_MAX;
}

static const struct misfortune {
	const char *words;
	struct fault fault;
	bool half; /* bytes: of what the undisturbed exchange brought */
} misfortunes[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE}, false},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE}, false},
	{"whose answer broke off", {.kind = FAULT_CUT}, true},
	{"whose answer was short", {.kind = FAULT_SHORT}, true},
	{"whose answer was empty", {.kind = FAULT_SHORT, .bytes = 0}, false},
	{"whose answer was garbage", {.kind = FAULT_GARBAGE, .body = HTML}, false},
	{"whose answer was an empty object", {.kind = FAULT_GARBAGE, .body = "{}"}, false},
	{"whose answer was an empty list", {.kind = FAULT_GARBAGE, .body = "[]"}, false},
	{"that was answered by a stranger's 404", {.kind = FAULT_ANSWER, .status = 404, .body = HTML}, false},
	{"that was answered by an empty 404", {.kind = FAULT_ANSWER, .status = 404}, false},
	{"that was answered by a stranger's 410", {.kind = FAULT_ANSWER, .status = 410, .body = HTML}, false},
	{"that was answered with 500", {.kind = FAULT_ANSWER, .status = 500, .body = HTML}, false},
	{"that was answered with 502", {.kind = FAULT_ANSWER, .status = 502, .body = HTML}, false},
	{"that was answered with 204", {.kind = FAULT_ANSWER, .status = 204}, false},
};

static void must_look_rightly(struct check *check, const struct look *one, struct session *session, unsigned at,
			      const struct misfortune *misfortune)
{
	struct fault fault = misfortune->fault;
	struct err err;
	bool absent;
	int rc;

	/* Twice: once it goes wrong and then well, once it goes wrong for good. */
	for (int round = 0; round < 2 && !check_failed(check); round++) {
		fault.at = round ? 0 : at;
		if (misfortune->half)
			fault.bytes = fault_body(at) / 2;
		fault_arm(&fault);
		/* For good: how long it goes on asking is not the question. */
		if (look(check, one, session, kit_ms(check->kit, round ? FOR_GOOD_MS : 2 * DEADLINE_MS), &rc, &absent,
			 &err))
			MUST(check, !absent, "%s, %s (exchange %u), says that a living session is not there: %s",
			     one->word, misfortune->words, at, rc ? err_name(rc) : "OK");
		fault_arm(&(struct fault){.kind = FAULT_NONE});
		look_exchanges(check, one, session);
	}
}

void rule_lost_looks(struct check *check)
{
	struct session *session = session_make(check, NULL);

	for (size_t i = 0; session && i < LOOKS; i++) {
		const struct look *one = &looks[i];
		unsigned count;

		if (one->capability & ~check->kit->capabilities)
			continue;
		count = look_exchanges(check, one, session);
		for (unsigned at = 1; at <= count; at++)
			for (size_t k = 0; k < sizeof(misfortunes) / sizeof(*misfortunes) && !check_failed(check); k++)
				must_look_rightly(check, one, session, at, &misfortunes[k]);
	}
	fault_disarm();
}

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
	     err_name(session->rc));
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
		session_provision_ms(check, session, &spec, kit_ms(check->kit, DEADLINE_MS));
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
	{"whose answer was garbage", {.kind = FAULT_GARBAGE, .body = HTML}, false},
	{"that took effect and was answered with 500", {.kind = FAULT_AFTER, .status = 500, .body = HTML}, false},
	{"that took effect and was answered with 504", {.kind = FAULT_AFTER, .status = 504}, false},
	{"whose answer came after the deadline", {.kind = FAULT_DELAY}, false},
};

void rule_lost_provision(struct check *check)
{
	struct session *first = session_plan(check, NULL);
	uint64_t half[EXCHANGES_MAX];
	unsigned count;

	fault_arm(&(struct fault){.kind = FAULT_NONE});
	session_provision(check, first, NULL);
	count = fault_seen() < EXCHANGES_MAX ? fault_seen() : EXCHANGES_MAX;
	MUST(check, !first->rc, "provision, undisturbed, " OK_RC(first->err));
	for (unsigned i = 0; i < count; i++)
		half[i] = fault_body(i + 1) / 2;
	for (unsigned at = 1; at <= count; at++)
		for (size_t k = 0; k < sizeof(creates) / sizeof(*creates) && !check_failed(check); k++)
			provision_with(check, &creates[k], at, half[at - 1]);
}

/* ---- release ---- */

static const struct misfortune releases[] = {
	{"whose connection broke before the answer", {.kind = FAULT_LOSE}, false},
	{"whose answer was lost", {.kind = FAULT_LOSE_LATE}, false},
	{"that took effect and was answered with 500", {.kind = FAULT_AFTER, .status = 500, .body = HTML}, false},
	{"that was answered with 500", {.kind = FAULT_ANSWER, .status = 500, .body = HTML}, false},
	{"that was answered by a stranger's 404", {.kind = FAULT_ANSWER, .status = 404, .body = HTML}, false},
	{"whose answer was garbage", {.kind = FAULT_GARBAGE, .body = HTML}, false},
};

static void release_with(struct check *check, const struct misfortune *misfortune, bool for_good)
{
	struct session *session = session_make(check, NULL);
	struct call *call = check_call_ms(check, kit_ms(check->kit, for_good ? DEADLINE_MS / 3 : 20000), NULL);
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
	for (size_t k = 0; k < sizeof(releases) / sizeof(*releases) && !check_failed(check); k++) {
		release_with(check, &releases[k], false);
		if (!check_failed(check))
			release_with(check, &releases[k], true);
	}
}

/* ---- refusals ---- */

static void must_be_retryable(struct check *check, const char *word, int rc, const struct err *err)
{
	MUST(check, rc == ERR_PROVIDER_UNAVAILABLE || rc == ERR_PROVIDER_TIMEOUT,
	     "%s without a connection " OK_FMT ": expected provider_unavailable", word, OK_ARGS(*err));
	MUST(check, err->retryable, "%s without a connection says that it need not be tried again", word);
}

void rule_lost_refused(struct check *check)
{
	struct session *session = session_make(check, NULL), *never = session_plan(check, NULL);
	struct err err;
	bool absent;
	int rc;

	if (!session)
		return;
	fault_arm(&(struct fault){.kind = FAULT_REFUSE});
	for (size_t i = 0; i < LOOKS && !check_failed(check); i++)
		if (!(looks[i].capability & ~check->kit->capabilities) &&
		    look(check, &looks[i], session, kit_ms(check->kit, 4 * DEADLINE_MS), &rc, &absent, &err))
			must_be_retryable(check, looks[i].word, rc, &err);
	if (!check_failed(check)) {
		rc = session_provision(check, never, NULL);
		must_be_retryable(check, "provision", rc, &never->err);
	}
	if (!check_failed(check)) {
		memset(&err, 0, sizeof(err));
		rc = call_release(check_call_ms(check, kit_ms(check->kit, 4 * DEADLINE_MS), NULL), &session->abi, &err);
		must_be_retryable(check, "release", rc, &err);
	}
	fault_disarm();
}

/* Waited for, or told: both are right, sending at once is not. */
static void must_wait(struct check *check, const char *word, int rc, const struct err *err, unsigned status)
{
	int64_t gap_ms = fault_gap_ms();

	MUST(check, gap_ms < 0 || gap_ms >= RETRY_AFTER_MS - RETRY_SLACK_MS,
	     "%s: after %u with Retry-After of %d ms the next request was sent after %lld ms", word, status,
	     RETRY_AFTER_MS, (long long)gap_ms);
	if (!rc)
		return;
	MUST(check,
	     rc == ERR_RATE_LIMITED || rc == ERR_PROVIDER_UNAVAILABLE || rc == ERR_CAPACITY ||
		     rc == ERR_PROVIDER_TIMEOUT,
	     "%s that was answered with %u " OK_FMT, word, status, OK_ARGS(*err));
	MUST(check, gap_ms >= 0 || err->retry_after_ms >= RETRY_AFTER_MS,
	     "%s that was answered with %u and Retry-After neither waits nor tells the host to (retry after %lld ms)",
	     word, status, (long long)err->retry_after_ms);
}

static void look_later(struct check *check, const struct look *one, struct session *session, unsigned status)
{
	const struct fault later = {
		.kind = FAULT_ANSWER, .at = 1, .status = status, .body = HTML, .retry_after_ms = RETRY_AFTER_MS};
	int64_t short_ms = RETRY_AFTER_MS / 2, begin_ns;
	struct err err;
	bool absent;
	int rc;

	fault_arm(&later);
	if (!look(check, one, session, kit_ms(check->kit, 4 * RETRY_AFTER_MS), &rc, &absent, &err) || !fault_struck())
		return;
	must_wait(check, one->word, rc, &err, status);
	/* A deadline that comes before: nothing more is sent, and the call returns. */
	fault_arm(&later);
	begin_ns = clock_boot_ns();
	if (check_failed(check) || !look(check, one, session, short_ms, &rc, &absent, &err))
		return;
	MUST(check, rc, "%s was refused, had no time to ask again, and answers OK", one->word);
	MUST(check, fault_seen() == 1, "%s asked again before Retry-After", one->word);
	MUST(check, clock_boot_ns() - begin_ns < (short_ms + kit_ms(check->kit, 1000)) * CLOCK_NS_PER_MS,
	     "%s waits for Retry-After past its deadline", one->word);
}

void rule_lost_later(struct check *check)
{
	static const unsigned statuses[] = {429, 503};
	struct session *session = session_make(check, NULL), *other;

	for (size_t s = 0; session && s < 2 && !check_failed(check); s++) {
		for (size_t i = 0; i < LATER_LOOKS && !check_failed(check); i++)
			look_later(check, &looks[i], session, statuses[s]);
		if (check_failed(check))
			break;
		other = session_plan(check, NULL);
		fault_arm(&(struct fault){.kind = FAULT_ANSWER,
					  .at = 1,
					  .status = statuses[s],
					  .body = HTML,
					  .retry_after_ms = RETRY_AFTER_MS});
		session_provision(check, other, NULL);
		if (fault_struck() && lost_said(check, other->rc, &other->err, "provision"))
			must_wait(check, "provision", other->rc, &other->err, statuses[s]);
	}
	fault_disarm();
}

/* ---- errors, redirects, secrets ---- */

static const struct refusal {
	unsigned status;
	int want[4]; /* 0 ends */
} refusals[] = {
	{400, {ERR_PROVIDER, ERR_PROVIDER_UNAVAILABLE}},
	{401, {ERR_PROVIDER_AUTH}},
	{403, {ERR_PROVIDER_AUTH}},
	{429, {ERR_RATE_LIMITED, ERR_PROVIDER_UNAVAILABLE, ERR_CAPACITY}},
	{500, {ERR_PROVIDER_UNAVAILABLE, ERR_OUTCOME_UNKNOWN}},
	{502, {ERR_PROVIDER_UNAVAILABLE, ERR_OUTCOME_UNKNOWN}},
	{503, {ERR_PROVIDER_UNAVAILABLE, ERR_CAPACITY}},
	{504, {ERR_PROVIDER_UNAVAILABLE, ERR_OUTCOME_UNKNOWN, ERR_PROVIDER_TIMEOUT}},
};

static void must_be_refused(struct check *check, const struct look *one, struct session *session,
			    const struct refusal *refusal, const char *body)
{
	struct err err;
	bool absent, fits = false;
	int rc;

	fault_arm(&(struct fault){.kind = FAULT_ANSWER, .status = refusal->status, .body = body});
	if (!look(check, one, session, kit_ms(check->kit, FOR_GOOD_MS), &rc, &absent, &err) || !fault_struck())
		return;
	/* A plugin that asks again may come to its deadline. */
	fits = rc == ERR_PROVIDER_TIMEOUT && refusal->status >= 429;
	for (size_t i = 0; i < 4 && refusal->want[i]; i++)
		fits = fits || rc == refusal->want[i];
	MUST(check, fits, "%s that is answered with %u and \"%.20s\" " OK_FMT ": expected %s", one->word,
	     refusal->status, body, OK_ARGS(err), err_name(refusal->want[0]));
}

void rule_lost_errors(struct check *check)
{
	/* "error" of every type, for readers that trust it. */
	static const char *const bodies[] = {"",
					     HTML,
					     "{",
					     "null",
					     "[1]",
					     "{\"error\":{}}",
					     "{\"error\":7}",
					     "\xff\xfe\xfd\xfc",
					     "{\"message\":[\"x\"],\"code\":{}}"};
	struct session *session = session_make(check, NULL);

	for (size_t i = 0; session && i < 3; i++)
		for (size_t k = 0; k < sizeof(refusals) / sizeof(*refusals); k++)
			for (size_t b = 0; b < sizeof(bodies) / sizeof(*bodies) && !check_failed(check); b++)
				/* Those that are asked again cost time; one body is enough for the rest. */
				if (b < 2 || refusals[k].status < 429)
					must_be_refused(check, &looks[i], session, &refusals[k], bodies[b]);
	fault_disarm();
}

static void must_not_follow(struct check *check, const char *word, int rc, bool absent, unsigned status)
{
	MUST(check, !fault_trapped(), "%s follows a redirect (%u) to another host with its credentials", word, status);
	MUST(check, !absent, "%s that was redirected (%u) says that a living session is not there: %s", word, status,
	     rc ? err_name(rc) : "OK");
}

void rule_lost_redirect(struct check *check)
{
	static const unsigned statuses[] = {301, 302, 303, 307, 308};
	struct session *session = session_make(check, NULL), *other;
	struct err err;
	bool absent;
	int rc;

	for (size_t s = 0; session && s < sizeof(statuses) / sizeof(*statuses) && !check_failed(check); s++) {
		fault_arm(&(struct fault){
			.kind = FAULT_ANSWER, .status = statuses[s], .body = HTML, .location = FAULT_TRAP "elsewhere"});
		for (size_t i = 0; i < LOOKS && !check_failed(check); i++)
			if (!(looks[i].capability & ~check->kit->capabilities) &&
			    look(check, &looks[i], session, kit_ms(check->kit, DEADLINE_MS), &rc, &absent, &err))
				must_not_follow(check, looks[i].word, rc, absent, statuses[s]);
		if (check_failed(check))
			break;
		other = session_plan(check, NULL);
		rc = session_provision(check, other, NULL);
		must_not_follow(check, "provision", rc, false, statuses[s]);
		MUST(check, rc, "a provision that was redirected (%u) answers OK", statuses[s]);
	}
	fault_disarm();
}

/* What a careless server says back. */
static const struct {
	const char *before, *after;
} echoes[] = {
	{"{\"error\":{\"code\":\"UNAUTHENTICATED\",\"reason\":\"token\",\"message\":\"bad token ", "\"}}"},
	{"{\"error\":{\"code\":\"INVALID\",\"reason\":\"x\",\"message\":\"", "\"}}"},
	{"{\"code\":401,\"message\":\"invalid credential ", "\"}"},
	{"{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Unauthorized\",\"code\":401,\"message\":\"", "\"}"},
	{"<html>", "</html>"},
};

static void echo_secret(struct check *check, struct session *session, const char *secret)
{
	struct err err;
	bool absent;
	int rc;

	for (size_t i = 0; i < sizeof(echoes) / sizeof(*echoes); i++)
		for (unsigned status = 400; status < 404 && !check_failed(check); status++) {
			const char *body = check_printf(check, "%s%s%s", echoes[i].before, secret, echoes[i].after);

			fault_arm(&(struct fault){.kind = FAULT_ANSWER, .status = status, .body = body});
			look(check, LOOK_FIND, session, kit_ms(check->kit, DEADLINE_MS), &rc, &absent, &err);
		}
}

void rule_lost_secrets(struct check *check)
{
	struct session *session;

	if (!fault_secrets()) {
		check_skip(check, "the target has no secret option that is set and has at least 8 bytes");
		return;
	}
	session = session_make(check, NULL);
	for (size_t i = 0; session && i < fault_secrets() && !check_failed(check); i++)
		echo_secret(check, session, fault_secret(i));
	fault_disarm();
	MUST(check, !*fault_evidence(), "%s", fault_evidence());
}
