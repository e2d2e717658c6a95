/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks what a caller asks for and puts it into the words of libcurl: URL, names, headers. The calling thread, before
 * anything is sent. Trusts no text: a line break in a header would be a request of its own. Wipes secrets when it frees.
 */
#include "net/private.h"

#include <ctype.h>
#include <stdint.h>

#include "core/secret.h"

#define UNIX_PATH_MAX 107
#define NAME_MAX_BYTES 255

static const char token_bytes[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static bool is_token(struct berth_str text, size_t max)
{
	if (!text.ptr || !text.len || text.len > max)
		return false;
	for (size_t i = 0; i < text.len; i++)
		if (!text.ptr[i] || !strchr(token_bytes, text.ptr[i]))
			return false;
	return true;
}

/* No control bytes; blanks only where `blanks` says so. */
static bool is_plain(struct berth_str text, bool blanks)
{
	for (size_t i = 0; i < text.len; i++) {
		unsigned char c = (unsigned char)text.ptr[i];

		if (c == 0x7f || (c < 0x20 && c != '\t') || (!blanks && (c == ' ' || c == '\t')))
			return false;
	}
	return true;
}

/* NULL in *ret for an empty text; false: not plain, too long, or out of memory. */
static bool copy_text(struct exchange *ex, struct berth_str text, size_t max, char **ret)
{
	*ret = NULL;
	if (!text.len)
		return true;
	if (!text.ptr || text.len > max || !is_plain(text, false))
		return false;
	*ret = arena_strndup(ex->arena, text.ptr, text.len);
	return *ret != NULL;
}

static bool is_one_of(const char *word, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(word, *list))
			return true;
	return false;
}

static const char *take_method(struct exchange *ex)
{
	static const char *const safe[] = {"GET", "HEAD", "OPTIONS", NULL};
	static const char *const bodied[] = {"POST", "PUT", "PATCH", NULL};
	const struct berth_http_request *request = ex->request;

	if (!is_token(request->method, 32))
		return "the method is no word of HTTP";
	ex->method = arena_strndup(ex->arena, request->method.ptr, request->method.len);
	if (!ex->method)
		return "memory is out";
	if (is_one_of(ex->method, (const char *const[]){"CONNECT", "TRACE", NULL}))
		return "this method is not for plugins";
	ex->safe = is_one_of(ex->method, safe);
	ex->has_body = request->read || request->body.len || is_one_of(ex->method, bodied);
	if (request->body.len && !request->body.ptr)
		return "the body has a length and no bytes";
	if (!strcmp(ex->method, "HEAD") && ex->has_body)
		return "a HEAD has no body";
	return NULL;
}

/* Parts of a URL; free with parts_fini. */
struct parts {
	CURLU *handle;
	char *scheme, *host, *port, *user, *password;
};

static void parts_fini(struct parts *parts)
{
	curl_free(parts->scheme);
	curl_free(parts->host);
	curl_free(parts->port);
	curl_free(parts->user);
	curl_free(parts->password);
	curl_url_cleanup(parts->handle);
}

static const char *split_url(const char *url, struct parts *parts)
{
	parts->handle = curl_url();
	if (!parts->handle)
		return "memory is out";
	if (curl_url_set(parts->handle, CURLUPART_URL, url, CURLU_PATH_AS_IS) != CURLUE_OK)
		return "the URL is none";
	curl_url_get(parts->handle, CURLUPART_USER, &parts->user, 0);
	curl_url_get(parts->handle, CURLUPART_PASSWORD, &parts->password, 0);
	if (parts->user || parts->password)
		return "the URL carries a credential; use a secret header";
	if (curl_url_get(parts->handle, CURLUPART_SCHEME, &parts->scheme, 0) != CURLUE_OK ||
	    curl_url_get(parts->handle, CURLUPART_HOST, &parts->host, 0) != CURLUE_OK ||
	    curl_url_get(parts->handle, CURLUPART_PORT, &parts->port, CURLU_DEFAULT_PORT) != CURLUE_OK)
		return "the URL has no scheme or host";
	if (strcasecmp(parts->scheme, "http") != 0 && strcasecmp(parts->scheme, "https") != 0)
		return "the URL's scheme is neither http nor https";
	return NULL;
}

/* Another name for TLS than the URL's: libcurl knows one host per URL, so the URL gets the name, the connection
 * goes where the URL said, and so does the Host header unless the caller sets one. */
