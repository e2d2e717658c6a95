/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berthctl's HTTP side over libcurl: small exchanges, streams, and the sentences for what went wrong. One thread. Never prints the
 * token.
 */
#include "ctl/ctl.h"

#include <ctype.h>
#include <curl/curl.h>
#include <strings.h>

#include "core/json.h"
#include "core/limits.h"
#include "core/secret.h"

#define REPLY_MAX (64 * LIMIT_MIB)

struct exchange {
	struct ctl *ctl;
	CURL *easy;
	struct curl_slist *headers;
	struct ctl_reply *reply;
	ctl_sink sink;
	ctl_source source;
	void *arg;
	const char *method;
	bool failed; /* the local side stopped it */
};

void ctl_reply_fini(struct ctl_reply *reply)
{
	buf_fini(&reply->body);
	json_object_put(reply->json);
	reply->json = NULL;
}

static size_t on_header(char *ptr, size_t size, size_t count, void *arg)
{
	struct exchange *x = arg;

	if (size * count > 12 && !strncasecmp(ptr, "retry-after:", 12))
		x->reply->retry_after_ms = 1000 * strtoll(ptr + 12, NULL, 10);
	return size * count;
}

/* Success bodies go to the sink, error bodies are kept to be explained. */
static size_t on_body(char *ptr, size_t size, size_t count, void *arg)
{
	struct exchange *x = arg;
	long status = 0;

	curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
	if (x->sink && status / 100 == 2) {
		x->failed = x->sink(x->arg, ptr, size * count) != 0;
		return x->failed ? 0 : size * count;
	}
	return buf_append(&x->reply->body, ptr, size * count) ? 0 : size * count;
}

