/* SPDX-License-Identifier: Apache-2.0 */
/* The pod template: what is filled in, what is refused and by which name, what one pod gets. */
#include "kube_test.h"

#include "api.h"
#include "template.h"
#include "yamltree.h"

static const struct template_base base = {
	.container = "executor",
	.image = "",
	.executor_image = "",
	.runtime_class = "",
	.keys = "k1:AAAA",
	.root = "/berth/workspace",
	.port = 8080,
	.cpu_millis = 500,
	.memory_bytes = 1073741824,
	.disk_bytes = 2147483648,
};

static struct json_object *tree_of(const char *text)
{
	struct json_object *tree;
	struct kerr err;

	if (yamltree_parse("test", text, strlen(text), &tree, &err))
		fail_msg("%s", err.text);
	return tree;
}

#define POD "spec:\n  containers:\n  - name: executor\n    image: i\n"

static void test_what_is_filled_in(void **state)
{
	struct json_object *tree = tree_of(POD "  - name: side\n    image: s\n    resources: {limits: {cpu: 100m}}\n"),
			   *spec, *one;
	struct kerr err;

	(void)state;
	assert_int_equal(template_merge("t", tree, &base, &err), BERTH_OK);
	spec = api_at(tree, "spec");
	assert_false(json_object_get_boolean(api_at(spec, "automountServiceAccountToken")));
	assert_non_null(api_at(spec, "automountServiceAccountToken"));
	assert_non_null(api_at(spec, "enableServiceLinks"));
	assert_string_equal(api_text(spec, "restartPolicy"), "Never");
	assert_true(json_object_get_boolean(api_at(spec, "securityContext.runAsNonRoot")));
	assert_string_equal(api_text(spec, "securityContext.seccompProfile.type"), "RuntimeDefault");
	assert_int_equal(api_number(spec, "terminationGracePeriodSeconds"), 5);
	for (size_t i = 0; i < 2; i++) {
		one = json_object_array_get_idx(api_at(spec, "containers"), i);
		assert_non_null(api_at(one, "securityContext.allowPrivilegeEscalation"));
		assert_false(json_object_get_boolean(api_at(one, "securityContext.allowPrivilegeEscalation")));
		assert_string_equal(json_object_get_string(json_object_array_get_idx(
					    api_at(one, "securityContext.capabilities.drop"), 0)),
				    "ALL");
		assert_string_equal(api_text(one, "resources.limits.memory"), "1073741824");
		assert_string_equal(api_text(one, "resources.limits.cpu"), i ? "100m" : "500m");
	}
	json_object_put(tree);
}

