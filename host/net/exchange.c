/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attempt of one exchange in libcurl's terms: its options, its callbacks, what may be repeated. The callbacks run on
 * the thread that drives libcurl, which is the calling thread or a loop; exchange_deliver* and exchange_fetch run on the
 * calling thread only. libcurl must never send twice on its own what the peer may have seen.
 */
#include "net/private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#define SMALL_BODY (64 * LIMIT_KIB) /* sent together with the head */

void exchange_cut(struct exchange *ex, enum cut cut)
{
	if (!ex->cut)
		ex->cut = cut;
}

static void note_moved(struct exchange *ex)
{
	atomic_store(&ex->moved_ns, clock_boot_ns());
}

static curl_off_t request_bytes(const struct exchange *ex)
{
	long size = 0;

	curl_easy_getinfo(ex->easy, CURLINFO_REQUEST_SIZE, &size);
	return size;
}

/* Right before the first byte of a request. A second time in one attempt means that libcurl found the reused connection
 * closed and is about to send again on its own, whatever the method and whatever the peer has seen: exchange_again
 * decides that instead. */
static int on_start(void *arg, char *peer, char *local, int peer_port, int local_port)
{
	struct exchange *ex = arg;
	long connects = 0;

	(void)peer, (void)local, (void)peer_port, (void)local_port;
	if (ex->starts++) {
		exchange_cut(ex, CUT_RESEND);
		return CURL_PREREQFUNC_ABORT;
	}
	curl_easy_getinfo(ex->easy, CURLINFO_NUM_CONNECTS, &connects);
	ex->reused = connects == 0;
	ex->sent_before = request_bytes(ex); /* a CONNECT to a proxy is none of the request */
	note_moved(ex);
	return CURL_PREREQFUNC_OK;
}

static size_t on_header(char *ptr, size_t size, size_t count, void *arg)
{
	note_moved(arg);
	return head_take(arg, ptr, size * count);
}

static size_t on_write(char *ptr, size_t size, size_t count, void *arg)
{
	struct exchange *ex = arg;
	size_t len = size * count, done;

	note_moved(ex);
	if (len > ex->body_max - ex->body_taken) {
		exchange_cut(ex, CUT_BODY_SIZE);
		return 0;
	}
	done = ex->way->write(ex, ptr, len);
	if (done == len)
		ex->body_taken += len;
	return done;
}

static size_t on_read(char *buf, size_t size, size_t count, void *arg)
{
	struct exchange *ex = arg;
	uint64_t whole = ex->request->read ? ex->request->body_size : ex->request->body.len;
	size_t len;

	note_moved(ex);
	if (ex->request->read) {
		len = ex->way->read(ex, buf, size * count);
	} else {
		len = ex->request->body.len - (size_t)ex->body_given;
		len = len < size * count ? len : size * count;
		memcpy(buf, ex->request->body.ptr + ex->body_given, len);
	}
	if (len == CURL_READFUNC_PAUSE || len == CURL_READFUNC_ABORT)
		return len;
	ex->body_given += len;
	if (whole != BERTH_SIZE_UNKNOWN && (ex->body_given > whole || (!len && ex->body_given < whole))) {
		exchange_cut(ex, len ? CUT_BODY_LONG : CUT_BODY_SHORT);
		return CURL_READFUNC_ABORT;
	}
	return len;
}

static int on_progress(void *arg, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
	struct exchange *ex = arg;

	(void)down_total, (void)up_total;
	if (down + up != ex->seen_moved) {
		ex->seen_moved = down + up;
		note_moved(ex);
	}
	return 0;
}

/* libcurl's own sockets would be inherited by the programs that plugins start. */
static curl_socket_t on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

	(void)purpose;
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		exchange_cut(arg, CUT_DESCRIPTORS);
	return fd < 0 ? CURL_SOCKET_BAD : fd;
}

static void set_blob(CURL *easy, CURLoption option, struct berth_str pem)
{
	struct curl_blob blob = {.len = pem.len, .flags = CURL_BLOB_NOCOPY};

	memcpy(&blob.data, &pem.ptr, sizeof(blob.data)); /* libcurl only reads it */
	curl_easy_setopt(easy, option, &blob);
}

static void set_tls(struct exchange *ex)
{
	const struct berth_http_request *request = ex->request;
	long check = !(request->flags & BERTH_HTTP_TLS_INSECURE);

	curl_easy_setopt(ex->easy, CURLOPT_SSL_VERIFYPEER, check);
	curl_easy_setopt(ex->easy, CURLOPT_SSL_VERIFYHOST, check * 2);
	curl_easy_setopt(ex->easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	if (request->ca_pem.len)
		set_blob(ex->easy, CURLOPT_CAINFO_BLOB, request->ca_pem);
	/* Beside certificates of the caller the system's folder would be trusted too; beside the system's file it keeps
	 * libcurl from caching what it read, which takes milliseconds for each connection. */
	if (request->ca_pem.len || ex->net->has_cainfo)
		curl_easy_setopt(ex->easy, CURLOPT_CAPATH, NULL);
	if (ex->identity.len) {
		const struct berth_str pem = {ex->identity.ptr, ex->identity.len};

		set_blob(ex->easy, CURLOPT_SSLCERT_BLOB, pem);
		set_blob(ex->easy, CURLOPT_SSLKEY_BLOB, pem);
	}
}

static void set_body(struct exchange *ex)
{
	const struct berth_http_request *request = ex->request;
	curl_off_t size = (curl_off_t)request->body.len;

	curl_easy_setopt(ex->easy, CURLOPT_HTTPGET, 1L);
	if (!strcmp(ex->method, "HEAD"))
		curl_easy_setopt(ex->easy, CURLOPT_NOBODY, 1L);
	if (ex->has_body) {
		curl_easy_setopt(ex->easy, CURLOPT_POST, 1L);
		if (request->read)
			size = request->body_size == BERTH_SIZE_UNKNOWN ? -1 : (curl_off_t)request->body_size;
		curl_easy_setopt(ex->easy, CURLOPT_POSTFIELDSIZE_LARGE, size);
		if (!request->read && request->body.len <= SMALL_BODY)
			curl_easy_setopt(ex->easy, CURLOPT_POSTFIELDS, request->body.len ? request->body.ptr : "");
		curl_easy_setopt(ex->easy, CURLOPT_READFUNCTION, on_read);
		curl_easy_setopt(ex->easy, CURLOPT_READDATA, ex);
	}
	curl_easy_setopt(ex->easy, CURLOPT_CUSTOMREQUEST, ex->method);
}

static void set_callbacks(struct exchange *ex)
{
	CURL *easy = ex->easy;

	curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_start);
	curl_easy_setopt(easy, CURLOPT_PREREQDATA, ex);
	curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(easy, CURLOPT_HEADERDATA, ex);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, ex);
	curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(easy, CURLOPT_XFERINFODATA, ex);
	curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, ex);
}