static size_t on_read(char *ptr, size_t size, size_t count, void *arg)
{
	struct exchange *x = arg;
	long got = x->source(x->arg, ptr, size * count);

	x->failed = got < 0;
	return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

/* At least once a second while an exchange waits, so that a signal is acted upon. */
static int on_tick(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct exchange *x = arg;

	(void)a, (void)b, (void)c, (void)d;
	if (strcmp(x->method, "DELETE"))
		ctl_pass_interrupt(x->ctl);
	return 0;
}

static void add_header(struct exchange *x, const char *name, const char *value)
{
	size_t len = strlen(name) + strlen(value) + 3;
	char *line = malloc(len);

	if (!line)
		return;
	snprintf(line, len, "%s: %s", name, value);
	x->headers = curl_slist_append(x->headers, line);
	secret_wipe(line, len);
	free(line);
}

static void add_token(struct exchange *x, const char *token)
{
	size_t len = strlen(token) + sizeof("Bearer ");
	char *value = malloc(len);

	if (!value)
		return;
	snprintf(value, len, "Bearer %s", token);
	add_header(x, "Authorization", value);
	secret_wipe(value, len);
	free(value);
}

static int open_exchange(struct ctl *ctl, struct exchange *x, const char *method, const char *path)
{
	struct buf url;

	x->ctl = ctl;
	x->method = method;
	x->easy = curl_easy_init();
	if (!x->easy)
		return ctl_fail(CTL_ERROR, "out of memory");
	buf_init(&x->reply->body, REPLY_MAX);
	buf_init(&url, 64 * LIMIT_KIB);
	buf_printf(&url, "%s%s", ctl->address, path);
	curl_easy_setopt(x->easy, CURLOPT_URL, url.ptr);
	buf_fini(&url);
	curl_easy_setopt(x->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(x->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(x->easy, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
	curl_easy_setopt(x->easy, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(x->easy, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(x->easy, CURLOPT_XFERINFOFUNCTION, on_tick);
	curl_easy_setopt(x->easy, CURLOPT_XFERINFODATA, x);
	curl_easy_setopt(x->easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(x->easy, CURLOPT_HEADERDATA, x);
	curl_easy_setopt(x->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(x->easy, CURLOPT_WRITEDATA, x);
	if (ctl->token)
		add_token(x, ctl->token);
	add_header(x, "Expect", "");
	return 0;
}

static int unreachable(const struct ctl *ctl, CURLcode code)
{
	if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST)
		return ctl_fail(CTL_UNAVAILABLE, "cannot reach berthd at %s: %s\n  is it running? set --address or BERTH_ADDRESS when it listens elsewhere",
				ctl->address, curl_easy_strerror(code));
	return ctl_fail(CTL_UNAVAILABLE, "%s: %s", ctl->address, curl_easy_strerror(code));
}

static int perform(struct ctl *ctl, struct exchange *x)
{
	CURLcode code;
	struct err err = {0};
	int rc = 0;

	curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, x->headers);
	code = curl_easy_perform(x->easy);
	curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &x->reply->status);
	if (x->failed)
		rc = CTL_ERROR; /* the local side said why */
	else if (code && !(x->source && x->reply->status >= 400)) /* an early refusal may break the upload */
		rc = unreachable(ctl, code);
	else if (x->reply->body.len && !x->sink)
		json_parse(x->reply->body.ptr, x->reply->body.len, &x->reply->json, &err);
	else if (x->reply->body.len && x->reply->status >= 400)
		json_parse(x->reply->body.ptr, x->reply->body.len, &x->reply->json, &err);
	curl_slist_free_all(x->headers);
	curl_easy_cleanup(x->easy);
	return rc;
}

int ctl_call(struct ctl *ctl, const char *method, const char *path, const char *body, struct ctl_reply *reply)
{
	struct exchange x = {.reply = reply};
	int rc;

	*reply = (struct ctl_reply){0};
	rc = open_exchange(ctl, &x, method, path);
	if (rc)
		return rc;
	if (body) {
		curl_easy_setopt(x.easy, CURLOPT_POSTFIELDS, body);
		curl_easy_setopt(x.easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
		add_header(&x, "Content-Type", "application/json");
	}
	return perform(ctl, &x);
}

int ctl_download(struct ctl *ctl, const char *path, ctl_sink sink, void *arg, struct ctl_reply *reply)
{
	struct exchange x = {.reply = reply, .sink = sink, .arg = arg};
	int rc;

	*reply = (struct ctl_reply){0};
	rc = open_exchange(ctl, &x, "GET", path);
	return rc ? rc : perform(ctl, &x);
}

int ctl_upload(struct ctl *ctl, const char *path, ctl_source source, void *arg, int64_t size, struct ctl_reply *reply)
{
	struct exchange x = {.reply = reply, .source = source, .arg = arg};
	int rc;

	*reply = (struct ctl_reply){0};
	rc = open_exchange(ctl, &x, "PUT", path);
	if (rc)
		return rc;
	curl_easy_setopt(x.easy, CURLOPT_UPLOAD, 1L);
	curl_easy_setopt(x.easy, CURLOPT_READFUNCTION, on_read);
	curl_easy_setopt(x.easy, CURLOPT_READDATA, &x);
	if (size >= 0)
		curl_easy_setopt(x.easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)size);
	else
		add_header(&x, "Transfer-Encoding", "chunked");
	return perform(ctl, &x);
}

/* Statuses to exit codes and what to do next. */
static const struct advice {
	long status;
	int code;
	const char *next;
} advices[] = {
	{401, CTL_DENIED, "set BERTH_TOKEN or --token-file to a token that the configuration of berthd lists"},
	{403, CTL_DENIED, "this token has not the scope or the workspace; ask for one that has"},
	{404, CTL_NOT_FOUND, NULL},
	{410, CTL_NOT_FOUND, "the session is gone; the next command gets a new one"},
	{429, CTL_UNAVAILABLE, "try again later"},
	{503, CTL_UNAVAILABLE, "try again later"},
	{504, CTL_UNAVAILABLE, "try again later"},
	{400, CTL_REFUSED, NULL},
	{409, CTL_REFUSED, NULL},
	{413, CTL_REFUSED, NULL},
	{422, CTL_REFUSED, NULL},
	{501, CTL_REFUSED, NULL},
	{0, CTL_ERROR, NULL},
};

int ctl_explain(const struct ctl *ctl, const struct ctl_reply *reply, const char *what)
{
	const struct advice *advice = advices;
	const char *message = ctl_text(reply->json, "message"), *word = ctl_text(reply->json, "error");

	while (advice->status && advice->status != reply->status)
		advice++;
	if (ctl->json && reply->json)
		ctl_json(reply->json);
	ctl_fail(advice->code, "%s: %s%s%s%s", what, *message ? message : "the answer was not Berth's; is the address right?",
		 *word ? " (" : "", word, *word ? ")" : "");
	if (reply->retry_after_ms)
		fprintf(stderr, "  try again in %lld s\n", (long long)(reply->retry_after_ms / 1000));
	else if (advice->next)
		fprintf(stderr, "  %s\n", advice->next);
	return advice->code;
}

static void percent(struct buf *out, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (isalnum(c) || strchr("-._~", c))
			buf_append(out, text, 1);
		else
			buf_printf(out, "%%%02X", c);
	}
}

void ctl_query(struct buf *path, const char *key, const char *value)
{
	if (!value)
		return;
	buf_printf(path, "%c%s=", path->ptr && strchr(path->ptr, '?') ? '&' : '?', key);
	percent(path, value);
}

void ctl_component(struct buf *path, const char *text)
{
	percent(path, text);
}
