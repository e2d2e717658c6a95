/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mode sandboxclaim: a session is a SandboxClaim, and agent-sandbox's controller gives it a sandbox out of its pool.
 * The claim's name is the task's, so that there is one per task by the API server's own word. Which pod it is stands in
 * the claim's status; a pod that was replaced under it has lost the session's files. Any thread; nothing is kept.
 */
#include "claims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "backend.h"
#include "template.h"

#define LOOK_FIRST_NS INT64_C(20000000)
#define LOOK_MOST_NS INT64_C(500000000)
#define RENEWS_MAX 5

/* ---- what a claim says ---- */

/* Reasons of its condition Ready=False that are more than "not yet". */
static const struct row {
	const char *word;
	int32_t code;
	const char *reason;
} rows[] = {
	{"WarmPoolNotFound", BERTH_INVALID, "warm_pool"},
	{"TemplateNotFound", BERTH_INVALID, "sandbox_template"},
	{"InvalidMetadata", BERTH_INVALID, "metadata"},
	{"EnvVarsInjectionRejected", BERTH_INVALID, "env"},
	{"VolumeClaimTemplatesError", BERTH_INVALID, "volumes"},
	{"ClaimExpired", BERTH_SESSION_LOST, "expired"},
	{"SandboxExpired", BERTH_SESSION_LOST, "expired"},
	{"SandboxSuspended", BERTH_SESSION_LOST, "suspended"},
	{"PodSucceeded", BERTH_SESSION_LOST, "executor_ended"},
};

static struct json_object *ready_of(struct json_object *claim)
{
	struct json_object *list = api_at(claim, "status.conditions");

	for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++)
		if (!strcmp(api_text(json_object_array_get_idx(list, i), "type"), "Ready"))
			return json_object_array_get_idx(list, i);
	return NULL;
}

static int32_t judge(struct json_object *claim, struct kerr *err)
{
	struct json_object *ready = ready_of(claim);
	const char *word = api_text(ready, "reason"), *message = api_text(ready, "message");

	if (api_at(claim, "metadata.deletionTimestamp"))
		return kerr_set(err, BERTH_SESSION_LOST, "deleted", "the claim is being deleted");
	if (!ready || !strcmp(api_text(ready, "status"), "True"))
		return BERTH_OK;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(word, rows[i].word))
			return kerr_set(err, rows[i].code, rows[i].reason, "%s: %.300s", word, message);
	if (!strcmp(word, "ReconcilerError") && strstr(message, "exceeded quota"))
		return kerr_set(err, BERTH_QUOTA, "quota", "%s: %.300s", word, message);
	return BERTH_OK;
}

static const char *note(struct json_object *claim, const char *key)
{
	return api_member(claim, "metadata.annotations", key);
}

static bool is_ours(const struct kube *k, struct json_object *claim)
{
	return !strcmp(api_member(claim, "metadata.labels", LABEL_MANAGED), LABEL_MANAGED_VALUE) &&
	       !strcmp(note(claim, NOTE_DEPLOYMENT), k->deployment) && *note(claim, NOTE_INTENT) &&
	       *note(claim, NOTE_TASK);
}

/* What the claim knows of the session. */
static void take_claim(struct json_object *claim, struct session *session)
{
	snprintf(session->workspace, sizeof(session->workspace), "%s", note(claim, NOTE_WORKSPACE));
	snprintf(session->task, sizeof(session->task), "%s", note(claim, NOTE_TASK));
	snprintf(session->intent, sizeof(session->intent), "%s", note(claim, NOTE_INTENT));
	session->created_ms = text_time_ms(api_text(claim, "metadata.creationTimestamp"));
	session->expires_ms = text_time_ms(api_text(claim, "spec.lifecycle.shutdownTime"));
}

