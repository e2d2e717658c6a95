/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials from a program that a kubeconfig names (aws, gke-gcloud-auth-plugin, kubelogin), only where the operator
 * has switched that on: it runs as berthd's user with berthd's environment. Kept until it expires or is refused. Any
 * thread; one of those that need it runs it, the others wait, each no longer than its own call may, but a cancel does
 * not end the wait. Its output is never logged.
 */
#include "execcred.h"

#include <berth/spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "kube.h"

#define OUTPUT_MAX ((size_t)64 * 1024)
#define LEEWAY_MS 60000 /* before its end it is as good as over */
#define FAILED_NS INT64_C(5000000000)
#define SLICE_NS 100000000
#define NS_PER_MS INT64_C(1000000)

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

static int32_t run_program(const struct cluster *cluster, int64_t deadline_ns, struct execcred *ret, struct kerr *err)
{
	char *info = make_info(cluster), **env = info ? make_env(cluster, info) : NULL, *out = malloc(OUTPUT_MAX);
	int32_t rc, status = 0;
	size_t len = 0;

	if (!env || !out) {
		rc = kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	} else {
		rc = berth_spawn_read(cluster->exec->argv, env, deadline_ns, out, OUTPUT_MAX, &len, &status);
		rc = explain(rc, status, cluster->exec->argv[0], err);
	}
	if (!rc)
		rc = execcred_parse(out, len, ret, err);
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

/* ---- one for all ---- */

void execprog_init(struct execprog *prog)
{
	pthread_condattr_t attr;

	*prog = (struct execprog){0};
	pthread_mutex_init(&prog->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&prog->done, &attr);
	pthread_condattr_destroy(&attr);
}

void execprog_fini(struct execprog *prog)
{
	execcred_fini(&prog->cred);
	pthread_cond_destroy(&prog->done);
	pthread_mutex_destroy(&prog->lock);
}

static bool is_usable_locked(const struct execprog *prog, int64_t refused_ns)
{
	return (prog->cred.token.text || prog->cred.cert.text) && (!refused_ns || prog->began_ns > refused_ns);
}

/* What came while somebody waits for it is believed whatever its end: one of the clocks may be wrong. */
static bool is_good_locked(const struct execprog *prog, int64_t since_ns, int64_t leeway_ms)
{
	int64_t until_ms = prog->cred.until_ms;

	return !until_ms || text_now_ms() + leeway_ms < until_ms || prog->printed_ns >= since_ns;
}

static bool has_failed_locked(const struct execprog *prog)
{
	return prog->failed_ns && text_boot_ns() - prog->failed_ns < FAILED_NS;
}

/* Until it ends, or a moment has passed. */
static void wait_locked(struct execprog *prog)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += SLICE_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_cond_timedwait(&prog->done, &prog->lock, &until);
}

static int32_t too_late(struct kerr *err)
{
	return kerr_set(err, BERTH_TIMEOUT, "exec_plugin", "the call's deadline passed before there was a credential");
}

/* Runs it, without the lock meanwhile. What a call had too little time for is no failure of the program. */
static void refresh_locked(const struct cluster *cluster, struct execprog *prog, int64_t deadline_ns)
{
	int64_t began_ns = text_boot_ns(), limit_ns = began_ns + EXECCRED_MS * NS_PER_MS;
	struct execcred cred = {0};
	struct kerr why = {0};
	int32_t rc;

	prog->running = true;
	pthread_mutex_unlock(&prog->lock);
	rc = run_program(cluster, deadline_ns < limit_ns ? deadline_ns : limit_ns, &cred, &why);
	pthread_mutex_lock(&prog->lock);
	prog->running = false;
	pthread_cond_broadcast(&prog->done);
	if (rc) {
		execcred_fini(&cred);
		prog->failed_ns = deadline_ns < limit_ns && text_boot_ns() >= deadline_ns ? 0 : text_boot_ns();
		prog->why = why;
		return;
	}
	execcred_fini(&prog->cred);
	prog->cred = cred;
	prog->began_ns = began_ns;
	prog->printed_ns = text_boot_ns();
	prog->failed_ns = 0;
}

static int32_t copy(struct material *ret, const struct material *from, struct kerr *err)
{
	return put(ret, from->text ? from->text : "", err);
}

static int32_t copy_locked(const struct execprog *prog, struct execcred *ret, struct kerr *err)
{
	int32_t rc = copy(&ret->token, &prog->cred.token, err);

	if (!rc)
		rc = copy(&ret->cert, &prog->cred.cert, err);
	if (!rc)
		rc = copy(&ret->key, &prog->cred.key, err);
	if (rc)
		execcred_fini(ret);
	return rc;
}

int32_t execprog_get(const struct cluster *cluster, struct execprog *prog, int64_t refused_ns, struct berth_call *call,
		     struct execcred *ret, struct kerr *err)
{
	int64_t deadline_ns = call ? kube_deadline_ns(call) : INT64_MAX, since_ns = text_boot_ns();
	int32_t rc = BERTH_OK;

	*ret = (struct execcred){0};
	pthread_mutex_lock(&prog->lock);
	while (!rc && !(is_usable_locked(prog, refused_ns) && is_good_locked(prog, since_ns, LEEWAY_MS)) &&
	       !has_failed_locked(prog)) {
		if (text_boot_ns() >= deadline_ns)
			rc = too_late(err);
		else if (prog->running)
			wait_locked(prog);
		else
			refresh_locked(cluster, prog, deadline_ns);
	}
	/* What has not expired yet does as long as nothing newer is to be had. */
	if (!rc && !(is_usable_locked(prog, refused_ns) && is_good_locked(prog, since_ns, 0))) {
		*err = prog->why;
		rc = err->code;
	}
	if (!rc)
		rc = copy_locked(prog, ret, err);
	pthread_mutex_unlock(&prog->lock);
	return rc;
}
