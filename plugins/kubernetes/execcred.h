/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials from a program that a kubeconfig names. */
#ifndef KUBERNETES_EXECCRED_H
#define KUBERNETES_EXECCRED_H

#include <pthread.h>

#include "cluster.h"

struct berth_call;

/* What the program printed. */
struct execcred {
	struct material token, cert, key;
	int64_t until_ms; /* Unix ms; 0: until it is refused */
};

/* Takes what it printed. */
int32_t execcred_parse(const char *text, size_t len, struct execcred *cred, struct kerr *err);
void execcred_fini(struct execcred *cred);

/* The program of one cluster, which runs at most once at a time; no lock is held while it does. */
struct execprog {
	pthread_mutex_t lock;
	pthread_cond_t done; /* it has ended */
	bool running;
	struct execcred cred; /* what it last printed */
	int64_t began_ns;     /* when it was started for that */
	int64_t printed_ns;   /* and when that was here */
	int64_t failed_ns;    /* when it last failed; 0: it did not since it printed */
	struct kerr why;
};

void execprog_init(struct execprog *prog);
void execprog_fini(struct execprog *prog);
/* Copies what is known, to be dropped by execcred_fini. Runs the program, or waits for whoever does, when there is
 * nothing, it has expired, or what was used at refused_ns (0: nothing) was refused and is still the last; at most
 * EXECCRED_MS and never past the call's deadline. A failure is the answer for a few seconds. `call` may be NULL. */
int32_t execprog_get(const struct cluster *cluster, struct execprog *prog, int64_t refused_ns, struct berth_call *call,
		     struct execcred *ret, struct kerr *err);

#define EXECCRED_MS 20000

#endif
