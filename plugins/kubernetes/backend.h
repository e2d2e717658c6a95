/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ways to sandboxes: pods of our own, and agent-sandbox's claims. Commands, files and readiness of a pod are
 * the same in both. Semantics are those of the operations in provider.h; a NULL slot is not supported.
 */
#ifndef KUBERNETES_BACKEND_H
#define KUBERNETES_BACKEND_H

#include "kube.h"
#include "podview.h"
#include "session.h"

#define PODS_PATH "/api/v1/namespaces/%s/pods"

struct backend {
	int32_t (*check)(struct kube *k, struct berth_call *call, struct kerr *err);
	const char *list_what; /* for errors */
	/* Every session among the items of a list; of one task unless it is "". */
	int32_t (*emit)(struct kube *k, struct berth_call *call, struct json_object *list, const char *workspace,
			const char *task);
	int32_t (*provision)(struct kube *k, struct berth_call *call, const struct berth_spec *spec, struct kerr *err);
	/* SESSION_LOST when the object that the ref names is over, whatever its pod still does; NULL: the pod tells. */
	int32_t (*look)(struct kube *k, struct berth_call *call, const struct session *session, struct kerr *err);
	/* Blocks until the session has a pod, and names it in session; progress on the way. */
	int32_t (*locate)(struct kube *k, struct berth_call *call, struct session *session, struct kerr *err);
	int32_t (*assign)(struct kube *k, struct berth_call *call, struct session *session, const char *workspace,
			  const char *task, const char *root, struct kerr *err);
	int32_t (*inspect)(struct kube *k, struct berth_call *call, struct session *session, const char *root,
			   struct kerr *err);
	int32_t (*renew)(struct kube *k, struct berth_call *call, struct session *session, int64_t until_ms,
			 struct kerr *err);
	int32_t (*release)(struct kube *k, struct berth_call *call, struct session *session, struct kerr *err);
};

extern const struct backend backend_pods, backend_claims;

static inline const struct backend *backend_of(const struct kube *k)
{
	return k->claims ? &backend_claims : &backend_pods;
}

/* What is emitted of a session; texts live as long as their owners. */
struct report {
	struct berth_session_info info;
	char ref[BERTH_REF_MAX + 1];
	char boot[128];
	char state[1024];
};
/* Of a pod, with the executor's part of `session` (NULL: nothing known of it). `root` NULL: by the pod's template. */
void report_pod(const struct kube *k, struct json_object *pod, const struct podview *view,
		const struct session *session, const char *root, struct report *ret);

/* The one object with that name; *ret_body is NULL with NOT_FOUND. To be put. */
int32_t backend_get(struct kube *k, struct berth_call *call, const char *path, const char *what,
		    struct json_object **ret_body, struct kerr *err);
/* A list's label selector, percent-encoded: the deployment's objects, or a task's. */
int32_t backend_select(const struct kube *k, const char *workspace, const char *task, struct buf *url,
		       struct kerr *err);
/* The operations find and list: pages of what carries our labels. */
int32_t backend_find(struct kube *k, struct berth_call *call, const char *workspace, const char *task,
		     struct kerr *err);
int32_t backend_list(struct kube *k, struct berth_call *call, const char *cursor, struct kerr *err);
/* DELETE with the uid as precondition; OK when it is gone or going, NOT_FOUND when there was none. */
int32_t backend_delete(struct kube *k, struct berth_call *call, const char *path, const char *what, const char *uid,
		       struct kerr *err);
/* Before more is asked after a failure that said when: waits. False: go on; true: there is no time for it, err is what
 * it was. */
bool backend_hold_off(struct berth_call *call, const struct kerr *err);
/* INVALID, reason internet: nothing vouches for it that the session is kept off the internet. */
int32_t backend_check_internet(const struct kube *k, const struct berth_spec *spec, struct kerr *err);
/* Value of the label that network policies select by. */
const char *backend_internet(const struct berth_spec *spec);
/* Labels and annotations of an object that Berth makes. The identity may be empty. */
int32_t backend_mark(const struct kube *k, struct json_object *metadata, const char *workspace, const char *task,
		     const char *intent, struct kerr *err);

#endif
