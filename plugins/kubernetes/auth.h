/* SPDX-License-Identifier: Apache-2.0 */
/* The credentials of one request, as copies. Any thread. */
#ifndef KUBERNETES_AUTH_H
#define KUBERNETES_AUTH_H

#include "kube.h"

struct credentials {
	char *bearer; /* "Bearer …", or NULL */
	char *ca, *cert, *key;
};

/* refused_ns: when the request began whose credentials the API server refused; files are read again whatever their age,
 * and the program of a kubeconfig is run unless that happened since. 0: none was refused. `call` may be NULL. */
int32_t auth_get(struct kube *k, struct berth_call *call, int64_t refused_ns, struct credentials *ret,
		 struct kerr *err);
void auth_drop(struct credentials *credentials);

#endif
