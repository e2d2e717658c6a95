/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a provisioning share: provision.c (the whole), provision_find.c, provision_create.c, provision_ready.c,
 * provision_warm.c. All of it runs on the thread of the one job that owns the row. Nothing outside includes it.
 */
#ifndef SESSION_PROVISION_H
#define SESSION_PROVISION_H

#include "session/lookup.h"
#include "session/session_private.h"

#define POLL_FIRST_MS 50
#define POLL_MOST_MS 2000

struct provision {
	struct job *job;
	int64_t scheduling_ns; /* CAPACITY is waited for until then */
	int64_t phase_ns;      /* when the phase was last written */
	unsigned creates;
	struct err lost; /* what the last create ended with, of which nobody knows whether it made anything */
	struct made made;
	bool have;       /* made is the task's session, and in the row */
	bool adopted;    /* found, not made by this run */
	bool unrecorded; /* made was created and the row would not take it */
	bool remade;	 /* a session that this run made died before it was ready, and another took its place */
	bool ready;
	bool warm; /* made is a warm session that was, or may have been, assigned */
};

struct taken {
	struct job *job;
	const struct binding_session *session;
};

int provision_failpoint(const char *name, struct err *err);
int provision_stopped(struct err *err); /* the error of a job that was cancelled */
/* Waits before the next try; the provider's own word about when counts. */
int provision_pause(struct job *job, int64_t tries, int64_t first_ms, int64_t most_ms, const struct err *last, struct err *err);

/* ---- provision_find.c ---- */
/* The session becomes the row's, and p->made. */
int provision_take(struct provision *p, const struct made *made, bool adopted, struct err *err);
/* Takes what is there, if anything; everything else becomes a stray. `ours`: only what carries one of the row's tokens. */
int provision_find(struct provision *p, bool ours, struct err *err);
/* The token is given up, and whatever still carries it; a new one is in the row. */
int provision_supersede(struct provision *p, struct err *err);

/* ---- provision_create.c ---- */
/* One create at most. Leaves p->have false when it was lost and the next may be sent. */
int provision_create(struct provision *p, struct err *err);
/* A create may have been sent: looked for until it is found, or could not appear any more. Then p->have is false and the token
 * superseded. */
int provision_settle(struct provision *p, struct err *err);

/* ---- provision_ready.c ---- */
/* Asks about p->made; what is answered is merged into it. */
int provision_ask(struct provision *p, int (*op)(struct call *, const void *, struct err *), int64_t deadline_ns,
		  struct err *err);
/* May the wait go on? 0 after a pause, else the error. */
int provision_wait_on(struct provision *p, int code, int64_t tries, const struct err *last, struct err *err);
int provision_ready(struct provision *p, struct err *err);

/* ---- provision_warm.c ---- */
int provision_use_reserved(struct provision *p, struct err *err);
/* Ends with p->have, or with the session put aside. The row names it: it never returns to the pool. */
int provision_assign(struct provision *p, struct err *err);

#endif
