/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an execution ended, from its terminal record: the exit code of exec and wait, and on standard error what a code alone does
 * not tell. Main thread. Never asks the daemon anything.
 */
#include "ctl/ctl.h"

#include <inttypes.h>

/* Why output was dropped, by the record's word. */
static const struct {
	const char *word, *text;
} cuts[] = {
	{"limit", "which is its limit"},
	{"spool_full", "as berthd's room for outputs was used up"},
	{"spool_error", "as berthd could not write more of it"},
};

static const char *cut_by(const char *word)
{
	for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++)
		if (!strcmp(cuts[i].word, word))
			return cuts[i].text;
	return "";
}

static void put_cut(struct buf *out, struct json_object *record, const char *stream)
{
	const char *why = cut_by(ctl_text(record, "result.truncated_reason"));
	char kept[32], cut[40], dropped[40];

	snprintf(cut, sizeof(cut), "result.%s_truncated", stream);
	snprintf(kept, sizeof(kept), "result.%s_bytes", stream);
	snprintf(dropped, sizeof(dropped), "result.%s_dropped", stream);
	if (strcmp(ctl_text(record, cut), "true") != 0)
		return;
	buf_printf(out, "berthctl: %s was cut at %" PRId64 " bytes", stream, ctl_number(record, kept, 0));
	buf_printf(out, "%s%s", *why ? ", " : "", why);
	if (ctl_number(record, dropped, 0))
		buf_printf(out, "; %" PRId64 " bytes were dropped", ctl_number(record, dropped, 0));
	buf_puts(out, "\n");
}

static void put_lost(struct buf *out, struct json_object *record, const char *stream)
{
	struct json_object *lost = ctl_at(record, "output_lost");
	size_t count = ctl_length(lost);

	for (size_t i = 0; i < count; i++) {
		struct json_object *gap = json_object_array_get_idx(lost, i);
		int64_t from = ctl_number(gap, "from", 0), to = ctl_number(gap, "to", 0);

		if (strcmp(ctl_text(gap, "stream"), stream) != 0)
			continue;
		buf_printf(out, "berthctl: %s lacks ", stream);
		if (to)
			buf_printf(out, "%" PRId64 " bytes after its first %" PRId64, to - from, from);
		else
			buf_printf(out, "what came after its first %" PRId64 " bytes", from);
		buf_puts(out, ": they were lost with a daemon or a sandbox\n");
	}
}

void ctl_missing_text(struct buf *out, struct json_object *record, bool of_stdout, bool of_stderr)
{
	static const char *const streams[] = {"stdout", "stderr"};
	const bool wanted[] = {of_stdout, of_stderr};

	for (size_t i = 0; i < 2; i++) {
		if (!wanted[i])
			continue;
		put_cut(out, record, streams[i]);
		put_lost(out, record, streams[i]);
	}
}

void ctl_say_missing(struct json_object *record, bool of_stdout, bool of_stderr)
{
	struct buf text;

	buf_init(&text, 65536);
	ctl_missing_text(&text, record, of_stdout, of_stderr);
	fflush(stdout);
	if (text.len)
		fwrite(text.ptr, 1, text.len, stderr);
	buf_fini(&text);
}

/* ---- the exit code ---- */

static void say_completed(struct json_object *record)
{
	const char *kind = ctl_text(record, "ending.kind");
	int number = (int)ctl_number(record, "ending.signal", 0);
	const char *name = number > 0 ? sigabbrev_np(number) : NULL;

	if (!strcmp(kind, "timeout"))
		fputs("berthctl: the command ran into its timeout and was stopped; --timeout asks for longer\n", stderr);
	else if (!strcmp(kind, "oom"))
		fputs("berthctl: the command was killed, as its sandbox had no memory left\n", stderr);
	else if (!strcmp(kind, "signal"))
		fprintf(stderr, "berthctl: the command was ended by signal %d%s%s%s\n", number, name ? " (SIG" : "", name ? name : "",
			name ? ")" : "");
	ctl_say_missing(record, true, true);
}

int ctl_end(struct json_object *record, bool quiet)
{
	const char *status = ctl_text(record, "status"), *reason = ctl_text(record, "reason"), *error = ctl_text(record, "error");

	if (!strcmp(status, "completed")) {
		if (!quiet)
			say_completed(record);
		return (int)ctl_number(record, "result.exit_code", CTL_BERTH);
	}
	if (!quiet)
		ctl_say_missing(record, true, true);
	if (!strcmp(status, "cancelled"))
		return ctl_fail(CTL_CANCELLED, "%s was cancelled%s%s", ctl_text(record, "id"), *reason ? ": " : "", reason);
	/* The reason may be the place that the sentence begins with, as "env_ref". */
	if (*reason && !strncmp(error, reason, strlen(reason)) && error[strlen(reason)] && strchr(": ", error[strlen(reason)]))
		ctl_fail(CTL_BERTH, "%s failed: %s", ctl_text(record, "id"), error);
	else
		ctl_fail(CTL_BERTH, "%s failed: %s%s%s", ctl_text(record, "id"), *reason ? reason : "no reason given",
			 *error ? ": " : "", error);
	ctl_hint_drained(error);
	return CTL_BERTH;
}