static const char *rename_host(struct exchange *ex, const struct parts *parts, const char *name)
{
	const char *begin = strstr(ex->url, "://");
	bool own_port = strcmp(parts->port, "443") != 0;
	const char *rest;
	char *line;

	if (!begin || strpbrk(name, "/?#@:[]"))
		return "the TLS server name is none";
	rest = begin + 3 + strcspn(begin + 3, "/?#");
	line = arena_printf(ex->arena, "%s:%s:%s:%s", name, parts->port, parts->host, parts->port);
	ex->url = arena_printf(ex->arena, "https://%s:%s%s", name, parts->port, rest);
	if (!line || !ex->url)
		return "memory is out";
	ex->connect_to = curl_slist_append(NULL, line);
	line = arena_printf(ex->arena, "Host: %s%s%s", parts->host, own_port ? ":" : "", own_port ? parts->port : "");
	ex->headers = line ? curl_slist_append(NULL, line) : NULL;
	return ex->connect_to && ex->headers ? NULL : "memory is out";
}

static bool names_header(const struct berth_pair *pairs, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (pairs[i].name.len == strlen(name) && !strncasecmp(pairs[i].name.ptr, name, pairs[i].name.len))
			return true;
	return false;
}

static bool has_header(const struct exchange *ex, const char *name)
{
	const struct berth_http_request *request = ex->request;

	return names_header(request->headers, request->header_count, name) ||
	       names_header(request->secret_headers, request->secret_header_count, name);
}

static void hash_text(uint64_t *hash, const char *text)
{
	const char *at = text ? text : "";

	do {
		*hash = (*hash ^ (unsigned char)*at) * UINT64_C(1099511628211); /* FNV-1a, the NUL parts the texts */
	} while (*at++);
}

static void make_key(struct exchange *ex, const char *name)
{
	ex->key = UINT64_C(14695981039346656037);
	hash_text(&ex->key, ex->caller->owner);
	hash_text(&ex->key, ex->origin);
	hash_text(&ex->key, ex->unix_socket);
	hash_text(&ex->key, ex->proxy);
	hash_text(&ex->key, name);
	hash_text(&ex->key, ex->request->flags & BERTH_HTTP_TLS_INSECURE ? "insecure" : "");
}

static const char *take_url(struct exchange *ex)
{
	const struct berth_http_request *request = ex->request;
	struct parts parts = {0};
	char *name = NULL;
	const char *why = "the URL is empty, too long or has control bytes or blanks";

	if (!request->url.len || !copy_text(ex, request->url, NET_URL_MAX, &ex->url))
		return why;
	why = split_url(ex->url, &parts);
	if (why)
		goto out;
	ex->origin = arena_printf(ex->arena, "%s://%s:%s", parts.scheme, parts.host, parts.port);
	why = "a name of the request is too long or has control bytes";
	if (!ex->origin || !copy_text(ex, request->proxy, NET_HEADERS_MAX / 16, &ex->proxy) ||
	    !copy_text(ex, request->unix_socket, UNIX_PATH_MAX, &ex->unix_socket) ||
	    !copy_text(ex, request->tls_server_name, NAME_MAX_BYTES, &name))
		goto out;
	make_key(ex, name);
	why = NULL;
	if (name && !strcasecmp(parts.scheme, "https") && strcasecmp(name, parts.host) != 0)
		why = rename_host(ex, &parts, name);
	if (!why && ex->headers && has_header(ex, "Host")) {
		curl_slist_free_all(ex->headers);
		ex->headers = NULL;
	}
out:
	parts_fini(&parts);
	return why;
}

static bool push(struct exchange *ex, const char *line)
{
	struct curl_slist *more = curl_slist_append(ex->headers, line);

	if (more)
		ex->headers = more;
	return more != NULL;
}

/* libcurl: "Name: value", and "Name;" for an empty value. */
static const char *push_pair(struct exchange *ex, const struct berth_pair *pair, struct buf *line)
{
	static const char *const ours[] = {"Content-Length", "Transfer-Encoding", "Expect", "Upgrade", NULL};
	size_t at = 0;

	if (!is_token(pair->name, 256))
		return "a header's name is none";
	if (pair->value.len && (!pair->value.ptr || !is_plain(pair->value, true)))
		return "a header's value has control bytes";
	for (size_t i = 0; ours[i]; i++)
		if (pair->name.len == strlen(ours[i]) && !strncasecmp(pair->name.ptr, ours[i], pair->name.len))
			return "a header that the host sets itself: Content-Length, Transfer-Encoding, Expect, Upgrade";
	while (at < pair->value.len && (pair->value.ptr[at] == ' ' || pair->value.ptr[at] == '\t'))
		at++;
	secret_wipe(line->ptr, line->len);
	buf_clear(line);
	buf_append(line, pair->name.ptr, pair->name.len);
	buf_puts(line, at < pair->value.len ? ": " : ";");
	if (at < pair->value.len)
		buf_append(line, pair->value.ptr + at, pair->value.len - at);
	if (line->error == ERR_PAYLOAD_TOO_LARGE)
		return "the headers are too large";
	return !line->error && push(ex, line->ptr) ? NULL : "memory is out";
}

