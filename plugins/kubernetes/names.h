/* SPDX-License-Identifier: Apache-2.0 */
/* How tasks are written into Kubernetes: labels, annotations, object names. Pure; any thread. */
#ifndef KUBERNETES_NAMES_H
#define KUBERNETES_NAMES_H

#include "text.h"

/* Labels. A value is the identifier itself where Kubernetes allows it, else its digest. */
#define LABEL_MANAGED "app.kubernetes.io/managed-by"
#define LABEL_MANAGED_VALUE "berth"
#define LABEL_DEPLOYMENT "berth.dev/deployment"
#define LABEL_WORKSPACE "berth.dev/workspace"
#define LABEL_TASK "berth.dev/task"
#define LABEL_POOL "berth.dev/pool"	    /* only while it is warm and free */
#define LABEL_INTERNET "berth.dev/internet" /* allowed or denied; network policies select by it */
/* The same, exactly as the host gave it; compared after every look-up. */
#define NOTE_DEPLOYMENT "berth.dev/deployment"
#define NOTE_WORKSPACE "berth.dev/workspace"
#define NOTE_TASK "berth.dev/task"
#define NOTE_INTENT "berth.dev/intent"
#define NOTE_EVICT "cluster-autoscaler.kubernetes.io/safe-to-evict" /* "false" while a task has the pod */

#define LABEL_VALUE_MAX 63
#define NAME_PREFIX_MAX 12
#define NAME_MAX_LEN 63

/* ret holds LABEL_VALUE_MAX + 1. False: no memory for the digest. */
bool names_label(const char *id, char ret[LABEL_VALUE_MAX + 1]);
/* The name of a task's object: the same for each try, so that a second one is refused. */
bool names_task(const char *prefix, const char *deployment, const char *workspace, const char *task,
		char ret[NAME_MAX_LEN + 1]);
/* The name of an object that has no task yet, or whose task's name is still taken by a predecessor that is going. */
bool names_intent(const char *prefix, const char *deployment, const char *intent, char ret[NAME_MAX_LEN + 1]);
/* DNS-1123: [a-z0-9]([-a-z0-9]*[a-z0-9])?, 1 to max bytes. */
bool names_dns(const char *text, size_t max);

/* A session's ref: "<namespace>/<name>/<uid>". */
struct ref {
	char ns[64];
	char name[64];
	char uid[64];
};
bool names_ref(struct berth_str text, struct ref *ret);
/* False: a part is too long or holds a slash. */
bool names_ref_text(const char *ns, const char *name, const char *uid, char ret[BERTH_REF_MAX + 1]);

#endif
