/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads kubeconfig files into a cluster. A table says which field goes where, so that a form that is not supported is
 * refused by name instead of being left out silently. open only; local files only.
 */
#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "yamltree.h"

#define FILES_MAX 16

/* The files of one KUBECONFIG list, in order of precedence. */
struct files {
	struct json_object *tree[FILES_MAX];
	char *path[FILES_MAX];
	unsigned count;
};

/* One named entry and the file it stands in. */
struct entry {
	struct json_object *body;
	const char *path;
};

enum form { TEXT, PLAIN, DATA, FILE_PATH, FLAG, REFUSED };

struct field {
	const char *key;
	enum form form;
	size_t off;
	const char *why; /* of REFUSED */
};

#define AT(member) offsetof(struct cluster, member)

static const struct field cluster_fields[] = {
	{"server", TEXT, AT(server), NULL},
	{"tls-server-name", TEXT, AT(tls_server_name), NULL},
	{"proxy-url", TEXT, AT(proxy), NULL},
	{"insecure-skip-tls-verify", FLAG, AT(insecure), NULL},
	{"certificate-authority-data", DATA, AT(ca), NULL},
	{"certificate-authority", FILE_PATH, AT(ca), NULL},
	{NULL, TEXT, 0, NULL},
};

static const struct field user_fields[] = {
	/* A file goes before a token beside it, and data before a file, as in the reference client. */
	{"tokenFile", FILE_PATH, AT(token), NULL},
	{"token", PLAIN, AT(token), NULL},
	{"client-certificate-data", DATA, AT(cert), NULL},
	{"client-certificate", FILE_PATH, AT(cert), NULL},
	{"client-key-data", DATA, AT(key), NULL},
	{"client-key", FILE_PATH, AT(key), NULL},
	{"username", REFUSED, 0, "user names and passwords were removed from Kubernetes"},
	{"password", REFUSED, 0, "user names and passwords were removed from Kubernetes"},
	{"auth-provider", REFUSED, 0, "auth-provider was removed from Kubernetes; use exec"},
	{"as", REFUSED, 0, "impersonation is not supported"},
	{NULL, TEXT, 0, NULL},
};

static const char *text_of(struct json_object *body, const char *key)
{
	struct json_object *value;

	if (!json_object_object_get_ex(body, key, &value) || !json_object_is_type(value, json_type_string))
		return NULL;
	return json_object_get_string_len(value) ? json_object_get_string(value) : NULL;
}

static char *beside(const char *file, const char *path)
{
	const char *slash = strrchr(file, '/');
	char *joined = NULL;

	if (*path == '/' || !slash)
		return strdup(path);
	return asprintf(&joined, "%.*s/%s", (int)(slash - file), file, path) < 0 ? NULL : joined;
}

static int32_t no_memory(struct kerr *err)
{
	return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
}

/* Of a word that is no boolean nobody knows what it was meant to say. */
static int32_t take_flag(const char *path, struct json_object *body, const char *key, bool *ret, struct kerr *err)
{
	struct json_object *value;

	if (!json_object_object_get_ex(body, key, &value) || !value)
		return BERTH_OK;
	if (!json_object_is_type(value, json_type_boolean))
		return kerr_set(err, BERTH_INVALID, "kubeconfig", "%s: %s: expected true or false", path, key);
	*ret = json_object_get_boolean(value);
	return BERTH_OK;
}

static int32_t take_field(const struct field *field, const struct entry *entry, struct cluster *ret, struct kerr *err)
{
	void *at = (char *)ret + field->off;
	struct material *material = at;
	struct json_object *value;
	const char *text = text_of(entry->body, field->key);
	size_t len;

	if (!json_object_object_get_ex(entry->body, field->key, &value) || !value)
		return BERTH_OK;
	if (field->form == REFUSED)
		return kerr_set(err, BERTH_INVALID, "kubeconfig", "%s: %s: %s", entry->path, field->key, field->why);
	if (field->form == FLAG)
		return take_flag(entry->path, entry->body, field->key, at, err);
	if (!text)
		return json_object_is_type(value, json_type_string)
			       ? BERTH_OK
			       : kerr_set(err, BERTH_INVALID, "kubeconfig", "%s: %s: expected a text", entry->path,
					  field->key);
	if (field->form == TEXT && *(char **)at)
		return BERTH_OK;
	if (field->form == TEXT)
		return (*(char **)at = strdup(text)) ? BERTH_OK : no_memory(err);
	if (material_is_set(material))
		return BERTH_OK;
	if (field->form == FILE_PATH)
		return (material->path = beside(entry->path, text)) ? BERTH_OK : no_memory(err);
	if (field->form == PLAIN)
		return (material->text = strdup(text)) ? BERTH_OK : no_memory(err);
	material->text = text_base64(text, &len);
	if (!material->text || strlen(material->text) != len)
		return kerr_set(err, BERTH_INVALID, "kubeconfig", "%s: %s: not base64 of a text", entry->path,
				field->key);
	return BERTH_OK;
}

