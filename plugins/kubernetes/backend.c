/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both ways to sandboxes share: how objects are marked, selected, fetched, deleted and reported. Any thread; keeps
 * nothing.
 */
#include "backend.h"

#include <stdio.h>
#include <string.h>

#include "api.h"
#include "claims.h"
#include "template.h"

#define PAGE 250 /* items asked for at once */

int32_t backend_get(struct kube *k, struct berth_call *call, const char *path, const char *what,
		    struct json_object **ret_body, struct kerr *err)
{
	const struct api_request request = {.method = "GET", .path = path, .what = what, .repeatable = true};
	struct api_answer answer;
	int32_t rc = api_send(k, call, &request, &answer, err);

	*ret_body = rc ? NULL : json_object_get(answer.body);
	api_drop(&answer);
	return rc;
}

int32_t backend_delete(struct kube *k, struct berth_call *call, const char *path, const char *what, const char *uid,
		       struct kerr *err)
{
	struct json_object *body = json_object_new_object(), *preconditions = json_object_new_object();
	const struct api_request request = {
		.method = "DELETE", .path = path, .what = what, .body = body, .repeatable = true};
	struct api_answer answer;
	int32_t rc;

	template_set(body, "apiVersion", "v1");
	template_set(body, "kind", "DeleteOptions");
	template_set(body, "propagationPolicy", "Background");
	template_set(preconditions, "uid", uid);
	json_object_object_add(body, "preconditions", preconditions);
	rc = api_send(k, call, &request, &answer, err);
	/* The name belongs to another object by now: ours is gone. */
	if (rc == BERTH_CONFLICT)
		rc = kerr_set(err, BERTH_NOT_FOUND, "deleted", "%s: it was gone", what);
	json_object_put(body);
	api_drop(&answer);
	return rc;
}

bool backend_hold_off(struct berth_call *call, const struct kerr *err)
{
	int64_t until_ns = text_boot_ns() + err->retry_after_ms * 1000000;
	struct kerr why;

	if (err->retry_after_ms <= 0)
		return false;
	return until_ns >= kube_deadline_ns(call) || kube_wait(call, until_ns, &why);
}

/* Whether there are policies, and whether anything enforces them, no pod shows. */
int32_t backend_check_internet(const struct kube *k, const struct berth_spec *spec, struct kerr *err)
{
	if (spec->internet_allowed || k->network_policy)
		return BERTH_OK;
	return kerr_set(err, BERTH_INVALID, "internet",
			"nothing vouches that pods are kept off the internet: where policies such as "
			"packaging/kubernetes/20-network.yaml do, set network_policy = true; else allow_internet = "
			"true");
}

const char *backend_internet(const struct berth_spec *spec)
{
	return spec->internet_allowed ? "allowed" : "denied";
}

static int32_t set_label(struct json_object *labels, const char *key, const char *id, struct kerr *err)
{
	char value[LABEL_VALUE_MAX + 1];

	if (!names_label(id, value))
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	template_set(labels, key, value);
	return BERTH_OK;
}

int32_t backend_mark(const struct kube *k, struct json_object *metadata, const char *workspace, const char *task,
		     const char *intent, struct kerr *err)
{
	struct json_object *labels = template_object(metadata, "labels");
	struct json_object *notes = template_object(metadata, "annotations");
	int32_t rc = BERTH_OK;

	if (!labels || !notes)
		return kerr_set(err, BERTH_INVALID, "template", "the template's labels or annotations are no mapping");
	template_set(labels, LABEL_MANAGED, LABEL_MANAGED_VALUE);
	template_set(labels, LABEL_DEPLOYMENT, k->label_deployment);
	template_set(notes, NOTE_DEPLOYMENT, k->deployment);
	if (intent)
		template_set(notes, NOTE_INTENT, intent);
	if (!*task)
		return BERTH_OK;
	template_set(notes, NOTE_WORKSPACE, workspace);
	template_set(notes, NOTE_TASK, task);
	rc = set_label(labels, LABEL_WORKSPACE, workspace, err);
	return rc ? rc : set_label(labels, LABEL_TASK, task, err);
}

