/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routes of commands. A command that is only a timer is the clock's; any other is run by the engine under
 * berth-supervise, and followed by the worker of its request until it ends or the client leaves.
 */
#include "server.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_MAX ((int64_t)4 << 20)
#define SCRIPT_MAX ((int64_t)64 << 20)
#define ENV_MAX 4096

struct posted {
	struct json_object *head;
	char *head_text, *script;
	struct berth_pair *env;
	char **texts;
	char cwd[3 * BERTH_PATH_MAX + 1];
	struct berth_command command;
};

static bool read_exactly(struct req *req, char **ret, int64_t len, int64_t max)
{
	int64_t at = 0;

	*ret = len >= 0 && len <= max ? malloc((size_t)len + 1) : NULL;
	while (*ret && at < len) {
		long n = req_read(req, *ret + at, (size_t)(len - at));

		if (n <= 0)
			return false;
		at += n;
	}
	if (*ret)
		(*ret)[len] = '\0';
	return *ret;
}

static void take_env(struct posted *posted)
{
	struct json_object *list = NULL;
	size_t count = 0, most;

	if (!wire_has(posted->head, "env", json_type_array))
		return;
	json_object_object_get_ex(posted->head, "env", &list);
	most = json_object_array_length(list);
	most = most < ENV_MAX ? most : ENV_MAX;
	posted->env = calloc(most + 1, sizeof(*posted->env));
	posted->texts = calloc(most + 1, sizeof(*posted->texts));
	for (size_t i = 0; posted->env && posted->texts && i < most; i++) {
		const char *row = json_object_get_string(json_object_array_get_idx(list, i));
		char *text = strdup(row ? row : ""), *value = text ? strchr(text, '=') : NULL;
		long name_len, len;

		posted->texts[count] = text;
		if (value)
			*value++ = '\0';
		name_len = value ? wire_unpercent(text) : -1;
		len = name_len > 0 ? wire_unpercent(value) : -1;
		if (len < 0) {
			free(text);
			posted->texts[count] = NULL;
			continue;
		}
		posted->env[count++] = (struct berth_pair){{text, (size_t)name_len}, {value, (size_t)len}};
	}
	posted->command.env = posted->env;
	posted->command.env_count = count;
}

static void take_head(struct posted *posted, const char *id)
{
	struct berth_command *command = &posted->command;
	const char *cwd = wire_text(posted->head, "cwd");
	long cwd_len = -1;

	if (strlen(cwd) < sizeof(posted->cwd)) {
		memcpy(posted->cwd, cwd, strlen(cwd) + 1);
		cwd_len = wire_unpercent(posted->cwd);
	}
	*command = (struct berth_command){
		.struct_size = sizeof(*command),
		.attempt = (uint32_t)wire_number(posted->head, "attempt"),
		.execution_id = wire_str(id),
		.script = {posted->script, (size_t)wire_number(posted->head, "script_len")},
		.cwd = {posted->cwd, cwd_len > 0 ? (size_t)cwd_len : 0},
		.has_stdin = (uint32_t)wire_number(posted->head, "has_stdin"),
		.keep_descendants = (uint32_t)wire_number(posted->head, "keep_descendants"),
		.timeout_ms = wire_number(posted->head, "timeout_ms"),
		.stdout_max = (uint64_t)wire_number(posted->head, "stdout_max"),
		.stderr_max = (uint64_t)wire_number(posted->head, "stderr_max"),
	};
	take_env(posted);
}

/* False: answered, or the client left. */
static bool take_posted(struct req *req, struct posted *posted)
{
	int64_t head_len = req_query_number(req, "head", -1);

	*posted = (struct posted){0};
	if (read_exactly(req, &posted->head_text, head_len, HEAD_MAX))
		posted->head = wire_parse(posted->head_text, (size_t)head_len);
	if (json_object_is_type(posted->head, json_type_object) &&
	    read_exactly(req, &posted->script, wire_number(posted->head, "script_len"), SCRIPT_MAX)) {
		take_head(posted, req->id);
		return true;
	}
	reply_error(req, BERTH_INVALID, "body", "the body must be a head of the given length and a script");
	return false;
}

static void free_posted(struct posted *posted)
{
	for (size_t i = 0; posted->texts && i < posted->command.env_count; i++)
		free(posted->texts[i]);
	free(posted->texts);
	free(posted->env);
	free(posted->head_text);
	free(posted->script);
	json_object_put(posted->head);
}