static int32_t take_fields(const struct field *field, const struct entry *entry, struct cluster *ret, struct kerr *err)
{
	int32_t rc = BERTH_OK;

	for (; !rc && field->key; field++)
		rc = take_field(field, entry, ret, err);
	return rc;
}

/* ---- exec ---- */

static int32_t add_word(char **words, unsigned *count, const char *a, const char *b, struct kerr *err)
{
	if (!a)
		return kerr_set(err, BERTH_INVALID, "kubeconfig", "exec: a word is missing");
	if (*count == EXEC_WORDS_MAX)
		return kerr_set(err, BERTH_INVALID, "kubeconfig", "exec: more than %d words", EXEC_WORDS_MAX);
	if (asprintf(&words[*count], "%s%s%s", a, b ? "=" : "", b ? b : "") < 0) {
		words[*count] = NULL;
		return no_memory(err);
	}
	++*count;
	return BERTH_OK;
}

static int32_t take_exec_lists(struct exec_plugin *exec, struct json_object *body, struct kerr *err)
{
	struct json_object *list = NULL;
	unsigned words = 1, vars = 0;
	int32_t rc = BERTH_OK;

	json_object_object_get_ex(body, "args", &list);
	for (size_t i = 0; !rc && json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++)
		rc = add_word(exec->argv, &words, json_object_get_string(json_object_array_get_idx(list, i)), NULL,
			      err);
	list = NULL;
	json_object_object_get_ex(body, "env", &list);
	for (size_t i = 0; !rc && json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
	     i++) {
		struct json_object *pair = json_object_array_get_idx(list, i);
		const char *name = text_of(pair, "name"), *value = text_of(pair, "value");

		if (name)
			rc = add_word(exec->env, &vars, name, value ? value : "", err);
	}
	return rc;
}

static int32_t take_exec(const struct entry *entry, struct cluster *ret, struct kerr *err)
{
	struct json_object *body;
	const char *command, *version;
	unsigned words = 0;

	if (!json_object_object_get_ex(entry->body, "exec", &body) || !body)
		return BERTH_OK;
	command = text_of(body, "command");
	version = text_of(body, "apiVersion");
	if (!command || !version ||
	    (strcmp(version, "client.authentication.k8s.io/v1") &&
	     strcmp(version, "client.authentication.k8s.io/v1beta1")))
		return kerr_set(err, BERTH_INVALID, "kubeconfig",
				"%s: exec: needs a command and apiVersion client.authentication.k8s.io/v1 or v1beta1",
				entry->path);
	ret->exec = calloc(1, sizeof(*ret->exec));
	if (!ret->exec || !(ret->exec->api_version = strdup(version)))
		return no_memory(err);
	if (take_flag(entry->path, body, "provideClusterInfo", &ret->exec->cluster_info, err))
		return err->code;
	/* With a slash it is a path like the others; else it is looked up in PATH. */
	if (strchr(command, '/')) {
		ret->exec->argv[0] = beside(entry->path, command);
		if (!ret->exec->argv[0])
			return no_memory(err);
	} else if (add_word(ret->exec->argv, &words, command, NULL, err)) {
		return err->code;
	}
	return take_exec_lists(ret->exec, body, err);
}

/* ---- names ---- */

static struct json_object *named(struct json_object *tree, const char *list_key, const char *name, const char *body_key)
{
	struct json_object *list, *body;

	if (!json_object_object_get_ex(tree, list_key, &list) || !json_object_is_type(list, json_type_array))
		return NULL;
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *item = json_object_array_get_idx(list, i);
		const char *its = json_object_is_type(item, json_type_object) ? text_of(item, "name") : NULL;

		if (its && !strcmp(its, name) && json_object_object_get_ex(item, body_key, &body) &&
		    json_object_is_type(body, json_type_object))
			return body;
	}
	return NULL;
}

static int32_t find_entry(const struct files *files, const char *list_key, const char *body_key, const char *name,
			  struct entry *ret, struct kerr *err)
{
	for (unsigned i = 0; i < files->count; i++) {
		ret->body = named(files->tree[i], list_key, name, body_key);
		ret->path = files->path[i];
		if (ret->body)
			return BERTH_OK;
	}
	return kerr_set(err, BERTH_INVALID, "kubeconfig", "%s: %s: there is none named \"%.100s\"", files->path[0],
			list_key, name);
}

static const char *current_context(const struct files *files)
{
	const char *name = NULL;

	for (unsigned i = 0; !name && i < files->count; i++)
		name = text_of(files->tree[i], "current-context");
	return name;
}

static int32_t check_cluster(struct cluster *ret, const char *path, struct kerr *err)
{
	size_t len;

	if (!ret->server || (strncmp(ret->server, "https://", 8) && strncmp(ret->server, "http://", 7)))
		return kerr_set(err, BERTH_INVALID, "kubeconfig", "%s: server: expected an http or https URL", path);
	for (len = strlen(ret->server); len && ret->server[len - 1] == '/'; len--)
		ret->server[len - 1] = '\0';
	if (ret->insecure && material_is_set(&ret->ca))
		return kerr_set(err, BERTH_INVALID, "kubeconfig",
				"%s: insecure-skip-tls-verify and a certificate authority exclude each other", path);
	if (material_is_set(&ret->cert) != material_is_set(&ret->key))
		return kerr_set(err, BERTH_INVALID, "kubeconfig", "%s: a client certificate and its key go together",
				path);
	return BERTH_OK;
}

