/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berthctl's HTTP side over libcurl: small exchanges and streams. A struct ctl keeps one connection and belongs to one thread;
 * an exchange inside another's callback takes a handle of its own. Never prints the token.
 */
#include "ctl/ctl.h"

#include <ctype.h>
#include <curl/curl.h>
#include <strings.h>

#include "core/json.h"
#include "core/limits.h"
#include "core/secret.h"

#define REPLY_MAX (64 * LIMIT_MIB)
#define CONNECT_S 10L
#define SMALL_S 150L  /* of a small exchange: the longest ?wait is a minute */
#define HURRIED_S 2L
#define RETRY_AFTER_MAX_S 86400
#define SILENT_S 600L /* of a file transfer: a session may have to be made first */

struct exchange {
	struct ctl *ctl;
	CURL *easy;
	bool own; /* the handle is of this exchange only */
	struct curl_slist *headers;
	struct ctl_reply *reply;
	const struct ctl_download *download;
	const struct ctl_upload *upload;
	const char *method;
	bool begun;
	bool named; /* the answer has its request's id, as each of berthd's */
	bool failed; /* the local side stopped it */
	bool silent;
};

void ctl_reply_fini(struct ctl_reply *reply)
{
	buf_fini(&reply->body);
	json_object_put(reply->json);
	reply->json = NULL;
}

struct ctl ctl_twin(const struct ctl *ctl)
{
	struct ctl twin = *ctl;

	twin.easy = NULL;
	twin.easy_busy = false;
	twin.waits_for = NULL;
	return twin;
}

void ctl_disconnect(struct ctl *ctl)
{
	if (ctl->easy)
		curl_easy_cleanup(ctl->easy);
	ctl->easy = NULL;
}

/* ---- callbacks ---- */

static bool header_value(const char *line, size_t len, const char *name, char *ret, size_t size)
{
	size_t skip = strlen(name);

	if (len <= skip || strncasecmp(line, name, skip) != 0)
		return false;
	while (skip < len && line[skip] == ' ')
		skip++;
	snprintf(ret, size, "%.*s", (int)(len - skip), line + skip);
	return true;
}

/* Whoever answers may be no berthd: any number, or a date, which counts as none. */
static int64_t retry_after_ms(const char *value)
{
	long long seconds = strtoll(value, NULL, 10);

	return 1000 * (seconds < 0 ? 0 : seconds > RETRY_AFTER_MAX_S ? RETRY_AFTER_MAX_S : seconds);
}

static size_t on_header(char *ptr, size_t size, size_t count, void *arg)
{
	struct exchange *x = arg;
	char value[32];

	if (header_value(ptr, size * count, "retry-after:", value, sizeof(value)))
		x->reply->retry_after_ms = retry_after_ms(value);
	else if (header_value(ptr, size * count, "content-length:", value, sizeof(value)))
		x->reply->size = strtoll(value, NULL, 10);
	else if (header_value(ptr, size * count, "x-agentarea-file-mode:", value, sizeof(value)))
		x->reply->mode = (unsigned)strtoul(value, NULL, 8) & 0777;
	else if (header_value(ptr, size * count, "x-request-id:", value, sizeof(value)))
		x->named = true;
	return size * count;
}

static void begin(struct exchange *x)
{
	if (x->begun)
		return;
	x->begun = true;
	if (x->download->begun)
		x->download->begun(x->download->arg, x->reply);
}

/* A silent one is judged by what it says. */
static bool is_strange(const struct exchange *x, long status)
{
	return status / 100 == 2 && !x->named && !x->silent && !x->ctl->hurried;
}

/* Success bodies go to the sink, error bodies are kept to be explained. */
static size_t on_body(char *ptr, size_t size, size_t count, void *arg)
{
	struct exchange *x = arg;
	long status = 0;

	curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
	if (x->download && status / 100 == 2) {
		if (is_strange(x, status))
			return 0;
		begin(x);
		x->failed = x->download->sink(x->download->arg, ptr, size * count) != 0;
		return x->failed ? 0 : size * count;
	}
	return buf_append(&x->reply->body, ptr, size * count) ? 0 : size * count;
}