/* Fills the report from claim and pod; pod may be NULL. */
static void report(const struct kube *k, struct json_object *claim, struct json_object *pod,
		   const struct session *session, const char *root, struct report *ret)
{
	struct podview view = {
		.ns = k->ns, .name = "", .uid = "", .runtime_class = "", .workspace = "", .task = "", .intent = ""};
	struct kerr why;

	if (pod)
		podview_of(pod, k->container, &view);
	else
		view.verdict = (struct verdict){.phase = BERTH_PHASE_STARTING, .reason = ""};
	report_pod(k, pod, &view, session, root, ret);
	names_ref_text(api_text(claim, "metadata.namespace"), api_text(claim, "metadata.name"),
		       api_text(claim, "metadata.uid"), ret->ref);
	ret->info.ref = str_of(ret->ref);
	ret->info.workspace_id = str_of(note(claim, NOTE_WORKSPACE));
	ret->info.task_id = str_of(note(claim, NOTE_TASK));
	ret->info.intent = str_of(note(claim, NOTE_INTENT));
	ret->info.created_ms = text_time_ms(api_text(claim, "metadata.creationTimestamp"));
	ret->info.expires_ms = text_time_ms(api_text(claim, "spec.lifecycle.shutdownTime"));
	ret->info.isolation = k->isolation;
	if (!pod)
		ret->info.boot_id = str_of("");
	if (judge(claim, &why) == BERTH_SESSION_LOST) {
		snprintf(ret->boot, sizeof(ret->boot), "%s", why.reason); /* lives as long as the report */
		ret->info.phase = BERTH_PHASE_DEAD;
		ret->info.dead_reason = str_of(ret->boot);
		ret->info.boot_id = str_of("");
	}
}

/* ---- find and list ---- */

static int32_t claims_emit(struct kube *k, struct berth_call *call, struct json_object *list, const char *workspace,
			  const char *task)
{
	struct json_object *items = api_at(list, "items");
	int32_t rc = BERTH_OK;

	for (size_t i = 0; !rc && json_object_is_type(items, json_type_array) && i < json_object_array_length(items);
	     i++) {
		struct json_object *claim = json_object_array_get_idx(items, i);
		struct report out;

		if (!is_ours(k, claim) || api_at(claim, "metadata.deletionTimestamp"))
			continue;
		if (*task && (strcmp(note(claim, NOTE_TASK), task) || strcmp(note(claim, NOTE_WORKSPACE), workspace)))
			continue;
		report(k, claim, NULL, NULL, NULL, &out);
		rc = kube_host->emit_session(call, &out.info);
	}
	return rc;
}

/* ---- provision ---- */

struct making {
	struct kube *k;
	struct berth_call *call;
	const struct berth_spec *spec;
	char *workspace, *task, *intent;
	struct kerr *err;
};

static int32_t created(struct making *m, struct json_object *claim)
{
	struct report out;

	report(m->k, claim, NULL, NULL, NULL, &out);
	return kube_host->created(m->call, &out.info);
}

static int32_t put_env(struct making *m, struct json_object *spec)
{
	struct json_object *list = json_object_new_array();

	json_object_object_add(spec, "env", list);
	for (size_t i = 0; i < m->spec->env_count; i++) {
		const struct berth_pair *pair = &m->spec->env[i];
		struct json_object *entry = json_object_new_object();

		json_object_array_add(list, entry);
		if (!text_is_utf8(pair->name) || !text_is_utf8(pair->value))
			return kerr_set(m->err, BERTH_INVALID, "env",
					"a session's environment in Kubernetes must be UTF-8");
		json_object_object_add(entry, "name", json_object_new_string_len(pair->name.ptr, (int)pair->name.len));
		json_object_object_add(entry, "value",
				       json_object_new_string_len(pair->value.ptr, (int)pair->value.len));
	}
	return BERTH_OK;
}

static int32_t build(struct making *m, const char *name, struct json_object *claim)
{
	struct json_object *metadata = template_object(claim, "metadata"), *spec = template_object(claim, "spec");
	struct json_object *lifecycle = template_object(spec, "lifecycle");
	struct json_object *labels = template_object(template_object(spec, "additionalPodMetadata"), "labels");
	char label[LABEL_VALUE_MAX + 1], when[32];

	template_set(claim, "apiVersion", CLAIMS_GROUP);
	template_set(claim, "kind", "SandboxClaim");
	template_set(metadata, "name", name);
	template_set(template_object(spec, "warmPoolRef"), "name", m->k->warm_pool);
	template_set(lifecycle, "shutdownPolicy", "Delete");
	if (m->spec->expires_ms) {
		text_time(m->spec->expires_ms + 999, when);
		template_set(lifecycle, "shutdownTime", when);
	}
	if (!names_label(m->task, label))
		return kerr_set(m->err, BERTH_UNAVAILABLE, "memory", "no memory");
	template_set(labels, CLAIMS_LABEL_TASK, label);
	template_set(labels, CLAIMS_LABEL_INTERNET, backend_internet(m->spec));
	if (m->spec->env_count && put_env(m, spec))
		return m->err->code;
	return backend_mark(m->k, metadata, m->workspace, m->task, m->intent, m->err);
}

