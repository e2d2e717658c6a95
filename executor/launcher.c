/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the process `berth-supervise attend`. The main thread starts it, as its own child, and learns of its end;
 * workers send it jobs, each with a pipe whose end tells when the job was lost. Without it everything works, only
 * slower. Must never wait for it for ever: a command of the same user may have stopped it.
 */
#include "launcher.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "../sdk/lib/supervised_attend.h"
#include "../sdk/lib/supervised_files.h"

#define AGAIN_NS INT64_C(1000000000)

void launcher_keep(struct launcher *launcher)
{
	int64_t now = sup_now_ns();
	int socket = -1;
	pid_t pid = 0;

	if (launcher->pid || (launcher->started_ns && now - launcher->started_ns < AGAIN_NS))
		return;
	launcher->started_ns = now;
	if (sup_attend_start(launcher->helper, &socket, &pid) < 0)
		return;
	pthread_mutex_lock(&launcher->lock);
	launcher->pid = pid;
	launcher->socket = socket;
	pthread_mutex_unlock(&launcher->lock);
}

void launcher_reaped(struct launcher *launcher, pid_t pid)
{
	pthread_mutex_lock(&launcher->lock);
	if (pid == launcher->pid) {
		if (launcher->socket >= 0)
			close(launcher->socket);
		launcher->socket = -1;
		launcher->pid = 0;
	}
	pthread_mutex_unlock(&launcher->lock);
}

/* It does not answer, so it must not start anything later either: whoever is asked next asks a new one. */
static void give_up(struct launcher *launcher)
{
	pthread_mutex_lock(&launcher->lock);
	if (launcher->pid > 0)
		kill(launcher->pid, SIGKILL);
	pthread_mutex_unlock(&launcher->lock);
}

int32_t launcher_launch(void *ctx, const char *dir, uint32_t attempt)
{
	struct launcher *launcher = ctx;
	int reply = -1, rc = -ENOSYS;

	pthread_mutex_lock(&launcher->lock);
	if (launcher->socket >= 0 && sup_attend_send(launcher->socket, dir, attempt, &reply) == 0)
		rc = 0;
	pthread_mutex_unlock(&launcher->lock);
	if (rc < 0)
		return rc;
	rc = sup_attend_reply(reply);
	if (rc != -ETIME)
		return rc;
	give_up(launcher);
	return sup_attend_last(reply);
}
