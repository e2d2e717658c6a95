/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands: one request starts a command and carries its stream; when that is cut, the stream is asked for again from
 * where it stopped. Any thread. The start is sent once: whether a lost one ran is asked with "reattach", which makes
 * the server refuse it from then on. Must never return an ending that the server did not send.
 */
#include "httpprov.h"

#include <stdlib.h>
#include <string.h>

#define FOLLOW_TRIES 5 /* in a row that bring nothing */
#define FOLLOW_PAUSE_MS 40

struct job {
	struct prov *p;
	struct berth_call *call;
	const struct berth_session *session;
	struct berth_str id;
	uint32_t attempt;
	bool stopping;
	struct stream stream;
};

/* ---- the start ---- */

/* head line, script, then standard input as it comes. */
struct upload {
	struct berth_call *call;
	struct berth_str parts[2];
	size_t at;
	unsigned part;
};

static int32_t read_upload(void *ctx, void *buf, size_t cap, size_t *ret_len)
{
	struct upload *upload = ctx;
	size_t left;

	while (upload->part < 2 && upload->at == upload->parts[upload->part].len) {
		upload->part++;
		upload->at = 0;
	}
	if (upload->part == 2)
		return prov_host->source_read(upload->call, buf, cap, ret_len);
	left = upload->parts[upload->part].len - upload->at;
	*ret_len = left < cap ? left : cap;
	memcpy(buf, upload->parts[upload->part].ptr + upload->at, *ret_len);
	upload->at += *ret_len;
	return BERTH_OK;
}

static void put_env(struct json_object *json, const struct berth_command *command)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; i < command->env_count; i++) {
		const struct berth_pair *pair = &command->env[i];
		struct wire_buf text = {0};

		wire_percent(&text, pair->name.ptr, pair->name.len, "");
		wire_word(&text, "=");
		wire_percent(&text, pair->value.ptr, pair->value.len, "");
		json_object_array_add(list, json_object_new_string_len(text.ptr ? text.ptr : "", (int)text.len));
		wire_free(&text);
	}
	json_object_object_add(json, "env", list);
}

static int64_t limit_number(uint64_t limit)
{
	return limit > INT64_MAX ? INT64_MAX : (int64_t)limit;
}

static void put_head(struct wire_buf *ret, const struct berth_command *command)
{
	struct json_object *json = json_object_new_object();
	struct wire_buf cwd = {0};

	wire_percent(&cwd, command->cwd.ptr, command->cwd.len, "/");
	wire_add_text(json, "cwd", (struct berth_str){cwd.ptr, cwd.len});
	wire_free(&cwd);
	wire_add_number(json, "attempt", command->attempt);
	wire_add_number(json, "script_len", (int64_t)command->script.len);
	wire_add_number(json, "has_stdin", command->has_stdin);
	wire_add_number(json, "keep_descendants", command->keep_descendants);
	wire_add_number(json, "timeout_ms", command->timeout_ms);
	wire_add_number(json, "stdout_max", limit_number(command->stdout_max));
	wire_add_number(json, "stderr_max", limit_number(command->stderr_max));
	put_env(json, command);
	wire_word(ret, json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN));
	wire_word(ret, "\n");
	json_object_put(json);
}

static void begin_ask(struct ask *ask, struct job *job, const char *method, const char *rest)
{
	ask_init(ask, job->p, job->call, method, "/v1/sessions");
	ask_session(ask, job->session, "/commands");
	ask_segment(ask, job->id);
	wire_word(&ask->path, rest);
}

static void make_stream(struct ask *ask, struct job *job)
{
	stream_restart(&job->stream);
	ask->is_long = true;
	ask->idle_ms = job->p->silence_ms;
	ask->again = false;
	ask->take = stream_take;
	ask->sink = &job->stream;
}

/* ---- what came of it ---- */

static bool settled(const struct job *job)
{
	return job->stream.ended || job->stream.refused || job->stream.failed;
}

static int32_t outcome(const struct job *job)
{
	return job->stream.refused || job->stream.failed ? job->stream.code : BERTH_OK;
}

/* Tells the server to end the command; a lost answer is asked for again, and that it does not run is fine. */
static int32_t stop(struct job *job)
{
	struct ask ask;
	int32_t rc;

	job->stopping = true;
	begin_ask(&ask, job, "POST", "/signal");
	ask_query(&ask, "signal", wire_str("TERM"));
	ask.again = true;
	rc = ask_simply(&ask);
	return rc == BERTH_NOT_FOUND ? BERTH_OK : rc;
}

/* One more connection, from the offsets. *ret_pause_ms: when to come back. */
static int32_t follow_once(struct job *job, int64_t *ret_pause_ms)
{
	struct ask ask;
	int32_t rc;

	begin_ask(&ask, job, "GET", "/stream");
	ask_query_number(&ask, "attempt", job->attempt);
	ask_query_number(&ask, "stdout", job->stream.offset[0]);
	ask_query_number(&ask, "stderr", job->stream.offset[1]);
	make_stream(&ask, job);
	rc = ask_do(&ask);
	*ret_pause_ms = ask.retry_after_ms;
	ask_fini(&ask);
	return rc;
}

static bool worth_another(int32_t rc)
{
	return rc == BERTH_OK || rc == BERTH_UNAVAILABLE || rc == BERTH_UNKNOWN || rc == BERTH_RATE_LIMITED ||
	       rc == BERTH_CANCELLED;
}