static int32_t look(struct making *m, const char *name, struct json_object **ret)
{
	char path[300];
	struct kerr why;

	snprintf(path, sizeof(path), CLAIMS_PATH "/%s", m->k->ns, name);
	return backend_get(m->k, m->call, path, "get claim", ret, &why);
}

static bool is_this(const struct making *m, struct json_object *claim)
{
	return is_ours(m->k, claim) && !strcmp(note(claim, NOTE_INTENT), m->intent) &&
	       !strcmp(note(claim, NOTE_TASK), m->task) && !strcmp(note(claim, NOTE_WORKSPACE), m->workspace) &&
	       !api_at(claim, "metadata.deletionTimestamp");
}

/* The create was refused because of the name, or its outcome is not known: rc. *ret_going: the name's owner is on its
 * way out. */
static int32_t settle(struct making *m, const char *name, int32_t rc, bool *ret_going)
{
	struct json_object *claim = NULL;
	int32_t looked;

	*ret_going = false;
	if (rc != BERTH_CONFLICT && backend_hold_off(m->call, m->err))
		return rc;
	looked = look(m, name, &claim);
	*ret_going = looked == BERTH_NOT_FOUND || (!looked && api_at(claim, "metadata.deletionTimestamp"));
	if (!looked && is_this(m, claim))
		rc = created(m, claim);
	json_object_put(claim);
	return rc;
}

static int32_t create(struct making *m, const char *name, bool *ret_going)
{
	struct json_object *claim = json_object_new_object();
	char path[256];
	const struct api_request request = {.method = "POST", .path = path, .what = "create claim", .body = claim};
	struct api_answer answer = {0};
	int32_t rc = build(m, name, claim);

	*ret_going = false;
	snprintf(path, sizeof(path), CLAIMS_PATH, m->k->ns);
	if (!rc) {
		rc = api_send(m->k, m->call, &request, &answer, m->err);
		if (!rc)
			rc = created(m, answer.body);
		else if (rc == BERTH_CONFLICT || rc == BERTH_UNKNOWN || (rc == BERTH_TIMEOUT && answer.sent))
			rc = settle(m, name, rc, ret_going);
	}
	json_object_put(claim);
	api_drop(&answer);
	return rc;
}

static int32_t check_spec(struct making *m)
{
	const struct berth_spec *spec = m->spec;

	if (spec->isolation > m->k->isolation)
		return kerr_set(m->err, BERTH_INVALID, "isolation",
				"the wanted isolation is stronger than what runtime_isolation says");
	if (!*m->task || !*m->workspace)
		return kerr_set(m->err, BERTH_UNSUPPORTED, "warm", "agent-sandbox keeps the pool itself");
	if (spec->image.len || spec->cpu_millis || spec->memory_bytes || spec->disk_bytes)
		return kerr_set(m->err, BERTH_INVALID, "template",
				"image and resources of mode sandboxclaim are those of the SandboxTemplate: leave them "
				"out of the target");
	return backend_check_internet(m->k, spec, m->err);
}

static int32_t create_named(struct making *m)
{
	char name[NAME_MAX_LEN + 1], other[NAME_MAX_LEN + 1];
	bool going;
	int32_t rc;

	if (!names_task(m->k->prefix, m->k->deployment, m->workspace, m->task, name) ||
	    !names_intent(m->k->prefix, m->k->deployment, m->intent, other))
		return kerr_set(m->err, BERTH_UNAVAILABLE, "memory", "no memory");
	rc = create(m, name, &going);
	return rc == BERTH_CONFLICT && going ? create(m, other, &going) : rc;
}

static int32_t claims_provision(struct kube *k, struct berth_call *call, const struct berth_spec *spec,
				struct kerr *err)
{
	struct making m = {.k = k,
			   .call = call,
			   .spec = spec,
			   .workspace = str_dup(spec->workspace_id),
			   .task = str_dup(spec->task_id),
			   .intent = str_dup(spec->intent),
			   .err = err};
	int32_t rc;

