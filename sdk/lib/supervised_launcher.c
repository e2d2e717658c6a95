/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns one `berth-supervise attend` of a plugin. It is a child of the daemon that ends with it: no name on the disk, so
 * nothing to find again, and never an older version than the daemon's. The supervisors that it forks are sessions of their
 * own and stay. Any thread; the lock is held over a start and over the end of a killed one, never while a job is waited
 * for. Must never send a job twice.
 */
#include <berth/launcher.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervised_attend.h"
#include "supervised_files.h"

#define AGAIN_NS INT64_C(1000000000)

struct berth_launcher {
	char *helper;
	pthread_mutex_t lock;
	/* Under the lock. */
	int socket; /* -1 = none runs */
	pid_t pid;  /* not waited for yet, so the number is its own; 0 = none */
	int64_t started_ns;
};

struct berth_launcher *berth_launcher_new(const char *helper)
{
	struct berth_launcher *launcher = calloc(1, sizeof(*launcher));

	if (!launcher)
		return NULL;
	launcher->helper = strdup(helper);
	launcher->socket = -1;
	if (!launcher->helper) {
		free(launcher);
		return NULL;
	}
	pthread_mutex_init(&launcher->lock, NULL);
	return launcher;
}

/* What has taken a job stays; what only waits for one dies with it. */
static void end_locked(struct berth_launcher *launcher)
{
	if (launcher->socket < 0)
		return;
	close(launcher->socket);
	launcher->socket = -1;
	kill(launcher->pid, SIGKILL);
	while (waitpid(launcher->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	launcher->pid = 0;
}

void berth_launcher_free(struct berth_launcher *launcher)
{
	if (!launcher)
		return;
	pthread_mutex_lock(&launcher->lock); /* commands that it has started may still be followed by other threads */
	end_locked(launcher);
	pthread_mutex_unlock(&launcher->lock);
	pthread_mutex_destroy(&launcher->lock);
	free(launcher->helper);
	free(launcher);
}

/* A helper that cannot be started, or dies at once, is not tried again and again. */
static void start_locked(struct berth_launcher *launcher)
{
	int64_t now = sup_now_ns();

	if (launcher->started_ns && now - launcher->started_ns < AGAIN_NS)
		return;
	launcher->started_ns = now;
	if (sup_attend_start(launcher->helper, &launcher->socket, &launcher->pid) < 0)
		launcher->socket = -1;
}

/* *ret_pid: who got the job. */
static int send_locked(struct berth_launcher *launcher, const char *dir, uint32_t attempt, int *ret_reply, pid_t *ret_pid)
{
	int rc = -EPIPE;

	for (int i = 0; i < 2 && rc < 0; i++) {
		if (launcher->socket < 0)
			start_locked(launcher);
		if (launcher->socket < 0)
			return -ENOSYS;
		*ret_pid = launcher->pid;
		rc = sup_attend_send(launcher->socket, dir, attempt, ret_reply);
		if (rc == -EPIPE || rc == -ECONNRESET)
			end_locked(launcher); /* it was gone before the job */
		else if (rc < 0)
			return -ENOSYS;
	}
	return rc < 0 ? -ENOSYS : 0;
}

/* It does not answer, so it must not start anything later either; what waits there is lost, and its senders look whether
 * it began. */
static void give_up(struct berth_launcher *launcher, pid_t pid)
{
	pthread_mutex_lock(&launcher->lock);
	if (launcher->pid == pid)
		end_locked(launcher);
	pthread_mutex_unlock(&launcher->lock);
}

int32_t berth_launcher_launch(void *ctx, const char *dir, uint32_t attempt)
{
	struct berth_launcher *launcher = ctx;
	int reply = -1, rc;
	pid_t pid = 0;

	pthread_mutex_lock(&launcher->lock);
	rc = send_locked(launcher, dir, attempt, &reply, &pid);
	pthread_mutex_unlock(&launcher->lock);
	if (rc < 0)
		return rc;
	rc = sup_attend_reply(reply);
	if (rc != -ETIME)
		return rc;
	give_up(launcher, pid);
	return sup_attend_last(reply);
}
