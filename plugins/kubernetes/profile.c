/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The restricted profile, by the published standard's list of fields and values, whether or not the namespace enforces
 * it. Only refuses, by the field's name; what is filled in when it is left out stands in template.c. Pure; any thread.
 */
#include "profile.h"

#include <stdio.h>
#include <string.h>

#include "api.h"

#define FORBIDS "the restricted profile forbids it"
#define WORDS_MAX 14

int32_t profile_refuse(const struct place *at, const char *field, const char *why)
{
	return kerr_set(at->err, BERTH_INVALID, "template", "%s: %s%s%s%s: %s", at->file,
			at->container ? "container " : "spec", at->container ? at->container : "",
			at->container ? ": " : ".", field, why);
}

static bool is_one_of(const char *text, const char *const words[WORDS_MAX])
{
	for (size_t i = 0; i < WORDS_MAX && words[i]; i++)
		if (!strcmp(text, words[i]))
			return true;
	return false;
}

/* Null is absent. */
static bool has_only(struct json_object *map, const char *const words[WORDS_MAX])
{
	if (!json_object_is_type(map, json_type_object))
		return false;
	json_object_object_foreach(map, key, value)
	{
		if (value && !is_one_of(key, words))
			return false;
	}
	return true;
}

static size_t length(struct json_object *list)
{
	return json_object_is_type(list, json_type_array) ? json_object_array_length(list) : 0;
}

/* ---- security contexts ---- */

/* One field of the pod's or a container's, and all that it may say. */
static const struct choice {
	const char *field;
	const char *words[WORDS_MAX];
} choices[] = {
	{"securityContext.seccompProfile.type", {"RuntimeDefault", "Localhost"}},
	{"securityContext.appArmorProfile.type", {"RuntimeDefault", "Localhost"}},
	{"securityContext.seLinuxOptions.type",
	 {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}},
	{"securityContext.seLinuxOptions.user", {""}},
	{"securityContext.seLinuxOptions.role", {""}},
};

static const char *const sysctls[WORDS_MAX] = {
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range",
	"net.ipv4.ip_local_reserved_ports",
	"net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ping_group_range",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_rmem",
	"net.ipv4.tcp_syncookies",
	"net.ipv4.tcp_wmem",
};

static int32_t check_context(const struct place *at, struct json_object *parent)
{
	struct json_object *user = api_at(parent, "securityContext.runAsUser");
	struct json_object *no_root = api_at(parent, "securityContext.runAsNonRoot");

	if (user && json_object_get_int64(user) == 0)
		return profile_refuse(at, "securityContext.runAsUser", "a sandbox does not run as root");
	if (no_root && !json_object_is_type(no_root, json_type_boolean))
		return profile_refuse(at, "securityContext.runAsNonRoot", "expected true or false");
	if (no_root && !json_object_get_boolean(no_root))
		return profile_refuse(at, "securityContext.runAsNonRoot", "a sandbox does not run as root");
	for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
		struct json_object *value = api_at(parent, choices[i].field);

		if (value && !is_one_of(json_object_get_string(value), choices[i].words))
			return profile_refuse(at, choices[i].field, FORBIDS);
	}
	return BERTH_OK;
}

static int32_t check_sysctls(const struct place *at, struct json_object *spec)
{
	struct json_object *list = api_at(spec, "securityContext.sysctls");

	for (size_t i = 0; i < length(list); i++)
		if (!is_one_of(api_text(json_object_array_get_idx(list, i), "name"), sysctls))
			return profile_refuse(at, "securityContext.sysctls", FORBIDS);
	return BERTH_OK;
}

/* Older than the fields, and heeded beside them. */
static int32_t check_annotations(const struct place *at, struct json_object *tree)
{
	struct json_object *notes = api_at(tree, "metadata.annotations");

	if (!json_object_is_type(notes, json_type_object))
		return BERTH_OK;
	json_object_object_foreach(notes, key, value)
	{
		const char *text = value ? json_object_get_string(value) : "";

		if ((strstr(key, "apparmor.security.") || strstr(key, "seccomp.security.")) && *text &&
		    strcmp(text, "runtime/default") != 0 && strncmp(text, "localhost/", 10) != 0)
			return kerr_set(at->err, BERTH_INVALID, "template", "%s: metadata.annotations: %s: " FORBIDS,
					at->file, key);
	}
	return BERTH_OK;
}

/* ---- volumes ---- */

static const char *const volume_kinds[WORDS_MAX] = {"name",	 "configMap", "csi",   "downwardAPI",
						    "emptyDir",	 "ephemeral", "image", "persistentVolumeClaim",
						    "projected", "secret"};

/* A trust bundle is public; a service account's token and a pod's certificate are what the pod would be somebody by. */
static const char *const source_kinds[WORDS_MAX] = {"clusterTrustBundle", "configMap", "downwardAPI", "secret"};

static int32_t check_volumes(const struct place *at, struct json_object *spec)
{
	struct json_object *volumes = api_at(spec, "volumes");

	for (size_t i = 0; i < length(volumes); i++) {
		struct json_object *volume = json_object_array_get_idx(volumes, i);
		struct json_object *sources = api_at(volume, "projected.sources");

		if (!has_only(volume, volume_kinds))
			return profile_refuse(at, "volumes", "the restricted profile forbids this kind of volume");
		for (size_t s = 0; s < length(sources); s++)
			if (!has_only(json_object_array_get_idx(sources, s), source_kinds))
				return profile_refuse(at, "volumes.projected.sources",
						      "a sandbox gets no token of the cluster, nor a certificate");
	}
	return BERTH_OK;
}

/* ---- containers ---- */

static int32_t check_ports(const struct place *at, struct json_object *container)
{
	struct json_object *ports = api_at(container, "ports");

	for (size_t i = 0; i < length(ports); i++)
		if (api_number(json_object_array_get_idx(ports, i), "hostPort"))
			return profile_refuse(at, "ports.hostPort", "a sandbox shares nothing of its node");
	return BERTH_OK;
}

/* The node's kubelet is who asks: it asks the pod and nobody else. */
static int32_t check_hosts(const struct place *at, struct json_object *container)
{
	static const char *const fields[] = {
		"livenessProbe.httpGet.host",	    "livenessProbe.tcpSocket.host",
		"readinessProbe.httpGet.host",	    "readinessProbe.tcpSocket.host",
		"startupProbe.httpGet.host",	    "startupProbe.tcpSocket.host",
		"lifecycle.postStart.httpGet.host", "lifecycle.postStart.tcpSocket.host",
		"lifecycle.preStop.httpGet.host",   "lifecycle.preStop.tcpSocket.host",
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		if (*api_text(container, fields[i]))
			return profile_refuse(at, fields[i], FORBIDS);
	return BERTH_OK;
}

/* ---- the whole ---- */

int32_t profile_check_pod(const struct place *at, struct json_object *tree)
{
	struct json_object *spec = api_at(tree, "spec");
	int32_t rc = check_context(at, spec);

	if (!rc)
		rc = check_sysctls(at, spec);
	if (!rc)
		rc = check_annotations(at, tree);
	return rc ? rc : check_volumes(at, spec);
}

int32_t profile_check_container(const struct place *at, struct json_object *container)
{
	int32_t rc = check_context(at, container);

	if (!rc)
		rc = check_ports(at, container);
	return rc ? rc : check_hosts(at, container);
}
