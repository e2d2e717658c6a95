/* SPDX-License-Identifier: Apache-2.0 */
/* Kubeconfig files: every supported form, what is refused by name, several files, files that are replaced. */
#include "kube_test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "cluster.h"

static char dir[] = "/tmp/berth-kubeconfig-XXXXXX";

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
	static const char *const names[] = {"a", "b", "token", "ca.crt", "namespace"};
	char path[128];

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	return rmdir(dir);
}

/* By rename, as a kubelet does it. */
static const char *put(const char *name, const char *text)
{
	static char path[2][128];
	static unsigned turn;
	char *at = path[turn++ % 2], new[160];
	FILE *file;

	snprintf(at, sizeof(path[0]), "%s/%s", dir, name);
	snprintf(new, sizeof(new), "%s.new", at);
	file = fopen(new, "w");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	assert_int_equal(rename(new, at), 0);
	return at;
}

#define HEAD "apiVersion: v1\nkind: Config\ncurrent-context: one\n"
#define CONTEXT "contexts:\n- name: one\n  context: {cluster: c, user: u, namespace: sandboxes}\n"
#define CLUSTER "clusters:\n- name: c\n  cluster:\n    server: https://k8s.example:6443/\n"
#define USER "users:\n- name: u\n  user:\n"

static void loads(const char *text, struct cluster *ret)
{
	struct kerr err = {0};

	if (cluster_from_kubeconfig(put("a", text), "", ret, &err))
		fail_msg("refused: %s", err.text);
}

static void refused(const char *text, const char *word)
{
	struct cluster cluster;
	struct kerr err = {0};

	if (cluster_from_kubeconfig(put("a", text), "", &cluster, &err) != BERTH_INVALID)
		fail_msg("not refused: %s", text);
	if (!strstr(err.text, word))
		fail_msg("\"%s\" is not in: %s", word, err.text);
}

static void test_forms(void **state)
{
	struct cluster c;

	(void)state;
	loads(HEAD CONTEXT CLUSTER
	      "    certificate-authority-data: Q0E=\n    tls-server-name: other\n    proxy-url: http://p:1\n" USER
	      "    token: secret\n",
	      &c);
	assert_string_equal(c.server, "https://k8s.example:6443");
	assert_string_equal(c.ns, "sandboxes");
	assert_string_equal(c.ca.text, "CA");
	assert_string_equal(c.tls_server_name, "other");
	assert_string_equal(c.proxy, "http://p:1");
	assert_string_equal(c.token.text, "secret");
	cluster_fini(&c);
	loads(HEAD CONTEXT CLUSTER "    insecure-skip-tls-verify: true\n" USER
				   "    client-certificate-data: Q0VSVA==\n    client-key: keys/k\n    tokenFile: "
				   "/abs/token\n    token: old\n",
	      &c);
	assert_true(c.insecure);
	assert_string_equal(c.cert.text, "CERT");
	assert_true(c.key.path && !strncmp(c.key.path, dir, strlen(dir)) && strstr(c.key.path, "/keys/k"));
	assert_string_equal(c.token.path, "/abs/token");
	assert_null(c.token.text);
	cluster_fini(&c);
	/* JSON is YAML. */
	loads("{\"current-context\": \"one\", \"contexts\": [{\"name\": \"one\", \"context\": {\"cluster\": \"c\"}}],"
	      " \"clusters\": [{\"name\": \"c\", \"cluster\": {\"server\": \"http://127.0.0.1:1\"}}]}",
	      &c);
	assert_string_equal(c.server, "http://127.0.0.1:1");
	cluster_fini(&c);
}

static void test_exec(void **state)
{
	struct cluster c;

	(void)state;
	loads(HEAD CONTEXT CLUSTER USER
	      "    exec:\n      apiVersion: client.authentication.k8s.io/v1beta1\n      command: aws\n"
	      "      args: [eks, get-token]\n      env:\n      - {name: A, value: b}\n      provideClusterInfo: true\n",
	      &c);
	assert_non_null(c.exec);
	assert_string_equal(c.exec->argv[0], "aws");
	assert_string_equal(c.exec->argv[2], "get-token");
	assert_string_equal(c.exec->env[0], "A=b");
	assert_true(c.exec->cluster_info);
	cluster_fini(&c);
}

