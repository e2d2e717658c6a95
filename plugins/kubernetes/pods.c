/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mode pods: a session is a pod of our own. The API server is asked each time; no cache decides what exists. A task's
 * pod has one name, so that a second create is refused; labels find it, annotations prove whose it is. Any thread.
 */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "assign.h"
#include "template.h"

/* ---- find and list ---- */

static bool is_ours(const struct kube *k, const struct podview *view)
{
	return view->managed && !strcmp(view->deployment, k->deployment) && *view->uid && *view->intent;
}

static int32_t emit(struct kube *k, struct berth_call *call, struct json_object *pod, const struct podview *view)
{
	struct report report;
	struct session session = {0};

	/* Enough to reach it: what a lost row held is found again. */
	snprintf(session.pod, sizeof(session.pod), "%s", view->name);
	snprintf(session.uid, sizeof(session.uid), "%s", view->uid);
	snprintf(session.ip, sizeof(session.ip), "%s", view->ip);
	snprintf(session.workspace, sizeof(session.workspace), "%s", view->workspace);
	snprintf(session.task, sizeof(session.task), "%s", view->task);
	report_pod(k, pod, view, &session, NULL, &report);
	return kube_host->emit_session(call, &report.info);
}

/* A pod that is being deleted is gone as far as anybody should build on it; it cannot be kept. */
static int32_t pods_emit(struct kube *k, struct berth_call *call, struct json_object *list, const char *workspace,
			 const char *task)
{
	struct json_object *items = api_at(list, "items");
	int32_t rc = BERTH_OK;

	for (size_t i = 0; !rc && json_object_is_type(items, json_type_array) && i < json_object_array_length(items);
	     i++) {
		struct json_object *pod = json_object_array_get_idx(items, i);
		struct podview view;

		podview_of(pod, k->container, &view);
		if (!is_ours(k, &view) || view.deleting)
			continue;
		if (*task && (strcmp(view.task, task) || strcmp(view.workspace, workspace)))
			continue;
		rc = emit(k, call, pod, &view);
	}
	return rc;
}

/* ---- provision ---- */

/* One create and its names. */
struct making {
	struct kube *k;
	struct berth_call *call;
	const struct berth_spec *spec;
	char *workspace, *task, *intent, *image, *pool;
	struct kerr *err;
};

static int32_t created(struct making *m, struct json_object *pod)
{
	struct podview view;
	struct report report;

	podview_of(pod, m->k->container, &view);
	report_pod(m->k, pod, &view, NULL, NULL, &report);
	return kube_host->created(m->call, &report.info);
}

static bool is_this(const struct making *m, const struct podview *view)
{
	return is_ours(m->k, view) && !strcmp(view->intent, m->intent) && !strcmp(view->task, m->task) &&
	       !strcmp(view->workspace, m->workspace);
}

/* The name's owner; NOT_FOUND when it has none. */
static int32_t look(struct making *m, const char *name, struct json_object **ret, struct kerr *err)
{
	char path[256];

	snprintf(path, sizeof(path), PODS_PATH "/%s", m->k->ns, name);
	return backend_get(m->k, m->call, path, "get pod", ret, err);
}

/* The create's outcome is not known: the name is asked for. Not there is no proof, it may still come. */
static int32_t settle(struct making *m, const char *name)
{
	struct json_object *pod = NULL;
	struct podview view;
	struct kerr why;
	int32_t rc;

	if (backend_hold_off(m->call, m->err) || look(m, name, &pod, &why))
		return m->err->code;
	podview_of(pod, m->k->container, &view);
	rc = is_this(m, &view) && !view.deleting ? created(m, pod) : m->err->code;
	json_object_put(pod);
	return rc;
}

static int32_t post(struct making *m, struct json_object *pod, const char *name)
{
	char path[128];
	const struct api_request request = {.method = "POST", .path = path, .what = "create pod", .body = pod};
	struct api_answer answer;
	int32_t rc;

	snprintf(path, sizeof(path), PODS_PATH, m->k->ns);
	rc = api_send(m->k, m->call, &request, &answer, m->err);
	if (!rc)
		rc = created(m, answer.body);
	else if (rc == BERTH_UNKNOWN || (rc == BERTH_TIMEOUT && answer.sent))
		rc = settle(m, name);
	api_drop(&answer);
	return rc;
}

/* The name is taken: by this very create, by a pod of the task, or by one that nobody builds on any more (dead, going,
 * somebody else's). *ret_other: the last. */
