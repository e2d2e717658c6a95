/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the API server. Any thread; each blocks within its call. */
#ifndef KUBERNETES_API_H
#define KUBERNETES_API_H

#include "kube.h"

#define API_MERGE_PATCH "application/merge-patch+json"

struct api_request {
	const char *method;
	const char *path;	  /* from the root, with its query; already percent-encoded */
	const char *what;	  /* the request in words, for messages */
	struct json_object *body; /* NULL: none */
	const char *type;	  /* of the body; NULL: application/json */
	bool repeatable;	  /* the same request twice does what one does */
};

struct api_answer {
	uint32_t status;	  /* 0: none came */
	bool sent;		  /* a byte may have reached the server */
	struct json_object *body; /* to be put by api_drop; NULL when it is no JSON */
};

/* OK for 2xx. Everything else is in err, with status told besides; an outcome that is not known is UNKNOWN. Waits and
 * sends again what is throttled or failed and may be repeated, within the call's deadline. ret_answer is to be dropped
 * in any case. */
int32_t api_send(struct kube *k, struct berth_call *call, const struct api_request *request,
		 struct api_answer *ret_answer, struct kerr *err);
void api_drop(struct api_answer *answer);

/* Lines of a watch, one JSON object each, on the calling thread: true = go on. The rest of the request as for api_send;
 * it is sent once. OK: the server closed the stream. */
typedef bool api_line_fn(void *arg, struct json_object *line);
int32_t api_watch(struct kube *k, const char *path, int64_t total_ms, api_line_fn *fn, void *arg, struct kerr *err);

/* GET of what JSON pointers name: NULL when absent or of another type. */
struct json_object *api_at(struct json_object *from, const char *path);		     /* "metadata.labels" */
const char *api_text(struct json_object *from, const char *path);		     /* "" when absent */
const char *api_member(struct json_object *from, const char *path, const char *key); /* keys that hold dots */
int64_t api_number(struct json_object *from, const char *path);

#endif
