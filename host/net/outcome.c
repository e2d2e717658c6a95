/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the end of an exchange is called: one table for libcurl's results, one for the host's own reasons, and the rule
 * for what is not known. The calling thread. Texts name the origin and nothing else of the request.
 */
#include "net/private.h"

#include <openssl/x509.h>

struct row {
	int key;
	const char *reason;
	int32_t code; /* when nothing can have happened; else UNKNOWN takes its place where `open` says so */
	bool open;
	const char *text;
};

static const struct row results[] = {
	{CURLE_COULDNT_RESOLVE_HOST, "dns", BERTH_UNAVAILABLE, true, "the name does not resolve"},
	{CURLE_COULDNT_RESOLVE_PROXY, "proxy", BERTH_UNAVAILABLE, true, "the proxy's name does not resolve"},
	{CURLE_COULDNT_CONNECT, "connect", BERTH_UNAVAILABLE, true, "no connection"},
	{CURLE_PROXY, "proxy", BERTH_UNAVAILABLE, true, "the proxy gave no connection"},
	{CURLE_OPERATION_TIMEDOUT, "connect_timeout", BERTH_UNAVAILABLE, true, "no connection within its limit"},
	{CURLE_SSL_CONNECT_ERROR, "tls", BERTH_UNAVAILABLE, true, "the TLS handshake failed"},
	{CURLE_PEER_FAILED_VERIFICATION, "tls_verify", BERTH_UNAVAILABLE, true, "the peer's certificate is not trusted"},
	{CURLE_SSL_ISSUER_ERROR, "tls_verify", BERTH_UNAVAILABLE, true, "the peer's certificate is not trusted"},
	{CURLE_SSL_CERTPROBLEM, "tls_material", BERTH_INVALID, false, "the client certificate or its key is unusable"},
	{CURLE_SSL_CACERT_BADFILE, "tls_material", BERTH_INVALID, false, "the CA certificates are unusable"},
	{CURLE_SSL_CLIENTCERT, "tls_client", BERTH_UNAVAILABLE, true, "the peer wants a client certificate"},
	{CURLE_SEND_ERROR, "cut", BERTH_UNAVAILABLE, true, "the connection broke while sending"},
	{CURLE_RECV_ERROR, "cut", BERTH_UNAVAILABLE, true, "the connection broke before the answer was complete"},
	{CURLE_GOT_NOTHING, "cut", BERTH_UNAVAILABLE, true, "the peer closed the connection without an answer"},
	{CURLE_PARTIAL_FILE, "cut", BERTH_UNAVAILABLE, true, "the peer closed the connection within the answer"},
	{CURLE_WEIRD_SERVER_REPLY, "bad_response", BERTH_UNAVAILABLE, true, "the answer is not HTTP"},
	{CURLE_UNSUPPORTED_PROTOCOL, "bad_response", BERTH_UNAVAILABLE, true, "the answer is not HTTP"},
	{CURLE_BAD_CONTENT_ENCODING, "bad_response", BERTH_UNAVAILABLE, true, "the answer's encoding is wrong"},
	{CURLE_HTTP_RETURNED_ERROR, "bad_response", BERTH_UNAVAILABLE, true, "the answer is not HTTP"},
	{CURLE_URL_MALFORMAT, "request", BERTH_INVALID, false, "the URL is none"},
	{CURLE_OUT_OF_MEMORY, "memory", BERTH_UNAVAILABLE, true, "memory is out"},
	{0, "http", BERTH_UNAVAILABLE, true, NULL}, /* any other: libcurl's own sentence */
};

