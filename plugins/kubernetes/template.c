/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pod template: the operator's file, or a built-in one, under the fields that Berth insists on. What is left out is
 * filled in; what contradicts is refused by the field's name, because an operator who asks for it should know that it
 * is not given. Pure but for the reading of the file; open and provision, any thread.
 */
#include "template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "profile.h"
#include "text.h"
#include "yamltree.h"

#define GRACE_SECONDS 5
#define USER 10001

struct json_object *template_object(struct json_object *parent, const char *key)
{
	struct json_object *value = NULL;

	if (json_object_object_get_ex(parent, key, &value) && value)
		return json_object_is_type(value, json_type_object) ? value : NULL;
	value = json_object_new_object();
	json_object_object_add(parent, key, value);
	return value;
}

void template_set(struct json_object *parent, const char *key, const char *value)
{
	json_object_object_add(parent, key, json_object_new_string(value));
}

/* ---- rules ---- */

enum kind { YES, NO, WORD, NOT_YES, ABSENT };

/* One field: its value when it is left out, and the only one it may have. */
struct rule {
	const char *group; /* the object it stands in; "" = the container or spec itself */
	const char *field;
	enum kind kind;
	const char *word;
	const char *why;
};

static const struct rule pod_rules[] = {
	{"", "automountServiceAccountToken", NO, NULL, "a sandbox gets no token of the cluster"},
	{"", "enableServiceLinks", NO, NULL, "a sandbox is not told of the namespace's services"},
	{"", "restartPolicy", WORD, "Never", "a restarted container would have lost its files unnoticed"},
	{"", "hostNetwork", NOT_YES, NULL, "a sandbox shares nothing of its node"},
	{"", "hostPID", NOT_YES, NULL, "a sandbox shares nothing of its node"},
	{"", "hostIPC", NOT_YES, NULL, "a sandbox shares nothing of its node"},
	{"", "ephemeralContainers", ABSENT, NULL, "is not for templates"},
	{"", "nodeName", ABSENT, NULL, "the scheduler places sandboxes; use nodeSelector"},
	{"securityContext", "runAsNonRoot", YES, NULL, "a sandbox does not run as root"},
	{"securityContext", "windowsOptions", ABSENT, NULL, "sandboxes run on Linux"},
};

static const struct rule container_rules[] = {
	{"securityContext", "allowPrivilegeEscalation", NO, NULL, "the restricted profile forbids it"},
	{"securityContext", "privileged", NOT_YES, NULL, "the restricted profile forbids it"},
	{"securityContext", "procMount", WORD, "Default", "the restricted profile forbids it"},
	{"securityContext", "windowsOptions", ABSENT, NULL, "sandboxes run on Linux"},
};

static int32_t apply_rule(const struct place *at, struct json_object *parent, const struct rule *rule)
{
	struct json_object *group = *rule->group ? template_object(parent, rule->group) : parent;
	struct json_object *value = NULL;
	bool is_set, yes;

	if (!group)
		return profile_refuse(at, rule->group, "expected a mapping");
	is_set = json_object_object_get_ex(group, rule->field, &value) && value;
	yes = is_set && json_object_is_type(value, json_type_boolean) && json_object_get_boolean(value);
	if (is_set && (rule->kind == YES || rule->kind == NO || rule->kind == NOT_YES)) {
		if (!json_object_is_type(value, json_type_boolean))
			return profile_refuse(at, rule->field, "expected true or false");
		if (yes != (rule->kind == YES))
			return profile_refuse(at, rule->field, rule->why);
	}
	if (is_set &&
	    (rule->kind == ABSENT || (rule->kind == WORD && strcmp(api_text(group, rule->field), rule->word))))
		return profile_refuse(at, rule->field, rule->why);
	if (!is_set && (rule->kind == YES || rule->kind == NO))
		json_object_object_add(group, rule->field, json_object_new_boolean(rule->kind == YES));
	if (!is_set && rule->kind == WORD)
		template_set(group, rule->field, rule->word);
	return BERTH_OK;
}

static int32_t apply_rules(const struct place *at, struct json_object *parent, const struct rule *rules, size_t count)
{
	int32_t rc = BERTH_OK;

	for (size_t i = 0; !rc && i < count; i++)
		rc = apply_rule(at, parent, &rules[i]);
	return rc;
}

/* ---- what is more than one value ---- */