static void test_refusals(void **state)
{
	(void)state;
	refused("", "empty");
	refused("- a\n", "mapping");
	refused("a: [\n", ":2:");
	refused("a: 1\na: 2\n", "twice");
	refused("kind: Config\n", "current-context");
	refused(HEAD, "contexts");
	refused(HEAD CONTEXT, "clusters");
	refused(HEAD CONTEXT "clusters: [{name: c, cluster: {server: k8s.example}}]\n", "server");
	refused(HEAD CONTEXT CLUSTER, "users");
	refused(HEAD CONTEXT CLUSTER USER "    username: a\n", "username");
	refused(HEAD CONTEXT CLUSTER USER "    auth-provider: {name: gcp}\n", "auth-provider");
	refused(HEAD CONTEXT CLUSTER USER "    as: somebody\n", "as");
	refused(HEAD CONTEXT CLUSTER USER "    client-certificate-data: Q0E=\n", "go together");
	refused(HEAD CONTEXT CLUSTER "    certificate-authority-data: '!'\n" USER "    token: t\n", "base64");
	refused(HEAD CONTEXT CLUSTER "    certificate-authority-data: Q0E=\n    insecure-skip-tls-verify: true\n" USER
				     "    token: t\n",
		"exclude");
	refused(HEAD CONTEXT CLUSTER USER "    exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}\n",
		"exec");
	refused(HEAD CONTEXT CLUSTER USER "    token: [1]\n", "expected a text");
	refused(HEAD CONTEXT CLUSTER "    insecure-skip-tls-verify: no\n" USER "    token: t\n",
		"insecure-skip-tls-verify: expected true or false");
	refused(HEAD CONTEXT CLUSTER "    insecure-skip-tls-verify: 'false'\n" USER "    token: t\n",
		"insecure-skip-tls-verify: expected true or false");
	refused(HEAD CONTEXT CLUSTER USER "    exec: {command: x, apiVersion: client.authentication.k8s.io/v1,\n"
					  "      provideClusterInfo: off}\n",
		"provideClusterInfo: expected true or false");
}

static void test_two_files(void **state)
{
	char both[300];
	struct cluster c;
	struct kerr err = {0};
	const char *a = put("a", CONTEXT "users:\n- name: u\n  user: {token: first}\n");
	const char *b = put("b", HEAD CLUSTER USER "    token: second\n");

	(void)state;
	snprintf(both, sizeof(both), "%s::%s", a, b);
	assert_int_equal(cluster_from_kubeconfig(both, "", &c, &err), BERTH_OK);
	assert_string_equal(c.token.text, "first");
	assert_string_equal(c.server, "https://k8s.example:6443");
	cluster_fini(&c);
	assert_int_equal(cluster_from_kubeconfig(both, "none", &c, &err), BERTH_INVALID);
	assert_int_equal(cluster_from_kubeconfig("/does/not/exist", "", &c, &err), BERTH_INVALID);
	assert_non_null(strstr(err.text, "/does/not/exist"));
}

static void test_in_a_pod(void **state)
{
	struct cluster c;
	struct kerr err = {0};
	char *token;

	(void)state;
	put("token", "one\n");
	put("ca.crt", "CA");
	put("namespace", "mine\n");
	assert_int_equal(cluster_from_pod(dir, NULL, NULL, &c, &err), BERTH_INVALID);
	assert_int_equal(cluster_from_pod(dir, "fd00::1", "443", &c, &err), BERTH_OK);
	assert_string_equal(c.server, "https://[fd00::1]:443");
	assert_string_equal(c.ns, "mine");
	assert_int_equal(material_get(&c.token, false, &token, &err), BERTH_OK);
	assert_string_equal(token, "one");
	material_drop(token);
	/* Replaced: read at once. Emptied or gone: the last one stays. */
	put("token", "two");
	assert_int_equal(material_get(&c.token, false, &token, &err), BERTH_OK);
	assert_string_equal(token, "two");
	material_drop(token);
	put("token", "\n");
	assert_int_equal(material_get(&c.token, true, &token, &err), BERTH_OK);
	assert_string_equal(token, "two");
	material_drop(token);
	cluster_fini(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),	  cmocka_unit_test(test_exec),	   cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_two_files), cmocka_unit_test(test_in_a_pod),
	};

	return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
