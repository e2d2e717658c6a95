/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's table as the engine sees it: results become JSON, bytes become the answer's body or the frames of a
 * stream, input is the upload. Entered by the worker of the request only.
 */
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

static struct hostcall *of(struct berth_call *call)
{
	return (struct hostcall *)(void *)call;
}

void hostcall_init(struct hostcall *hc, struct req *req)
{
	*hc = (struct hostcall){.req = req, .deadline_ns = req->deadline_ns};
	hc->items = json_object_new_array();
	hc->extra = json_object_new_object();
}

void hostcall_fini(struct hostcall *hc)
{
	json_object_put(hc->items);
	json_object_put(hc->extra);
}

static void host_log(struct berth_target *target, struct berth_call *call, uint32_t level, const struct berth_str *text,
		     const struct berth_pair *pairs, size_t count)
{
	(void)target;
	(void)call;
	(void)pairs;
	(void)count;
	if (level >= BERTH_LOG_ERROR)
		fprintf(stderr, "httpprov-server: %.*s\n", (int)text->len, text->ptr);
}

static void host_info(struct berth_call *call, struct berth_call_info *ret_info)
{
	*ret_info = (struct berth_call_info){.struct_size = sizeof(*ret_info),
					     .deadline_ns = call ? of(call)->deadline_ns : 0};
}

static int32_t host_fail(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable,
			 int64_t retry_after_ms, const char *text)
{
	struct hostcall *hc = of(call);

	if (!hc)
		return code;
	hc->code = code;
	hc->retryable = retryable;
	hc->retry_after_ms = retry_after_ms;
	snprintf(hc->reason, sizeof(hc->reason), "%s", reason ? reason : "");
	snprintf(hc->text, sizeof(hc->text), "%s", text ? text : "");
	return code;
}

static const char *const phases[] = {"", "queued", "unschedulable", "pulling", "starting", "ready", "dead"};

struct json_object *hostcall_session(const struct berth_session_info *info)
{
	struct json_object *json = json_object_new_object();

	wire_add_text(json, "ref", info->ref);
	wire_add_text(json, "phase", wire_str(phases[info->phase <= BERTH_PHASE_DEAD ? info->phase : 0]));
	wire_add_text(json, "workspace", info->workspace_id);
	wire_add_text(json, "task", info->task_id);
	wire_add_text(json, "intent", info->intent);
	wire_add_text(json, "boot", info->boot_id);
	wire_add_text(json, "root", info->root);
	wire_add_text(json, "dead_reason", info->dead_reason);
	wire_add_number(json, "created_ms", info->created_ms);
	wire_add_number(json, "expires_ms", info->expires_ms);
	wire_add_number(json, "memory_bytes", (int64_t)info->memory_bytes);
	return json;
}

static int32_t emit_session(struct berth_call *call, const struct berth_session_info *info)
{
	json_object_array_add(of(call)->items, hostcall_session(info));
	return BERTH_OK;
}

static int32_t emit_cursor(struct berth_call *call, const struct berth_str *cursor)
{
	wire_add_text(of(call)->extra, "cursor", *cursor);
	return BERTH_OK;
}

static int32_t emit_token(struct berth_call *call, const struct berth_str *token)
{
	wire_add_text(of(call)->extra, "token", *token);
	return BERTH_OK;
}

static int32_t emit_expiry(struct berth_call *call, int64_t effective_ms)
{
	wire_add_number(of(call)->extra, "expires_ms", effective_ms);
	return BERTH_OK;
}

static struct json_object *file_json(struct berth_str path, uint32_t kind, uint64_t size, uint32_t mode)
{
	struct json_object *json = json_object_new_object();
	struct wire_buf text = {0};

	wire_percent(&text, path.ptr, path.len, "/");
	wire_add_text(json, "path", (struct berth_str){text.ptr, text.len});
	wire_free(&text);
	wire_add_number(json, "kind", kind);
	wire_add_number(json, "size", (int64_t)size);
	wire_add_number(json, "mode", mode);
	return json;
}

static int32_t emit_file(struct berth_call *call, const struct berth_file_info *info)
{
	struct json_object *json = file_json(info->path, info->kind, info->size, info->mode);

	wire_add_number(json, "mtime_ms", info->mtime_ms);
	json_object_array_add(of(call)->items, json);
	return BERTH_OK;
}

static int32_t emit_change(struct berth_call *call, const struct berth_change *change)
{
	json_object_array_add(of(call)->items, file_json(change->path, change->kind, change->size, change->mode));
	return BERTH_OK;
}