static void set_connection(struct exchange *ex)
{
	CURL *easy = ex->easy;
	int64_t connect_ms = ex->request->connect_timeout_ms;

	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	/* Or the end of an exchange waits for a name server that does not answer. */
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
	connect_ms = connect_ms ? connect_ms : NET_CONNECT_DEFAULT_MS;
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(connect_ms < INT32_MAX ? connect_ms : INT32_MAX));
	curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)NET_KEEP_S);
	curl_easy_setopt(easy, CURLOPT_MAXLIFETIME_CONN, (long)NET_LIFE_S);
	curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, (long)ex->fresh);
	curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	/* Empty rather than unset: libcurl would look into the environment. */
	curl_easy_setopt(easy, CURLOPT_PROXY, ex->proxy ? ex->proxy : "");
	curl_easy_setopt(easy, CURLOPT_NOPROXY, "");
	curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	if (ex->unix_socket)
		curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, ex->unix_socket);
	if (ex->connect_to)
		curl_easy_setopt(easy, CURLOPT_CONNECT_TO, ex->connect_to);
}

void exchange_prepare(struct exchange *ex)
{
	curl_easy_reset(ex->easy);
	curl_easy_setopt(ex->easy, CURLOPT_URL, ex->url);
	curl_easy_setopt(ex->easy, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(ex->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(ex->easy, CURLOPT_FOLLOWLOCATION, 0L);
	/* One descriptor for each, and a pause that holds up nobody else. */
	curl_easy_setopt(ex->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(ex->easy, CURLOPT_HTTPHEADER, ex->headers);
	curl_easy_setopt(ex->easy, CURLOPT_HEADEROPT, (long)CURLHEADER_SEPARATE); /* none for a proxy */
	curl_easy_setopt(ex->easy, CURLOPT_PRIVATE, ex);
	set_connection(ex);
	set_callbacks(ex);
	set_tls(ex);
	set_body(ex);
	ex->starts = 0;
	ex->seen_moved = 0;
}

enum cut exchange_due(const struct exchange *ex, int64_t *ret_next_ns)
{
	int64_t now = clock_boot_ns(), silent = INT64_MAX;

	if (ex->caller->cancelled && ex->caller->cancelled(ex->caller->arg))
		return CUT_CANCELLED;
	if (now >= ex->deadline_ns)
		return ex->late;
	if (ex->idle_ns != INT64_MAX)
		silent = atomic_load(&ex->moved_ns) + ex->idle_ns;
	if (now >= silent)
		return CUT_IDLE;
	*ret_next_ns = silent < ex->deadline_ns ? silent : ex->deadline_ns;
	return CUT_NONE;
}

bool exchange_again(struct exchange *ex, CURLcode result)
{
	bool broken = ex->cut == CUT_RESEND || (!ex->cut && (result == CURLE_SEND_ERROR || result == CURLE_RECV_ERROR ||
							     result == CURLE_GOT_NOTHING));
	bool seen = ex->starts && request_bytes(ex) > ex->sent_before;
	bool harmless = !seen || (ex->safe && !ex->has_body);

	ex->sent = ex->sent || seen;
	if (!broken || !ex->reused || ex->fresh || ex->head_lines || ex->head_done || ex->body_given || !harmless)
		return false;
	ex->fresh = true;
	ex->reused = false;
	ex->cut = CUT_NONE;
	exchange_prepare(ex);
	return true;
}

int32_t exchange_deliver_head(struct exchange *ex)
{
	struct berth_pair *pairs;
	size_t count;
	int32_t code;

	if (!ex->request->head)
		return BERTH_OK;
	pairs = head_pairs(ex, &count);
	if (!pairs)
		return BERTH_INTERNAL;
	code = ex->request->head(ex->request->ctx, ex->status, pairs, count);
	note_moved(ex); /* the caller's time is not the peer's silence; the same below */
	return code;
}

int32_t exchange_deliver(struct exchange *ex, const char *ptr, size_t len)
{
	int32_t code = ex->request->write ? ex->request->write(ex->request->ctx, ptr, len) : BERTH_OK;

	note_moved(ex);
	return code;
}

int32_t exchange_fetch(struct exchange *ex, char *buf, size_t cap, size_t *ret_len)
{
	int32_t code;

	*ret_len = 0;
	code = ex->request->read(ex->request->ctx, buf, cap, ret_len);
	note_moved(ex);
	return code == BERTH_OK && *ret_len > cap ? BERTH_INTERNAL : code;
}