	if (!m.workspace || !m.task || !m.intent)
		rc = kerr_set(err, BERTH_INVALID, "spec", "a text holds a NUL, or there is no memory");
	else
		rc = check_spec(&m);
	if (!rc)
		rc = create_named(&m);
	free(m.workspace);
	free(m.task);
	free(m.intent);
	return rc;
}

/* ---- one session ---- */

static int32_t get_claim(struct kube *k, struct berth_call *call, const struct session *session,
			 struct json_object **ret, struct kerr *err)
{
	char path[300];
	int32_t rc;

	snprintf(path, sizeof(path), CLAIMS_PATH "/%s", session->ref.ns, session->ref.name);
	rc = backend_get(k, call, path, "get claim", ret, err);
	if (!rc && strcmp(api_text(*ret, "metadata.uid"), session->ref.uid)) {
		json_object_put(*ret);
		*ret = NULL;
		rc = BERTH_NOT_FOUND;
	}
	return rc == BERTH_NOT_FOUND ? kerr_set(err, BERTH_NOT_FOUND, "deleted", "the claim is gone") : rc;
}

/* The claim's pod, once it has one; NOT_FOUND before. */
static int32_t get_pod(struct kube *k, struct berth_call *call, struct json_object *claim, struct json_object **ret,
		       struct kerr *err)
{
	const char *name = api_text(claim, "status.sandbox.name");
	char path[256];

	*ret = NULL;
	if (!names_dns(name, 63))
		return kerr_set(err, BERTH_NOT_FOUND, "no_pod", "the claim has no sandbox yet");
	snprintf(path, sizeof(path), "/api/v1/namespaces/%.63s/pods/%s", api_text(claim, "metadata.namespace"), name);
	return backend_get(k, call, path, "get pod", ret, err);
}

/* The claim, while anybody may build on it; SESSION_LOST once that is certainly over. */
static int32_t get_living(struct kube *k, struct berth_call *call, const struct session *session,
			  struct json_object **ret, struct kerr *err)
{
	int32_t rc = get_claim(k, call, session, ret, err);

	if (rc == BERTH_NOT_FOUND)
		return kerr_set(err, BERTH_SESSION_LOST, "deleted", "the claim is gone");
	return rc ? rc : judge(*ret, err);
}

static int32_t claims_look(struct kube *k, struct berth_call *call, const struct session *session, struct kerr *err)
{
	struct json_object *claim = NULL;
	int32_t rc = get_living(k, call, session, &claim, err);

	json_object_put(claim);
	return rc;
}

/* OK: the claim's pod is known, and is that of the session if it had one. */
static int32_t locate_once(struct kube *k, struct berth_call *call, struct session *session, bool *ret_found,
			   struct kerr *err)
{
	struct json_object *claim = NULL, *pod = NULL;
	int32_t rc = get_living(k, call, session, &claim, err);

	*ret_found = false;
	if (!rc)
		rc = get_pod(k, call, claim, &pod, err);
	if (rc == BERTH_NOT_FOUND)
		rc = BERTH_OK;
	else if (!rc) {
		take_claim(claim, session);
		snprintf(session->pod, sizeof(session->pod), "%s", api_text(pod, "metadata.name"));
		snprintf(session->uid, sizeof(session->uid), "%s", api_text(pod, "metadata.uid"));
		*ret_found = true;
	}
	json_object_put(claim);
	json_object_put(pod);
	return rc;
}

static int32_t claims_locate(struct kube *k, struct berth_call *call, struct session *session, struct kerr *err)
{
	int64_t pause = LOOK_FIRST_NS;
	bool found, told = false;

	for (;;) {
		int32_t rc = locate_once(k, call, session, &found, err);

		if (rc || found)
			return rc;
		if (!told)
			kube_host->progress(call, BERTH_PHASE_QUEUED, "waits for the controller of agent-sandbox");
		told = true;
		rc = kube_wait(call, text_boot_ns() + pause, err);
		if (rc)
			return rc;
		pause = pause * 2 < LOOK_MOST_NS ? pause * 2 : LOOK_MOST_NS;
	}
}

static int32_t claims_inspect(struct kube *k, struct berth_call *call, struct session *session, const char *root,
			      struct kerr *err)
{
	bool had_pod = strcmp(session->uid, session->ref.uid) != 0; /* what the host kept names it */
	struct json_object *claim = NULL, *pod = NULL;
	struct report out;
	int32_t rc = get_claim(k, call, session, &claim, err);