static int32_t explain_taken(struct making *m, const char *name, bool *ret_other)
{
	struct json_object *pod = NULL;
	struct podview view;
	struct kerr why;
	int32_t rc = look(m, name, &pod, &why);

	*ret_other = rc == BERTH_NOT_FOUND;
	if (rc)
		return BERTH_CONFLICT;
	podview_of(pod, m->k->container, &view);
	*ret_other = view.deleting || !is_ours(m->k, &view) ||
		     (view.verdict.code == BERTH_SESSION_LOST && !is_this(m, &view));
	if (view.deleting || !is_this(m, &view))
		rc = BERTH_CONFLICT;
	else
		rc = created(m, pod);
	json_object_put(pod);
	return rc;
}

static int64_t seconds_left(int64_t expires_ms)
{
	int64_t left = expires_ms ? (expires_ms - text_now_ms() + 999) / 1000 : 0;

	return expires_ms && left < 1 ? 1 : left > INT32_MAX ? INT32_MAX : left;
}

static int32_t build(struct making *m, const char *name, struct json_object **ret)
{
	const struct berth_spec *spec = m->spec;
	const struct template_session session = {
		.name = name,
		.image = m->image,
		.cpu_millis = spec->cpu_millis,
		.memory_bytes = spec->memory_bytes,
		.disk_bytes = spec->disk_bytes,
		.seconds = seconds_left(spec->expires_ms),
		.env = spec->env,
		.env_count = spec->env_count,
	};
	struct json_object *metadata, *labels;
	char pool[LABEL_VALUE_MAX + 1];
	int32_t rc = template_pod(m->k->template, m->k->container, &session, ret, m->err);

	if (rc)
		return rc;
	metadata = api_at(*ret, "metadata");
	rc = backend_mark(m->k, metadata, m->workspace, m->task, m->intent, m->err);
	labels = api_at(metadata, "labels");
	if (!rc && *m->task)
		template_set(api_at(metadata, "annotations"), NOTE_EVICT, "false");
	if (!rc)
		template_set(labels, LABEL_INTERNET, backend_internet(spec));
	if (!rc && !*m->task && names_label(m->pool, pool))
		template_set(labels, LABEL_POOL, pool);
	if (rc)
		json_object_put(*ret);
	return rc;
}

static int32_t create(struct making *m, const char *name)
{
	struct json_object *pod;
	int32_t rc = build(m, name, &pod);

	if (rc)
		return rc;
	rc = post(m, pod, name);
	json_object_put(pod);
	return rc;
}

static int32_t create_named(struct making *m)
{
	char name[NAME_MAX_LEN + 1], other[NAME_MAX_LEN + 1];
	bool going;
	int32_t rc;

	if (!names_intent(m->k->prefix, m->k->deployment, m->intent, other) ||
	    !names_task(m->k->prefix, m->k->deployment, m->workspace, m->task, name))
		return kerr_set(m->err, BERTH_UNAVAILABLE, "memory", "no memory");
	if (!*m->task)
		return create(m, other);
	rc = create(m, name);
	if (rc != BERTH_CONFLICT)
		return rc;
	rc = explain_taken(m, name, &going);
	/* Certainly refused, and not by a live pod of the task: the name may be taken for as long as a node is away.
	 * The binding is what keeps a second session from being made, so that another name does no harm. */
	return rc == BERTH_CONFLICT && going ? create(m, other) : rc;
}

static int32_t check_spec(struct making *m)
{
	if (m->spec->isolation > m->k->isolation)
		return kerr_set(m->err, BERTH_INVALID, "isolation",
				"the wanted isolation is stronger than what runtime_class and runtime_isolation give");
	if (!*m->intent || !*m->workspace != !*m->task || strlen(m->task) > 128 || strlen(m->workspace) > 128)
		return kerr_set(m->err, BERTH_INVALID, "spec", "identity or intent is malformed");
	return backend_check_internet(m->k, m->spec, m->err);
}

static int32_t pods_provision(struct kube *k, struct berth_call *call, const struct berth_spec *spec, struct kerr *err)
{
	struct making m = {.k = k,
			   .call = call,
			   .spec = spec,
			   .workspace = str_dup(spec->workspace_id),
			   .task = str_dup(spec->task_id),
			   .intent = str_dup(spec->intent),
			   .image = str_dup(spec->image),
			   .pool = str_dup(spec->pool_key),
			   .err = err};
	int32_t rc;

	if (!m.workspace || !m.task || !m.intent || !m.image || !m.pool)
		rc = kerr_set(err, BERTH_INVALID, "spec", "a text holds a NUL, or there is no memory");
	else
		rc = check_spec(&m);
	if (!rc)
		rc = create_named(&m);
	free(m.workspace);
	free(m.task);
	free(m.intent);
	free(m.image);
	free(m.pool);
	return rc;
}

