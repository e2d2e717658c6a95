/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer that is an error means: its sentence, what to do next, and the exit code. Any thread; prints to standard
 * error, and keeps the answer for --json. Never prints the token.
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

bool ctl_comes_back(long status)
{
	return status >= 500 || status == 429;
}

/* What is not there, by the API's sentence: the verb alone would send to the wrong list. */
static const struct {
	const char *sentence, *next;
} absences[] = {
	{"the task is not known", CTL_NO_TASK},
	{"no such task", CTL_NO_TASK},
	{"no such route", "is this berthctl newer than berthd?"},
};

static const char *absence_of(const struct ctl_reply *reply)
{
	const char *message = ctl_text(reply->json, "message");

	for (size_t i = 0; reply->status == 404 && i < sizeof(absences) / sizeof(*absences); i++)
		if (!strcmp(absences[i].sentence, message))
			return absences[i].next;
	return NULL;
}

void ctl_hint_drained(const char *sentence)
{
	static const char *const befores[] = {"every target is closed; ", "target "};
	size_t len = strlen(sentence), tail = strlen(" is drained");

	if (len < tail || strcmp(sentence + len - tail, " is drained") != 0)
		return;
	for (size_t i = 0; i < sizeof(befores) / sizeof(*befores); i++) {
		const char *name = strstr(sentence, befores[i]);
		struct buf text;

		if (!name)
			continue;
		name += strlen(befores[i]);
		buf_init(&text, 65536);
		ctl_clean(&text, name);
		fprintf(stderr, "  berthctl undrain %.*s lets it take new sessions again\n", (int)strcspn(text.ptr, " "), text.ptr);
		buf_fini(&text);
		return;
	}
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

int ctl_not_berthd(const struct ctl *ctl)
{
	return ctl_fail(CTL_ERROR, "%s: the answer is not berthd's\n  --address or BERTH_ADDRESS says where berthd listens", ctl->address);
}

int ctl_explain(const struct ctl *ctl, const struct ctl_reply *reply, const char *what, const char *hint)
{
	const struct advice *advice = advice_of(reply->status);
	const char *message = ctl_text(reply->json, "message"), *word = ctl_text(reply->json, "error");
	const char *absence = absence_of(reply);
	struct buf text;

	if (ctl->hurried)
		return advice->code;
	if (reply->json)
		ctl_json_refused(reply->json);
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
	else if (absence || (reply->status == 404 && hint))
		fprintf(stderr, "  %s\n", absence ? absence : hint);
	else if (advice->next)
		fprintf(stderr, "  %s\n", advice->next);
	else if (!strcmp(word, "no_eligible_target"))
		ctl_hint_drained(message);
	return advice->code;
}

int ctl_explain_file(const struct ctl *ctl, const struct ctl_reply *reply, const char *task, const char *name)
{
	bool of_task = reply->status == 410 || absence_of(reply);
	struct buf hint;
	int code;

	buf_init(&hint, 65536);
	buf_printf(&hint, "berthctl ls %s lists its files", task);
	code = ctl_explain(ctl, reply, of_task ? task : name, hint.ptr);
	buf_fini(&hint);
	return code;
}