	if (!rc)
		rc = get_pod(k, call, claim, &pod, err);
	if (rc && !claim)
		return rc;
	if (rc && rc != BERTH_NOT_FOUND)
		goto out;
	take_claim(claim, session);
	report(k, claim, pod, had_pod ? session : NULL, root, &out);
	/* A pod that was made anew under the claim has none of the session's files. */
	if (had_pod && strcmp(api_text(pod, "metadata.uid"), session->uid)) {
		out.info.phase = BERTH_PHASE_DEAD;
		out.info.dead_reason = str_of("pod_replaced");
	}
	rc = kube_host->emit_session(call, &out.info);
out:
	json_object_put(claim);
	json_object_put(pod);
	return rc;
}

/* Moves the end, if it is not later already; the version keeps a shorter word from winning over a longer one. */
static int32_t renew_once(struct kube *k, struct berth_call *call, struct session *session, int64_t until_ms,
			  int64_t *ret_ms, struct kerr *err)
{
	struct json_object *claim = NULL, *patch = json_object_new_object();
	char path[300], when[32];
	const struct api_request request = {.method = "PATCH",
					    .path = path,
					    .what = "renew claim",
					    .body = patch,
					    .type = API_MERGE_PATCH,
					    .repeatable = true};
	struct api_answer answer = {0};
	int32_t rc = get_claim(k, call, session, &claim, err);

	if (rc)
		goto out;
	*ret_ms = text_time_ms(api_text(claim, "spec.lifecycle.shutdownTime"));
	if (*ret_ms >= until_ms || (!*ret_ms && *ret_ms == until_ms))
		goto out;
	text_time(until_ms + 999, when);
	template_set(template_object(patch, "metadata"), "resourceVersion",
		     api_text(claim, "metadata.resourceVersion"));
	template_set(template_object(template_object(patch, "spec"), "lifecycle"), "shutdownTime", when);
	snprintf(path, sizeof(path), CLAIMS_PATH "/%s", session->ref.ns, session->ref.name);
	rc = api_send(k, call, &request, &answer, err);
	if (!rc)
		*ret_ms = text_time_ms(when);
out:
	json_object_put(claim);
	json_object_put(patch);
	api_drop(&answer);
	return rc;
}

static int32_t claims_renew(struct kube *k, struct berth_call *call, struct session *session, int64_t until_ms,
			    struct kerr *err)
{
	int64_t effective_ms = 0;
	int32_t rc = BERTH_CONFLICT;

	for (unsigned i = 0; rc == BERTH_CONFLICT && i < RENEWS_MAX; i++)
		rc = renew_once(k, call, session, until_ms, &effective_ms, err);
	return rc ? rc : kube_host->emit_expiry(call, effective_ms);
}

static int32_t claims_release(struct kube *k, struct berth_call *call, struct session *session, struct kerr *err)
{
	char path[300];

	snprintf(path, sizeof(path), CLAIMS_PATH "/%s", session->ref.ns, session->ref.name);
	return backend_delete(k, call, path, "delete claim", session->ref.uid, err);
}

static int32_t claims_check(struct kube *k, struct berth_call *call, struct kerr *err)
{
	struct json_object *body = NULL;
	char path[300];
	int32_t rc;

	snprintf(path, sizeof(path), CLAIMS_PATH "?limit=1", k->ns);
	rc = backend_get(k, call, path, "list claims", &body, err);
	json_object_put(body);
	if (rc)
		return rc;
	snprintf(path, sizeof(path), CLAIMS_POOL_PATH, k->ns, k->warm_pool);
	rc = backend_get(k, call, path, "get warm pool", &body, err);
	json_object_put(body);
	return rc == BERTH_NOT_FOUND
		       ? kerr_set(err, BERTH_INVALID, "warm_pool", "there is no SandboxWarmPool %s", k->warm_pool)
		       : rc;
}

const struct backend backend_claims = {
	.check = claims_check,
	.list_what = "list claims",
	.emit = claims_emit,
	.provision = claims_provision,
	.look = claims_look,
	.locate = claims_locate,
	.inspect = claims_inspect,
	.renew = claims_renew,
	.release = claims_release,
};
