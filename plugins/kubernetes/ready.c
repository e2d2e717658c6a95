/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits until a session's pod is ready and its executor takes a signed request. Looks at the pod when the watch has
 * seen it ready, failing or gone, and now and then without it. Tells what Kubernetes says while it waits; what cannot
 * heal ends the wait at once, and a little of the time is kept to ask why. The calling thread.
 */
#include "ready.h"

#include <stdio.h>
#include <string.h>

#include "api.h"
#include "backend.h"
#include "events.h"
#include "fate.h"
#include "peer.h"
#include "watch.h"

/* The watch tells of a pod; what becomes of a claim's pod only a look does. */
#define LOOK_POD_NS INT64_C(250000000)
#define LOOK_CLAIM_NS INT64_C(50000000)
#define LOOK_MOST_NS INT64_C(2000000000)
#define EXPLAIN_NS INT64_C(1000000000) /* of the call's time, for what is asked after a failure */
#define DIAL_FIRST_NS INT64_C(20000000)
#define DIAL_MOST_NS INT64_C(1000000000)
/* How long a pod that cannot be scheduled is waited for here; the host asks again for as long as it wants. */
#define UNSCHEDULABLE_NS INT64_C(1000000000)

/* What was seen so far. */
struct wait {
	struct kube *k;
	struct berth_call *call;
	struct session *session;
	uint32_t phase;	  /* last told */
	int64_t since_ns; /* a verdict with grace stands since then; 0: none does */
	int64_t full_ns;  /* unschedulable since then */
	struct verdict last;
	struct json_object *pod; /* once it is ready */
	struct podview view;	 /* of it */
	struct kerr *err;
};

/* A pod that is ready is not waited for: whoever keeps what is told would write it down for nothing. */
static void tell(struct wait *w, uint32_t phase, const char *text)
{
	if (phase == w->phase || phase == BERTH_PHASE_READY)
		return;
	w->phase = phase;
	kube_host->progress(w->call, phase, text);
}

static bool has_lasted(int64_t *since_ns, int64_t ns)
{
	int64_t now = text_boot_ns();

	if (!*since_ns)
		*since_ns = now;
	return now - *since_ns >= ns;
}

/* OK: look again later. Else the wait's end. */
static int32_t judge(struct wait *w, const struct verdict *verdict)
{
	bool full = verdict->code == BERTH_CAPACITY && !(verdict->flags & VERDICT_HOLD);

	w->last = *verdict;
	if (!(verdict->flags & VERDICT_GRACE))
		w->since_ns = 0;
	if (!full)
		w->full_ns = 0;
	if (verdict->code == BERTH_OK || (verdict->flags & VERDICT_HOLD))
		return BERTH_OK;
	if ((verdict->flags & VERDICT_GRACE) && !has_lasted(&w->since_ns, w->k->pull_grace_ms * 1000000))
		return BERTH_OK;
	if (full && !has_lasted(&w->full_ns, UNSCHEDULABLE_NS))
		return BERTH_OK;
	return kerr_set(w->err, verdict->code, verdict->reason, "%s", verdict->text);
}

/* What is said at the deadline: what it was waiting for. */
static int32_t late(struct wait *w, int32_t rc)
{
	if (rc == BERTH_TIMEOUT && w->last.code)
		return kerr_set(w->err, w->last.code, w->last.reason, "%s", w->last.text);
	if (rc == BERTH_TIMEOUT && !w->err->told && w->phase == BERTH_PHASE_QUEUED)
		return kerr_set(w->err, BERTH_TIMEOUT, "not_scheduled", "no scheduler has looked at the pod in time");
	if (rc == BERTH_TIMEOUT && !w->err->told)
		return kerr_set(w->err, BERTH_TIMEOUT, "deadline", "the pod was not ready in time%s%s",
				*w->last.text ? ": " : "", w->last.text);
	return rc;
}

/* When the wait ends, so that there is time left to ask why. */
static int64_t end_of(struct berth_call *call)
{
	int64_t now_ns = text_boot_ns(), deadline_ns = kube_deadline_ns(call), part_ns = (deadline_ns - now_ns) / 8;

	return deadline_ns - (part_ns < EXPLAIN_NS ? part_ns : EXPLAIN_NS);
}

static int32_t pause_until(struct wait *w, struct watch_waiter *waiter, int64_t until_ns, int64_t end_ns)
{
	if (text_boot_ns() >= end_ns)
		return kerr_set(w->err, BERTH_TIMEOUT, "deadline", "the pod was not ready in time");
	return watch_wait(waiter, w->call, until_ns < end_ns ? until_ns : end_ns, w->err);
}

/* A claim's own answer was as good a look, unless the watch has seen the pod go since. */
static int32_t look(struct wait *w, struct json_object **ret_pod)
{
	struct json_object *pod = handed_take(&w->k->handed, w->session->uid);

	if (pod && !watch_doubts(w->k->watch, w->session->uid)) {
		*ret_pod = pod;
		return BERTH_OK;
	}
	json_object_put(pod);
	return fate_pod(w->k, w->call, w->session, ret_pod, w->err);
}