static const char *push_pairs(struct exchange *ex, const struct berth_pair *pairs, size_t count, size_t *bytes)
{
	struct buf line;
	const char *why = NULL;

	if (count && !pairs)
		return "a count of headers and no headers";
	if (count > NET_HEADER_COUNT_MAX)
		return "too many headers";
	buf_init(&line, NET_HEADERS_MAX);
	/* At its full size at once: a buffer that grows leaves what it held behind. */
	if (count && buf_reserve(&line, NET_HEADERS_MAX))
		why = "memory is out";
	for (size_t i = 0; i < count && !why; i++) {
		why = push_pair(ex, &pairs[i], &line);
		*bytes += pairs[i].name.len + pairs[i].value.len;
		if (!why && *bytes > NET_HEADERS_MAX)
			why = "the headers are too large";
	}
	if (line.ptr)
		secret_wipe(line.ptr, line.len);
	buf_fini(&line);
	return why;
}

static const char *take_headers(struct exchange *ex)
{
	const struct berth_http_request *request = ex->request;
	size_t bytes = 0;
	const char *why = push_pairs(ex, request->headers, request->header_count, &bytes);

	if (!why)
		why = push_pairs(ex, request->secret_headers, request->secret_header_count, &bytes);
	if (why)
		return why;
	/* No waiting for "100 Continue", and no type that libcurl makes up. */
	if (!push(ex, "Expect:") || (ex->has_body && !has_header(ex, "Content-Type") && !push(ex, "Content-Type:")) ||
	    (!has_header(ex, "User-Agent") && !push(ex, "User-Agent: berth/" BERTH_VERSION)) ||
	    (request->read && request->body_size == BERTH_SIZE_UNKNOWN && !push(ex, "Transfer-Encoding: chunked")))
		return "memory is out";
	return NULL;
}

static const char *take_identity(struct exchange *ex)
{
	const struct berth_str cert = ex->request->client_cert_pem, key = ex->request->client_key_pem;

	buf_init(&ex->identity, NET_PEM_MAX);
	if (!cert.len)
		return key.len ? "a client key without a certificate" : NULL;
	if (cert.len > NET_PEM_MAX || key.len > NET_PEM_MAX || buf_reserve(&ex->identity, cert.len + key.len + 1))
		return "the client certificate is too large";
	buf_append(&ex->identity, cert.ptr, cert.len);
	buf_puts(&ex->identity, "\n");
	buf_append(&ex->identity, key.ptr, key.len);
	return NULL;
}

static const char *check_numbers(const struct berth_http_request *request)
{
	if (request->connect_timeout_ms < 0 || request->idle_timeout_ms < 0 || request->total_timeout_ms < 0)
		return "a limit is negative";
	if (request->flags & ~(BERTH_HTTP_LONG | BERTH_HTTP_TLS_INSECURE))
		return "a flag is not known";
	if (request->read && request->body_size != BERTH_SIZE_UNKNOWN && request->body_size > INT64_MAX)
		return "the body's size is out of range";
	return NULL;
}

int32_t request_build(struct exchange *ex)
{
	const char *why;

	ex->arena = arena_new(NET_URL_MAX * 4 + NET_TEXT_MAX);
	if (!ex->arena)
		return outcome_invalid(ex, "memory is out");
	if ((why = check_numbers(ex->request)) || (why = take_method(ex)) || (why = take_url(ex)) ||
	    (why = take_headers(ex)) || (why = take_identity(ex)))
		return outcome_invalid(ex, why);
	return BERTH_OK;
}

void request_fini(struct exchange *ex)
{
	for (struct curl_slist *line = ex->headers; line; line = line->next)
		secret_wipe(line->data, strlen(line->data));
	curl_slist_free_all(ex->headers);
	curl_slist_free_all(ex->connect_to);
	if (ex->proxy)
		secret_wipe(ex->proxy, strlen(ex->proxy));
	if (ex->identity.ptr)
		secret_wipe(ex->identity.ptr, ex->identity.len);
	buf_fini(&ex->identity);
	arena_free(ex->arena);
}
