/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to the server and what became of it, for every operation. The thread of the call. Rules kept here and
 * nowhere else: an answer that is not the server's own proves nothing; a lost answer is asked for again only where that
 * does no harm; Retry-After is waited for or handed on, never ignored; the token goes into a secret header and nowhere
 * else; redirects are answers like any other.
 */
#include "httpprov.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOKEN_MAX 512
#define REPLY_MAX ((size_t)64 << 20)
#define TRIES 4
#define PAUSE_MS 40
#define WAIT_MOST_MS 15000 /* a longer Retry-After is the host's to wait for */
#define DAY_MS INT64_C(86400000)

int32_t prov_fail(struct berth_call *call, int32_t code, const char *reason, const char *text)
{
	uint32_t retryable = code == BERTH_UNAVAILABLE || code == BERTH_TIMEOUT || code == BERTH_RATE_LIMITED ||
			     code == BERTH_CAPACITY;

	return prov_host->fail(call, code, reason, retryable, 0, text);
}

/* ---- time ---- */

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

int64_t ask_left_ms(struct berth_call *call)
{
	struct berth_call_info info = {.struct_size = sizeof(info)};
	int64_t left_ms;

	prov_host->info(call, &info);
	left_ms = (info.deadline_ns - now_ns()) / 1000000;
	return info.deadline_ns <= 0 || left_ms > DAY_MS ? DAY_MS : left_ms;
}

bool ask_pause(struct berth_call *call, int64_t ms)
{
	int64_t until_ns = now_ns() + ms * 1000000;
	struct pollfd fd = {.fd = -1, .events = POLLIN};
	uint32_t state = prov_host->cancel_state(call);

	if (ms >= ask_left_ms(call))
		return false;
	fd.fd = state == BERTH_CANCEL_NONE ? prov_host->cancel_fd(call) : -1;
	while (prov_host->cancel_state(call) == state) {
		int64_t left_ms = (until_ns - now_ns()) / 1000000;

		if (left_ms <= 0)
			return true;
		/* Without a descriptor, or with one that is readable for good, the state is looked at. */
		poll(&fd, fd.fd >= 0, fd.fd >= 0 || left_ms < 200 ? (int)left_ms : 200);
	}
	return false;
}

/* ---- request ---- */

void ask_init(struct ask *ask, struct prov *p, struct berth_call *call, const char *method, const char *path)
{
	*ask = (struct ask){.p = p, .call = call, .method = method, .reply.max = REPLY_MAX};
	wire_word(&ask->path, p->base_url);
	wire_word(&ask->path, path);
	ask->changes = strcmp(method, "GET") != 0;
	ask->again = !ask->changes;
}

void ask_session(struct ask *ask, const struct berth_session *session, const char *rest)
{
	ask_segment(ask, session->ref);
	wire_word(&ask->path, rest);
}

void ask_segment(struct ask *ask, struct berth_str text)
{
	wire_word(&ask->path, "/");
	wire_percent(&ask->path, text.ptr, text.len, "");
}

void ask_query(struct ask *ask, const char *name, struct berth_str value)
{
	wire_word(&ask->path, ask->asked_before ? "&" : "?");
	ask->asked_before = true;
	wire_word(&ask->path, name);
	wire_word(&ask->path, "=");
	wire_percent(&ask->path, value.ptr, value.len, "/");
}

void ask_query_number(struct ask *ask, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	ask_query(ask, name, wire_str(text));
}

void ask_fini(struct ask *ask)
{
	wire_free(&ask->path);
	wire_free(&ask->query_body);
	wire_free(&ask->reply);
	json_object_put(ask->json);
	ask->json = NULL;
}

/* ---- answer ---- */

static int32_t on_head(void *ctx, uint32_t status, const struct berth_pair *headers, size_t count)
{
	struct ask *ask = ctx;

	(void)headers;
	(void)count;
	ask->status = status;
	return BERTH_OK;
}

static int32_t on_body(void *ctx, const void *ptr, size_t len)
{
	struct ask *ask = ctx;

	if (ask->take && ask->status == 200)
		return ask->taken = ask->take(ask->sink, ptr, len);
	wire_put(&ask->reply, ptr, len);
	return ask->reply.lost ? BERTH_INVALID : BERTH_OK;
}

