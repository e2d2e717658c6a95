/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One signed request to an executor: its address, body frames, token, and the reply's frames. An answer without the
 * executor's own header, or from another pod, is never taken for its word: an address may belong to somebody else by
 * now, and a proxy answers for those it cannot reach. The calling thread; nothing is kept between requests.
 */
#include "peer.h"

#include <openssl/evp.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "../../sdk/lib/codes.h"
#include "api.h"
#include "auth.h"
#include "sign.h"
#include "status.h"

#define FRAME_HEAD 8
#define FRAME_MAX ((size_t)1024 * 1024 + 64)
#define PIECE_MAX ((size_t)64 * 1024)
#define BODY_MAX ((size_t)16 * 1024 * 1024)
#define TOKEN_MS 120000
#define ANSWER_MAX UINT64_C(0x7fffffffffffffff)
#define TRIES_MORE 3	 /* for a credential, an instance, a clock */
#define SILENCE_MS 60000 /* an executor that waits says at least every 15 s that it lives */

/* What the headers said of who answered. */
struct answerer {
	bool executor; /* the marker header is there */
	char uid[64], instance[INSTANCE_LEN + 1], nonce[33], workspace[129], task[129];
};

struct exchange {
	struct kube *k;
	struct berth_call *call;
	struct session *session;
	const struct peer_request *request;
	struct kerr *err;
	struct sign_key *key;
	struct buf url, body, in;
	EVP_MD_CTX *digest; /* of a body that is signed at its end */
	size_t given;	    /* of body */
	bool source_ended, body_ended;
	unsigned char *piece; /* a D frame while it is being sent */
	size_t piece_len, piece_given;
	char token[SIGN_TOKEN_MAX + 1];
	char nonce[33];
	int64_t refused_ns; /* when the request began whose credential the API server refused; 0: none */
	uint32_t status;
	struct answerer who;
	int32_t result; /* what R said; -1: nothing yet */
	int64_t forgotten;
	char reason[BERTH_REASON_MAX + 1];
	int64_t clock_ms; /* how far the executor's clock is ahead */
	int64_t retry_after_ms;
};

/* ---- frames ---- */

static void put_head(unsigned char head[FRAME_HEAD], char type, size_t len)
{
	const unsigned char bytes[FRAME_HEAD] = {(unsigned char)type,
						 0,
						 0,
						 0,
						 (unsigned char)(len >> 24),
						 (unsigned char)(len >> 16),
						 (unsigned char)(len >> 8),
						 (unsigned char)len};

	memcpy(head, bytes, FRAME_HEAD);
}

void peer_put(struct buf *body, char type, const void *ptr, size_t len)
{
	unsigned char head[FRAME_HEAD];
	const char *at = ptr;

	do {
		size_t part = len < 1024 * 1024 ? len : 1024 * 1024;

		put_head(head, type, part);
		buf_put(body, head, sizeof(head));
		buf_put(body, at, part);
		at += part;
		len -= part;
	} while (len);
}

static const struct {
	const char *word;
	int32_t code;
} codes[] = {
#define ROW(name, word, status) {word, BERTH_##name},
	CODES(ROW)
#undef ROW
};

static struct json_object *parse(const void *ptr, size_t len)
{
	struct json_tokener *tokener = json_tokener_new_ex(32);
	struct json_object *tree = tokener && len ? json_tokener_parse_ex(tokener, ptr, (int)len) : NULL;

	if (tokener)
		json_tokener_free(tokener);
	return tree;
}

static void word_into(char *ret, size_t cap, const char *text)
{
	size_t i = 0;

	for (; text[i] && i + 1 < cap; i++)
		ret[i] = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '0' && text[i] <= '9') ? text[i] : '_';
	ret[i] = '\0';
}

