/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the checks of a request's head. Pure; entered from the loop threads. A fault here means that the bytes after the
 * head may be read differently by a proxy in front, so the caller must answer and close, never go on with the
 * connection.
 */
#include "api/head.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/limits.h"

void head_fault(struct head *head, const char *fmt, ...)
{
	va_list args;

	if (head->fault)
		return;
	head->fault = ERR_INVALID_REQUEST;
	va_start(args, fmt);
	vsnprintf(head->why, sizeof(head->why), fmt, args);
	va_end(args);
}

void head_init(struct head *head)
{
	*head = (struct head){.length = -1};
}

static bool is_token(const char *ptr, size_t len)
{
	static const char set[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

	for (size_t i = 0; i < len; i++) {
		if (!ptr[i] || !strchr(set, ptr[i]))
			return false;
	}
	return len > 0;
}

static bool has_control(const char *ptr, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)ptr[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return true;
	}
	return false;
}

static void take_length(struct head *head, const char *value)
{
	int64_t length = 0;

	if (head->length >= 0) {
		head_fault(head, "Content-Length is given twice");
		return;
	}
	if (!*value || strspn(value, "0123456789") != strlen(value)) {
		head_fault(head, "Content-Length is not a number");
		return;
	}
	for (; *value; value++) {
		if (__builtin_mul_overflow(length, 10, &length) ||
		    __builtin_add_overflow(length, *value - '0', &length)) {
			head_fault(head, "Content-Length is too large");
			return;
		}
	}
	head->length = length;
}

static void take_encoding(struct head *head, const char *value)
{
	if (head->chunked)
		head_fault(head, "Transfer-Encoding is given twice");
	else if (strcasecmp(value, "chunked") != 0)
		head_fault(head, "Transfer-Encoding must be chunked");
	head->chunked = true;
}

static void take_once(struct head *head, const char **slot, const char *name, const char *value)
{
	if (*slot)
		head_fault(head, "%s is given twice", name);
	else
		*slot = value;
}

/* Names that mean something here and may stand once. */
static const struct {
	const char *name;
	size_t off;
} once[] = {
	{"Host", offsetof(struct head, host)},
	{"Idempotency-Key", offsetof(struct head, idempotency_key)},
	{"Range", offsetof(struct head, range)},
	{"Expect", offsetof(struct head, expect)},
	{"X-Agentarea-Workspace-ID", offsetof(struct head, workspace)},
	{"X-Agentarea-Task-ID", offsetof(struct head, task)},
	{"Last-Event-ID", offsetof(struct head, last_event_id)},
	{"Content-Type", offsetof(struct head, content_type)},
	{"Content-Encoding", offsetof(struct head, content_encoding)},
	{"Content-Range", offsetof(struct head, content_range)},
	{"If-Range", offsetof(struct head, if_range)},
};

/* Several lines mean one list. */
static void take_forwarded(struct head *head, struct arena *arena, const char *value)
{
	head->forwarded_for = head->forwarded_for ? arena_printf(arena, "%s,%s", head->forwarded_for, value) : value;
}

static void take_known(struct head *head, struct arena *arena, const char *name, const char *value)
{
	if (strcasecmp(name, "Content-Length") == 0)
		take_length(head, value);
	else if (strcasecmp(name, "Transfer-Encoding") == 0)
		take_encoding(head, value);
	else if (strcasecmp(name, "X-Request-Id") == 0 && !head->request_id)
		head->request_id = value;
	else if (strcasecmp(name, "Authorization") == 0 && head->authorizations++ == 0)
		head->authorization = value;
	else if (strcasecmp(name, "traceparent") == 0 && !head->traceparent)
		head->traceparent = value;
	else if (strcasecmp(name, "If-Match") == 0 && !head->if_match)
		head->if_match = value;
	else if (strcasecmp(name, "If-None-Match") == 0 && !head->if_none_match)
		head->if_none_match = value;
	else if (strcasecmp(name, "X-Forwarded-For") == 0)
		take_forwarded(head, arena, value);
	for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++) {
		if (strcasecmp(name, once[i].name) == 0)
			take_once(head, (const char **)((char *)head + once[i].off), once[i].name, value);
	}
}

