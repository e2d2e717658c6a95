/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word that a task waits for its sandbox: on a terminal's standard error only, after a second, with what the
 * binding does. Main thread. Only says something; what goes wrong with the look is for what comes after to see.
 */
#include <unistd.h>

#include "core/clock.h"
#include "ctl/ctl.h"

#define FIRST_MS 1000
#define TURN_MS 2000 /* with a sandbox there: a runner that is busy for a moment is worth no word */

/* What a binding in that state makes a command wait for. */
static const struct {
	const char *state, *text;
} states[] = {
	{"gone", "it is not begun yet"},
	{"provisioning", "it is being made"},
	{"hydrating", "its files are being brought back"},
	{"capturing", "the files of the former one are being kept"},
	{"condemned", "the former one is being torn down"},
	{"releasing", "the former one is being torn down"},
	{"quarantined", "the former one is being torn down"},
};

static const char *text_of(const char *state)
{
	for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++)
		if (!strcmp(states[i].state, state))
			return states[i].text;
	return NULL;
}

/* "" where it cannot be seen: not known yet, or not with this token. */
static void look(struct ctl *ctl, const char *task, char ret_state[32])
{
	struct ctl_reply reply;
	struct buf path;

	buf_init(&path, 8192);
	buf_puts(&path, "/sandbox/task/");
	ctl_component(&path, task);
	ctl_query(&path, "workspace_id", ctl->workspace);
	snprintf(ret_state, 32, "%s",
		 !ctl_try(ctl, "GET", path.ptr, NULL, NULL, &reply) && reply.status == 200
			 ? ctl_text(reply.json, "state")
			 : "");
	ctl_reply_fini(&reply);
	buf_fini(&path);
}

bool ctl_waiting_say(struct ctl *ctl, const char *task, const char *status, int64_t since_ns)
{
	int64_t ms = (clock_boot_ns() - since_ns) / CLOCK_NS_PER_MS;
	char state[32];
	const char *text;

	if (ms < FIRST_MS)
		return false;
	look(ctl, task, state);
	text = text_of(state);
	if (!text && ms < TURN_MS)
		return false;
	if (!text && !status)
		return false; /* a file that takes its time: that is no waiting for a sandbox */
	fprintf(stderr, "\r%s waits for its %s%s%s (%s%s%llds)\x1b[K", task, text || !*state ? "sandbox" : "turn",
		text ? ": " : "", text ? text : "", status ? status : "", status ? ", " : "", (long long)(ms / 1000));
	return true;
}

/* ---- uploads ---- */

void ctl_waiting_begin(struct ctl *ctl, const char *task)
{
	ctl->waits_for = isatty(STDERR_FILENO) ? task : NULL;
	ctl->waits_since_ns = clock_boot_ns();
	ctl->waits_shown = false;
}

void ctl_waiting_tick(struct ctl *ctl)
{
	const char *task = ctl->waits_for;

	if (!task || clock_boot_ns() - ctl->waits_since_ns < FIRST_MS * CLOCK_NS_PER_MS)
		return;
	ctl->waits_for = NULL; /* the look is an exchange with ticks of its own */
	if (ctl_waiting_say(ctl, task, NULL, ctl->waits_since_ns))
		ctl->waits_shown = true;
	ctl->waits_for = task;
}

void ctl_waiting_end(struct ctl *ctl)
{
	if (ctl->waits_shown)
		fputs("\r\x1b[K", stderr);
	ctl->waits_for = NULL;
	ctl->waits_shown = false;
}
