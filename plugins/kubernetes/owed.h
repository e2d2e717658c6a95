/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that their executors have not been told to forget yet. The next command of the same session takes them
 * along, or, when none comes for a while, a thread tells them: a request of its own for each would be a sixth of what a
 * short command costs. What is owed when its session or this process ends is not told: it goes with the pod.
 */
#ifndef KUBERNETES_OWED_H
#define KUBERNETES_OWED_H

#include "text.h"

struct kube;
struct session;
struct owed;

#define OWED_MOST 32 /* commands that a request may name beside its own: docs/executor.md */
/* What an executor has passed over is asked for again for so long. */
#define OWED_NS INT64_C(60000000000)

/* A list of them; belongs to who holds it. */
struct owed_command {
	struct owed_command *next;
	int64_t passed_ns; /* when it was passed over first; 0: never */
	uint32_t attempt;
	char id[];
};
void owed_list_free(struct owed_command *list);

/* Starts no thread before something is owed. */
int32_t owed_start(struct kube *k, struct owed **ret, struct kerr *err);
void owed_stop(struct owed *owed); /* NULL: nothing to be stopped */

/* The session's executor has said that it takes such lists; that is believed for the moment in which a command is
 * forgotten after its end. */
void owed_can(struct owed *owed, const struct session *session);
/* False: tell the executor at once. */
bool owed_add(struct owed *owed, const struct session *session, const char *id, uint32_t attempt);
/* All that is owed to the session's executor, at most OWED_MOST; NULL: nothing. */
struct owed_command *owed_take(struct owed *owed, const struct session *session);
/* They could not be told. Takes the list. */
void owed_again(struct owed *owed, const struct session *session, struct owed_command *list);
/* They were told, and some were passed over: which ones is not known, and one that is gone may be told again. False:
 * some of them are given up. Takes the list. */
bool owed_passed(struct owed *owed, const struct session *session, struct owed_command *list);
/* Whether it is to be asked for anew, since the executor still knows it. */
bool owed_has(struct owed *owed, const struct session *session, const char *id);
/* The session ends. */
void owed_drop(struct owed *owed, const struct session *session);

#endif