static bool send_json(struct req *req, enum wire_frame type, struct json_object *json)
{
	const char *text = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN);
	bool sent;

	req_head(req, 200, "application/octet-stream");
	sent = req_frame(req, type, text, strlen(text));
	json_object_put(json);
	return sent;
}

void command_ending(struct json_object *json, const struct berth_ending *ending)
{
	wire_add_number(json, "kind", ending->kind);
	wire_add_number(json, "exit_code", ending->exit_code);
	wire_add_number(json, "signal", ending->signal);
	wire_add_number(json, "survivors", ending->survivors);
	wire_add_number(json, "quiescent", ending->quiescent);
	wire_add_number(json, "duration_ms", ending->duration_ms);
	wire_add_number(json, "stdout_dropped", (int64_t)ending->stdout_dropped);
	wire_add_number(json, "stderr_dropped", (int64_t)ending->stderr_dropped);
	wire_add_text(json, "reason", ending->reason);
}

static int32_t emit_ending(struct berth_call *call, const struct berth_ending *ending)
{
	struct json_object *json = json_object_new_object();

	command_ending(json, ending);
	return send_json(of(call)->req, WIRE_ENDING, json) ? BERTH_OK : BERTH_CANCELLED;
}

static void host_progress(struct berth_call *call, uint32_t phase, const char *text)
{
	(void)text;
	wire_add_text(of(call)->extra, "phase", wire_str(phases[phase <= BERTH_PHASE_DEAD ? phase : 0]));
}

static int32_t tell_started(struct hostcall *hc)
{
	static const char handle[] = "httpprov";

	if (!hc->is_stream || hc->told)
		return BERTH_OK;
	hc->told = true;
	req_head(hc->req, 200, "application/octet-stream");
	return req_frame(hc->req, WIRE_STARTED, handle, sizeof(handle) - 1) ? BERTH_OK : BERTH_CANCELLED;
}

static int32_t host_started(struct berth_call *call, const struct berth_str *handle)
{
	(void)handle;
	return tell_started(of(call));
}

static int32_t host_gap(struct berth_call *call, uint32_t stream, uint64_t from, uint64_t to)
{
	struct json_object *json = json_object_new_object();

	wire_add_number(json, "stream", stream);
	wire_add_number(json, "from", (int64_t)from);
	wire_add_number(json, "to", (int64_t)to);
	return send_json(of(call)->req, WIRE_GAP, json) ? BERTH_OK : BERTH_CANCELLED;
}

static int32_t host_sink_write(struct berth_call *call, uint32_t stream, const void *ptr, size_t len)
{
	struct hostcall *hc = of(call);
	bool alive;

	if (hc->is_stream) {
		tell_started(hc);
		alive = req_frame(hc->req, stream == BERTH_STREAM_STDERR ? WIRE_STDERR : WIRE_STDOUT, ptr, len);
	} else {
		req_head(hc->req, 200, "application/octet-stream");
		alive = req_write(hc->req, ptr, len);
	}
	return alive ? BERTH_OK : BERTH_CANCELLED;
}

static int32_t host_source_read(struct berth_call *call, void *buf, size_t cap, size_t *ret_len)
{
	long len = req_read(of(call)->req, buf, cap);

	*ret_len = len > 0 ? (size_t)len : 0;
	return len < 0 ? host_fail(call, BERTH_INVALID, "upload_cut", 0, 0, "the upload broke off") : BERTH_OK;
}

static uint32_t host_cancel_state(struct berth_call *call)
{
	struct hostcall *hc = of(call);
	bool gone;

	if (!hc->follows)
		return BERTH_CANCEL_NONE;
	pthread_mutex_lock(&hc->req->lock);
	gone = hc->req->aborted;
	pthread_mutex_unlock(&hc->req->lock);
	return gone ? BERTH_CANCEL_DETACH : BERTH_CANCEL_NONE;
}