void head_add(struct head *head, struct arena *arena, const char *name, size_t name_len, const char *value,
	      size_t value_len)
{
	head->bytes += name_len + value_len + 4;
	if (head->bytes > LIMIT_HEADERS) {
		head_fault(head, "the headers are larger than %zu bytes", LIMIT_HEADERS);
		return;
	}
	if (!is_token(name, name_len)) {
		head_fault(head, "a header's name holds a byte that is not allowed there");
		return;
	}
	if (has_control(value, value_len)) {
		head_fault(head, "header %.64s holds a control byte", name);
		return;
	}

	const char *name_copy = arena_strndup(arena, name, name_len);
	const char *value_copy = arena_strndup(arena, value ? value : "", value_len);

	if (!name_copy || !value_copy) {
		head_fault(head, "the headers are too large");
		return;
	}
	take_known(head, arena, name_copy, value_copy);
}

int head_finish(struct head *head, const char *version, struct err *err)
{
	if (head->chunked && head->length >= 0)
		head_fault(head, "Content-Length and Transfer-Encoding exclude each other");
	if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
		head_fault(head, "the HTTP version is neither 1.0 nor 1.1");
	if (!head->host && strcmp(version, "HTTP/1.1") == 0)
		head_fault(head, "Host is missing");
	if (head->chunked && strcmp(version, "HTTP/1.1") != 0)
		head_fault(head, "Transfer-Encoding needs HTTP/1.1");
	return head->fault ? err_set(err, head->fault, "%s", head->why) : 0;
}

/* ---- what cannot be done ---- */

/* Types that clients send JSON under; curl's and fetch's defaults are among them. */
static const char *const json_types[] = {"application/json", "application/x-www-form-urlencoded", "text/plain",
					 "application/octet-stream"};

static bool may_be_json(const char *type, size_t len)
{
	for (size_t i = 0; i < sizeof(json_types) / sizeof(json_types[0]); i++) {
		if (strlen(json_types[i]) == len && strncasecmp(type, json_types[i], len) == 0)
			return true;
	}
	return len > 5 && strncasecmp(type, "application/", 12) == 0 && strncasecmp(type + len - 5, "+json", 5) == 0;
}

static bool is_utf8(const char *parameters)
{
	const char *charset = strcasestr(parameters, "charset=");

	if (!charset)
		return true;
	charset += strlen("charset=");
	charset += *charset == '"';
	return strncasecmp(charset, "utf-8", 5) == 0 || strncasecmp(charset, "us-ascii", 8) == 0;
}

static int check_media(const struct head *head, bool json, struct err *err)
{
	const char *type = head->content_type;
	size_t len = type ? strcspn(type, "; \t") : 0;

	if (head->content_encoding && strcasecmp(head->content_encoding, "identity") != 0)
		return err_set(err, ERR_MEDIA_TYPE, "Content-Encoding %.32s is not taken", head->content_encoding);
	if (json && type && (!may_be_json(type, len) || !is_utf8(type + len)))
		return err_set(err, ERR_MEDIA_TYPE, "Content-Type %.64s is not JSON in UTF-8", type);
	return 0;
}

/* Nothing here has a validator, so that none can match; and whether something is there is not known beforehand. */
static int check_conditions(const struct head *head, bool reads, struct err *err)
{
	if (head->if_match && (!reads || strcmp(head->if_match, "*") != 0))
		return err_set(err, ERR_PRECONDITION, "If-Match cannot hold: nothing here has an entity tag");
	if (!reads && head->if_none_match && strcmp(head->if_none_match, "*") == 0)
		return err_set(err, ERR_PRECONDITION, "If-None-Match: * cannot be promised");
	return 0;
}

int head_check(const struct head *head, const char *method, const char *version, bool json, struct err *err)
{
	bool reads = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
	int r;

	/* To HTTP/1.0 the header means nothing. */
	if (head->expect && strcmp(version, "HTTP/1.0") != 0 && strcasecmp(head->expect, "100-continue") != 0)
		return err_set(err, ERR_EXPECTATION, "Expect must be 100-continue");
	if (head->content_range)
		return err_set(err, ERR_INVALID_REQUEST, "Content-Range: a part of a file cannot be written");
	r = check_media(head, json && head_has_body(head), err);
	return r == 0 ? check_conditions(head, reads, err) : r;
}
