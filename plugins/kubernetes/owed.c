/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the commands that are owed to executors, by pod, and the thread that tells those for which no command comes. Any
 * thread; the lock is held for moments, never over a request. Must never lose the wish to forget while a list has room,
 * and must never hold up a command: what has no room is told at once by whoever asks.
 */
#include "owed.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exec.h"
#include "kube.h"
#include "session.h"

#define WAIT_NS INT64_C(2000000000)
#define SESSIONS_MOST 4096
#define BUCKETS 256

/* One executor that takes lists. */
struct debtor {
	struct session session;
	struct owed_command *list;
	unsigned count;
	int64_t due_ns;
	struct debtor *next;		/* of its bucket */
	struct debtor *earlier, *later; /* of all, by due_ns */
};

struct owed {
	struct kube *k;
	pthread_t thread;
	pthread_mutex_t lock; /* all below */
	pthread_cond_t cond;  /* stopping, or there is a first one */
	struct debtor *buckets[BUCKETS];
	struct debtor *first, *last;
	unsigned count;
	bool running, stopping;
};

void owed_list_free(struct owed_command *list)
{
	while (list) {
		struct owed_command *next = list->next;

		free(list);
		list = next;
	}
}

/* ---- debtors; the lock is held ---- */

static struct debtor **place_locked(struct owed *owed, const char *uid)
{
	uint32_t hash = 2166136261u;
	struct debtor **at;

	for (const char *c = uid; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	at = &owed->buckets[hash % BUCKETS];
	while (*at && strcmp((*at)->session.uid, uid))
		at = &(*at)->next;
	return at;
}

static void unlink_locked(struct owed *owed, struct debtor *debtor)
{
	*(debtor->earlier ? &debtor->earlier->later : &owed->first) = debtor->later;
	*(debtor->later ? &debtor->later->earlier : &owed->last) = debtor->earlier;
}

/* Later than all others. */
static void link_locked(struct owed *owed, struct debtor *debtor)
{
	debtor->due_ns = text_boot_ns() + WAIT_NS;
	debtor->earlier = owed->last;
	debtor->later = NULL;
	*(owed->last ? &owed->last->later : &owed->first) = debtor;
	owed->last = debtor;
}

static void remove_locked(struct owed *owed, struct debtor **at)
{
	struct debtor *debtor = *at;

	*at = debtor->next;
	unlink_locked(owed, debtor);
	owed->count--;
	owed_list_free(debtor->list);
	free(debtor);
}

static void *owed_main(void *arg);

/* NULL: none, and none can be made. */
static struct debtor *make_locked(struct owed *owed, const struct session *session)
{
	struct debtor **at = place_locked(owed, session->uid);
	struct debtor *debtor = *at;

	if (debtor || owed->stopping || owed->count >= SESSIONS_MOST)
		return debtor;
	if (!owed->running)
		owed->running = !pthread_create(&owed->thread, NULL, owed_main, owed);
	debtor = owed->running ? calloc(1, sizeof(*debtor)) : NULL;
	if (!debtor)
		return NULL;
	debtor->session = *session;
	*at = debtor;
	if (!owed->first)
		pthread_cond_signal(&owed->cond);
	link_locked(owed, debtor);
	owed->count++;
	return debtor;
}

static bool put_locked(struct debtor *debtor, struct owed_command *command)
{
	if (!debtor || debtor->count >= OWED_MOST)
		return false;
	command->next = debtor->list;
	debtor->list = command;
	debtor->count++;
	return true;
}

static struct owed_command *take_locked(struct debtor *debtor)
{
	struct owed_command *list = debtor->list;

	debtor->list = NULL;
	debtor->count = 0;
	return list;
}

/* ---- any thread ---- */

void owed_can(struct owed *owed, const struct session *session)
{
	struct debtor *debtor;

	pthread_mutex_lock(&owed->lock);
	debtor = make_locked(owed, session);
	if (debtor && !debtor->count) {
		unlink_locked(owed, debtor);
		link_locked(owed, debtor);
	}
	pthread_mutex_unlock(&owed->lock);
}

bool owed_add(struct owed *owed, const struct session *session, const char *id, uint32_t attempt)
{
	size_t len = strlen(id);
	struct owed_command *command = malloc(sizeof(*command) + len + 1);
	struct debtor *debtor;
	bool taken;

	if (!command)
		return false;
	command->attempt = attempt;
	command->passed_ns = 0;
	memcpy(command->id, id, len + 1);
	pthread_mutex_lock(&owed->lock);
	debtor = *place_locked(owed, session->uid);
	taken = put_locked(debtor, command);
	if (taken)
		debtor->session = *session;
	pthread_mutex_unlock(&owed->lock);
	if (!taken)
		free(command);
	return taken;
}

struct owed_command *owed_take(struct owed *owed, const struct session *session)
{
	struct owed_command *list = NULL;
	struct debtor *debtor;

