/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to the API server over the host's HTTP service: credentials, JSON in and out, refusals into codes, and the
 * one place that repeats a request. What may not be repeated is sent once. Any thread. Never logs a header or a body.
 */
#include "api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth.h"
#include "prune.h"
#include "status.h"

#define BODY_MAX ((size_t)64 * 1024 * 1024)
#define LINE_MAX_BYTES ((size_t)4 * 1024 * 1024)
#define DEPTH_MAX 100
#define TRIES 5
#define BACKOFF_MS 100
#define WAIT_MAX_MS 10000 /* a longer Retry-After is the host's to keep */

/* ---- looking into trees ---- */

struct json_object *api_at(struct json_object *from, const char *path)
{
	char key[64];

	while (from && *path) {
		size_t len = strcspn(path, ".");

		if (len >= sizeof(key) || !json_object_is_type(from, json_type_object))
			return NULL;
		memcpy(key, path, len);
		key[len] = '\0';
		path += len + (path[len] == '.');
		if (!json_object_object_get_ex(from, key, &from))
			return NULL;
	}
	return from;
}

const char *api_text(struct json_object *from, const char *path)
{
	struct json_object *value = api_at(from, path);

	return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
}

const char *api_member(struct json_object *from, const char *path, const char *key)
{
	struct json_object *map = api_at(from, path), *value;

	if (!json_object_is_type(map, json_type_object) || !json_object_object_get_ex(map, key, &value) ||
	    !json_object_is_type(value, json_type_string))
		return "";
	return json_object_get_string(value);
}

int64_t api_number(struct json_object *from, const char *path)
{
	struct json_object *value = api_at(from, path);

	return json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : 0;
}

/* ---- one exchange ---- */

struct exchange {
	struct kube *k;
	struct berth_call *call;
	struct credentials credentials;
	struct buf url, body;
	struct json_tokener *lines; /* of a watch */
	api_line_fn *fn;
	void *arg;
	uint32_t status;
	bool ended; /* the receiver of lines has enough */
};

static int32_t take_head(void *ctx, uint32_t status, const struct berth_pair *headers, size_t count)
{
	struct exchange *ex = ctx;

	(void)headers;
	(void)count;
	ex->status = status;
	return BERTH_OK;
}

/* Gives each complete object to fn; white space between objects is skipped by the tokener. */
static int32_t take_lines(struct exchange *ex, const char *ptr, size_t len)
{
	buf_put(&ex->body, ptr, len);
	while (!ex->body.bad && ex->body.len) {
		char *end = memchr(ex->body.ptr, '\n', ex->body.len);
		size_t size = end ? (size_t)(end - ex->body.ptr) + 1 : 0;
		struct json_object *line;

		if (!end)
			return BERTH_OK;
		json_tokener_reset(ex->lines);
		line = json_tokener_parse_ex(ex->lines, ex->body.ptr, (int)prune_json(ex->body.ptr, size));
		memmove(ex->body.ptr, ex->body.ptr + size, ex->body.len - size);
		ex->body.len -= size;
		ex->ended = line && !ex->fn(ex->arg, line);
		json_object_put(line);
		if (ex->ended)
			return BERTH_CANCELLED;
	}
	return ex->body.bad ? BERTH_INVALID : BERTH_OK;
}

static int32_t take_body(void *ctx, const void *ptr, size_t len)
{
	struct exchange *ex = ctx;

	if (ex->fn && ex->status == 200)
		return take_lines(ex, ptr, len);
	buf_put(&ex->body, ptr, len);
	return ex->body.bad ? BERTH_INVALID : BERTH_OK;
}

static struct berth_http_request request_of(struct exchange *ex, const char *method)
{
	const struct cluster *cluster = &ex->k->cluster;

	return (struct berth_http_request){
		.struct_size = sizeof(struct berth_http_request),
		.flags = cluster->insecure ? BERTH_HTTP_TLS_INSECURE : 0,
		.method = str_of(method),
		.url = {ex->url.ptr, ex->url.len},
		.write = take_body,
		.head = take_head,
		.ctx = ex,
		.proxy = str_of(cluster->proxy),
		.ca_pem = str_of(ex->credentials.ca),
		.client_cert_pem = str_of(ex->credentials.cert),
		.client_key_pem = str_of(ex->credentials.key),
		.tls_server_name = str_of(cluster->tls_server_name),
		.response_max = BODY_MAX,
	};
}

static int32_t exchange_init(struct exchange *ex, struct kube *k, struct berth_call *call, const char *path,
			     int64_t refused_ns, struct kerr *err)
{
	*ex = (struct exchange){.k = k, .call = call, .url = {.max = 8192}, .body = {.max = BODY_MAX}};
	buf_add(&ex->url, "%s%s", k->cluster.server, path);
	if (ex->url.bad)
		return kerr_set(err, BERTH_INTERNAL, "url", "the request's address is too long");
	return auth_get(k, call, refused_ns, &ex->credentials, err);
}

