/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every operation does around its own work: count, find the session, act out faults, note the call. The shape is
 *
 *   struct opcall oc;
 *   int32_t rc = opcall_begin…(&oc, …);
 *   if (!rc)
 *           rc = the work, with shim_host as its host;
 *   return opcall_end(&oc, rc);
 */
#ifndef MOCK_OPCALL_H
#define MOCK_OPCALL_H

#include "mock.h"

/* What passed through the host's services during one call; see shim.c. */
struct flow {
	uint64_t passed;    /* bytes given to the host */
	uint64_t stdout_at; /* offset of the next byte of stdout */
	uint64_t gap_shown; /* end of what was reported as lost */
	bool cut;           /* the fault cut struck: nothing more gets through */
	bool in_gap;
};

struct opcall {
	struct mock *m;
	struct berth_call *call;
	enum op op;
	bool began;                  /* the work was reached */
	char ref[STORE_REF_MAX + 1]; /* empty: no session, or a ref that is none of ours */
	int32_t found; /* of operations on a session: BERTH_OK = s is filled, BERTH_NOT_FOUND, or why it could not be
			  read */
	struct session s;
	struct effect fx;
	struct flow flow;
	char note[160];
};

/* Without a session: workspace and task may be empty. */
int32_t opcall_begin(struct opcall *oc, struct mock *m, struct berth_call *call, enum op op, struct berth_str workspace,
		     struct berth_str task);
/* With one. That it is not there is no error yet: the operation judges by oc->found. */
int32_t opcall_begin_session(struct opcall *oc, struct mock *m, struct berth_call *call, enum op op,
			     const struct berth_session *session);
int32_t opcall_end(struct opcall *oc, int32_t rc);

/* OK when the session is there and its executor answers; else the code to return. */
int32_t opcall_alive(struct opcall *oc);
/* The same without asking the executor: renewals and tags. */
int32_t opcall_exists(struct opcall *oc);
/* Reads the session again. */
void opcall_reload(struct opcall *oc);

/* Explains and returns code. */
int32_t opcall_fail(struct opcall *oc, int32_t code, const char *reason, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for -errno of something that failed on the provider's disk. */
int32_t opcall_fail_errno(struct opcall *oc, int err, const char *what);
/* Waits until until_ns (CLOCK_BOOTTIME): OK; or CANCELLED or TIMEOUT by the call. */
int32_t opcall_wait(struct opcall *oc, int64_t until_ns);
/* CANCELLED or TIMEOUT when the call should end now. */
int32_t opcall_stopped(struct opcall *oc);
int64_t opcall_deadline_ns(struct opcall *oc);

#endif
