/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer that is an error means: its sentence, what to do next, and the exit code. Any thread; prints to standard
 * error, with --json the answer to standard output too. Never prints the token.
 */
#include "ctl/ctl.h"

/* Statuses to exit codes and what to do next. */
static const struct advice {
	long status;
	int code;
	const char *next;
} advices[] = {
	{401, CTL_DENIED, NULL}, /* what is said depends on the token */
	{403, CTL_DENIED, "this token has not the scope or the workspace; ask whoever runs berthd for one that has"},
	{404, CTL_NOT_FOUND, NULL},
	{410, CTL_NOT_FOUND, "the session and its files are gone; the next command or put gets a new one"},
	{429, CTL_UNAVAILABLE, "try again later"},
	{502, CTL_ERROR, "berthd's log has the provider's own words"},
	{503, CTL_UNAVAILABLE, "try again later"},
	{504, CTL_UNAVAILABLE, "try again later"},
	{400, CTL_REFUSED, NULL},
	{405, CTL_REFUSED, "is this berthctl newer than berthd?"},
	{409, CTL_REFUSED, NULL},
	{411, CTL_REFUSED, NULL},
	{413, CTL_REFUSED, NULL},
	{416, CTL_REFUSED, NULL},
	{422, CTL_REFUSED, NULL},
	{431, CTL_REFUSED, NULL},
	{501, CTL_REFUSED, NULL},
	{507, CTL_ERROR, "the sandbox's disk is full"},
	{0, CTL_ERROR, NULL},
};

static const struct advice *advice_of(long status)
{
	const struct advice *advice = advices;

	while (advice->status && advice->status != status)
		advice++;
	return advice;
}

int ctl_code_of(long status)
{
	return advice_of(status)->code;
}

static void explain_token(const struct ctl *ctl)
{
	if (!ctl->token)
		fputs("  no token is set: BERTH_TOKEN holds one, --token-file names a file with one\n", stderr);
	else
		fprintf(stderr,
			"  berthd does not take the token of %s for this: it is not in its configuration, has ended, or no token of that\n"
			"  configuration has the scope\n",
			ctl->token_from ? ctl->token_from : "this call");
}

int ctl_explain(const struct ctl *ctl, const struct ctl_reply *reply, const char *what, const char *hint)
{
	const struct advice *advice = advice_of(reply->status);
	const char *message = ctl_text(reply->json, "message"), *word = ctl_text(reply->json, "error");
	struct buf text;

	if (ctl->hurried)
		return advice->code;
	if (ctl->json && reply->json)
		ctl_json(reply->json);
	buf_init(&text, 65536);
	ctl_clean(&text, *message ? message : "the answer is not berthd's; is the address right?");
	if (*word)
		buf_printf(&text, " (%s)", word);
	else
		buf_printf(&text, " (status %ld)", reply->status);
	ctl_fail(advice->code, "%s: %s", what, text.ptr);
	buf_fini(&text);
	if (reply->status == 401)
		explain_token(ctl);
	else if (reply->retry_after_ms)
		fprintf(stderr, "  try again in %lld s\n", (long long)(reply->retry_after_ms / 1000));
	else if (reply->status == 404 && hint)
		fprintf(stderr, "  %s\n", hint);
	else if (advice->next)
		fprintf(stderr, "  %s\n", advice->next);
	return advice->code;
}