int32_t backend_select(const struct kube *k, const char *workspace, const char *task, struct buf *url, struct kerr *err)
{
	char workspace_label[LABEL_VALUE_MAX + 1], task_label[LABEL_VALUE_MAX + 1];
	struct buf text = {.max = 1024};

	buf_add(&text, LABEL_MANAGED "=" LABEL_MANAGED_VALUE "," LABEL_DEPLOYMENT "=%s", k->label_deployment);
	if (*task) {
		if (!names_label(workspace, workspace_label) || !names_label(task, task_label)) {
			buf_wipe(&text);
			return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
		}
		buf_add(&text, "," LABEL_WORKSPACE "=%s," LABEL_TASK "=%s", workspace_label, task_label);
	}
	buf_put(url, "labelSelector=", 14);
	if (!text.bad)
		buf_percent(url, text.ptr);
	url->bad = url->bad || text.bad;
	buf_wipe(&text);
	return url->bad ? kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory") : BERTH_OK;
}

static int32_t page(struct kube *k, struct berth_call *call, const char *workspace, const char *task,
		    const char *cursor, struct json_object **ret, struct kerr *err)
{
	struct buf url = {.max = 8192};
	int32_t rc;

	*ret = NULL;
	buf_add(&url, k->claims ? CLAIMS_PATH : PODS_PATH, k->ns);
	buf_add(&url, "?limit=%d&", PAGE);
	rc = backend_select(k, workspace, task, &url, err);
	if (!rc && *cursor) {
		buf_add(&url, "&continue=");
		buf_percent(&url, cursor);
	}
	if (!rc && url.bad)
		rc = kerr_set(err, BERTH_INVALID, "cursor", "the cursor is too long");
	if (!rc)
		rc = backend_get(k, call, url.ptr, backend_of(k)->list_what, ret, err);
	buf_wipe(&url);
	return rc;
}

int32_t backend_find(struct kube *k, struct berth_call *call, const char *workspace, const char *task, struct kerr *err)
{
	char cursor[4096] = "";
	int32_t rc;

	do {
		struct json_object *list;

		rc = page(k, call, workspace, task, cursor, &list, err);
		if (!rc)
			rc = backend_of(k)->emit(k, call, list, workspace, task);
		snprintf(cursor, sizeof(cursor), "%s", api_text(list, "metadata.continue"));
		json_object_put(list);
	} while (!rc && *cursor);
	return rc;
}

int32_t backend_list(struct kube *k, struct berth_call *call, const char *cursor, struct kerr *err)
{
	struct json_object *list;
	int32_t rc = page(k, call, "", "", cursor, &list, err);

	if (!rc)
		rc = backend_of(k)->emit(k, call, list, "", "");
	if (!rc && *api_text(list, "metadata.continue")) {
		const struct berth_str next = str_of(api_text(list, "metadata.continue"));

		rc = kube_host->emit_cursor(call, &next);
	}
	json_object_put(list);
	return rc;
}

/* What Kubernetes shows of a runtime class is its name; what that isolates by is the operator's word. */
static uint32_t isolation_of(const struct kube *k, const struct podview *view)
{
	return !strcmp(view->runtime_class, k->runtime_class) ? k->isolation : BERTH_ISOLATION_CONTAINER;
}

void report_pod(const struct kube *k, struct json_object *pod, const struct podview *view,
		const struct session *session, const char *root, struct report *ret)
{
	*ret = (struct report){.info = {.struct_size = sizeof(ret->info)}};
	names_ref_text(view->ns, view->name, view->uid, ret->ref);
	snprintf(ret->boot, sizeof(ret->boot), "%s.%lld", view->uid, (long long)view->restarts);
	if (session)
		session_state(session, ret->state);
	ret->info.ref = str_of(ret->ref);
	ret->info.state = str_of(ret->state);
	ret->info.boot_id = str_of(ret->boot);
	ret->info.workspace_id = str_of(view->workspace);
	ret->info.task_id = str_of(view->task);
	ret->info.intent = str_of(view->intent);
	ret->info.root = str_of(root && *root ? root : template_root(pod, k->container));
	ret->info.phase = view->verdict.phase;
	if (view->verdict.phase == BERTH_PHASE_DEAD)
		ret->info.dead_reason = str_of(view->verdict.reason);
	ret->info.created_ms = view->created_ms;
	ret->info.expires_ms = view->expires_ms;
	ret->info.isolation = isolation_of(k, view);
	ret->info.cpu_millis = view->cpu_millis;
	ret->info.memory_bytes = view->memory_bytes;
	ret->info.disk_bytes = view->disk_bytes;
}
