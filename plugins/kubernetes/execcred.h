/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials from a program that a kubeconfig names. */
#ifndef KUBERNETES_EXECCRED_H
#define KUBERNETES_EXECCRED_H

#include "cluster.h"

/* What the program last printed; its owner's lock protects it. */
struct execcred {
	struct material token, cert, key;
	int64_t until_ms; /* Unix ms; 0: until it is refused */
};

/* Runs the program when there is nothing, it has expired, or `force`; at most EXECCRED_MS. */
int32_t execcred_get(const struct cluster *cluster, struct execcred *cred, bool force, struct kerr *err);
/* Takes what it printed. */
int32_t execcred_parse(const char *text, size_t len, struct execcred *cred, struct kerr *err);
void execcred_fini(struct execcred *cred);

#define EXECCRED_MS 20000

#endif