static int32_t look_until(struct wait *w, struct watch_waiter *waiter)
{
	int64_t pause = w->k->claims ? LOOK_CLAIM_NS : LOOK_POD_NS, end_ns = end_of(w->call);
	int32_t rc = BERTH_OK;

	/* One that was only made now is not ready: the watch says when there is something to see. */
	if (!*w->session->instance && !w->k->claims)
		rc = pause_until(w, waiter, text_boot_ns() + pause, end_ns);
	if (rc)
		return late(w, rc);
	for (;;) {
		struct json_object *pod;

		rc = look(w, &pod);
		if (rc)
			return late(w, rc);
		podview_of(pod, w->k->container, &w->view);
		tell(w, w->view.verdict.phase, *w->view.verdict.text ? w->view.verdict.text : "waits for the pod");
		rc = judge(w, &w->view.verdict);
		if (!rc && w->view.verdict.phase == BERTH_PHASE_READY) {
			w->pod = pod;
			return BERTH_OK;
		}
		json_object_put(pod);
		if (!rc)
			rc = pause_until(w, waiter, text_boot_ns() + pause, end_ns);
		if (rc)
			return late(w, rc);
		pause = pause * 2 < LOOK_MOST_NS ? pause * 2 : LOOK_MOST_NS;
	}
}

/* Until the pod is ready; w->pod then is to be put. */
static int32_t wait_pod(struct wait *w)
{
	struct watch_waiter waiter;
	int32_t rc;

	watch_listen(w->k->watch, &waiter, w->session->uid);
	rc = look_until(w, &waiter);
	watch_unlisten(w->k->watch, &waiter);
	return rc;
}

/* The executor takes our key: a session is not handed out before. One whose executor is known from before is asked
 * nothing else; what it was is learned anew when it is another one by now. */
static int32_t dial_once(struct wait *w, char *ret_root, size_t cap)
{
	struct json_object *health = NULL;
	const struct peer_request request = {.path = "/v1/check", .safe = true, .ret_health = &health};
	bool touched;
	int32_t rc = peer_send(w->k, w->call, w->session, &request, &touched, w->err);

	if (!rc)
		snprintf(ret_root, cap, "%s", api_text(health, "root"));
	json_object_put(health);
	if (rc == BERTH_UNAUTHENTICATED)
		return kerr_set(w->err, BERTH_INVALID, "executor_key",
				"the executor does not accept the signing key: the pod was made with another one");
	return rc;
}

/* Ready is not yet listening. */
static int32_t dial(struct wait *w, char *ret_root, size_t cap)
{
	int64_t pause = DIAL_FIRST_NS;

	for (;;) {
		int32_t rc = dial_once(w, ret_root, cap);
		struct kerr why;

		if (rc != BERTH_UNAVAILABLE && rc != BERTH_UNKNOWN)
			return rc;
		why = *w->err;
		rc = fate_after(w->k, w->call, w->session, rc, w->err);
		if (rc == BERTH_SESSION_LOST)
			return rc;
		tell(w, BERTH_PHASE_STARTING, "waits for the executor");
		rc = kube_wait(w->call, text_boot_ns() + pause, w->err);
		if (rc == BERTH_TIMEOUT)
			*w->err = why;
		if (rc)
			return w->err->code;
		pause = pause * 2 < DIAL_MOST_NS ? pause * 2 : DIAL_MOST_NS;
	}
}

static int32_t emit(struct wait *w, const char *root)
{
	struct report report;
	char ref[BERTH_REF_MAX + 1];

	report_pod(w->k, w->pod, &w->view, w->session, root, &report);
	/* Of a claim the ref is the claim's, and so are identity and intent. */
	names_ref_text(w->session->ref.ns, w->session->ref.name, w->session->ref.uid, ref);
	report.info.ref = str_of(ref);
	if (w->k->claims) {
		report.info.workspace_id = str_of(w->session->workspace);
		report.info.task_id = str_of(w->session->task);
		report.info.intent = str_of(w->session->intent);
		report.info.created_ms = w->session->created_ms;
		report.info.expires_ms = w->session->expires_ms;
	}
	return kube_host->emit_session(w->call, &report.info);
}

int32_t ready_wait(struct kube *k, struct berth_call *call, struct session *session, struct kerr *err)
{
	struct wait w = {.k = k, .call = call, .session = session, .err = err};
	char root[BERTH_PATH_MAX + 1] = "";
	int32_t rc = backend_of(k)->locate(k, call, session, err);

	if (!rc)
		rc = wait_pod(&w);
	if ((rc == BERTH_INVALID || rc == BERTH_TIMEOUT) && !err->told)
		events_explain(k, call, session, err);
	if (rc)
		return rc;
	snprintf(session->ip, sizeof(session->ip), "%s", w.view.ip);
	if (!k->claims) {
		snprintf(session->workspace, sizeof(session->workspace), "%s", w.view.workspace);
		snprintf(session->task, sizeof(session->task), "%s", w.view.task);
		/* A later claim needs no look while the pod is still at this version. */
		snprintf(session->version, sizeof(session->version), "%s", *w.view.task ? "" : w.view.version);
	}
	rc = dial(&w, root, sizeof(root));
	if (!rc)
		rc = emit(&w, root);
	json_object_put(w.pod);
	return rc;
}
