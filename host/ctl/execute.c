/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking for an execution, for every command that runs something. Main thread. Must never ask twice for one: a create whose
 * answer was lost is repeated with its idempotency key.
 */
#include "ctl/ctl.h"

#include <unistd.h>

#include "core/clock.h"
#include "core/ident.h"
#include "core/json.h"
#include "core/limits.h"

#define LOST_MS 60000
#define PAUSE_MS 200
#define STOP_MS 5000
#define LOST_MAX 5
#define KEY_MAX 256

void ctl_quote(struct buf *script, const char *word)
{
	buf_puts(script, "'");
	for (; *word; word++) {
		if (*word == '\'')
			buf_puts(script, "'\\''");
		else
			buf_append(script, word, 1);
	}
	buf_puts(script, "'");
}

static void put_text(struct buf *body, const char *key, const char *value)
{
	if (!value)
		return;
	buf_printf(body, ",\"%s\":", key);
	json_put_string(body, value, strlen(value));
}

static void make_body(struct buf *body, const struct ctl *ctl, const struct ctl_create *c)
{
	buf_puts(body, "{\"workspace_id\":");
	json_put_string(body, ctl->workspace, strlen(ctl->workspace));
	put_text(body, "task_id", c->task);
	if (c->region) {
		buf_puts(body, ",\"runtime\":{\"region\":");
		json_put_string(body, c->region, strlen(c->region));
		buf_puts(body, "}");
	}
	buf_puts(body, ",\"command\":{\"command_body\":");
	json_put_string(body, c->script, c->script_len);
	put_text(body, "cwd", c->cwd);
	put_text(body, "env_ref", c->env_ref);
	put_text(body, "stdin_ref", c->stdin_ref);
	if (c->timeout > 0)
		buf_printf(body, ",\"timeout_seconds\":%lld", (long long)c->timeout);
	if (c->keep)
		buf_puts(body, ",\"keep_descendants\":true");
	buf_puts(body, "}}");
}

/* What became of a create that has no answer. */
static int no_answer(struct ctl *ctl, bool lost)
{
	struct ctl_reply reply;
	int rc = ctl_call(ctl, "GET", "/health", NULL, &reply); /* says what is wrong with the connection */
	bool other = rc && reply.lost;

	ctl_reply_fini(&reply);
	if (!lost)
		return rc ? CTL_UNAVAILABLE : ctl_fail(CTL_UNAVAILABLE, "berthd was away for a moment; try again");
	if (other) /* whatever listens there has never said a word */
		return CTL_UNAVAILABLE;
	return ctl_fail(CTL_UNAVAILABLE, "the command was sent to %s, and no answer came\n  whether it runs, later: berthctl executions",
			ctl->address);
}

static void pause_before(const struct ctl_reply *reply, int64_t until_ns)
{
	int64_t ms = reply->retry_after_ms, left = clock_left_ms(until_ns);

	usleep((useconds_t)(ms <= PAUSE_MS ? PAUSE_MS : ms < left ? ms : left) * 1000);
}

/* Repeats what has no answer: the key makes it the same request. What was never sent fails at once, and so does what several times
 * in a row was taken without an answer. Once an answer was lost, "later" is none either: the command may run. */
static int post(struct ctl *ctl, const char *body, const char *header, struct ctl_reply *reply)
{
	int64_t until_ns = clock_after_ms(LOST_MS);
	bool lost = false;
	int in_row = 0;

	while (ctl_try(ctl, "POST", "/sandbox/executions", body, header, reply) || (lost && ctl_comes_back(reply->status))) {
		in_row = reply->lost ? in_row + 1 : 0;
		lost = lost || reply->lost;
		ctl_reply_fini(reply);
		if (ctl_stopped())
			return CTL_ERROR;
		if (!lost || in_row == LOST_MAX || !clock_left_ms(until_ns))
			return no_answer(ctl, lost);
		pause_before(reply, until_ns);
	}
	return 0;
}

int ctl_create(struct ctl *ctl, const struct ctl_create *create, struct json_object **ret)
{
	char key[IDENT_ID_MAX + 1], header[KEY_MAX + 32];
	struct ctl_reply reply = {0};
	struct buf body;
	int rc;

	if (create->key && (strlen(create->key) >= KEY_MAX || strpbrk(create->key, "\r\n")))
		return ctl_fail(CTL_USAGE, "--idempotency-key: at most %d bytes without line breaks", KEY_MAX - 1);
	ident_random(key, "ctl_", 32);
	snprintf(header, sizeof(header), "Idempotency-Key: %s", create->key ? create->key : key);
	buf_init(&body, LIMIT_CREATE_BODY);
	make_body(&body, ctl, create);
	if (body.error)
		rc = ctl_fail(CTL_REFUSED, "a command may have at most %zu bytes; put it into a file of the task and run that",
			      LIMIT_COMMAND_BODY);
	else
		rc = post(ctl, body.ptr, header, &reply);
	if (!rc && reply.status != 202 && reply.status != 200)
		rc = ctl_explain(ctl, &reply, create->task, NULL);
	if (!rc && !*ctl_text(reply.json, "id"))
		rc = ctl_not_berthd(ctl);
	if (!rc)
		*ret = json_object_get(reply.json);
	ctl_reply_fini(&reply);
	buf_fini(&body);
	return rc;
}