/* What an operator asks for and does not get is said, with its name. */
static void test_what_is_refused(void **state)
{
	static const struct {
		const char *text, *word;
	} rows[] = {
		{POD "  automountServiceAccountToken: true\n", "automountServiceAccountToken"},
		{POD "  enableServiceLinks: true\n", "enableServiceLinks"},
		{POD "  restartPolicy: Always\n", "restartPolicy"},
		{POD "  hostNetwork: true\n", "hostNetwork"},
		{POD "  hostPID: true\n", "hostPID"},
		{POD "  hostIPC: true\n", "hostIPC"},
		{POD "  nodeName: n\n", "nodeName"},
		{POD "  runtimeClassName: kata\n", "runtimeClassName"},
		{POD "  securityContext: {runAsNonRoot: false}\n", "runAsNonRoot"},
		{POD "  securityContext: {runAsUser: 0}\n", "runAsUser"},
		{POD "  securityContext: {seccompProfile: {type: Unconfined}}\n", "seccompProfile"},
		{POD "  securityContext: 3\n", "securityContext"},
		{POD "  volumes: [{name: v, hostPath: {path: /}}]\n", "volumes"},
		{POD "    securityContext: {privileged: true}\n", "privileged"},
		{POD "    securityContext: {allowPrivilegeEscalation: true}\n", "allowPrivilegeEscalation"},
		{POD "    securityContext: {capabilities: {add: [SYS_ADMIN]}}\n", "capabilities"},
		{POD "    securityContext: {procMount: Unmasked}\n", "procMount"},
		{POD "    securityContext: {runAsUser: 0}\n", "runAsUser"},
		{POD "    ports: [{containerPort: 1, hostPort: 1}]\n", "hostPort"},
		{POD "  volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]\n", "projected"},
		{POD "  volumes: [{name: v, projected: {sources: [{configMap: {name: c}}, {podCertificate: {keyType: "
		     "ED25519}}]}}]\n",
		 "projected"},
		{POD "  volumes: [3]\n", "volumes"},
		{POD "    securityContext: {runAsNonRoot: 'false'}\n", "runAsNonRoot: expected true or false"},
		{POD "  hostNetwork: no\n", "hostNetwork: expected true or false"},
		{POD "    securityContext: {appArmorProfile: {type: Unconfined}}\n", "appArmorProfile"},
		{POD "  securityContext: {appArmorProfile: {type: Unconfined}}\n", "appArmorProfile"},
		{POD "metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/executor: unconfined}}\n",
		 "apparmor"},
		{POD "metadata: {annotations: {container.seccomp.security.alpha.kubernetes.io/executor: unconfined}}\n",
		 "seccomp"},
		{POD "  securityContext: {seLinuxOptions: {type: spc_t}}\n", "seLinuxOptions.type"},
		{POD "    securityContext: {seLinuxOptions: {user: system_u}}\n", "seLinuxOptions.user"},
		{POD "    securityContext: {seLinuxOptions: {role: sysadm_r}}\n", "seLinuxOptions.role"},
		{POD "  securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}\n", "sysctls"},
		{POD "    livenessProbe: {httpGet: {host: 169.254.169.254, port: 80}}\n", "livenessProbe"},
		{POD "    lifecycle: {preStop: {tcpSocket: {host: 10.0.0.1, port: 80}}}\n", "lifecycle"},
		{POD "    resources: {limits: {memory: 0}}\n", "resources.limits"},
		{POD "    resources: {limits: {cpu: '0.0'}}\n", "resources.limits"},
		{POD "    resources: {limits: {ephemeral-storage: 0Gi}}\n", "resources.limits"},
		{"spec:\n  containers:\n  - name: other\n    image: i\n", "containers"},
		{"spec:\n  containers:\n  - name: executor\n", "image"},
		{"spec: 1\n", "spec"},
		{"metadata: {}\n", "spec"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct json_object *tree = tree_of(rows[i].text);
		struct kerr err = {0};

		if (template_merge("t", tree, &base, &err) != BERTH_INVALID || !strstr(err.text, rows[i].word))
			fail_msg("%s: \"%s\"", rows[i].text, err.text);
		json_object_put(tree);
	}
}

/* What the restricted profile allows, and null for what is left out. */
static void test_what_is_allowed(void **state)
{
	struct json_object *tree = tree_of(
		POD "    resources: {limits: {memory: null, cpu: 0.5}}\n"
		    "    livenessProbe: {httpGet: {port: 80}}\n"
		    "    securityContext: {appArmorProfile: {type: RuntimeDefault}, seLinuxOptions: {level: s0}}\n"
		    "  securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: '1'}], seccompProfile: null,\n"
		    "    seLinuxOptions: {type: container_t, user: null}}\n"
		    "  volumes: [{name: v, projected: {sources: [{configMap: {name: c}}, {clusterTrustBundle: {path: ca}},\n"
		    "    {secret: {name: s}, serviceAccountToken: null}]}}]\n"
		    "metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/executor: runtime/default}}\n");
	struct json_object *one;
	struct kerr err = {0};

	(void)state;
	if (template_merge("t", tree, &base, &err))
		fail_msg("%s", err.text);
	one = json_object_array_get_idx(api_at(tree, "spec.containers"), 0);
	assert_string_equal(api_text(one, "resources.limits.memory"), "1073741824");
	assert_string_equal(json_object_get_string(api_at(one, "resources.limits.cpu")), "0.5");
	assert_string_equal(api_text(tree, "spec.securityContext.seccompProfile.type"), "RuntimeDefault");
	json_object_put(tree);
}

static const char *env_of(struct json_object *pod, const char *name)
{
	struct json_object *list = api_at(json_object_array_get_idx(api_at(pod, "spec.containers"), 0), "env");

	for (size_t i = 0; i < json_object_array_length(list); i++)
		if (!strcmp(api_text(json_object_array_get_idx(list, i), "name"), name))
			return api_text(json_object_array_get_idx(list, i), "value");
	return NULL;
}

static void test_one_pod(void **state)
{
	struct json_object *tree = tree_of("metadata:\n  labels: {team: a}\n" POD
					   "    env: [{name: BERTH_EXECUTOR_KEYS, value: forged}]\n"),
			   *pod;
	const struct berth_pair env[] = {{str_of("A"), str_of("$(B) $$ $")}, {str_of("B"), str_of("\xc3\xa9")}};
	const struct template_session session = {
		.name = "n", .image = "other", .cpu_millis = 250, .seconds = 60, .env = env, .env_count = 2};
	struct template_session bad = session;
	const struct berth_pair raw = {str_of("A"), str_of("\xff")};
	struct kerr err;

	(void)state;
	assert_int_equal(template_merge("t", tree, &base, &err), BERTH_OK);
	assert_int_equal(template_pod(tree, "executor", &session, &pod, &err), BERTH_OK);
	assert_string_equal(api_text(pod, "metadata.name"), "n");
	assert_string_equal(api_text(pod, "metadata.labels.team"), "a");
	assert_int_equal(api_number(pod, "spec.activeDeadlineSeconds"), 60);
	assert_string_equal(env_of(pod, "A"), "$$(B) $$$ $");
	assert_string_equal(env_of(pod, "BERTH_EXECUTOR_KEYS"), "k1:AAAA");
	assert_string_equal(api_text(json_object_array_get_idx(api_at(pod, "spec.containers"), 0), "image"), "other");
	assert_string_equal(
		api_text(json_object_array_get_idx(api_at(pod, "spec.containers"), 0), "resources.limits.cpu"), "250m");
	/* The template itself stays as it was. */
	assert_null(api_at(tree, "metadata.name"));
	assert_null(env_of(tree, "A"));
	json_object_put(pod);
	bad.env = &raw;
	bad.env_count = 1;
	assert_int_equal(template_pod(tree, "executor", &bad, &pod, &err), BERTH_INVALID);
	json_object_put(tree);
}

static void test_the_built_in_one(void **state)
{
	struct template_base own = base;
	struct json_object *tree;
	struct kerr err;

	(void)state;
	assert_int_equal(template_load("", &own, &tree, &err), BERTH_INVALID); /* no image */
	own.image = "sandbox:1";
	own.memory_bytes = 0;
	assert_int_equal(template_load("", &own, &tree, &err), BERTH_INVALID); /* no limit */
	own.memory_bytes = base.memory_bytes;
	own.executor_image = "berth:1";
	own.runtime_class = "gvisor";
	assert_int_equal(template_load("", &own, &tree, &err), BERTH_OK);
	assert_string_equal(api_text(tree, "spec.runtimeClassName"), "gvisor");
	assert_string_equal(template_root(tree, "executor"), "/berth/workspace");
	assert_int_equal(json_object_array_length(api_at(tree, "spec.initContainers")), 1);
	json_object_put(tree);
}

/* What packaging/ ships is accepted, and is what its comments say. */
static void test_the_packaged_one(void **state)
{
	struct json_object *map, *tree;
	const char *text;
	struct kerr err = {0};

	(void)state;
	assert_int_equal(yamltree_read(BERTH_TEST_SOURCE_DIR "/packaging/kubernetes/30-config.yaml", &map, &err),
			 BERTH_OK);
	text = api_member(map, "data", "template.yaml");
	assert_int_equal(yamltree_parse("template.yaml", text, strlen(text), &tree, &err), BERTH_OK);
	if (template_merge("template.yaml", tree, &base, &err))
		fail_msg("%s", err.text);
	assert_string_equal(template_root(tree, "executor"), "/berth/workspace");
	json_object_put(tree);
	json_object_put(map);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_filled_in), cmocka_unit_test(test_what_is_refused),
		cmocka_unit_test(test_what_is_allowed),	  cmocka_unit_test(test_one_pod),
		cmocka_unit_test(test_the_built_in_one),  cmocka_unit_test(test_the_packaged_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