/* A result object becomes err; false: it is none. */
static bool take_result(struct exchange *ex, const void *ptr, size_t len)
{
	struct json_object *tree = parse(ptr, len);
	const char *word = api_text(tree, "code");
	bool known = false;

	for (size_t i = 0; !known && i < sizeof(codes) / sizeof(codes[0]); i++) {
		known = !strcmp(word, codes[i].word);
		if (known)
			ex->result = codes[i].code;
	}
	word_into(ex->reason, sizeof(ex->reason), api_text(tree, "reason"));
	if (known && api_number(tree, "now_ms"))
		ex->clock_ms = api_number(tree, "now_ms") - text_now_ms();
	if (known && api_at(tree, "forgotten"))
		ex->forgotten = api_number(tree, "forgotten");
	if (known && ex->result) {
		kerr_set(ex->err, ex->result, *ex->reason ? ex->reason : word, "%.500s", api_text(tree, "text"));
		ex->err->retryable = json_object_get_boolean(api_at(tree, "retryable"));
		ex->err->retry_after_ms = api_number(tree, "retry_after_ms");
	}
	json_object_put(tree);
	return known;
}

static int32_t take_frame(struct exchange *ex, const struct frame *frame)
{
	if (ex->result >= 0)
		return kerr_set(ex->err, BERTH_UNKNOWN, "bad_reply", "the executor sent more than its result");
	if (frame->type == 'R')
		return take_result(ex, frame->ptr, frame->len)
			       ? BERTH_OK
			       : kerr_set(ex->err, BERTH_UNKNOWN, "bad_reply", "the executor's result is none");
	return ex->request->frame ? ex->request->frame(ex->request->arg, frame, ex->err) : BERTH_OK;
}

static int32_t take_frames(struct exchange *ex, const void *ptr, size_t len)
{
	size_t at = 0;
	int32_t rc = BERTH_OK;

	buf_put(&ex->in, ptr, len);
	if (ex->in.bad)
		return kerr_set(ex->err, BERTH_UNKNOWN, "bad_reply", "the executor sent too long a frame");
	while (!rc && ex->in.len - at >= FRAME_HEAD) {
		const unsigned char *head = (const unsigned char *)ex->in.ptr + at;
		size_t size = (size_t)head[4] << 24 | (size_t)head[5] << 16 | (size_t)head[6] << 8 | head[7];
		const struct frame frame = {(char)head[0], head + FRAME_HEAD, size};

		if (size > FRAME_MAX)
			return kerr_set(ex->err, BERTH_UNKNOWN, "bad_reply", "the executor sent too long a frame");
		if (ex->in.len - at - FRAME_HEAD < size)
			break;
		rc = take_frame(ex, &frame);
		at += FRAME_HEAD + size;
	}
	memmove(ex->in.ptr, ex->in.ptr + at, ex->in.len - at);
	ex->in.len -= at;
	return rc;
}

/* ---- the answer ---- */

static void take_header(struct answerer *who, struct berth_str name, struct berth_str value)
{
	const struct {
		const char *name;
		char *at;
		size_t cap;
	} wanted[] = {
		{"berth-pod-uid", who->uid, sizeof(who->uid)},
		{"berth-instance", who->instance, sizeof(who->instance)},
		{"berth-nonce", who->nonce, sizeof(who->nonce)},
		{"berth-workspace-id", who->workspace, sizeof(who->workspace)},
		{"berth-task-id", who->task, sizeof(who->task)},
	};

	if (name.len == 14 && !strncasecmp(name.ptr, "berth-executor", 14))
		who->executor = str_is(value, "1");
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		if (name.len == strlen(wanted[i].name) && !strncasecmp(name.ptr, wanted[i].name, name.len))
			snprintf(wanted[i].at, wanted[i].cap, "%.*s", (int)value.len, value.ptr);
}

static int32_t take_head(void *ctx, uint32_t status, const struct berth_pair *headers, size_t count)
{
	struct exchange *ex = ctx;

	ex->status = status;
	for (size_t i = 0; i < count; i++)
		take_header(&ex->who, headers[i].name, headers[i].value);
	if (!ex->who.executor)
		return BERTH_OK;
	if (strcmp(ex->who.uid, ex->session->uid))
		return kerr_set(ex->err, BERTH_UNAVAILABLE, "wrong_peer",
				"another pod answered at the session's address");
	if (*ex->who.nonce && strcmp(ex->who.nonce, ex->nonce))
		return kerr_set(ex->err, BERTH_UNKNOWN, "wrong_peer", "the answer belongs to another request");
	if (*ex->who.nonce && *ex->session->task &&
	    (strcmp(ex->who.task, ex->session->task) || strcmp(ex->who.workspace, ex->session->workspace)))
		return kerr_set(ex->err, BERTH_FORBIDDEN, "identity", "the session serves another task");
	return BERTH_OK;
}