static void exchange_fini(struct exchange *ex)
{
	if (ex->lines)
		json_tokener_free(ex->lines);
	auth_drop(&ex->credentials);
	buf_wipe(&ex->url);
	buf_wipe(&ex->body);
}

/* The body is only good for its tree afterwards. */
static struct json_object *parse(struct buf *body)
{
	struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
	struct json_object *tree;

	if (!tokener || !body->len || body->len > INT32_MAX)
		tree = NULL;
	else
		tree = json_tokener_parse_ex(tokener, body->ptr, (int)prune_json(body->ptr, body->len + 1));
	if (tokener)
		json_tokener_free(tokener);
	return tree;
}

static int32_t send_once(struct kube *k, struct berth_call *call, const struct api_request *request, int64_t refused_ns,
			 struct api_answer *ret, int64_t *ret_after_ms, struct kerr *err)
{
	struct berth_http_response response = {.struct_size = sizeof(response)};
	struct berth_http_request http;
	struct berth_pair headers[3], secret;
	struct exchange ex;
	size_t count = 0;
	int32_t rc = exchange_init(&ex, k, call, request->path, refused_ns, err);

	if (rc)
		goto out;
	http = request_of(&ex, request->method);
	headers[count++] = (struct berth_pair){str_of("Accept"), str_of("application/json")};
	headers[count++] = (struct berth_pair){str_of("User-Agent"), str_of("berth/" BERTH_VERSION)};
	if (request->body) {
		http.body = str_of(json_object_to_json_string_ext(request->body, JSON_C_TO_STRING_PLAIN));
		headers[count++] = (struct berth_pair){str_of("Content-Type"),
						       str_of(request->type ? request->type : "application/json")};
	}
	http.headers = headers;
	http.header_count = count;
	secret = (struct berth_pair){str_of("Authorization"), str_of(ex.credentials.bearer)};
	http.secret_headers = &secret;
	http.secret_header_count = ex.credentials.bearer ? 1 : 0;
	kube_host->counter(k->target, METRIC_REQUESTS, 1);
	rc = kube_host->http(k->target, call, &http, &response);
	ret->sent = response.sent;
	*ret_after_ms = response.retry_after_ms;
	if (rc) {
		kerr_set(err, rc, "http", "%s: no answer", request->what);
		err->told = call != NULL;
		goto out;
	}
	ret->status = response.status;
	ret->body = parse(&ex.body);
out:
	exchange_fini(&ex);
	return rc;
}

/* ---- again ---- */

static bool is_mutating(const struct api_request *request)
{
	return strcmp(request->method, "GET") != 0;
}

/* Certainly nothing was done: turned away at the door, or refused for somebody else's write to what a create counts
 * against. */
static bool was_refused(int32_t rc, const struct api_answer *answer)
{
	return answer->status == 429 || (answer->status == 409 && rc == BERTH_UNAVAILABLE);
}

/* A refusal before anything was done may be tried again whatever the request was. */
static bool may_repeat(const struct api_request *request, int32_t rc, const struct api_answer *answer)
{
	if (was_refused(rc, answer))
		return true;
	if (rc == BERTH_UNAVAILABLE && !answer->sent)
		return true;
	return request->repeatable && (rc == BERTH_UNAVAILABLE || rc == BERTH_UNKNOWN || answer->status >= 500);
}

static int64_t pause_ms(unsigned tries, int64_t after_ms)
{
	int64_t ms = (int64_t)BACKOFF_MS << tries;
	uint16_t noise;

	kube_host->random(&noise, sizeof(noise));
	ms = after_ms > ms ? after_ms : ms;
	return ms + ms * noise / (4 * 65536);
}

/* An object, a list of them, or the word that it was done. Anything else was said by somebody in between. */
static bool is_answer(struct json_object *body)
{
	return *api_text(body, "metadata.uid") || json_object_is_type(api_at(body, "items"), json_type_array) ||
	       (!strcmp(api_text(body, "kind"), "Status") && !strcmp(api_text(body, "status"), "Success"));
}

static int32_t judge(struct kube *k, const struct api_request *request, struct api_answer *answer, int64_t after_ms,
		     struct kerr *err)
{
	int32_t rc;

