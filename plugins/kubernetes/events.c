/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounts, sandboxes and probes that fail show in no status, only in Events. They are asked for once, when a pod has
 * failed to start, and the newest warning is told. The calling thread. Never turns one failure into another.
 */
#include "events.h"

#include <stdio.h>
#include <string.h>

#include "api.h"
#include "backend.h"

#define EVENTS_PATH "/api/v1/namespaces/%s/events?limit=50&fieldSelector="

static const char *time_of(struct json_object *event)
{
	static const char *const keys[] = {"lastTimestamp", "eventTime", "metadata.creationTimestamp"};
	const char *text = "";

	for (size_t i = 0; !*text && i < sizeof(keys) / sizeof(keys[0]); i++)
		text = api_text(event, keys[i]);
	return text;
}

/* The later of two: times of one form compare as texts. */
static struct json_object *newest(struct json_object *items)
{
	struct json_object *best = NULL;

	for (size_t i = 0; json_object_is_type(items, json_type_array) && i < json_object_array_length(items); i++) {
		struct json_object *event = json_object_array_get_idx(items, i);

		if (!best || strcmp(time_of(event), time_of(best)) >= 0)
			best = event;
	}
	return best;
}

/* Both halves are cut so that the host's sentence has room for them. */
static void add(struct kerr *err, struct json_object *event)
{
	struct kerr was = *err;

	kerr_set(err, was.code, was.reason, "%.90s; %.30s: %.100s", was.text, api_text(event, "reason"),
		 api_text(event, "message"));
	err->retryable = was.retryable;
	err->retry_after_ms = was.retry_after_ms;
}

void events_explain(struct kube *k, struct berth_call *call, const struct session *session, struct kerr *err)
{
	struct buf url = {.max = 1024};
	struct json_object *list = NULL, *event;
	struct kerr why = {0};
	char fields[128];
	int32_t rc;

	snprintf(fields, sizeof(fields), "involvedObject.uid=%s,type=Warning", session->uid);
	buf_add(&url, EVENTS_PATH, session->ref.ns);
	buf_percent(&url, fields);
	rc = url.bad ? BERTH_UNAVAILABLE : backend_get(k, call, url.ptr, "list events", &list, &why);
	event = newest(api_at(list, "items"));
	if (rc)
		kube_log(k, call, BERTH_LOG_DEBUG, "events of a pod could not be listed", "error", why.text);
	else if (event)
		add(err, event);
	json_object_put(list);
	buf_wipe(&url);
}
