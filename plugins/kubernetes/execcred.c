/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials from a program that a kubeconfig names (aws, gke-gcloud-auth-plugin, kubelogin), only where the operator
 * has switched that on: it runs as berthd's user with berthd's environment. Kept until it expires or is refused. Its
 * output is never logged.
 */
#include "execcred.h"

#include <berth/spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define OUTPUT_MAX ((size_t)64 * 1024)
#define LEEWAY_MS 60000 /* before its end it is as good as over */

/* The environment of this process, under what the kubeconfig says. */
static char **make_env(const struct cluster *cluster, char *info)
{
	size_t count = 0, at = 0;
	char **env;

	while (environ[count])
		count++;
	env = calloc(count + EXEC_WORDS_MAX + 2, sizeof(*env));
	if (!env)
		return NULL;
	for (char *const *word = cluster->exec->env; *word; word++)
		env[at++] = *word;
	env[at++] = info;
	/* The first of a name counts for getenv; shells take the last: leave out what is replaced. */
	for (size_t i = 0; i < count; i++) {
		size_t len = strcspn(environ[i], "=") + 1;
		bool replaced = !strncmp(environ[i], "KUBERNETES_EXEC_INFO=", 21);

		for (char *const *word = cluster->exec->env; !replaced && *word; word++)
			replaced = !strncmp(*word, environ[i], len);
		if (!replaced)
			env[at++] = environ[i];
	}
	return env;
}

static char *make_info(const struct cluster *cluster)
{
	struct json_object *info = json_object_new_object(), *spec = json_object_new_object(), *about;
	char *text = NULL;

	json_object_object_add(info, "apiVersion", json_object_new_string(cluster->exec->api_version));
	json_object_object_add(info, "kind", json_object_new_string("ExecCredential"));
	json_object_object_add(info, "spec", spec);
	json_object_object_add(spec, "interactive", json_object_new_boolean(0));
	if (cluster->exec->cluster_info) {
		about = json_object_new_object();
		json_object_object_add(about, "server", json_object_new_string(cluster->server));
		json_object_object_add(spec, "cluster", about);
	}
	if (asprintf(&text, "KUBERNETES_EXEC_INFO=%s", json_object_to_json_string_ext(info, JSON_C_TO_STRING_PLAIN)) <
	    0)
		text = NULL;
	json_object_put(info);
	return text;
}

static int32_t put(struct material *m, const char *text, struct kerr *err)
{
	material_fini(m);
	if (!*text)
		return BERTH_OK;
	m->text = strdup(text);
	return m->text ? BERTH_OK : kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
}

int32_t execcred_parse(const char *text, size_t len, struct execcred *cred, struct kerr *err)
{
	struct json_tokener *tokener = json_tokener_new_ex(16);
	struct json_object *tree = tokener && len ? json_tokener_parse_ex(tokener, text, (int)len) : NULL;
	const char *token = api_text(tree, "status.token"), *cert = api_text(tree, "status.clientCertificateData");
	const char *key = api_text(tree, "status.clientKeyData"), *end = api_text(tree, "status.expirationTimestamp");
	int32_t rc = BERTH_OK;

	if (strcmp(api_text(tree, "kind"), "ExecCredential") || (!*token && !*cert) || !*cert != !*key)
		rc = kerr_set(err, BERTH_UNAUTHENTICATED, "exec_plugin",
			      "the program printed no ExecCredential with a token or a certificate");
	if (!rc)
		rc = put(&cred->token, token, err);
	if (!rc)
		rc = put(&cred->cert, cert, err);
	if (!rc)
		rc = put(&cred->key, key, err);
	cred->until_ms = text_time_ms(end);
	json_object_put(tree);
	if (tokener)
		json_tokener_free(tokener);
	return rc;
}

static int32_t explain(int32_t rc, int32_t status, const char *name, struct kerr *err)
{
	if (rc == BERTH_NOT_FOUND)
		return kerr_set(err, BERTH_UNAUTHENTICATED, "exec_plugin", "%s cannot be run", name);
	if (rc == BERTH_TIMEOUT)
		return kerr_set(err, BERTH_UNAVAILABLE, "exec_plugin", "%s took more than %d s", name,
				EXECCRED_MS / 1000);
	if (rc == BERTH_INVALID)
		return kerr_set(err, BERTH_UNAUTHENTICATED, "exec_plugin", "%s printed too much", name);
	if (rc)
		return kerr_set(err, BERTH_UNAVAILABLE, "exec_plugin", "%s could not be started", name);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return kerr_set(err, BERTH_UNAUTHENTICATED, "exec_plugin", "%s failed with status %d", name,
				WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	return BERTH_OK;
}

int32_t execcred_get(const struct cluster *cluster, struct execcred *cred, bool force, struct kerr *err)
{
	bool have = cred->token.text || cred->cert.text;
	char *info, *out, **env;
	int32_t rc, status = 0;
	size_t len = 0;

	if (have && !force && (!cred->until_ms || text_now_ms() + LEEWAY_MS < cred->until_ms))
		return BERTH_OK;
	info = make_info(cluster);
	env = info ? make_env(cluster, info) : NULL;
	out = malloc(OUTPUT_MAX);
	if (!env || !out) {
		rc = kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	} else {
		rc = berth_spawn_read(cluster->exec->argv, env, text_boot_ns() + (int64_t)EXECCRED_MS * 1000000, out,
				      OUTPUT_MAX, &len, &status);
		rc = explain(rc, status, cluster->exec->argv[0], err);
	}
	if (!rc)
		rc = execcred_parse(out, len, cred, err);
	if (out)
		explicit_bzero(out, OUTPUT_MAX);
	free(out);
	free(env);
	free(info);
	return rc;
}

void execcred_fini(struct execcred *cred)
{
	material_fini(&cred->token);
	material_fini(&cred->cert);
	material_fini(&cred->key);
	*cred = (struct execcred){0};
}
