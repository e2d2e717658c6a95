/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the API server's refusals to codes of the ABI: one table, first match wins. 403 has several meanings that only
 * the message tells apart. Pure; any thread.
 */
#include "status.h"

#include <string.h>

struct row {
	uint32_t status;
	const char *word;    /* the Status object's reason; NULL: any */
	const char *message; /* a part of its message; NULL: any */
	int32_t code;
	const char *reason; /* ours */
	bool open;	    /* of a request that changes something the outcome is not known */
	bool own;	    /* means this only when the API server says so itself, in a Status object */
	bool writes;	    /* only of a request that changes something: no other is judged by admission */
};

static const struct row rows[] = {
	{400, NULL, NULL, BERTH_INVALID, "bad_request", false},
	{401, NULL, NULL, BERTH_UNAUTHENTICATED, "unauthorized", false},
	{403, NULL, "forbidden: User ", BERTH_FORBIDDEN, "forbidden", false},
	{403, NULL, "exceeded quota", BERTH_QUOTA, "quota", false},
	{403, NULL, "violates PodSecurity", BERTH_INVALID, "pod_security", false},
	{403, NULL, "RuntimeClass", BERTH_INVALID, "runtime_class", false},
	{403, NULL, "is being terminated", BERTH_UNAVAILABLE, "namespace_terminating", false},
	{403, NULL, "usage per", BERTH_INVALID, "limit_range", false},
	{403, NULL, "PriorityClass", BERTH_INVALID, "priority_class", false},
	{403, NULL, NULL, BERTH_INVALID, "admission", false, true, true},
	{403, NULL, NULL, BERTH_FORBIDDEN, "forbidden", false},
	{404, NULL, NULL, BERTH_NOT_FOUND, "not_found", false, true},
	{405, NULL, NULL, BERTH_INVALID, "bad_request", false},
	{406, NULL, NULL, BERTH_INVALID, "bad_request", false},
	{409, "AlreadyExists", NULL, BERTH_CONFLICT, "exists", false, true},
	{409, NULL, NULL, BERTH_CONFLICT, "conflict", false, true},
	{410, NULL, NULL, BERTH_UNAVAILABLE, "expired", false, true},
	{413, NULL, NULL, BERTH_INVALID, "too_large", false},
	{415, NULL, NULL, BERTH_INVALID, "bad_request", false},
	{422, NULL, NULL, BERTH_INVALID, "rejected", false},
	{429, NULL, NULL, BERTH_RATE_LIMITED, "throttled", false},
	{500, NULL, NULL, BERTH_UNAVAILABLE, "server_error", true},
	{502, NULL, NULL, BERTH_UNAVAILABLE, "server_error", true},
	{503, NULL, NULL, BERTH_UNAVAILABLE, "server_unavailable", true},
	{504, NULL, NULL, BERTH_UNAVAILABLE, "server_timeout", true},
};

static const char *text_of(struct json_object *body, const char *key)
{
	struct json_object *value;

	if (!json_object_is_type(body, json_type_object) || !json_object_object_get_ex(body, key, &value) ||
	    !json_object_is_type(value, json_type_string))
		return "";
	return json_object_get_string(value);
}

const char *status_reason(struct json_object *body)
{
	return strcmp(text_of(body, "kind"), "Status") ? "" : text_of(body, "reason");
}

static bool matches(const struct row *row, uint32_t status, bool own, bool writing, const char *word,
		    const char *message)
{
	return row->status == status && (own || !row->own) && (writing || !row->writes) &&
	       (!row->word || !strcmp(row->word, word)) && (!row->message || strstr(message, row->message));
}

int32_t status_classify(uint32_t status, struct json_object *body, const char *what, bool writing, struct kerr *err)
{
	bool own = !strcmp(text_of(body, "kind"), "Status");
	const char *word = status_reason(body);
	const char *message = own ? text_of(body, "message") : "";
	const struct row other = {
		status, NULL, NULL, BERTH_UNAVAILABLE, status >= 500 ? "server_error" : "bad_response", true};
	const struct row *row = &other;
	int32_t code;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (matches(&rows[i], status, own, writing, word, message)) {
			row = &rows[i];
			break;
		}
	code = row->open && writing ? BERTH_UNKNOWN : row->code;
	return kerr_set(err, code, row->reason, "%s: HTTP %u%s%s%s%.400s", what, status, *word ? " " : "", word,
			*message ? ": " : "", message);
}
