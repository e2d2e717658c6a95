/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the way from a struct err to the answer a caller sees: word, status, one sentence, when to come back. Entered
 * from loop threads and workers, one at a time per request. What the codes below say in their own words goes to the log
 * only.
 */
#include <string.h>

#include "api/auth.h"
#include "api/req.h"
#include "core/json.h"
#include "core/log.h"

#define RETRY_DEFAULT_MS 1000 /* for retryable errors that name no time */

/* Codes whose sentence may hold a provider's or the host's own text. */
static const struct {
	int code;
	const char *says;
} fixed[] = {
	{ERR_INTERNAL, "internal error"},
	{ERR_NOMEM, "internal error"},
	{ERR_IO, "internal error"},
	{ERR_CONFIG, "internal error"},
	{ERR_CORRUPT, "internal error"},
	{ERR_NOT_STARTED, "internal error"},
	{ERR_PROVIDER, "the provider answered with an error"},
	{ERR_OUTCOME_UNKNOWN, "the provider did not say what became of the request"},
	{ERR_PROVIDER_AUTH, "the provider refused this installation's credential"},
	{ERR_CAPACITY, "the provider has no capacity now"},
	{ERR_QUOTA, "a quota is reached"},
	{ERR_RATE_LIMITED, "too many requests at the provider"},
	{ERR_PROVIDER_UNAVAILABLE, "the provider cannot be reached now"},
	{ERR_PROVIDER_TIMEOUT, "the provider did not answer in time"},
	{ERR_STORAGE_FULL, "the sandbox has no room left"},
	{ERR_SESSION_GONE, "the session of this task is gone"},
	{ERR_STORE, "the store is not available now"},
};

static const char *fixed_sentence(int code)
{
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
		if (fixed[i].code == code)
			return fixed[i].says;
	}
	return NULL;
}

static const char *reference_code(const struct req *req, int code)
{
	const struct route_reference *reference = req->route ? req->route->reference : NULL;
	const char *word = NULL;

	if (!reference || code == ERR_SHUTTING_DOWN || code == ERR_QUEUE_FULL)
		return NULL;
	if (code == ERR_STORE)
		word = reference->away;
	else if (code == ERR_NOT_FOUND)
		word = reference->not_found;
	else if (code == ERR_PAYLOAD_TOO_LARGE)
		word = reference->too_large;
	else if (code == ERR_CONFLICT)
		word = reference->conflict;
	else if (err_http(code) >= 500)
		word = reference->failed;
	return word && strcmp(word, err_word(code)) != 0 ? word : NULL;
}

static void put_member(struct buf *buf, bool *first, const char *name, const char *value)
{
	if (!value || !*value)
		return;
	buf_puts(buf, *first ? "" : ",");
	json_put_string(buf, name, strlen(name));
	buf_puts(buf, ":");
	json_put_string(buf, value, strlen(value));
	*first = false;
}

static void put_details(struct req *req, const struct err *err)
{
	struct buf *body = &req->reply.body;
	bool internal = err_http(err->code) == 500;
	const char *reference = reference_code(req, err->code);
	bool first = true;

	if (!reference && !req->details && !err->reason[0] && !internal)
		return;
	buf_puts(body, ",\"details\":{");
	put_member(body, &first, "reason", err->reason);
	put_member(body, &first, "reference_code", reference);
	put_member(body, &first, "request_id", internal ? req->id : NULL);
	if (req->details)
		buf_printf(body, "%s%s", first ? "" : ",", req->details);
	buf_puts(body, "}");
}

static void put_body(struct req *req, const struct err *err, const char *sentence, int64_t retry_ms)
{
	struct buf *body = &req->reply.body;
	bool first = true;

	buf_puts(body, "{");
	put_member(body, &first, "error", err_word(err->code));
	put_member(body, &first, "message", sentence);
	if (retry_ms > 0)
		buf_printf(body, ",\"retry_after_ms\":%lld", (long long)retry_ms);
	put_details(req, err);
	buf_puts(body, "}\n");
}

static void put_headers(struct req *req, int code, int64_t retry_ms)
{
	char seconds[32];

	if (retry_ms > 0) {
		snprintf(seconds, sizeof(seconds), "%lld", (long long)((retry_ms + 999) / 1000));
		req_header(req, "Retry-After", seconds);
	}
	if (code == ERR_UNAUTHORIZED)
		req_header(req, "WWW-Authenticate", "Bearer");
}

void req_error(struct req *req, const struct err *given)
{
	struct err err = *given;

	/* A cut call: only a stop of the host does that to a request whose client is still there. */
	if (err.code == ERR_CANCELLED || err.code == ERR_DETACHED)
		err_set(&err, ERR_SHUTTING_DOWN, "the request was cut short");

	const char *sentence = fixed_sentence(err.code);
	int64_t retry_ms = err.retry_after_ms;

	if (sentence)
		log_at(err_http(err.code) == 500 ? LOG_ERROR : LOG_WARN, "request failed",
		       KS("code", err_name(err.code)), KS("reason", err.reason), KS("text", err.msg));
	if (retry_ms <= 0 && (err.retryable || err_retryable(err.code)) && err_http(err.code) != 410)
		retry_ms = RETRY_DEFAULT_MS;
	buf_clear(&req->reply.body);
	req->reply.status = (unsigned)err_http(err.code);
	req->reply.content_type = "application/json";
	req->reply.stream = false;
	req->reply.header_count = 0;
	put_body(req, &err, sentence ? sentence : err.msg, retry_ms);
	put_headers(req, err.code, retry_ms);
}