/* Whoever only looks at the answer's code. */
static int32_t session_there(struct req *req, void *inst)
{
	struct berth_session session = session_of(req);
	struct hostcall hc;
	int32_t rc;

	hostcall_init(&hc, req);
	rc = engine_ops()->inspect(inst, hostcall_abi(&hc), &session);
	hostcall_fini(&hc);
	return rc == BERTH_NOT_FOUND ? BERTH_SESSION_LOST : rc;
}

static void run_timer(struct req *req, void *inst, const struct posted *posted, struct timer_spec *spec)
{
	int32_t rc = session_there(req, inst);

	spec->timeout_ms = posted->command.timeout_ms;
	spec->out_max = posted->command.stdout_max;
	if (!rc)
		rc = timer_begin(req, spec, posted->command.attempt);
	if (rc)
		reply_error(req, rc, rc == BERTH_CONFLICT ? "started" : "session", "the timer was not started");
	else
		counter_started();
}

static void end_stream(struct hostcall *hc, int32_t rc)
{
	clock_unwatch(hc->req);
	if (rc)
		hostcall_reply(hc, rc, false);
	else
		req_end(hc->req);
	hostcall_fini(hc);
}

static struct berth_call *begin_stream(struct hostcall *hc, struct req *req)
{
	hostcall_init(hc, req);
	hc->is_stream = hc->follows = true;
	hc->deadline_ns = 0;
	clock_watch(req);
	return hostcall_abi(hc);
}

void serve_execute(struct req *req, void *inst)
{
	struct timer_spec spec;
	struct posted posted;

	if (take_posted(req, &posted) && timer_parse(posted.command.script, &spec)) {
		run_timer(req, inst, &posted, &spec);
	} else if (posted.script) {
		struct berth_session session = session_of(req);
		struct hostcall hc;
		struct berth_call *call = begin_stream(&hc, req);
		int32_t rc = engine_ops()->execute(inst, call, &session, &posted.command);

		if (hc.told)
			counter_started();
		end_stream(&hc, rc);
	}
	free_posted(&posted);
}

void serve_stream(struct req *req, void *inst)
{
	struct berth_session session = session_of(req);
	struct berth_resume resume = {
		.struct_size = sizeof(resume),
		.attempt = (uint32_t)req_query_number(req, "attempt", 1),
		.execution_id = wire_str(req->id),
		.stdout_offset = (uint64_t)req_query_number(req, "stdout", 0),
		.stderr_offset = (uint64_t)req_query_number(req, "stderr", 0),
	};
	int32_t rc = session_there(req, inst);
	struct berth_call *call;
	struct hostcall hc;

	if (rc) {
		reply_error(req, rc, "session", "the session is not there");
		return;
	}
	if (timer_resume(req, resume.attempt, resume.stdout_offset) == BERTH_OK)
		return;
	call = begin_stream(&hc, req);
	rc = engine_ops()->reattach(inst, call, &session, &resume);
	/* Where the engine runs nothing, only timers could have started. */
	if (rc == BERTH_UNSUPPORTED)
		rc = BERTH_NOT_STARTED;
	end_stream(&hc, rc);
}

void serve_signal(struct req *req, void *inst)
{
	struct berth_str word = req_query(req, "signal");
	bool term = word.len == 4 && !memcmp(word.ptr, "TERM", 4);
	struct berth_session session = session_of(req);
	const struct berth_execution execution = {.struct_size = sizeof(execution), .id = wire_str(req->id)};
	struct hostcall hc;

	hostcall_init(&hc, req);
	if (!term && (word.len != 4 || memcmp(word.ptr, "KILL", 4) != 0))
		reply_error(req, BERTH_INVALID, "signal", "signal must be TERM or KILL");
	else if (timer_signal(req, !term) == BERTH_OK)
		hostcall_reply(&hc, BERTH_OK, false);
	else
		hostcall_reply(&hc,
			       engine_ops()->send_signal(inst, hostcall_abi(&hc), &session, &execution,
							 term ? BERTH_SIGNAL_TERM : BERTH_SIGNAL_KILL),
			       false);
	hostcall_fini(&hc);
}

void serve_forget(struct req *req, void *inst)
{
	struct berth_session session = session_of(req);
	const struct berth_execution execution = {.struct_size = sizeof(execution), .id = wire_str(req->id)};
	int32_t rc = timer_forget(req);
	struct hostcall hc;

	hostcall_init(&hc, req);
	if (rc == BERTH_NOT_FOUND)
		rc = engine_ops()->forget(inst, hostcall_abi(&hc), &session, &execution);
	hostcall_reply(&hc, rc, false);
	hostcall_fini(&hc);
}