static int32_t take_body(void *ctx, const void *ptr, size_t len)
{
	struct exchange *ex = ctx;

	/* A body of one R comes in frames too; only errors and health are plain JSON. */
	if (ex->who.executor && ex->status == 200 && ex->request && strcmp(ex->request->path, "/v1/check"))
		return take_frames(ex, ptr, len);
	buf_put(&ex->in, ptr, len);
	return ex->in.bad ? kerr_set(ex->err, BERTH_UNKNOWN, "bad_reply", "the answer is too long") : BERTH_OK;
}

/* ---- the body ---- */

/* The next piece of the source as a frame, or the last frame. */
static int32_t next_piece(struct exchange *ex)
{
	unsigned char digest[32];
	size_t len = 0;
	int32_t rc = BERTH_OK;

	if (!ex->source_ended)
		rc = ex->request->source(ex->request->arg, ex->piece + FRAME_HEAD, PIECE_MAX, &len, ex->err);
	if (rc)
		return rc;
	ex->piece_given = 0;
	ex->piece_len = FRAME_HEAD + len;
	if (len) {
		put_head(ex->piece, 'D', len);
		EVP_DigestUpdate(ex->digest, ex->piece, ex->piece_len);
		return BERTH_OK;
	}
	ex->source_ended = ex->body_ended = true;
	put_head(ex->piece, 'Z', 64);
	ex->piece_len = FRAME_HEAD + 64;
	EVP_DigestFinal_ex(ex->digest, digest, NULL);
	sign_body(ex->key, ex->nonce, digest, ex->piece + FRAME_HEAD);
	return BERTH_OK;
}

static int32_t give_body(void *ctx, void *buf, size_t cap, size_t *ret_len)
{
	struct exchange *ex = ctx;
	size_t left = ex->body.len - ex->given;
	int32_t rc = BERTH_OK;

	if (left) {
		left = left < cap ? left : cap;
		memcpy(buf, ex->body.ptr + ex->given, left);
		ex->given += left;
		*ret_len = left;
		return BERTH_OK;
	}
	if (ex->piece_given == ex->piece_len && !ex->body_ended)
		rc = next_piece(ex);
	left = ex->piece_len - ex->piece_given;
	left = left < cap ? left : cap;
	if (!rc)
		memcpy(buf, ex->piece + ex->piece_given, left);
	ex->piece_given += left;
	*ret_len = rc ? 0 : left;
	return rc;
}

static int32_t make_body(struct exchange *ex)
{
	const struct peer_request *request = ex->request;
	const char *arguments =
		request->arguments
			? json_object_to_json_string_ext(request->arguments,
							 JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)
			: "{}";

	peer_put(&ex->body, 'A', arguments, strlen(arguments));
	if (request->more)
		buf_put(&ex->body, request->more->ptr, request->more->len);
	if (!request->source)
		peer_put(&ex->body, 'Z', "", 0);
	return ex->body.bad ? kerr_set(ex->err, BERTH_INVALID, "limit", "the request is larger than an executor takes")
			    : BERTH_OK;
}

static void digest_of(const void *ptr, size_t len, unsigned char ret[32])
{
	unsigned size;

	EVP_Digest(ptr, len, ret, &size, EVP_sha256(), NULL);
}

static int32_t make_token(struct exchange *ex, int64_t clock_ms)
{
	const struct peer_request *request = ex->request;
	const unsigned char *first = (const unsigned char *)ex->body.ptr;
	size_t first_len = FRAME_HEAD + ((size_t)first[5] << 16 | (size_t)first[6] << 8 | first[7]);
	unsigned char head[32], body[32], random[16];
	const struct sign_claims claims = {
		.uid = ex->session->uid,
		.instance = ex->session->instance,
		.workspace = ex->session->workspace,
		.task = ex->session->task,
		.method = "POST",
		.path = request->path,
		.head = head,
		.body = request->source ? NULL : body,
		.execution_id = request->execution_id ? request->execution_id : "-",
		.attempt = request->attempt,
		.expires_ms = text_now_ms() + clock_ms + TOKEN_MS,
		.nonce = ex->nonce,
	};

	kube_host->random(random, sizeof(random));
	sodium_bin2hex(ex->nonce, sizeof(ex->nonce), random, sizeof(random));
	digest_of(first, first_len, head);
	digest_of(ex->body.ptr, ex->body.len, body);
	return sign_token(ex->key, ex->k->key_id, &claims, ex->token, ex->err);
}