/* ---- scripts of our own ---- */

static int append(void *arg, const void *ptr, size_t len)
{
	return buf_append(arg, ptr, len) ? ctl_fail(CTL_ERROR, "the answer is too large") : 0;
}

/* A daemon that is replaced meanwhile has it, too. */
static int read_output(struct ctl *ctl, const char *id, const char *name, struct buf *out)
{
	struct ctl_download how = {.sink = append, .arg = out, .silent = true};
	int64_t until_ns = clock_after_ms(LOST_MS);
	struct ctl_reply reply;
	struct buf path;
	bool again;
	int rc;

	ctl_execution_path(&path, id, name);
	do {
		buf_clear(out);
		rc = ctl_download(ctl, path.ptr, &how, &reply);
		again = (rc == CTL_UNAVAILABLE || (!rc && ctl_comes_back(reply.status))) && clock_left_ms(until_ns) && !ctl_stopped();
		if (again)
			pause_before(&reply, until_ns);
		else if (!rc && reply.status != 200)
			rc = ctl_explain(ctl, &reply, id, NULL);
		else if (rc == CTL_UNAVAILABLE)
			ctl_fail(rc, "berthd at %s does not answer", ctl->address);
		ctl_reply_fini(&reply);
	} while (again);
	buf_fini(&path);
	return rc;
}

static int judge(struct ctl *ctl, struct json_object *record)
{
	const char *id = ctl_text(record, "id");
	struct buf text;
	int rc;

	if (!strcmp(ctl_text(record, "status"), "completed") && !ctl_number(record, "result.exit_code", -1))
		return 0;
	buf_init(&text, 65536);
	if (!strcmp(ctl_text(record, "status"), "completed") && !read_output(ctl, id, "/stderr", &text) && text.len)
		rc = ctl_fail(CTL_ERROR, "in the sandbox (%s): %.*s", id, (int)strcspn(text.ptr, "\n"), text.ptr);
	else
		rc = ctl_fail(CTL_ERROR, "in the sandbox (%s): %s %s %s", id, ctl_text(record, "status"), ctl_text(record, "reason"),
			      ctl_text(record, "error"));
	buf_fini(&text);
	return rc;
}

/* A stopped copy leaves nothing running in the sandbox; what cannot be had soon is said, as somebody waits for the prompt. */
static void cancel_stopped(struct ctl *ctl, const char *id)
{
	int64_t until_ns = clock_after_ms(STOP_MS);
	struct ctl_reply reply;
	struct buf path;
	bool again;

	if (!ctl_stopped() || !*id)
		return;
	ctl_execution_path(&path, id, "");
	do {
		again = ctl_try(ctl, "DELETE", path.ptr, NULL, NULL, &reply) || ctl_comes_back(reply.status);
		if (again)
			pause_before(&reply, until_ns);
		ctl_reply_fini(&reply);
	} while (again && clock_left_ms(until_ns));
	if (again)
		ctl_fail(CTL_UNAVAILABLE, "a script of this copy may run on in the sandbox; berthctl cancel %s ends it", id);
	buf_fini(&path);
}

int ctl_run_script(struct ctl *ctl, const char *task, const char *script, struct buf *out)
{
	struct ctl_create create = {.task = task, .script = script, .script_len = strlen(script)};
	struct json_object *record = NULL, *ended = NULL;
	int rc = ctl_create(ctl, &create, &record);

	if (!rc)
		ctl_wait_running(ctl, ctl_text(record, "id"), task);
	if (!rc)
		rc = ctl_wait_terminal(ctl, ctl_text(record, "id"), &ended);
	cancel_stopped(ctl, ctl_text(record, "id"));
	if (!rc)
		rc = judge(ctl, ended);
	if (!rc && out)
		rc = read_output(ctl, ctl_text(record, "id"), "/stdout", out);
	if (!rc && out && !strcmp(ctl_text(ended, "result.stdout_truncated"), "true"))
		rc = ctl_fail(CTL_ERROR, "the list of files is longer than berthd keeps of an output");
	json_object_put(record);
	json_object_put(ended);
	return rc;
}