static int32_t apply_capabilities(const struct place *at, struct json_object *container)
{
	struct json_object *security = template_object(container, "securityContext");
	struct json_object *group = security ? template_object(security, "capabilities") : NULL;
	struct json_object *add = api_at(group, "add"), *drop = json_object_new_array();

	if (!group) {
		json_object_put(drop);
		return profile_refuse(at, "securityContext.capabilities", "expected a mapping");
	}
	json_object_array_add(drop, json_object_new_string("ALL"));
	json_object_object_add(group, "drop", drop);
	for (size_t i = 0; json_object_is_type(add, json_type_array) && i < json_object_array_length(add); i++) {
		const char *word = json_object_get_string(json_object_array_get_idx(add, i));

		if (!word || strcmp(word, "NET_BIND_SERVICE"))
			return profile_refuse(at, "securityContext.capabilities.add", "only NET_BIND_SERVICE may be added");
	}
	return BERTH_OK;
}

static int32_t apply_limits(const struct place *at, struct json_object *container, const struct template_base *base)
{
	const struct {
		const char *key;
		int64_t value;
		const char *unit;
	} limits[] = {{"cpu", base->cpu_millis, "m"},
		      {"memory", base->memory_bytes, ""},
		      {"ephemeral-storage", base->disk_bytes, ""}};
	struct json_object *resources = template_object(container, "resources");
	struct json_object *group = resources ? template_object(resources, "limits") : NULL;
	char text[32];

	if (!group)
		return profile_refuse(at, "resources.limits", "expected a mapping");
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		snprintf(text, sizeof(text), "%lld%s", (long long)limits[i].value, limits[i].unit);
		if (!api_at(group, limits[i].key))
			template_set(group, limits[i].key, text);
		if (!(strtod(json_object_get_string(api_at(group, limits[i].key)), NULL) > 0))
			return profile_refuse(at, "resources.limits", "a zero is no limit");
	}
	return BERTH_OK;
}

/* ---- the executor's container ---- */

static struct json_object *container_of(struct json_object *spec, const char *name)
{
	struct json_object *list = api_at(spec, "containers");

	for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++)
		if (!strcmp(api_text(json_object_array_get_idx(list, i), "name"), name))
			return json_object_array_get_idx(list, i);
	return NULL;
}

static struct json_object *list_at(struct json_object *parent, const char *key)
{
	struct json_object *list = NULL;

	if (json_object_object_get_ex(parent, key, &list) && json_object_is_type(list, json_type_array))
		return list;
	list = json_object_new_array();
	json_object_object_add(parent, key, list);
	return list;
}

/* The variable's entry, emptied but for its name. */
static struct json_object *variable(struct json_object *container, const char *name)
{
	struct json_object *list = list_at(container, "env"), *entry;

	for (size_t i = 0; i < json_object_array_length(list); i++) {
		entry = json_object_array_get_idx(list, i);
		if (strcmp(api_text(entry, "name"), name))
			continue;
		json_object_object_del(entry, "value");
		json_object_object_del(entry, "valueFrom");
		return entry;
	}
	entry = json_object_new_object();
	template_set(entry, "name", name);
	json_object_array_add(list, entry);
	return entry;
}

static void add_probe(struct json_object *container, unsigned port)
{
	char text[160];

	if (api_at(container, "readinessProbe"))
		return;
	snprintf(text, sizeof(text),
		 "{\"httpGet\": {\"path\": \"/v1/health\", \"port\": %u}, \"periodSeconds\": 1, \"failureThreshold\": "
		 "10}",
		 port);
	json_object_object_add(container, "readinessProbe", json_tokener_parse(text));
}

static int32_t apply_executor(const struct place *at, struct json_object *spec, const struct template_base *base)
{
	struct json_object *container = container_of(spec, base->container), *entry;
	char text[64];

	if (!container)
		return profile_refuse(at, "containers", "none has the name that the option container gives");
	if (!*api_text(container, "image")) {
		if (!*base->image)
			return profile_refuse(at, "containers.image", "name one here, or by the option image");
		template_set(container, "image", base->image);
	}
	entry = variable(container, "BERTH_POD_UID");
	json_object_object_add(entry, "valueFrom",
			       json_tokener_parse("{\"fieldRef\": {\"fieldPath\": \"metadata.uid\"}}"));
	template_set(variable(container, "BERTH_EXECUTOR_KEYS"), "value", base->keys);
	snprintf(text, sizeof(text), "[::]:%u", base->port);
	template_set(variable(container, "BERTH_EXECUTOR_LISTEN"), "value", text);
	add_probe(container, base->port);
	return BERTH_OK;
}

/* ---- the whole ---- */

static int32_t apply_containers(const struct place *at, struct json_object *spec, const char *key,
				const struct template_base *base)
{
	struct json_object *list = api_at(spec, key);
	int32_t rc = BERTH_OK;

	for (size_t i = 0; !rc && json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
	     i++) {
		struct json_object *container = json_object_array_get_idx(list, i);
		struct place there = *at;

		if (!json_object_is_type(container, json_type_object) || !*api_text(container, "name"))
			return profile_refuse(at, key, "expected mappings with a name");
		there.container = api_text(container, "name");
		rc = apply_rules(&there, container, container_rules,
				 sizeof(container_rules) / sizeof(container_rules[0]));
		if (!rc)
			rc = apply_capabilities(&there, container);
		if (!rc)
			rc = profile_check_container(&there, container);
		if (!rc)
			rc = apply_limits(&there, container, base);
	}
	return rc;
}