/* ---- one exchange ---- */

static void put_address(struct exchange *ex, const char *path)
{
	const struct session *s = ex->session;
	bool six = strchr(s->ip, ':') != NULL;

	if (ex->k->via_proxy)
		buf_add(&ex->url, "%s/api/v1/namespaces/%s/pods/%s:%u/proxy%s", ex->k->cluster.server, s->ref.ns,
			s->pod, ex->k->port, path);
	else
		buf_add(&ex->url, "http://%s%s%s:%u%s", six ? "[" : "", s->ip, six ? "]" : "", ex->k->port, path);
}

static struct berth_http_request http_of(struct exchange *ex, const struct credentials *credentials, const char *method)
{
	const struct cluster *cluster = &ex->k->cluster;
	struct berth_http_request http = {
		.struct_size = sizeof(http),
		.method = str_of(method),
		.url = {ex->url.ptr, ex->url.len},
		.head = take_head,
		.write = take_body,
		.ctx = ex,
		.response_max = ANSWER_MAX,
		.connect_timeout_ms = 5000,
	};

	if (!ex->k->via_proxy)
		return http;
	http.flags = cluster->insecure ? BERTH_HTTP_TLS_INSECURE : 0;
	http.proxy = str_of(cluster->proxy);
	http.ca_pem = str_of(credentials->ca);
	http.client_cert_pem = str_of(credentials->cert);
	http.client_key_pem = str_of(credentials->key);
	http.tls_server_name = str_of(cluster->tls_server_name);
	return http;
}

static void set_body(struct exchange *ex, struct berth_http_request *http)
{
	const struct peer_request *request = ex->request;

	if (!request)
		return;
	if (request->waiting) {
		http->flags |= BERTH_HTTP_LONG;
		http->idle_timeout_ms = SILENCE_MS;
	}
	if (!request->source) {
		http->body = (struct berth_str){ex->body.ptr, ex->body.len};
		return;
	}
	EVP_DigestInit_ex(ex->digest, EVP_sha256(), NULL);
	EVP_DigestUpdate(ex->digest, ex->body.ptr, ex->body.len);
	http->read = give_body;
	http->body_size = BERTH_SIZE_UNKNOWN;
}

/* *ret_sent: a byte may have reached somebody. */
static int32_t exchange(struct exchange *ex, const char *method, const char *path, bool *ret_sent)
{
	struct berth_http_response response = {.struct_size = sizeof(response)};
	struct credentials credentials = {0};
	struct berth_http_request http;
	struct berth_pair headers[2], secrets[2];
	size_t count = 0;
	int32_t rc = ex->k->via_proxy ? auth_get(ex->k, ex->call, ex->refused_ns, &credentials, ex->err) : BERTH_OK;

	if (rc)
		return rc;
	put_address(ex, path);
	http = http_of(ex, &credentials, method);
	set_body(ex, &http);
	headers[0] = (struct berth_pair){str_of("Content-Type"), str_of("application/vnd.berth.frames")};
	http.headers = headers;
	http.header_count = ex->request ? 1 : 0;
	if (*ex->token)
		secrets[count++] = (struct berth_pair){str_of("Berth-Token"), str_of(ex->token)};
	if (credentials.bearer)
		secrets[count++] = (struct berth_pair){str_of("Authorization"), str_of(credentials.bearer)};
	http.secret_headers = secrets;
	http.secret_header_count = count;
	ex->err->code = BERTH_OK;
	rc = kube_host->http(ex->k->target, ex->call, &http, &response);
	*ret_sent = response.sent;
	ex->retry_after_ms = response.retry_after_ms;
	/* What a callback of ours returned stands in err already. */
	if (rc && ex->err->code != rc) {
		kerr_set(ex->err, rc, "executor", "the executor did not answer");
		ex->err->told = true;
	}
	auth_drop(&credentials);
	return rc;
}

