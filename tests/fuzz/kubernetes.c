/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: what the Kubernetes provider reads. YAML as template and kubeconfig, the API server's objects and
 * refusals, credentials that a program printed, sessions as the host kept them, numbers and times. The first byte
 * chooses. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "cluster.h"
#include "execcred.h"
#include "fuzz.h"
#include "podview.h"
#include "prune.h"
#include "session.h"
#include "status.h"
#include "template.h"
#include "yamltree.h"

static const struct template_base base = {
	.container = "executor",
	.image = "i",
	.executor_image = "",
	.runtime_class = "",
	.keys = "k1:A",
	.root = "/w",
	.port = 8080,
	.cpu_millis = 1,
	.memory_bytes = 1,
	.disk_bytes = 1,
};

static void explained(int32_t rc, const struct kerr *err)
{
	FUZZ_CHECK(rc == err->code && rc > 0 && rc <= BERTH_CODE_MAX && *err->reason && *err->text);
}

/* What was accepted has what is insisted on, and a pod can be made of it. */
static void check_template(const char *text, size_t len)
{
	const struct template_session session = {.name = "n", .image = ""};
	struct json_object *tree = NULL, *pod;
	struct kerr err = {0};
	int32_t rc = yamltree_parse("f", text, len, &tree, &err);

	if (!rc)
		rc = template_merge("f", tree, &base, &err);
	if (rc) {
		explained(rc, &err);
	} else {
		FUZZ_CHECK(!strcmp(api_text(tree, "spec.restartPolicy"), "Never"));
		FUZZ_CHECK(!json_object_get_boolean(api_at(tree, "spec.automountServiceAccountToken")));
		FUZZ_CHECK(!json_object_get_boolean(api_at(tree, "spec.hostNetwork")));
		FUZZ_CHECK(json_object_get_boolean(api_at(tree, "spec.securityContext.runAsNonRoot")));
		FUZZ_CHECK(!template_pod(tree, "executor", &session, &pod, &err));
		FUZZ_CHECK(!strcmp(api_text(pod, "metadata.name"), "n") && *template_root(pod, "executor") == '/');
		json_object_put(pod);
	}
	json_object_put(tree);
}

static void check_kubeconfig(const char *text, size_t len)
{
	struct cluster cluster;
	struct kerr err = {0};
	char path[512];
	int32_t rc;

	fuzz_write_file(fuzz_folder_fd(), "config", text, len);
	snprintf(path, sizeof(path), "%s/config", fuzz_folder());
	rc = cluster_from_kubeconfig(path, "", &cluster, &err);
	if (rc) {
		explained(rc, &err);
		return;
	}
	FUZZ_CHECK(!strncmp(cluster.server, "http", 4) && cluster.server[strlen(cluster.server) - 1] != '/');
	FUZZ_CHECK(material_is_set(&cluster.cert) == material_is_set(&cluster.key));
	cluster_fini(&cluster);
}

static struct json_object *parse(const char *text, size_t len)
{
	struct json_tokener *tokener = json_tokener_new_ex(64);
	struct json_object *tree = len < 1 << 20 ? json_tokener_parse_ex(tokener, text, (int)len) : NULL;

	json_tokener_free(tokener);
	return tree;
}

/* What is taken out of an object beforehand changes nothing that is read of it. Strings in other quotes and comments,
 * which the parser knows as well, are no JSON. */
static void check_pruned(const char *text, size_t len, struct json_object *tree, const struct podview *view)
{
	char *copy = fuzz_copy(text, len);
	size_t left = prune_json(copy, len);
	struct json_object *pruned = parse(copy, left);
	struct podview again;

	FUZZ_CHECK(left <= len);
	if (tree && !memchr(text, '\'', len) && !memchr(text, '/', len)) {
		podview_of(pruned, "executor", &again);
		FUZZ_CHECK(pruned && json_object_get_type(pruned) == json_object_get_type(tree));
		FUZZ_CHECK(!strcmp(view->name, again.name) && !strcmp(view->uid, again.uid) && !strcmp(view->ip, again.ip));
		FUZZ_CHECK(view->verdict.code == again.verdict.code && view->verdict.phase == again.verdict.phase);
	}
	json_object_put(pruned);
	free(copy);
}

static void check_object(const char *text, size_t len)
{
	struct json_object *tree = parse(text, len);
	struct podview view;
	struct kerr err = {0};

	podview_of(tree, "executor", &view);
	FUZZ_CHECK(view.name && view.uid && view.ip && view.task && view.verdict.reason);
	FUZZ_CHECK(view.verdict.phase != BERTH_PHASE_DEAD || view.verdict.code == BERTH_SESSION_LOST);
	FUZZ_CHECK(view.verdict.phase != BERTH_PHASE_READY || (!view.verdict.code && *view.ip && !view.deleting));
	for (uint32_t status = 300; status < 600; status += 1 + status % 7)
		explained(status_classify(status, tree, "w", status & 1, &err), &err);
	check_pruned(text, len, tree, &view);
	json_object_put(tree);
}

static void check_session(const char *text, size_t len)
{
	const char *end = memchr(text, '\n', len);
	size_t ref = end ? (size_t)(end - text) : len;
	const struct berth_session from = {.struct_size = sizeof(from),
					   .ref = {text, ref},
					   .state = {text + ref + (end != NULL), len - ref - (end != NULL)}};
	struct session session, again;
	char state[1024], label[LABEL_VALUE_MAX + 1], *id = fuzz_copy(text, ref);

	if (session_of(&from, &session)) {
		struct berth_session to = from;

		FUZZ_PLANTED(session.task, strlen(session.task));
		session_state(&session, state);
		to.state = str_of(state);
		FUZZ_CHECK(session_of(&to, &again) && !strcmp(again.task, session.task) &&
			   !strcmp(again.instance, session.instance));
		FUZZ_CHECK(names_dns(session.ref.ns, 63) && names_dns(session.ref.name, 63));
	}
	FUZZ_CHECK(names_label(id, label) && strlen(label) <= LABEL_VALUE_MAX);
	FUZZ_PLANTED(label, strlen(label));
	free(id);
}

static void check_words(const char *text, size_t len)
{
	struct execcred cred = {0};
	struct kerr err = {0};
	int32_t rc = execcred_parse(text, len, &cred, &err);
	uint64_t milli = 0;
	size_t size;
	void *bytes;

	if (rc)
		explained(rc, &err);
	else
		FUZZ_CHECK(cred.token.text || (cred.cert.text && cred.key.text));
	execcred_fini(&cred);
	bytes = text_base64(text, &size);
	FUZZ_CHECK(!bytes || size <= len);
	free(bytes);
	text_quantity(text, &milli);
	text_time_ms(text);
	text_is_utf8((struct berth_str){text, len});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const checks[])(const char *text, size_t len) = {check_template, check_kubeconfig, check_object,
								       check_session, check_words};
	struct fuzz_input in = {data, size};
	unsigned which = fuzz_byte(&in) % (sizeof(checks) / sizeof(checks[0]));
	char *text = fuzz_copy(in.ptr, in.len);

	checks[which](text, in.len);
	free(text);
	return 0;
}
