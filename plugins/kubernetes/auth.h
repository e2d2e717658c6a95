/* SPDX-License-Identifier: Apache-2.0 */
/* The credentials of one request, as copies. Any thread. */
#ifndef KUBERNETES_AUTH_H
#define KUBERNETES_AUTH_H

#include "kube.h"

struct credentials {
	char *bearer; /* "Bearer …", or NULL */
	char *ca, *cert, *key;
};

/* `renew`: the API server refused the last ones; files are read again whatever their age. */
int32_t auth_get(struct kube *k, bool renew, struct credentials *ret, struct kerr *err);
void auth_drop(struct credentials *credentials);

#endif