static int32_t exchange_init(struct exchange *ex, struct kube *k, struct berth_call *call, struct session *session,
			     const struct peer_request *request, struct kerr *err)
{
	*ex = (struct exchange){.k = k,
				.call = call,
				.session = session,
				.request = request,
				.err = err,
				.result = -1,
				.forgotten = -1,
				.url = {.max = 2048},
				.body = {.max = BODY_MAX},
				.in = {.max = FRAME_MAX * 2}};
	if (!k->via_proxy && !*session->ip)
		return kerr_set(err, BERTH_UNAVAILABLE, "no_address", "the pod has no address yet");
	if (!request)
		return BERTH_OK;
	ex->digest = EVP_MD_CTX_new();
	ex->piece = request->source ? malloc(FRAME_HEAD + PIECE_MAX) : NULL;
	if (!ex->digest || (request->source && !ex->piece))
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	return sign_key_get(k, &ex->key, err);
}

static void exchange_fini(struct exchange *ex)
{
	explicit_bzero(ex->token, sizeof(ex->token));
	EVP_MD_CTX_free(ex->digest);
	sign_key_drop(ex->key);
	free(ex->piece);
	buf_wipe(&ex->url);
	buf_wipe(&ex->body);
	buf_wipe(&ex->in);
}

/* What an answer that is not the executor's says of the way to it. */
static int32_t blame(struct exchange *ex)
{
	struct json_object *body = parse(ex->in.ptr, ex->in.len);
	const char *message = api_text(body, "message");
	int32_t rc;
	/* Whoever answered may have passed the request on before. */
	int32_t open = ex->request && !ex->request->safe ? BERTH_UNKNOWN : BERTH_UNAVAILABLE;

	if (ex->k->via_proxy && ex->status >= 500)
		rc = kerr_set(ex->err, open, "unreachable",
			      "the API server does not reach the executor: HTTP %u: %.300s", ex->status, message);
	else if (ex->k->via_proxy && ex->status >= 400)
		rc = status_classify(ex->status, body, "proxy to the executor", false, ex->err);
	else
		rc = kerr_set(ex->err, open, "wrong_peer", "what answers at the pod's address is no executor: HTTP %u",
			      ex->status);
	ex->err->retry_after_ms = ex->retry_after_ms;
	json_object_put(body);
	return rc;
}

/* By the API server: the request went no further. */
static bool was_refused(const struct exchange *ex)
{
	return ex->k->via_proxy && !ex->who.executor && ex->status == 401;
}

/* What an executor says of itself, to health and to check; *ret is to be put. NULL: the instance alone is wanted. */
static int32_t take_health(struct exchange *ex, struct json_object **ret)
{
	struct json_object *health = parse(ex->in.ptr, ex->in.len);
	int32_t rc = BERTH_OK;

	if (!health || strlen(api_text(health, "instance")) != INSTANCE_LEN || *api_text(health, "root") != '/')
		rc = kerr_set(ex->err, BERTH_UNAVAILABLE, "bad_reply", "the executor's health is not understood");
	else if (ex->status != 200 || !json_object_get_boolean(api_at(health, "ready")))
		rc = kerr_set(ex->err, BERTH_UNAVAILABLE, "not_ready", "the executor is not ready: %.60s",
			      api_text(health, "reason"));
	if (!rc)
		snprintf(ex->session->instance, sizeof(ex->session->instance), "%s", api_text(health, "instance"));
	if (!rc && ret)
		*ret = health;
	else
		json_object_put(health);
	return rc;
}

static int32_t judge(struct exchange *ex)
{
	if (!ex->who.executor)
		return blame(ex);
	if (ex->status == 200 && !strcmp(ex->request->path, "/v1/check"))
		return ex->request->ret_health ? take_health(ex, ex->request->ret_health) : BERTH_OK;
	if (ex->status != 200 && !take_result(ex, ex->in.ptr, ex->in.len))
		return kerr_set(ex->err, BERTH_UNKNOWN, "bad_reply", "the executor answered HTTP %u without a result",
				ex->status);
	if (ex->result < 0)
		return kerr_set(ex->err, BERTH_UNKNOWN, "cut", "the executor's answer broke off");
	return ex->result;
}

