/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of answers that say no, later or elsewhere, of connections that are refused, and of what must never be said. */
#include "rules_lost.h"

#define RETRY_AFTER_MS 1000
/* An exchange that is sent a little early is not what the rule is about: clocks are read twice. */
#define RETRY_SLACK_MS 60
#define LATER_LOOKS 3 /* each of them waits */

/* ---- refusals ---- */

static void must_be_retryable(struct check *check, const char *word, int rc, const struct err *err)
{
	MUST(check, rc == ERR_PROVIDER_UNAVAILABLE || rc == ERR_PROVIDER_TIMEOUT,
	     "%s without a connection " OK_FMT ": expected provider_unavailable", word, OK_ARGS(*err));
	MUST(check, err->retryable, "%s without a connection says that it need not be tried again", word);
}

void rule_lost_refused(struct check *check)
{
	struct session *never = session_plan(check, NULL);
	struct scene scene;
	struct err err;
	bool absent;
	int rc;

	if (!scene_make(check, &scene))
		return;
	fault_arm(&(struct fault){.kind = FAULT_REFUSE});
	for (size_t i = 0; i < LOOKS && !check_failed(check); i++)
		if (look_possible(check, &lost_looks[i], &scene) &&
		    look(check, &lost_looks[i], &scene, kit_ms(check->kit, LOST_DEADLINE_MS), &rc, &absent, &err))
			must_be_retryable(check, lost_looks[i].word, rc, &err);
	if (!check_failed(check)) {
		rc = session_provision_ms(check, never, NULL, kit_ms(check->kit, LOST_DEADLINE_MS));
		must_be_retryable(check, "provision", rc, &never->err);
	}
	if (!check_failed(check)) {
		memset(&err, 0, sizeof(err));
		rc = call_release(check_call_ms(check, kit_ms(check->kit, LOST_DEADLINE_MS), NULL), &scene.session->abi,
				  &err);
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

static void look_later(struct check *check, const struct look *one, const struct scene *scene, unsigned status)
{
	const struct fault later = {
		.kind = FAULT_ANSWER, .at = 1, .status = status, .body = LOST_HTML, .retry_after_ms = RETRY_AFTER_MS};
	int64_t short_ms = RETRY_AFTER_MS / 2, begin_ns;
	struct err err;
	bool absent;
	int rc;

	fault_arm(&later);
	if (!look(check, one, scene, kit_ms(check->kit, 4 * RETRY_AFTER_MS), &rc, &absent, &err) || !fault_struck())
		return;
	must_wait(check, one->word, rc, &err, status);
	/* A deadline that comes before: nothing more is sent, and the call returns. */
	fault_arm(&later);
	begin_ns = clock_boot_ns();
	if (check_failed(check) || !look(check, one, scene, short_ms, &rc, &absent, &err))
		return;
	MUST(check, rc, "%s was refused, had no time to ask again, and answers OK", one->word);
	MUST(check, fault_seen() == 1, "%s asked again before Retry-After", one->word);
	MUST(check, clock_boot_ns() - begin_ns < (short_ms + kit_ms(check->kit, 1000)) * CLOCK_NS_PER_MS,
	     "%s waits for Retry-After past its deadline", one->word);
}

void rule_lost_later(struct check *check)
{
	static const unsigned statuses[] = {429, 503};
	struct session *other;
	struct scene scene;

	if (!scene_make(check, &scene))
		return;
	for (size_t s = 0; s < LOST_COUNT(statuses) && !check_failed(check); s++) {
		for (size_t i = 0; i < LATER_LOOKS && !check_failed(check); i++)
			look_later(check, &lost_looks[i], &scene, statuses[s]);
		if (check_failed(check))
			break;
		other = session_plan(check, NULL);
		fault_arm(&(struct fault){.kind = FAULT_ANSWER,
					  .at = 1,
					  .status = statuses[s],
					  .body = LOST_HTML,
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

static void must_be_refused(struct check *check, const struct look *one, const struct scene *scene,
			    const struct refusal *refusal, const char *body)
{
	struct err err;
	bool absent, fits = false;
	int rc;

	fault_arm(&(struct fault){.kind = FAULT_ANSWER, .status = refusal->status, .body = body});
	if (!look(check, one, scene, kit_ms(check->kit, LOST_FOR_GOOD_MS), &rc, &absent, &err) || !fault_struck())
		return;
	/* A plugin that asks again may come to its deadline. */
	fits = rc == ERR_PROVIDER_TIMEOUT && refusal->status >= 429;
	for (size_t i = 0; i < 4 && refusal->want[i]; i++)
		fits = fits || rc == refusal->want[i];
	MUST(check, fits, "%s that is answered with %u and \"%.20s\" " OK_FMT ": expected %s", one->word,
	     refusal->status, body, OK_ARGS(err), kit_code(refusal->want[0]));
}

void rule_lost_errors(struct check *check)
{
	/* "error" of every type, for readers that trust it. */
	static const char *const bodies[] = {"",
					     LOST_HTML,
					     "{",
					     "null",
					     "[1]",
					     "{\"error\":{}}",
					     "{\"error\":7}",
					     "\xff\xfe\xfd\xfc",
					     "{\"message\":[\"x\"],\"code\":{}}"};
	struct scene scene;

	if (!scene_make(check, &scene))
		return;
	for (size_t i = 0; i < 3; i++)
		for (size_t k = 0; k < LOST_COUNT(refusals); k++)
			for (size_t b = 0; b < LOST_COUNT(bodies) && !check_failed(check); b++)
				/* Those that are asked again cost time; one body is enough for the rest. */
				if (b < 2 || refusals[k].status < 429)
					must_be_refused(check, &lost_looks[i], &scene, &refusals[k], bodies[b]);
	fault_disarm();
}

static void must_not_follow(struct check *check, const char *word, int rc, bool absent, unsigned status)
{
	MUST(check, !fault_trapped(), "%s follows a redirect (%u) to another host with its credentials", word, status);
	MUST(check, !absent, "%s that was redirected (%u) says that what is there is not there: %s", word, status,
	     rc ? kit_code(rc) : "OK");
}

void rule_lost_redirect(struct check *check)
{
	static const unsigned statuses[] = {301, 302, 303, 307, 308};
	struct session *other;
	struct scene scene;
	struct err err;
	bool absent;
	int rc;

	if (!scene_make(check, &scene))
		return;
	for (size_t s = 0; s < LOST_COUNT(statuses) && !check_failed(check); s++) {
		fault_arm(&(struct fault){.kind = FAULT_ANSWER,
					  .status = statuses[s],
					  .body = LOST_HTML,
					  .location = FAULT_TRAP "elsewhere"});
		for (size_t i = 0; i < LOOKS && !check_failed(check); i++)
			if (look_possible(check, &lost_looks[i], &scene) &&
			    look(check, &lost_looks[i], &scene, kit_ms(check->kit, LOST_FOR_GOOD_MS), &rc, &absent,
				 &err))
				must_not_follow(check, lost_looks[i].word, rc, absent, statuses[s]);
		if (check_failed(check))
			break;
		other = session_plan(check, NULL);
		rc = session_provision_ms(check, other, NULL, kit_ms(check->kit, LOST_DEADLINE_MS));
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

static void echo_secret(struct check *check, const struct scene *scene, const char *secret)
{
	struct err err;
	bool absent;
	int rc;

	for (size_t i = 0; i < LOST_COUNT(echoes); i++)
		for (unsigned status = 400; status < 404 && !check_failed(check); status++) {
			const char *body = check_printf(check, "%s%s%s", echoes[i].before, secret, echoes[i].after);

			fault_arm(&(struct fault){.kind = FAULT_ANSWER, .status = status, .body = body});
			look(check, LOOK_FIND, scene, kit_ms(check->kit, LOST_DEADLINE_MS), &rc, &absent, &err);
		}
}

void rule_lost_secrets(struct check *check)
{
	struct scene scene;

	if (!fault_secrets()) {
		check_skip(check, "the target has no secret option that is set and has at least 8 bytes");
		return;
	}
	if (!scene_make(check, &scene))
		return;
	for (size_t i = 0; i < fault_secrets() && !check_failed(check); i++)
		echo_secret(check, &scene, fault_secret(i));
	fault_disarm();
	MUST(check, !*fault_evidence(), "%s", fault_evidence());
}