static int32_t apply_pod(const struct place *at, struct json_object *tree, const struct template_base *base)
{
	struct json_object *spec = api_at(tree, "spec");
	int32_t rc = apply_rules(at, spec, pod_rules, sizeof(pod_rules) / sizeof(pod_rules[0]));
	struct json_object *context;

	if (!rc)
		rc = profile_check_pod(at, tree);
	if (rc)
		return rc;
	context = template_object(spec, "securityContext");
	if (!api_at(context, "seccompProfile"))
		json_object_object_add(context, "seccompProfile", json_tokener_parse("{\"type\": \"RuntimeDefault\"}"));
	if (!api_at(spec, "terminationGracePeriodSeconds"))
		json_object_object_add(spec, "terminationGracePeriodSeconds", json_object_new_int(GRACE_SECONDS));
	if (*base->runtime_class && *api_text(spec, "runtimeClassName") &&
	    strcmp(api_text(spec, "runtimeClassName"), base->runtime_class))
		return profile_refuse(at, "runtimeClassName", "differs from the option runtime_class");
	if (!*base->runtime_class && *api_text(spec, "runtimeClassName"))
		return profile_refuse(at, "runtimeClassName", "is set by the option runtime_class, which is empty");
	if (*base->runtime_class)
		template_set(spec, "runtimeClassName", base->runtime_class);
	return BERTH_OK;
}

int32_t template_merge(const char *name, struct json_object *tree, const struct template_base *base, struct kerr *err)
{
	const struct place at = {.file = name, .err = err};
	struct json_object *spec = api_at(tree, "spec");
	int32_t rc;

	if (!json_object_is_type(spec, json_type_object))
		return kerr_set(err, BERTH_INVALID, "template", "%s: spec: expected a pod's spec", name);
	if (!template_object(tree, "metadata"))
		return kerr_set(err, BERTH_INVALID, "template", "%s: metadata: expected a mapping", name);
	rc = apply_pod(&at, tree, base);
	if (!rc)
		rc = apply_executor(&at, spec, base);
	if (!rc)
		rc = apply_containers(&at, spec, "containers", base);
	return rc ? rc : apply_containers(&at, spec, "initContainers", base);
}

/* ---- where it comes from ---- */

static struct json_object *built_in(const struct template_base *base)
{
	static const char install[] = "[{\"name\": \"install\", \"image\": \"\", \"command\": [\"/berth-executor\", "
				      "\"install\", \"/berth-bin\"],"
				      " \"volumeMounts\": [{\"name\": \"berth-bin\", \"mountPath\": \"/berth-bin\"}]}]";
	static const char pod[] =
		"{\"metadata\": {}, \"spec\": {"
		"\"volumes\": [{\"name\": \"berth-bin\", \"emptyDir\": {}}, {\"name\": \"berth\", \"emptyDir\": {}},"
		" {\"name\": \"tmp\", \"emptyDir\": {}}],"
		"\"containers\": [{\"name\": \"\", \"securityContext\": {\"readOnlyRootFilesystem\": true}, "
		"\"volumeMounts\": ["
		"{\"name\": \"berth-bin\", \"mountPath\": \"/berth-bin\", \"readOnly\": true},"
		"{\"name\": \"berth\", \"mountPath\": \"/berth\"}, {\"name\": \"tmp\", \"mountPath\": \"/tmp\"}]}]}}";
	struct json_object *tree = json_tokener_parse(pod), *spec = api_at(tree, "spec"), *container, *context, *list;

	container = json_object_array_get_idx(api_at(spec, "containers"), 0);
	template_set(container, "name", base->container);
	template_set(variable(container, "BERTH_EXECUTOR_ROOT"), "value", base->root);
	template_set(variable(container, "BERTH_EXECUTOR_STATE"), "value", "/berth/state");
	context = template_object(spec, "securityContext");
	json_object_object_add(context, "runAsUser", json_object_new_int(USER));
	json_object_object_add(context, "runAsGroup", json_object_new_int(USER));
	json_object_object_add(context, "fsGroup", json_object_new_int(USER));
	if (!*base->executor_image)
		return tree;
	list = json_tokener_parse(install);
	template_set(json_object_array_get_idx(list, 0), "image", base->executor_image);
	json_object_object_add(spec, "initContainers", list);
	json_object_object_add(container, "command", json_tokener_parse("[\"/berth-bin/berth-executor\", \"serve\"]"));
	return tree;
}