/* ---- one session ---- */

static int32_t pods_locate(struct kube *k, struct berth_call *call, struct session *session, struct kerr *err)
{
	(void)k;
	(void)call;
	(void)session;
	(void)err;
	return BERTH_OK; /* the session is the pod */
}

static int32_t pods_inspect(struct kube *k, struct berth_call *call, struct session *session, const char *root,
			    struct kerr *err)
{
	struct json_object *pod;
	struct podview view;
	struct report report;
	char path[256];
	int32_t rc;

	snprintf(path, sizeof(path), PODS_PATH "/%s", session->ref.ns, session->ref.name);
	rc = backend_get(k, call, path, "get pod", &pod, err);
	if (rc == BERTH_NOT_FOUND)
		return kerr_set(err, BERTH_NOT_FOUND, "deleted", "the pod is gone");
	if (rc)
		return rc;
	podview_of(pod, k->container, &view);
	if (strcmp(view.uid, session->ref.uid)) {
		rc = kerr_set(err, BERTH_NOT_FOUND, "deleted", "the pod is gone; another one has its name");
	} else {
		snprintf(session->workspace, sizeof(session->workspace), "%s", view.workspace);
		snprintf(session->task, sizeof(session->task), "%s", view.task);
		snprintf(session->ip, sizeof(session->ip), "%s", view.ip);
		report_pod(k, pod, &view, session, root, &report);
		rc = kube_host->emit_session(call, &report.info);
	}
	json_object_put(pod);
	return rc;
}

static int32_t pods_release(struct kube *k, struct berth_call *call, struct session *session, struct kerr *err)
{
	char path[256];

	snprintf(path, sizeof(path), PODS_PATH "/%s", session->ref.ns, session->ref.name);
	return backend_delete(k, call, path, "delete pod", session->ref.uid, err);
}

/* ---- check ---- */

/* The server judges a pod of the template as if it were to be made: all of admission, and fields it does not know. */
static int32_t dry_run(struct making *m)
{
	char path[160], name[NAME_MAX_LEN + 1];
	struct api_request request = {.method = "POST", .path = path, .what = "try the template", .repeatable = true};
	struct api_answer answer = {0};
	int32_t rc;

	if (!names_intent(m->k->prefix, m->k->deployment, m->intent, name))
		return kerr_set(m->err, BERTH_UNAVAILABLE, "memory", "no memory");
	rc = build(m, name, &request.body);
	if (rc)
		return rc;
	snprintf(path, sizeof(path), PODS_PATH "?dryRun=All&fieldValidation=Strict", m->k->ns);
	rc = api_send(m->k, m->call, &request, &answer, m->err);
	json_object_put(request.body);
	api_drop(&answer);
	return rc;
}

/* Is the template taken? What says nothing about it (missing rights, a full quota) is no reason to refuse it. */
static int32_t try_template(struct kube *k, struct berth_call *call, struct kerr *err)
{
	char empty[] = "", intent[33];
	unsigned char random[16];
	const struct berth_spec spec = {.struct_size = sizeof(spec)};
	struct making m = {.k = k,
			   .call = call,
			   .spec = &spec,
			   .workspace = empty,
			   .task = empty,
			   .intent = intent,
			   .image = empty,
			   .pool = empty,
			   .err = err};
	int32_t rc;

	kube_host->random(random, sizeof(random));
	for (unsigned i = 0; i < sizeof(random); i++)
		snprintf(intent + 2 * i, 3, "%02x", random[i]);
	rc = dry_run(&m);
	if (rc != BERTH_FORBIDDEN && rc != BERTH_QUOTA && rc != BERTH_RATE_LIMITED)
		return rc;
	kube_log(k, call, BERTH_LOG_INFO, "the server could not be asked about the template", "error", err->text);
	return BERTH_OK;
}

static int32_t pods_check(struct kube *k, struct berth_call *call, struct kerr *err)
{
	struct json_object *list;
	char path[160];
	int32_t rc;

	snprintf(path, sizeof(path), PODS_PATH "?limit=1&labelSelector=berth.dev%%2Ftask%%3Dnone", k->ns);
	rc = backend_get(k, call, path, "list pods", &list, err);
	json_object_put(list);
	return rc ? rc : try_template(k, call, err);
}

const struct backend backend_pods = {
	.check = pods_check,
	.list_what = "list pods",
	.emit = pods_emit,
	.provision = pods_provision,
	.locate = pods_locate,
	.assign = assign_pod,
	.inspect = pods_inspect,
	.release = pods_release,
};