static const struct row cuts[] = {
	{CUT_CANCELLED, "cancelled", BERTH_CANCELLED, false, "cancelled"},
	{CUT_DEADLINE, "deadline", BERTH_TIMEOUT, true, "the call's deadline passed"},
	{CUT_TOTAL, "total_timeout", BERTH_TIMEOUT, true, "not done within its total limit"},
	{CUT_IDLE, "idle_timeout", BERTH_UNAVAILABLE, true, "no byte moved within the idle limit"},
	{CUT_BODY_SIZE, "response_too_large", BERTH_INVALID, false, "the answer's body is larger than allowed"},
	{CUT_HEAD_SIZE, "headers_too_large", BERTH_INVALID, false, "the answer's headers are too large"},
	{CUT_RESEND, "cut", BERTH_UNAVAILABLE, true, "the peer closed a reused connection without an answer"},
	{CUT_BODY_SHORT, "body_short", BERTH_INVALID, false, "the request's body ended before its size"},
	{CUT_BODY_LONG, "body_long", BERTH_INVALID, false, "the request's body is longer than its size"},
	{CUT_DESCRIPTORS, "descriptors", BERTH_UNAVAILABLE, true, "the host has no descriptor to spare"},
	{CUT_MEMORY, "memory", BERTH_UNAVAILABLE, true, "memory is out"},
	{CUT_CALLBACK, "callback", BERTH_INTERNAL, false, "ended by its receiver"},
};

static const struct row *find_row(const struct row *rows, size_t count, int key)
{
	size_t i = 0;

	while (i + 1 < count && rows[i].key != key)
		i++;
	return &rows[i];
}

#define FIND(rows, key) find_row(rows, sizeof(rows) / sizeof((rows)[0]), key)

static const char *verify_text(const struct exchange *ex)
{
	long verdict = X509_V_OK;

	curl_easy_getinfo(ex->easy, CURLINFO_SSL_VERIFYRESULT, &verdict);
	/* libcurl looks at the name before it asks for the verdict. */
	if (verdict == X509_V_OK || verdict == X509_V_ERR_UNSPECIFIED)
		return "it is for another name";
	return X509_verify_cert_error_string(verdict);
}

static int32_t fill(struct exchange *ex, const struct row *row, const char *more)
{
	struct net_failure *failure = ex->failure;
	int32_t code = row->code;

	if (row->open && ex->sent && !ex->safe)
		code = BERTH_UNKNOWN;
	failure->reason = row->reason;
	failure->retryable = code == BERTH_UNAVAILABLE || code == BERTH_TIMEOUT;
	snprintf(failure->text, sizeof(failure->text), "%s: %s%s%s%s%s", ex->origin ? ex->origin : "http",
		 row->text ? row->text : "", more && row->text ? " (" : "", more ? more : "",
		 more && row->text ? ")" : "", code == BERTH_UNKNOWN ? "; whether the request took effect is not known" : "");
	return code;
}

int32_t outcome_of(struct exchange *ex, CURLcode result)
{
	const struct row *row;
	const char *more = NULL;

	if (ex->head_done)
		ex->retry_after_ms = head_retry_after(ex);
	if (ex->cut) {
		int32_t code = fill(ex, FIND(cuts, (int)ex->cut), NULL);

		return ex->cut == CUT_CALLBACK ? ex->code : code;
	}
	if (result == CURLE_OK && ex->head_done)
		return BERTH_OK;
	/* An end of the transfer without a head: whatever it was, it was no answer. */
	row = FIND(results, result == CURLE_OK ? CURLE_WEIRD_SERVER_REPLY : (int)result);
	if (result == CURLE_OPERATION_TIMEDOUT && ex->starts)
		row = FIND(results, CURLE_RECV_ERROR);
	/* What libcurl says of one header line past its 100 KiB. */
	if (result == CURLE_OUT_OF_MEMORY && ex->starts && !ex->head_done)
		row = FIND(cuts, CUT_HEAD_SIZE);
	if (result == CURLE_PEER_FAILED_VERIFICATION)
		more = verify_text(ex);
	else if (!row->text)
		more = curl_easy_strerror(result);
	return fill(ex, row, more);
}

int32_t outcome_invalid(struct exchange *ex, const char *text)
{
	const struct row row = {0, "request", BERTH_INVALID, false, text};

	return fill(ex, &row, NULL);
}
