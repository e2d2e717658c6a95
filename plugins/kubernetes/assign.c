/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A warm pod becomes a task's by one merge-patch that carries the version at which it was seen free, so that of two
 * writers one is refused. The kubelet writes to pods too: a refusal means to look again at this pod, never to try
 * another. Once the pod carries the task it stays the task's, whatever became of the answer. Any thread.
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

static int32_t emit(struct kube *k, struct berth_call *call, struct json_object *pod, struct session *session,
		    const char *root)
{
	struct podview view;
	struct report report;

	podview_of(pod, k->container, &view);
	snprintf(session->workspace, sizeof(session->workspace), "%s", view.workspace);
	snprintf(session->task, sizeof(session->task), "%s", view.task);
	report_pod(k, pod, &view, session, root, &report);
	return kube_host->emit_session(call, &report.info);
}

static int32_t make_patch(struct kube *k, const struct podview *view, const char *workspace, const char *task,
			  struct json_object **ret, struct kerr *err)
{
	struct json_object *patch = json_object_new_object(), *metadata = template_object(patch, "metadata");
	int32_t rc;

	template_set(metadata, "resourceVersion", view->version);
	template_set(metadata, "uid", view->uid);
	rc = backend_mark(k, metadata, workspace, task, NULL, err);
	/* Null takes a key away. A pod in use is not for the autoscaler to move. */
	json_object_object_add(api_at(metadata, "labels"), LABEL_POOL, NULL);
	template_set(api_at(metadata, "annotations"), "cluster-autoscaler.kubernetes.io/safe-to-evict", "false");
	if (rc)
		json_object_put(patch);
	else
		*ret = patch;
	return rc;
}

static int32_t patch_once(struct kube *k, struct berth_call *call, struct session *session, const struct podview *view,
			  const char *workspace, const char *task, struct json_object **ret_pod, struct kerr *err)
{
	char path[256];
	struct api_request request = {.method = "PATCH", .path = path, .what = "assign pod", .type = API_MERGE_PATCH};
	struct api_answer answer;
	int32_t rc = make_patch(k, view, workspace, task, &request.body, err);

	if (rc)
		return rc;
	snprintf(path, sizeof(path), PODS_PATH "/%s", session->ref.ns, session->ref.name);
	rc = api_send(k, call, &request, &answer, err);
	if (!rc)
		*ret_pod = json_object_get(answer.body);
	if (rc == BERTH_NOT_FOUND)
		rc = kerr_set(err, BERTH_SESSION_LOST, "deleted", "the pod is gone");
	if (rc == BERTH_CONFLICT)
		kube_host->counter(k->target, METRIC_CONFLICTS, 1);
	json_object_put(request.body);
	api_drop(&answer);
	return rc;
}

/* OK: free; *ret_mine: it carries the task already. Else why it cannot be had. */
static int32_t may_have(const struct podview *view, const char *workspace, const char *task, bool *ret_mine,
			struct kerr *err)
{
	*ret_mine = *view->task && !strcmp(view->task, task) && !strcmp(view->workspace, workspace);
	if (view->verdict.code == BERTH_SESSION_LOST)
		return kerr_set(err, BERTH_SESSION_LOST, view->verdict.reason, "%s", view->verdict.text);
	if (*view->task && !*ret_mine)
		return kerr_set(err, BERTH_CONFLICT, "assigned", "the session belongs to another task");
	return BERTH_OK;
}

int32_t assign_pod(struct kube *k, struct berth_call *call, struct session *session, const char *workspace,
		   const char *task, const char *root, struct kerr *err)
{
	bool unsure = false, mine = false;
	int32_t rc = BERTH_OK;

	for (unsigned looks = 0; looks < LOOKS_MAX; looks++) {
		struct json_object *pod = NULL, *patched = NULL;
		struct podview view;

		rc = fate_pod(k, call, session, &pod, err);
		if (rc)
			break;
		podview_of(pod, k->container, &view);
		rc = may_have(&view, workspace, task, &mine, err);
		if (!rc && !mine)
			rc = patch_once(k, call, session, &view, workspace, task, &patched, err);
		if (!rc)
			rc = emit(k, call, patched ? patched : pod, session, root);
		json_object_put(patched);
		json_object_put(pod);
		unsure = rc == BERTH_UNKNOWN;
		if ((rc != BERTH_CONFLICT || !strcmp(err->reason, "assigned")) && !unsure)
			return rc;
		if (kube_wait(call, text_boot_ns() + PAUSE_NS, err))
			break;
	}
	/* A patch may still arrive; only its version stands in the way. */
	if (unsure && rc != BERTH_SESSION_LOST)
		return kerr_set(err, BERTH_UNKNOWN, "assign", "it is not known whether the pod was assigned");
	return rc == BERTH_CONFLICT ? kerr_set(err, BERTH_UNAVAILABLE, "conflicts", "others kept changing the pod")
				    : rc;
}