/* What one try leaves for the next. */
struct tries {
	int64_t clock_ms; /* how far the executor's clock is ahead; 0: not known to be */
	int64_t began_ns;
	int64_t refused_ns; /* when the one began whose credential was refused: it is to be read again */
	bool renewed;
	bool touched;
	bool again; /* something was refused for what is known better now */
};

/* Whether to try again, knowing better. */
static bool learn(struct exchange *ex, int32_t rc, struct tries *tries)
{
	struct session *session = ex->session;
	bool renew = rc == BERTH_UNAUTHENTICATED && was_refused(ex) && !tries->renewed;

	tries->refused_ns = renew ? tries->began_ns : 0;
	tries->renewed = tries->renewed || renew;
	if (rc != BERTH_UNAUTHENTICATED || renew)
		return renew;
	if (!strcmp(ex->reason, "instance") && strlen(ex->who.instance) == INSTANCE_LEN &&
	    strcmp(ex->who.instance, session->instance)) {
		memcpy(session->instance, ex->who.instance, sizeof(session->instance));
		return true;
	}
	if ((strcmp(ex->reason, "expired") && strcmp(ex->reason, "expires_far")) || tries->clock_ms)
		return false;
	tries->clock_ms = ex->clock_ms;
	return ex->clock_ms != 0;
}

static int32_t try_once(struct kube *k, struct berth_call *call, struct session *session,
			const struct peer_request *request, struct tries *tries, struct kerr *err)
{
	struct exchange *ex = malloc(sizeof(*ex));
	bool sent = false;
	int32_t rc;

	tries->again = tries->touched = false;
	if (!ex)
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	rc = exchange_init(ex, k, call, session, request, err);
	ex->refused_ns = tries->refused_ns;
	tries->began_ns = text_boot_ns();
	if (!rc)
		rc = make_body(ex);
	if (!rc)
		rc = make_token(ex, tries->clock_ms);
	if (!rc)
		rc = exchange(ex, "POST", request->path, &sent);
	if (!rc)
		rc = judge(ex);
	tries->touched = sent && rc != BERTH_UNAUTHENTICATED && rc != BERTH_FORBIDDEN;
	tries->again = learn(ex, rc, tries);
	if (request->ret_forgotten)
		*request->ret_forgotten = ex->forgotten;
	exchange_fini(ex);
	free(ex);
	return rc;
}

static int32_t health_once(struct kube *k, struct berth_call *call, struct session *session, int64_t refused_ns,
			   bool *ret_refused, struct kerr *err)
{
	struct exchange *ex = malloc(sizeof(*ex));
	bool sent;
	int32_t rc;

	*ret_refused = false;
	if (!ex)
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	rc = exchange_init(ex, k, call, session, NULL, err);
	ex->refused_ns = refused_ns;
	if (!rc)
		rc = exchange(ex, "GET", "/v1/health", &sent);
	*ret_refused = !rc && was_refused(ex);
	if (!rc && !ex->who.executor)
		rc = blame(ex);
	if (!rc)
		rc = take_health(ex, NULL);
	exchange_fini(ex);
	free(ex);
	return rc;
}

/* Fills the session's instance. */
static int32_t ask_health(struct kube *k, struct berth_call *call, struct session *session, struct kerr *err)
{
	int64_t began_ns = text_boot_ns();
	bool refused;
	int32_t rc = health_once(k, call, session, 0, &refused, err);

	return refused ? health_once(k, call, session, began_ns, &refused, err) : rc;
}

int32_t peer_send(struct kube *k, struct berth_call *call, struct session *session, const struct peer_request *request,
		  bool *ret_touched, struct kerr *err)
{
	struct tries tries = {0};
	int32_t rc = BERTH_OK;

	/* Without an instance no token is accepted; a source that was read cannot be read again for another one. */
	if (!*session->instance || request->source)
		rc = ask_health(k, call, session, err);
	for (unsigned count = 0; !rc; count++) {
		rc = try_once(k, call, session, request, &tries, err);
		if (!tries.again || count == TRIES_MORE || request->source)
			break;
		rc = BERTH_OK;
	}
	*ret_touched = tries.touched;
	return rc;
}