static int32_t resolve(const struct files *files, const char *context, struct cluster *ret, struct kerr *err)
{
	struct entry entry;
	const char *cluster, *user, *ns;
	int32_t rc;

	context = *context ? context : current_context(files);
	if (!context)
		return kerr_set(err, BERTH_INVALID, "kubeconfig", "%s: names no current-context", files->path[0]);
	rc = find_entry(files, "contexts", "context", context, &entry, err);
	if (rc)
		return rc;
	cluster = text_of(entry.body, "cluster");
	user = text_of(entry.body, "user");
	ns = text_of(entry.body, "namespace");
	if (ns && !(ret->ns = strdup(ns)))
		return no_memory(err);
	rc = find_entry(files, "clusters", "cluster", cluster ? cluster : "", &entry, err);
	if (!rc)
		rc = take_fields(cluster_fields, &entry, ret, err);
	if (!rc)
		rc = check_cluster(ret, entry.path, err);
	if (!rc && user)
		rc = find_entry(files, "users", "user", user, &entry, err);
	if (!rc && user)
		rc = take_fields(user_fields, &entry, ret, err);
	if (!rc && user)
		rc = take_exec(&entry, ret, err);
	return rc ? rc : check_cluster(ret, entry.path, err);
}

/* ---- files ---- */

static int32_t load(const char *paths, struct files *ret, struct kerr *err)
{
	while (*paths) {
		size_t len = strcspn(paths, ":");
		unsigned at = ret->count;
		int32_t rc;

		if (len && at == FILES_MAX)
			return kerr_set(err, BERTH_INVALID, "kubeconfig", "more than %d files", FILES_MAX);
		if (len) {
			ret->path[at] = strndup(paths, len);
			if (!ret->path[at])
				return no_memory(err);
			rc = yamltree_read(ret->path[at], &ret->tree[at], err);
			ret->count += rc == BERTH_OK;
			if (rc) {
				free(ret->path[at]);
				return rc;
			}
		}
		paths += len + (paths[len] == ':');
	}
	return ret->count ? BERTH_OK : kerr_set(err, BERTH_INVALID, "kubeconfig", "kubeconfig names no file");
}

int32_t cluster_from_kubeconfig(const char *paths, const char *context, struct cluster *ret, struct kerr *err)
{
	struct files files = {0};
	int32_t rc = load(paths, &files, err);

	memset(ret, 0, sizeof(*ret));
	if (!rc)
		rc = resolve(&files, context, ret, err);
	for (unsigned i = 0; i < files.count; i++) {
		json_object_put(files.tree[i]);
		free(files.path[i]);
	}
	if (rc)
		cluster_fini(ret);
	return rc;
}

static int32_t pod_files(const char *folder, struct cluster *ret, struct kerr *err)
{
	struct material ns = {0};
	int32_t rc;

	if (asprintf(&ret->token.path, "%s/token", folder) < 0)
		ret->token.path = NULL;
	if (asprintf(&ret->ca.path, "%s/ca.crt", folder) < 0)
		ret->ca.path = NULL;
	if (asprintf(&ns.path, "%s/namespace", folder) < 0)
		ns.path = NULL;
	if (!ret->token.path || !ret->ca.path || !ns.path) {
		free(ns.path);
		return no_memory(err);
	}
	rc = material_get(&ns, false, &ret->ns, err);
	material_fini(&ns);
	return rc;
}

int32_t cluster_from_pod(const char *folder, const char *host, const char *port, struct cluster *ret, struct kerr *err)
{
	const char *open = "", *close = "";
	int32_t rc;

	memset(ret, 0, sizeof(*ret));
	if (!host || !*host || !port || !*port)
		return kerr_set(err, BERTH_INVALID, "cluster",
				"this process runs in no pod (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig");
	if (strchr(host, ':') && *host != '[') {
		open = "[";
		close = "]";
	}
	if (asprintf(&ret->server, "https://%s%s%s:%s", open, host, close, port) < 0) {
		ret->server = NULL;
		return no_memory(err);
	}
	rc = pod_files(folder, ret, err);
	if (rc)
		cluster_fini(ret);
	return rc;
}

static void exec_free(struct exec_plugin *exec)
{
	if (!exec)
		return;
	for (unsigned i = 0; i < EXEC_WORDS_MAX; i++) {
		free(exec->argv[i]);
		free(exec->env[i]);
	}
	free(exec->api_version);
	free(exec);
}

void cluster_fini(struct cluster *cluster)
{
	free(cluster->server);
	free(cluster->ns);
	free(cluster->tls_server_name);
	free(cluster->proxy);
	material_fini(&cluster->ca);
	material_fini(&cluster->token);
	material_fini(&cluster->cert);
	material_fini(&cluster->key);
	exec_free(cluster->exec);
	memset(cluster, 0, sizeof(*cluster));
}