static int32_t on_read(void *ctx, void *buf, size_t cap, size_t *ret_len)
{
	struct ask *ask = ctx;

	return ask->read(ask->source, buf, cap, ret_len);
}

static int32_t read_token(struct prov *p, char token[TOKEN_MAX], size_t *ret_len)
{
	*ret_len = 0;
	return prov_host->secret(p->target, "token", token, TOKEN_MAX, ret_len);
}

/* A server may say what it was given. */
static bool tells_token(struct prov *p, const char *text)
{
	char token[TOKEN_MAX];
	size_t len;
	bool tells = read_token(p, token, &len) == BERTH_OK && len && memmem(text, strlen(text), token, len);

	explicit_bzero(token, sizeof(token));
	return tells;
}

int32_t prov_fail_document(struct prov *p, struct berth_call *call, const char *ptr, size_t len, int64_t retry_after_ms)
{
	struct json_object *json = wire_parse(ptr, len), *error;
	int32_t code = BERTH_OK;
	const char *reason, *text;

	if (json_object_is_type(json, json_type_object) && json_object_object_get_ex(json, "error", &error) &&
	    json_object_is_type(error, json_type_object) && wire_code_by_name(wire_text(error, "code"), &code) &&
	    code) {
		reason = wire_text(error, "reason");
		text = wire_text(error, "message");
		if (strlen(reason) > BERTH_REASON_MAX ||
		    strspn(reason, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(reason))
			reason = "bad_reason";
		if (!retry_after_ms)
			retry_after_ms = wire_number(error, "retry_after_ms");
		prov_host->fail(call, code, tells_token(p, reason) ? "bad_reason" : reason,
				wire_number(error, "retryable") != 0, retry_after_ms > 0 ? retry_after_ms : 0,
				tells_token(p, text) ? "the server's words hold the token" : text);
	}
	json_object_put(json);
	return code;
}

/* Statuses that mean the same whoever answers: a proxy does not know what the server knows. */
static const struct {
	uint32_t status;
	int32_t code;
	const char *reason, *text;
} statuses[] = {
	{400, BERTH_INVALID, "http_400", "the server calls the request malformed"},
	{401, BERTH_UNAUTHENTICATED, "token", "the server does not accept the token"},
	{403, BERTH_FORBIDDEN, "forbidden", "the token is not allowed to do that"},
	{413, BERTH_INVALID, "http_413", "the request is larger than the server takes"},
	{429, BERTH_RATE_LIMITED, "rate_limited", "the server wants less requests"},
	{503, BERTH_UNAVAILABLE, "http_503", "the server is not available"},
};

static int32_t fail_status(struct ask *ask)
{
	char text[96];
	int32_t code = prov_fail_document(ask->p, ask->call, ask->reply.ptr, ask->reply.len, ask->retry_after_ms);

	if (code)
		return code;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		if (statuses[i].status == ask->status)
			return prov_host->fail(ask->call, statuses[i].code, statuses[i].reason,
					       ask->status == 429 || ask->status == 503, ask->retry_after_ms,
					       statuses[i].text);
	snprintf(text, sizeof(text), "an answer with status %u that is not the provider's own", ask->status);
	/* A redirect or a refusal of a stranger changed nothing; what broke inside may have, and so may a wrong yes. */
	if ((ask->status >= 300 && ask->status < 500) || !ask->changes)
		return prov_fail(ask->call, BERTH_UNAVAILABLE, "foreign_answer", text);
	return prov_fail(ask->call, BERTH_UNKNOWN, "foreign_answer", text);
}

static int32_t exchange(struct ask *ask)
{
	char token[TOKEN_MAX], header[TOKEN_MAX + 16], left[24];
	struct berth_pair secret = {wire_str("Authorization"), {.ptr = header}};
	struct berth_pair timeout = {wire_str("X-Timeout-Ms"), {.ptr = left}};
	struct berth_http_response response = {.struct_size = sizeof(response)};
	struct berth_http_request request = {
		.struct_size = sizeof(request),
		.flags = ask->is_long ? BERTH_HTTP_LONG : 0,
		.method = wire_str(ask->method),
		.url = {ask->path.ptr, ask->path.len},
		.headers = &timeout,
		.header_count = 1,
		.body = ask->body,
		.read = ask->read ? on_read : NULL,
		.body_size = BERTH_SIZE_UNKNOWN,
		.write = on_body,
		.head = on_head,
		.ctx = ask,
		.idle_timeout_ms = ask->idle_ms,
		.response_max = ask->take ? UINT64_MAX : 0,
	};
	size_t len;
	int32_t rc;

	if (ask->path.lost || ask->query_body.lost)
		return prov_fail(ask->call, BERTH_UNAVAILABLE, "memory", "memory is out");
	rc = read_token(ask->p, token, &len);
	if (rc == BERTH_OK) {
		secret.value.len = (size_t)snprintf(header, sizeof(header), "Bearer %.*s", (int)len, token);
		request.secret_headers = &secret;
		request.secret_header_count = 1;
	} else if (rc != BERTH_NOT_FOUND) {
		return prov_fail(ask->call, BERTH_UNAVAILABLE, "token", "the token cannot be read");
	}
	timeout.value.len = (size_t)snprintf(left, sizeof(left), "%lld", (long long)ask_left_ms(ask->call));
	ask->status = 0;
	ask->taken = BERTH_OK;
	ask->reply.len = 0;
	rc = prov_host->http(ask->p->target, ask->call, &request, &response);
	explicit_bzero(token, sizeof(token));
	explicit_bzero(header, sizeof(header));
	ask->sent = response.sent;
	ask->retry_after_ms = response.retry_after_ms;
	if (rc == BERTH_UNKNOWN && !ask->changes)
		rc = prov_fail(ask->call, BERTH_UNAVAILABLE, "cut", "the answer was lost");
	/* Bytes come with 200 and with nothing else. */
	if (rc == BERTH_OK && (response.status < 200 || response.status > 299 || (ask->take && response.status != 200)))
		rc = fail_status(ask);
	return rc;
}

/* How long to wait before the same is asked again; negative: not again. */
static int64_t again_after(const struct ask *ask, int32_t rc, int tries)
{
	bool refused = ask->status == 429 || ask->status == 503;
	bool lost = !ask->status || ask->status >= 500;

	if (tries >= TRIES || ask->once || ask->read || ask->taken)
		return -1;
	if (refused && ask->retry_after_ms)
		return ask->retry_after_ms <= WAIT_MOST_MS ? ask->retry_after_ms : -1;
	/* A connection that was refused is for the host to try later: it knows other targets. */
	if (refused || (ask->again && ask->sent && lost && (rc == BERTH_UNAVAILABLE || rc == BERTH_UNKNOWN)))
		return PAUSE_MS << tries;
	return -1;
}

int32_t ask_do(struct ask *ask)
{
	int32_t rc = exchange(ask);

	for (int tries = 1; rc != BERTH_OK && rc != BERTH_CANCELLED; tries++) {
		int64_t pause_ms = again_after(ask, rc, tries);

		/* A stream that was cut is resumed by its reader, who knows where. */
		if (pause_ms < 0 || (ask->take && ask->status == 200) || !ask_pause(ask->call, pause_ms))
			break;
		rc = exchange(ask);
	}
	return rc;
}

int32_t ask_json(struct ask *ask)
{
	int32_t rc = ask_do(ask);

	if (rc)
		return rc;
	json_object_put(ask->json);
	ask->json = wire_parse(ask->reply.ptr, ask->reply.len);
	if (json_object_is_type(ask->json, json_type_object))
		return BERTH_OK;
	return prov_fail(ask->call, ask->changes ? BERTH_UNKNOWN : BERTH_UNAVAILABLE, "foreign_answer",
			 "the answer is no JSON object");
}

int32_t ask_simply(struct ask *ask)
{
	int32_t rc = ask_do(ask);

	ask_fini(ask);
	return rc;
}