/* A Pod, a PodTemplate, or {metadata, spec} alone. */
static int32_t unwrap(const char *path, struct json_object **tree, struct kerr *err)
{
	const char *kind = api_text(*tree, "kind");
	struct json_object *inner = *tree, *bare;

	if (!strcmp(kind, "PodTemplate"))
		inner = api_at(*tree, "template");
	else if (*kind && strcmp(kind, "Pod"))
		return kerr_set(err, BERTH_INVALID, "template", "%s: kind: expected Pod or PodTemplate, got %.60s",
				path, kind);
	bare = json_object_new_object();
	json_object_object_add(bare, "metadata", json_object_get(api_at(inner, "metadata")));
	json_object_object_add(bare, "spec", json_object_get(api_at(inner, "spec")));
	json_object_put(*tree);
	*tree = bare;
	return BERTH_OK;
}

int32_t template_load(const char *path, const struct template_base *base, struct json_object **ret, struct kerr *err)
{
	struct json_object *tree = NULL;
	int32_t rc = BERTH_OK;

	if (*path)
		rc = yamltree_read(path, &tree, err);
	else
		tree = built_in(base);
	if (!rc && *path)
		rc = unwrap(path, &tree, err);
	if (!rc)
		rc = template_merge(*path ? path : "the built-in template", tree, base, err);
	if (rc)
		json_object_put(tree);
	else
		*ret = tree;
	return rc;
}

/* ---- one pod of it ---- */

static void set_limit(struct json_object *container, const char *key, uint64_t value, const char *unit)
{
	struct json_object *limits = api_at(container, "resources.limits"),
			   *requests = api_at(container, "resources.requests");
	char text[32];

	if (!value)
		return;
	snprintf(text, sizeof(text), "%llu%s", (unsigned long long)value, unit);
	template_set(limits, key, text);
	/* A request above the limit would be refused. */
	if (json_object_is_type(requests, json_type_object) && json_object_object_get_ex(requests, key, NULL))
		template_set(requests, key, text);
}

/* Kubernetes replaces $(NAME) in values; "$$" is a dollar. */
static void set_variable(struct json_object *container, const char *name, struct berth_str value)
{
	struct buf text = {.max = value.len * 2 + 1};

	buf_put(&text, "", 0);
	for (size_t i = 0; i < value.len; i++) {
		if (value.ptr[i] == '$' && i + 1 < value.len && (value.ptr[i + 1] == '(' || value.ptr[i + 1] == '$'))
			buf_put(&text, "$", 1);
		buf_put(&text, &value.ptr[i], 1);
	}
	template_set(variable(container, name), "value", text.ptr ? text.ptr : "");
	buf_wipe(&text);
}

static int32_t set_env(struct json_object *container, const struct template_session *session, struct kerr *err)
{
	for (size_t i = 0; i < session->env_count; i++) {
		const struct berth_pair *pair = &session->env[i];
		char *name = str_dup(pair->name);

		if (!name || !text_is_utf8(pair->name) || !text_is_utf8(pair->value)) {
			free(name);
			return kerr_set(err, BERTH_INVALID, "env",
					"a session's environment in Kubernetes must be UTF-8");
		}
		set_variable(container, name, pair->value);
		free(name);
	}
	return BERTH_OK;
}

int32_t template_pod(struct json_object *template, const char *container_name, const struct template_session *session,
		     struct json_object **ret, struct kerr *err)
{
	struct json_object *pod = NULL, *container, *spec;
	int32_t rc;

	if (json_object_deep_copy(template, &pod, NULL))
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	spec = api_at(pod, "spec");
	container = container_of(spec, container_name);
	template_set(pod, "apiVersion", "v1");
	template_set(pod, "kind", "Pod");
	json_object_object_del(api_at(pod, "metadata"), "generateName");
	template_set(api_at(pod, "metadata"), "name", session->name);
	if (*session->image)
		template_set(container, "image", session->image);
	set_limit(container, "cpu", session->cpu_millis, "m");
	set_limit(container, "memory", session->memory_bytes, "");
	set_limit(container, "ephemeral-storage", session->disk_bytes, "");
	if (session->seconds > 0)
		json_object_object_add(spec, "activeDeadlineSeconds", json_object_new_int64(session->seconds));
	rc = set_env(container, session, err);
	if (rc)
		json_object_put(pod);
	else
		*ret = pod;
	return rc;
}

const char *template_root(struct json_object *pod, const char *container_name)
{
	struct json_object *list = api_at(container_of(api_at(pod, "spec"), container_name), "env");

	for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++) {
		struct json_object *entry = json_object_array_get_idx(list, i);

		if (!strcmp(api_text(entry, "name"), "BERTH_EXECUTOR_ROOT") && *api_text(entry, "value") == '/')
			return api_text(entry, "value");
	}
	return "/workspace";
}
