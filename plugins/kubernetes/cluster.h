/* SPDX-License-Identifier: Apache-2.0 */
/* Which API server, and as whom: from a kubeconfig, or from what every pod of a cluster has. Constant after loading,
 * but for the materials, which the lock of its owner protects. */
#ifndef KUBERNETES_CLUSTER_H
#define KUBERNETES_CLUSTER_H

#include "material.h"

#define EXEC_WORDS_MAX 64

/* An exec plugin of a kubeconfig: a program that prints a credential. */
struct exec_plugin {
	char *api_version;
	char *argv[EXEC_WORDS_MAX + 1]; /* command and arguments, NULL-terminated */
	char *env[EXEC_WORDS_MAX + 1];	/* NAME=value, NULL-terminated */
	bool cluster_info;
};

struct cluster {
	char *server; /* https://host:port, without a slash at the end */
	char *ns;     /* the context's, or the pod's own; NULL: none named */
	char *tls_server_name;
	char *proxy;
	bool insecure;
	struct material ca, token, cert, key;
	struct exec_plugin *exec; /* NULL: none */
};

/* From a colon-separated list of files; the first definition of a name wins. `context` empty: the current one. */
int32_t cluster_from_kubeconfig(const char *paths, const char *context, struct cluster *ret, struct kerr *err);
/* From the folder of a service account and the address that the kubelet put into the environment. */
int32_t cluster_from_pod(const char *folder, const char *host, const char *port, struct cluster *ret, struct kerr *err);
void cluster_fini(struct cluster *cluster);

#endif