	pthread_mutex_lock(&owed->lock);
	debtor = *place_locked(owed, session->uid);
	if (debtor) {
		list = take_locked(debtor);
		unlink_locked(owed, debtor);
		link_locked(owed, debtor);
	}
	pthread_mutex_unlock(&owed->lock);
	return list;
}

void owed_again(struct owed *owed, const struct session *session, struct owed_command *list)
{
	struct owed_command *next;
	struct debtor *debtor;

	if (!list)
		return;
	pthread_mutex_lock(&owed->lock);
	debtor = make_locked(owed, session);
	for (; list; list = next) {
		next = list->next;
		if (!put_locked(debtor, list))
			free(list);
	}
	pthread_mutex_unlock(&owed->lock);
}

bool owed_passed(struct owed *owed, const struct session *session, struct owed_command *list)
{
	int64_t now_ns = text_boot_ns();
	struct owed_command **at = &list;
	bool all = true;

	while (*at) {
		struct owed_command *command = *at;

		if (!command->passed_ns)
			command->passed_ns = now_ns;
		if (now_ns - command->passed_ns < OWED_NS) {
			at = &command->next;
			continue;
		}
		*at = command->next;
		free(command);
		all = false;
	}
	owed_again(owed, session, list);
	return all;
}

bool owed_has(struct owed *owed, const struct session *session, const char *id)
{
	const struct owed_command *at = NULL;
	struct debtor *debtor;
	bool has;

	pthread_mutex_lock(&owed->lock);
	debtor = *place_locked(owed, session->uid);
	for (at = debtor ? debtor->list : NULL; at && strcmp(at->id, id); at = at->next)
		;
	has = at != NULL;
	pthread_mutex_unlock(&owed->lock);
	return has;
}

void owed_drop(struct owed *owed, const struct session *session)
{
	struct debtor **at;

	pthread_mutex_lock(&owed->lock);
	at = place_locked(owed, session->uid);
	if (*at)
		remove_locked(owed, at);
	pthread_mutex_unlock(&owed->lock);
}

/* ---- the thread ---- */

static void wait_locked(struct owed *owed, int64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	pthread_cond_timedwait(&owed->cond, &owed->lock, &until);
}

/* The commands of one that is due, which is none any more. NULL: none is. */
static struct owed_command *take_due_locked(struct owed *owed, struct session *ret_session)
{
	struct owed_command *list = NULL;

	while (!list && owed->first && owed->first->due_ns <= text_boot_ns()) {
		*ret_session = owed->first->session;
		list = take_locked(owed->first);
		remove_locked(owed, place_locked(owed, ret_session->uid));
	}
	return list;
}

static void tell(struct owed *owed, struct session *session, struct owed_command *list)
{
	struct kerr err = {0};

	if (!exec_forget_all(owed->k, NULL, session, list, &err))
		return;
	/* What it leaves behind goes with the pod, which may be gone already. */
	kube_log(owed->k, NULL, BERTH_LOG_INFO, "an executor did not forget commands", "error", err.text);
	owed_list_free(list);
}

static void *owed_main(void *arg)
{
	struct owed *owed = arg;

	pthread_mutex_lock(&owed->lock);
	while (!owed->stopping) {
		struct session session;
		struct owed_command *list = take_due_locked(owed, &session);

		if (list) {
			pthread_mutex_unlock(&owed->lock);
			tell(owed, &session, list);
			pthread_mutex_lock(&owed->lock);
		} else if (owed->first) {
			wait_locked(owed, owed->first->due_ns - text_boot_ns());
		} else {
			pthread_cond_wait(&owed->cond, &owed->lock);
		}
	}
	pthread_mutex_unlock(&owed->lock);
	return NULL;
}

/* ---- life ---- */

int32_t owed_start(struct kube *k, struct owed **ret, struct kerr *err)
{
	struct owed *owed = calloc(1, sizeof(*owed));
	pthread_condattr_t attr;

	if (!owed)
		return kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	owed->k = k;
	pthread_mutex_init(&owed->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&owed->cond, &attr);
	pthread_condattr_destroy(&attr);
	*ret = owed;
	return BERTH_OK;
}

void owed_stop(struct owed *owed)
{
	bool running;

	if (!owed)
		return;
	pthread_mutex_lock(&owed->lock);
	owed->stopping = true;
	running = owed->running;
	pthread_cond_signal(&owed->cond);
	pthread_mutex_unlock(&owed->lock);
	if (running)
		pthread_join(owed->thread, NULL);
	while (owed->first)
		remove_locked(owed, place_locked(owed, owed->first->session.uid));
	pthread_cond_destroy(&owed->cond);
	pthread_mutex_destroy(&owed->lock);
	free(owed);
}