/* The engine asks for it once the command runs. */
static int32_t host_cancel_fd(struct berth_call *call)
{
	struct hostcall *hc = of(call);
	struct req *req = hc->req;

	tell_started(hc);
	pthread_mutex_lock(&req->lock);
	if (req->cancel_fd < 0)
		req->cancel_fd = eventfd(hc->follows && req->aborted, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_unlock(&req->lock);
	return req->cancel_fd;
}

static int32_t host_http(struct berth_target *target, struct berth_call *call, const struct berth_http_request *request,
			 struct berth_http_response *ret_response)
{
	(void)target;
	(void)call;
	(void)request;
	(void)ret_response;
	return BERTH_UNSUPPORTED;
}

static void host_random(void *buf, size_t len)
{
	char *at = buf;

	while (len) {
		ssize_t n = getrandom(at, len < 256 ? len : 256, 0);

		if (n <= 0)
			continue;
		at += n;
		len -= (size_t)n;
	}
}

static int32_t host_secret(struct berth_target *target, const char *option, char *buf, size_t cap, size_t *ret_len)
{
	(void)target;
	(void)option;
	(void)buf;
	(void)cap;
	(void)ret_len;
	return BERTH_NOT_FOUND;
}

static void host_counter(struct berth_target *target, uint32_t index, uint64_t add)
{
	(void)target;
	(void)index;
	(void)add;
}

static void host_histogram(struct berth_target *target, uint32_t index, double value)
{
	(void)target;
	(void)index;
	(void)value;
}

static void host_changed(struct berth_target *target)
{
	(void)target;
}

const struct berth_host hostcall_host = {
	.struct_size = sizeof(hostcall_host),
	.abi_major = BERTH_ABI_MAJOR,
	.abi_minor = BERTH_ABI_MINOR,
	.log = host_log,
	.info = host_info,
	.fail = host_fail,
	.emit_session = emit_session,
	.emit_cursor = emit_cursor,
	.emit_ending = emit_ending,
	.emit_file = emit_file,
	.emit_change = emit_change,
	.emit_token = emit_token,
	.emit_expiry = emit_expiry,
	.created = emit_session,
	.progress = host_progress,
	.started = host_started,
	.gap = host_gap,
	.sink_write = host_sink_write,
	.source_read = host_source_read,
	.cancel_state = host_cancel_state,
	.cancel_fd = host_cancel_fd,
	.http = host_http,
	.random = host_random,
	.secret = host_secret,
	.counter = host_counter,
	.histogram = host_histogram,
	.changed = host_changed,
	.alloc = malloc,
	.free = free,
};

/* ---- answers ---- */

static const struct {
	int32_t code;
	unsigned status;
} statuses[] = {
	{BERTH_INVALID, 400},	  {BERTH_NOT_FOUND, 404},    {BERTH_NOT_STARTED, 404},	{BERTH_CONFLICT, 409},
	{BERTH_CAPACITY, 503},	  {BERTH_QUOTA, 403},	     {BERTH_RATE_LIMITED, 429}, {BERTH_UNAUTHENTICATED, 401},
	{BERTH_FORBIDDEN, 403},	  {BERTH_UNAVAILABLE, 503},  {BERTH_TIMEOUT, 504},	{BERTH_SESSION_LOST, 410},
	{BERTH_UNSUPPORTED, 501}, {BERTH_STORAGE_FULL, 507},
};

struct json_object *error_json(int32_t code, const char *reason, const char *text, bool retryable,
			       int64_t retry_after_ms)
{
	struct json_object *json = json_object_new_object(), *error = json_object_new_object();

	wire_add_text(error, "code", wire_str(wire_code_name(code)));
	wire_add_text(error, "reason", wire_str(reason));
	wire_add_text(error, "message", wire_str(text));
	wire_add_number(error, "retryable", retryable);
	if (retry_after_ms)
		wire_add_number(error, "retry_after_ms", retry_after_ms);
	json_object_object_add(json, "error", error);
	return json;
}

static unsigned status_of(int32_t code)
{
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].code == code)
			return statuses[i].status;
	return 500;
}

void reply_error(struct req *req, int32_t code, const char *reason, const char *text)
{
	req_reply(req, status_of(code), error_json(code, reason, text, code == BERTH_UNAVAILABLE, 0));
}

static void reply_failure(struct hostcall *hc, int32_t code)
{
	struct req *req = hc->req;
	bool own = hc->code == code;
	struct json_object *json = error_json(code, own ? hc->reason : "", own ? hc->text : wire_code_name(code),
					      own && hc->retryable, own ? hc->retry_after_ms : 0);
	bool decided;

	pthread_mutex_lock(&req->lock);
	decided = req->status;
	req->retry_after_ms = own ? hc->retry_after_ms : 0;
	pthread_mutex_unlock(&req->lock);
	if (!decided) {
		req_reply(req, status_of(code), json);
	} else if (hc->is_stream) {
		send_json(req, WIRE_FAILURE, json);
		req_end(req);
	} else { /* part of the bytes went out */
		json_object_put(json);
		req_break(req);
	}
}

void hostcall_reply(struct hostcall *hc, int32_t code, bool only)
{
	struct json_object *json;

	if (code) {
		reply_failure(hc, code);
		return;
	}
	if (only && json_object_array_length(hc->items) == 1) {
		req_reply(hc->req, 200, json_object_get(json_object_array_get_idx(hc->items, 0)));
		return;
	}
	json = json_object_get(hc->extra);
	json_object_object_add(json, "items", json_object_get(hc->items));
	req_reply(hc->req, 200, json);
}