/* OK: goes on. */
static int32_t heed_cancel(struct job *job)
{
	uint32_t state = prov_host->cancel_state(job->call);

	if (state == BERTH_CANCEL_DETACH)
		return prov_fail(job->call, BERTH_CANCELLED, "detached", "detached; the command goes on");
	if (state == BERTH_CANCEL_STOP && !job->stopping)
		return stop(job);
	return BERTH_OK;
}

/* Until it is settled, or the server cannot be reached, or knows no such command. */
static int32_t follow(struct job *job)
{
	int32_t rc = heed_cancel(job);

	for (int tries = 0; !rc;) {
		int64_t pause_ms;

		rc = follow_once(job, &pause_ms);
		if (settled(job))
			return outcome(job);
		tries = job->stream.moved ? 0 : tries + 1;
		if (!worth_another(rc) || (rc != BERTH_CANCELLED && tries >= FOLLOW_TRIES))
			return rc ? rc
				  : prov_fail(job->call, BERTH_UNAVAILABLE, "cut", "the stream ends without an ending");
		if (rc != BERTH_CANCELLED) {
			if (!pause_ms)
				pause_ms = tries ? FOLLOW_PAUSE_MS << tries : 0;
			if (!ask_pause(job->call, pause_ms) && prov_host->cancel_state(job->call) == BERTH_CANCEL_NONE)
				return prov_fail(job->call, BERTH_TIMEOUT, "deadline",
						 "the call's deadline comes before the server may be asked again");
		}
		rc = heed_cancel(job);
	}
	return rc;
}

/* ---- operations ---- */

/* The start was sent and what became of it is not known. */
static int32_t recover(struct job *job)
{
	int32_t rc = follow(job);

	if (settled(job))
		return rc;
	if (rc == BERTH_NOT_STARTED) {
		if (job->stopping)
			return prov_fail(job->call, BERTH_CANCELLED, "cancelled", "cancelled before it started");
		if (!job->stream.sign)
			return prov_fail(job->call, BERTH_UNAVAILABLE, "start_lost",
					 "the start did not reach the server, and never will");
		return prov_fail(job->call, BERTH_UNKNOWN, "contradiction",
				 "a command that ran is said not to have started");
	}
	/* What a stop or a look was refused with is no refusal of the command. */
	if (rc == BERTH_OK || rc == BERTH_CANCELLED || rc == BERTH_TIMEOUT || rc == BERTH_NOT_FOUND ||
	    rc == BERTH_SESSION_LOST)
		return rc;
	return prov_fail(job->call, BERTH_UNKNOWN, "unreachable", "the command may run; the server does not say");
}

static int32_t start(struct job *job, const struct berth_command *command)
{
	struct upload upload = {.call = job->call};
	struct ask ask;
	int32_t rc;
	bool doubt;

	begin_ask(&ask, job, "POST", "");
	make_stream(&ask, job);
	put_head(&ask.query_body, command);
	ask_query_number(&ask, "head", ask.query_body.len);
	if (command->has_stdin) {
		upload.parts[0] = (struct berth_str){ask.query_body.ptr, ask.query_body.len};
		upload.parts[1] = command->script;
		ask.read = read_upload;
		ask.source = &upload;
	} else {
		wire_put(&ask.query_body, command->script.ptr, command->script.len);
		ask.body = (struct berth_str){ask.query_body.ptr, ask.query_body.len};
	}
	rc = ask_do(&ask);
	doubt = ask.sent && (ask.status < 300 || ask.status >= 500);
	ask_fini(&ask);
	if (settled(job))
		return outcome(job);
	/* Anything else is what the server, or the source of standard input, said: nothing ran. */
	if (!doubt || (rc != BERTH_OK && rc != BERTH_UNAVAILABLE && rc != BERTH_UNKNOWN && rc != BERTH_CANCELLED))
		return rc;
	return recover(job);
}

int32_t prov_execute(void *inst, struct berth_call *call, const struct berth_session *session,
		     const struct berth_command *command)
{
	struct job job = {.p = inst,
			  .call = call,
			  .session = session,
			  .id = command->execution_id,
			  .attempt = command->attempt,
			  .stream = {.p = inst, .call = call, .tell_started = true}};
	int32_t rc = start(&job, command);

	stream_fini(&job.stream);
	return rc;
}

int32_t prov_reattach(void *inst, struct berth_call *call, const struct berth_session *session,
		      const struct berth_resume *resume)
{
	struct job job = {
		.p = inst,
		.call = call,
		.session = session,
		.id = resume->execution_id,
		.attempt = resume->attempt,
		.stream = {.p = inst, .call = call, .offset = {resume->stdout_offset, resume->stderr_offset}}};
	int32_t rc = follow(&job);

	stream_fini(&job.stream);
	return rc;
}

int32_t prov_forget(void *inst, struct berth_call *call, const struct berth_session *session,
		    const struct berth_execution *execution)
{
	struct job job = {.p = inst, .call = call, .session = session, .id = execution->id};
	struct ask ask;

	begin_ask(&ask, &job, "DELETE", "");
	ask.again = true;
	return ask_simply(&ask);
}

int32_t prov_send_signal(void *inst, struct berth_call *call, const struct berth_session *session,
			 const struct berth_execution *execution, uint32_t signal)
{
	struct job job = {.p = inst, .call = call, .session = session, .id = execution->id};
	struct ask ask;

	if (signal != BERTH_SIGNAL_TERM && signal != BERTH_SIGNAL_KILL)
		return BERTH_UNSUPPORTED;
	begin_ask(&ask, &job, "POST", "/signal");
	ask_query(&ask, "signal", wire_str(signal == BERTH_SIGNAL_KILL ? "KILL" : "TERM"));
	ask.again = true;
	return ask_simply(&ask);
}