	if (answer->status >= 200 && answer->status < 300)
		return is_answer(answer->body)
			       ? BERTH_OK
			       : kerr_set(err, is_mutating(request) ? BERTH_UNKNOWN : BERTH_UNAVAILABLE, "bad_response",
					  "%s: HTTP %u with what is no answer of an API server", request->what,
					  answer->status);
	rc = status_classify(answer->status, answer->body, request->what, is_mutating(request), err);
	if (!after_ms)
		after_ms = api_number(answer->body, "details.retryAfterSeconds") * 1000;
	/* Said when to come again: it was turned away at the door. */
	if (answer->status == 503 && after_ms > 0)
		rc = kerr_set(err, BERTH_UNAVAILABLE, "server_unavailable", "%s: HTTP 503, come again", request->what);
	/* Of a create only a name that exists is one: the write that lost was to a quota. */
	if (rc == BERTH_CONFLICT && !strcmp(request->method, "POST") && strcmp(err->reason, "exists") != 0)
		rc = kerr_set(err, BERTH_UNAVAILABLE, "conflict", "%s: HTTP 409: %.400s", request->what,
			      api_text(answer->body, "message"));
	err->retry_after_ms = after_ms > 0 ? after_ms : 0;
	if (after_ms > 0)
		atomic_store(&k->quiet_ns, text_boot_ns() + after_ms * 1000000);
	return rc;
}

int32_t api_send(struct kube *k, struct berth_call *call, const struct api_request *request,
		 struct api_answer *ret_answer, struct kerr *err)
{
	bool renewed = false;
	int64_t began_ns = 0;
	int32_t rc;

	*ret_answer = (struct api_answer){0};
	for (unsigned tries = 0;; tries++) {
		int64_t after_ms = 0, pause, refused_ns = ret_answer->status == 401 ? began_ns : 0;

		api_drop(ret_answer);
		renewed = renewed || refused_ns;
		began_ns = text_boot_ns();
		rc = send_once(k, call, request, refused_ns, ret_answer, &after_ms, err);
		if (!rc)
			rc = judge(k, request, ret_answer, after_ms, err);
		if (ret_answer->status == 429)
			kube_host->counter(k->target, METRIC_THROTTLED, 1);
		if (ret_answer->status == 401 && !renewed)
			continue;
		if (!rc || tries + 1 >= TRIES || !may_repeat(request, rc, ret_answer))
			return rc;
		pause = pause_ms(tries, err->retry_after_ms);
		if (!call || pause > WAIT_MAX_MS || text_boot_ns() + pause * 1000000 >= kube_deadline_ns(call))
			return rc;
		kube_host->counter(k->target, METRIC_RETRIES, 1);
		if (kube_wait(call, text_boot_ns() + pause * 1000000, err))
			return is_mutating(request) && ret_answer->sent && !was_refused(rc, ret_answer)
				       ? kerr_set(err, BERTH_UNKNOWN, "interrupted", "%s: not known what came of it",
						  request->what)
				       : err->code;
	}
}

void api_drop(struct api_answer *answer)
{
	json_object_put(answer->body);
	*answer = (struct api_answer){0};
}

/* ---- watch ---- */

static int32_t watch_once(struct kube *k, const char *path, int64_t total_ms, api_line_fn *fn, void *arg,
			  int64_t refused_ns, uint32_t *ret_status, struct kerr *err)
{
	const struct berth_pair header = {str_of("Accept"), str_of("application/json")};
	struct berth_http_response response = {.struct_size = sizeof(response)};
	struct berth_http_request http;
	struct berth_pair secret;
	struct exchange ex;
	int32_t rc = exchange_init(&ex, k, NULL, path, refused_ns, err);

	if (rc)
		goto out;
	ex.fn = fn;
	ex.arg = arg;
	ex.body.max = LINE_MAX_BYTES;
	ex.lines = json_tokener_new_ex(DEPTH_MAX);
	http = request_of(&ex, "GET");
	http.flags |= BERTH_HTTP_LONG;
	http.headers = &header;
	http.header_count = 1;
	secret = (struct berth_pair){str_of("Authorization"), str_of(ex.credentials.bearer)};
	http.secret_headers = &secret;
	http.secret_header_count = ex.credentials.bearer ? 1 : 0;
	http.total_timeout_ms = total_ms;
	rc = ex.lines ? kube_host->http(k->target, NULL, &http, &response) : BERTH_UNAVAILABLE;
	if (rc && ex.ended)
		rc = BERTH_OK;
	else if (rc)
		kerr_set(err, rc, "http", "watch: no answer");
	else if (response.status != 200)
		rc = status_classify(response.status, NULL, "watch", false, err);
out:
	*ret_status = response.status;
	exchange_fini(&ex);
	return rc;
}

int32_t api_watch(struct kube *k, const char *path, int64_t total_ms, api_line_fn *fn, void *arg, struct kerr *err)
{
	int64_t began_ns = text_boot_ns();
	uint32_t status;
	int32_t rc = watch_once(k, path, total_ms, fn, arg, 0, &status, err);

	return status == 401 ? watch_once(k, path, total_ms, fn, arg, began_ns, &status, err) : rc;
}
