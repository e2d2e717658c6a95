/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A warm pod becomes a task's by one merge-patch that carries the version at which it was seen free, so that of two
 * writers one is refused. The session's state remembers the version at which it became ready, and at that version
 * nothing else has happened to it: the first patch needs no look. The kubelet writes to pods too: a refusal means to
 * look again at this pod, never to try another. Once the pod carries the task it stays the task's, whatever became of
 * the answer. Any thread.
 */
#include "assign.h"

#include <stdio.h>
#include <string.h>

#include "api.h"
#include "backend.h"
#include "fate.h"
#include "template.h"

#define LOOKS_MAX 20
#define PAUSE_NS INT64_C(5000000)

/* One claim. */
struct claim {
	struct kube *k;
	struct berth_call *call;
	struct session *session;
	const char *workspace, *task, *root;
	struct kerr *err;
};

static int32_t emit(struct claim *c, struct json_object *pod)
{
	struct session *session = c->session;
	struct podview view;
	struct report report;

	podview_of(pod, c->k->container, &view);
	snprintf(session->workspace, sizeof(session->workspace), "%s", view.workspace);
	snprintf(session->task, sizeof(session->task), "%s", view.task);
	session->version[0] = '\0';
	report_pod(c->k, pod, &view, session, c->root, &report);
	return kube_host->emit_session(c->call, &report.info);
}

static int32_t make_patch(struct claim *c, const char *version, struct json_object **ret)
{
	struct json_object *patch = json_object_new_object(), *metadata = template_object(patch, "metadata");
	int32_t rc;

	template_set(metadata, "resourceVersion", version);
	template_set(metadata, "uid", c->session->uid);
	rc = backend_mark(c->k, metadata, c->workspace, c->task, NULL, c->err);
	/* Null takes a key away. A pod in use is not for the autoscaler to move. */
	json_object_object_add(api_at(metadata, "labels"), LABEL_POOL, NULL);
	template_set(api_at(metadata, "annotations"), NOTE_EVICT, "false");
	if (rc)
		json_object_put(patch);
	else
		*ret = patch;
	return rc;
}

static int32_t patch_at(struct claim *c, const char *version)
{
	char path[256];
	struct api_request request = {.method = "PATCH", .path = path, .what = "assign pod", .type = API_MERGE_PATCH};
	struct api_answer answer;
	int32_t rc = make_patch(c, version, &request.body);

	if (rc)
		return rc;
	snprintf(path, sizeof(path), PODS_PATH "/%s", c->session->ref.ns, c->session->ref.name);
	rc = api_send(c->k, c->call, &request, &answer, c->err);
	if (!rc)
		rc = emit(c, answer.body);
	else if (rc == BERTH_NOT_FOUND)
		rc = kerr_set(c->err, BERTH_SESSION_LOST, "deleted", "the pod is gone");
	else if (rc == BERTH_CONFLICT)
		kube_host->counter(c->k->target, METRIC_CONFLICTS, 1);
	if (!rc && !strcmp(api_text(answer.body, "metadata.uid"), c->session->uid)) {
		handed_put(&c->k->handed, c->session->uid, answer.body);
		answer.body = NULL;
	}
	json_object_put(request.body);
	api_drop(&answer);
	return rc;
}

/* OK: free; *ret_mine: it carries the task already. Else why it cannot be had. */
static int32_t may_have(const struct claim *c, const struct podview *view, bool *ret_mine)
{
	*ret_mine = *view->task && !strcmp(view->task, c->task) && !strcmp(view->workspace, c->workspace);
	if (view->verdict.code == BERTH_SESSION_LOST)
		return kerr_set(c->err, BERTH_SESSION_LOST, view->verdict.reason, "%s", view->verdict.text);
	if (*view->task && !*ret_mine)
		return kerr_set(c->err, BERTH_CONFLICT, "assigned", "the session belongs to another task");
	/* It was ready when it came into the pool; a task is not made to wait for what became of it. */
	if (!*ret_mine && view->verdict.phase != BERTH_PHASE_READY)
		return kerr_set(c->err, BERTH_UNAVAILABLE, "not_ready", "the warm pod is not ready any more");
	return BERTH_OK;
}

static int32_t look_and_patch(struct claim *c)
{
	struct json_object *pod;
	struct podview view;
	bool mine = false;
	int32_t rc = fate_pod(c->k, c->call, c->session, &pod, c->err);

	if (rc)
		return rc;
	podview_of(pod, c->k->container, &view);
	rc = may_have(c, &view, &mine);
	if (!rc)
		rc = mine ? emit(c, pod) : patch_at(c, view.version);
	json_object_put(pod);
	return rc;
}

/* Refused for the pod's version, or not known: to be looked at again. */
static bool is_open(const struct claim *c, int32_t rc)
{
	return rc == BERTH_UNKNOWN || (rc == BERTH_CONFLICT && strcmp(c->err->reason, "assigned") != 0);
}

int32_t assign_pod(struct kube *k, struct berth_call *call, struct session *session, const char *workspace,
		   const char *task, const char *root, struct kerr *err)
{
	struct claim c = {k, call, session, workspace, task, root, err};
	bool unsure = false;
	int32_t rc = BERTH_OK;

	for (unsigned looks = 0; looks < LOOKS_MAX; looks++) {
		rc = looks == 0 && *session->version ? patch_at(&c, session->version) : look_and_patch(&c);
		if (!is_open(&c, rc)) {
			/* A patch may still arrive; only its version stands in the way. */
			if (!unsure || rc == BERTH_OK || rc == BERTH_SESSION_LOST || rc == BERTH_CONFLICT)
				return rc;
			break;
		}
		unsure = unsure || rc == BERTH_UNKNOWN;
		if (kube_wait(call, text_boot_ns() + PAUSE_NS, err))
			break;
	}
	if (unsure)
		return kerr_set(err, BERTH_UNKNOWN, "assign", "it is not known whether the pod was assigned");
	return rc == BERTH_CONFLICT ? kerr_set(err, BERTH_UNAVAILABLE, "conflicts", "others kept changing the pod")
				    : rc;
}
