/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells a broken way from a dead pod. An executor that does not answer says nothing; only the API server knows whether
 * the pod is gone, and why. The calling thread.
 */
#include "fate.h"

#include <stdio.h>
#include <string.h>

#include "api.h"
#include "backend.h"
#include "podview.h"
#include "watch.h"

int32_t fate_pod(struct kube *k, struct berth_call *call, const struct session *session, struct json_object **ret_pod,
		 struct kerr *err)
{
	char path[256];
	const struct api_request request = {.method = "GET", .path = path, .what = "get pod", .repeatable = true};
	struct api_answer answer;
	int32_t rc;

	*ret_pod = NULL;
	snprintf(path, sizeof(path), PODS_PATH "/%s", session->ref.ns, session->pod);
	rc = api_send(k, call, &request, &answer, err);
	if (rc == BERTH_NOT_FOUND)
		rc = kerr_set(err, BERTH_SESSION_LOST, "deleted", "the pod is gone");
	else if (!rc && strcmp(api_text(answer.body, "metadata.uid"), session->uid))
		rc = kerr_set(err, BERTH_SESSION_LOST, "deleted", "the pod is gone; another one has its name");
	else if (!rc)
		*ret_pod = json_object_get(answer.body);
	api_drop(&answer);
	return rc;
}

/* SESSION_LOST with the reason when the API server says so; anything else: not that it knows. */
static int32_t ask(struct kube *k, struct berth_call *call, const struct session *session, struct kerr *err)
{
	struct json_object *pod;
	struct podview view;
	int32_t rc = fate_pod(k, call, session, &pod, err);

	if (rc)
		return rc;
	podview_of(pod, k->container, &view);
	if (view.verdict.code == BERTH_SESSION_LOST)
		rc = kerr_set(err, BERTH_SESSION_LOST, view.verdict.reason, "%s", view.verdict.text);
	json_object_put(pod);
	return rc;
}

int32_t fate_before(struct kube *k, struct berth_call *call, const struct session *session, struct kerr *err)
{
	int32_t (*look)(struct kube *, struct berth_call *, const struct session *, struct kerr *) =
		backend_of(k)->look;
	struct kerr why;

	/* What the watch follows is what the ref names. */
	if (!watch_doubts(k->watch, session->ref.uid))
		return BERTH_OK;
	if ((!look || look(k, call, session, &why) != BERTH_SESSION_LOST) &&
	    ask(k, call, session, &why) != BERTH_SESSION_LOST)
		return BERTH_OK;
	*err = why;
	return why.code;
}

/* Also for a call that was told to stop: whether there is anything left to stop is what it needs to know. */
static bool has_time(struct berth_call *call)
{
	return kube_host->cancel_state(call) != BERTH_CANCEL_DETACH && text_boot_ns() < kube_deadline_ns(call);
}

int32_t fate_after(struct kube *k, struct berth_call *call, const struct session *session, int32_t rc, struct kerr *err)
{
	struct kerr why;

	if ((rc != BERTH_UNAVAILABLE && rc != BERTH_UNKNOWN && rc != BERTH_NOT_FOUND) || !has_time(call))
		return rc;
	/* NOT_FOUND of the executor's own is about a file or a command. */
	if (rc == BERTH_NOT_FOUND && strcmp(err->reason, "not_found"))
		return rc;
	if (ask(k, call, session, &why) != BERTH_SESSION_LOST)
		return rc;
	*err = why;
	return why.code;
}