static size_t on_read(char *ptr, size_t size, size_t count, void *arg)
{
	struct exchange *x = arg;
	long got = x->upload->source(x->upload->arg, ptr, size * count);

	x->failed = got < 0;
	return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

/* At least once a second while an exchange waits, so that a signal is acted upon. */
static int on_tick(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct exchange *x = arg;

	(void)a, (void)b, (void)c, (void)d;
	/* What a stop asks for itself; and what is to be cancelled is known by the answer to its create only. */
	if (!strcmp(x->method, "DELETE") || (!strcmp(x->method, "POST") && ctl_stopped()))
		return 0;
	ctl_pass_interrupt(x->ctl);
	if (x->upload)
		ctl_waiting_tick(x->ctl);
	return ctl_stopped();
}

/* ---- one exchange ---- */

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

static int take_handle(struct exchange *x)
{
	struct ctl *ctl = x->ctl;

	x->own = ctl->easy_busy;
	if (!x->own && ctl->easy)
		curl_easy_reset(ctl->easy);
	else if (!x->own)
		ctl->easy = curl_easy_init();
	x->easy = x->own ? curl_easy_init() : ctl->easy;
	if (!x->easy)
		return ctl_fail(CTL_ERROR, "out of memory");
	ctl->easy_busy = true;
	return 0;
}

static void set_callbacks(struct exchange *x)
{
	curl_easy_setopt(x->easy, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(x->easy, CURLOPT_XFERINFOFUNCTION, on_tick);
	curl_easy_setopt(x->easy, CURLOPT_XFERINFODATA, x);
	curl_easy_setopt(x->easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(x->easy, CURLOPT_HEADERDATA, x);
	curl_easy_setopt(x->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(x->easy, CURLOPT_WRITEDATA, x);
}

static void set_limits(struct exchange *x)
{
	bool stream = x->download || x->upload;

	curl_easy_setopt(x->easy, CURLOPT_CONNECTTIMEOUT, x->ctl->hurried ? HURRIED_S : CONNECT_S);
	curl_easy_setopt(x->easy, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(x->easy, CURLOPT_TCP_KEEPIDLE, 30L);
	if (x->ctl->hurried)
		curl_easy_setopt(x->easy, CURLOPT_TIMEOUT, HURRIED_S);
	else if (!stream)
		curl_easy_setopt(x->easy, CURLOPT_TIMEOUT, SMALL_S);
	else if (!x->download || !x->download->patient) {
		curl_easy_setopt(x->easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
		curl_easy_setopt(x->easy, CURLOPT_LOW_SPEED_TIME, SILENT_S);
	}
}

static int open_exchange(struct ctl *ctl, struct exchange *x, const char *method, const char *path)
{
	struct buf url;

	*x->reply = (struct ctl_reply){.size = -1};
	buf_init(&x->reply->body, REPLY_MAX);
	x->ctl = ctl;
	x->method = method;
	if (take_handle(x))
		return CTL_ERROR;
	buf_init(&url, 64 * LIMIT_KIB);
	buf_printf(&url, "%s%s", ctl->address, path);
	curl_easy_setopt(x->easy, CURLOPT_URL, url.ptr);
	buf_fini(&url);
	curl_easy_setopt(x->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(x->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(x->easy, CURLOPT_NOPROXY, "localhost,127.0.0.1,::1");
	curl_easy_setopt(x->easy, CURLOPT_CUSTOMREQUEST, method);
	if (ctl->ca_file)
		curl_easy_setopt(x->easy, CURLOPT_CAINFO, ctl->ca_file);
	set_callbacks(x);
	set_limits(x);
	if (ctl->token)
		add_token(x, ctl->token);
	add_header(x, "Expect", "");
	return 0;
}

/* A failed connection to what may have been done, and to what to do about it. */
static const struct {
	CURLcode code;
	const char *next;
} failures[] = {
	{CURLE_COULDNT_CONNECT, "is berthd running there? --address or BERTH_ADDRESS says where it listens"},
	{CURLE_COULDNT_RESOLVE_HOST, "--address or BERTH_ADDRESS says where it listens"},
	{CURLE_SSL_CONNECT_ERROR, "does the server there speak plain HTTP? then the address begins with http://"},
	{CURLE_PEER_FAILED_VERIFICATION,
	 "the certificate is not trusted, or is for another name; --ca-file or BERTH_CA_FILE names the authority that signed it"},
	{CURLE_SSL_CACERT_BADFILE, "--ca-file or BERTH_CA_FILE must name a file of PEM certificates"},
	{CURLE_GOT_NOTHING, "does the server there speak TLS? then the address begins with https://"},
	{CURLE_UNSUPPORTED_PROTOCOL, "does the server there speak TLS? then the address begins with https://"},
	{CURLE_WEIRD_SERVER_REPLY, "is it berthd that listens there?"},
};

static int unreachable(const struct ctl *ctl, CURLcode code)
{
	size_t i = 0;

	while (i < sizeof(failures) / sizeof(*failures) && failures[i].code != code)
		i++;
	ctl_fail(CTL_UNAVAILABLE, "cannot talk to berthd at %s: %s", ctl->address, curl_easy_strerror(code));
	if (i < sizeof(failures) / sizeof(*failures))
		fprintf(stderr, "  %s\n", failures[i].next);
	return CTL_UNAVAILABLE;
}

static bool never_sent(CURLcode code)
{
	return code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
	       code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION ||
	       code == CURLE_SSL_CACERT_BADFILE || code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL;
}

static int say_strange(const struct ctl *ctl, const struct exchange *x)
{
	const char *type = NULL;
	struct buf text;

	curl_easy_getinfo(x->easy, CURLINFO_CONTENT_TYPE, &type);
	buf_init(&text, 65536);
	ctl_clean(&text, type ? type : "no type");
	ctl_fail(CTL_ERROR, "%s: the answer is not berthd's (status %ld, %s)\n  --address or BERTH_ADDRESS says where berthd listens",
		 ctl->address, x->reply->status, text.ptr ? text.ptr : "");
	buf_fini(&text);
	return CTL_ERROR;
}

static int outcome(struct ctl *ctl, struct exchange *x, CURLcode code)
{
	struct ctl_reply *reply = x->reply;

	if (x->failed || (code && ctl_stopped()))
		return CTL_ERROR; /* the local side said why */
	if (is_strange(x, reply->status))
		return say_strange(ctl, x);
	if (x->reply->body.error == ERR_PAYLOAD_TOO_LARGE)
		return ctl_fail(CTL_ERROR, "the answer is larger than %zu MiB; ask for less", REPLY_MAX / LIMIT_MIB);
	if (code && !(x->upload && x->reply->status >= 400)) { /* an early refusal may break the upload */
		x->reply->lost = !never_sent(code);
		x->reply->status = 0;
		return x->silent || ctl->hurried ? CTL_UNAVAILABLE : unreachable(ctl, code);
	}
	if (x->download && x->reply->status / 100 == 2)
		begin(x);
	if (reply->body.len && json_parse_shown(reply->body.ptr, reply->body.len, &reply->json, NULL) &&
	    reply->status / 100 == 2 && !x->silent && !ctl->hurried)
		return ctl_not_berthd(ctl);
	return 0;
}

static int perform(struct ctl *ctl, struct exchange *x)
{
	CURLcode code;
	int rc;

	curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, x->headers);
	code = curl_easy_perform(x->easy);
	curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &x->reply->status);
	rc = outcome(ctl, x, code);
	curl_slist_free_all(x->headers);
	if (x->own)
		curl_easy_cleanup(x->easy);
	else
		ctl->easy_busy = false;
	return rc;
}

static int exchange(struct ctl *ctl, struct exchange *x, const char *method, const char *path, const char *body,
		    const char *header)
{
	int rc = open_exchange(ctl, x, method, path);

	if (rc)
		return rc;
	if (body) {
		curl_easy_setopt(x->easy, CURLOPT_POSTFIELDS, body);
		curl_easy_setopt(x->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(body));
		add_header(x, "Content-Type", "application/json");
	}
	if (header)
		x->headers = curl_slist_append(x->headers, header);
	return perform(ctl, x);
}

int ctl_call(struct ctl *ctl, const char *method, const char *path, const char *body, struct ctl_reply *reply)
{
	struct exchange x = {.reply = reply};

	return exchange(ctl, &x, method, path, body, NULL);
}

int ctl_try(struct ctl *ctl, const char *method, const char *path, const char *body, const char *header,
	    struct ctl_reply *reply)
{
	struct exchange x = {.reply = reply, .silent = true};

	return exchange(ctl, &x, method, path, body, header);
}

int ctl_download(struct ctl *ctl, const char *path, const struct ctl_download *how, struct ctl_reply *reply)
{
	struct exchange x = {.reply = reply, .download = how, .silent = how->silent};

	return exchange(ctl, &x, "GET", path, NULL, how->header);
}

int ctl_upload(struct ctl *ctl, const char *path, const struct ctl_upload *how, struct ctl_reply *reply)
{
	struct exchange x = {.reply = reply, .upload = how, .silent = how->silent};
	int rc = open_exchange(ctl, &x, "PUT", path);

	if (rc)
		return rc;
	curl_easy_setopt(x.easy, CURLOPT_UPLOAD, 1L);
	curl_easy_setopt(x.easy, CURLOPT_READFUNCTION, on_read);
	curl_easy_setopt(x.easy, CURLOPT_READDATA, &x);
	if (how->size >= 0)
		curl_easy_setopt(x.easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)how->size);
	else
		add_header(&x, "Transfer-Encoding", "chunked");
	return perform(ctl, &x);
}

/* ---- paths ---- */

static void percent(struct buf *out, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if ((c < 0x80 && isalnum(c)) || strchr("-._~", c))
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
