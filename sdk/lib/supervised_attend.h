/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How to talk to a `berth-supervise attend`: start it, give it jobs, hear what became of them. Who keeps one adds when to
 * start it anew and who reaps it (supervised_launcher.c for plugins, executor/launcher.c). No state; any thread.
 */
#ifndef SUPERVISED_ATTEND_H
#define SUPERVISED_ATTEND_H

#include <stdint.h>
#include <sys/types.h>

/* A child of this process that ends when the socket is closed. 0 or a negative errno. */
int sup_attend_start(const char *helper, int *ret_socket, pid_t *ret_pid);

/* Sends a job; *ret_reply is to be given to sup_attend_reply. A negative errno: nothing was sent, and nothing will start.
 * Does not wait: -EAGAIN when too many jobs wait. */
int sup_attend_send(int socket, const char *dir, uint32_t attempt, int *ret_reply);

/* Waits for the exit code of `berth-supervise run` and closes reply. -EINTR: the job was lost, it may have begun or not.
 * -ETIME: no answer in time; end the launcher, then ask with sup_attend_last, which waits as long once more. */
int sup_attend_reply(int reply);
int sup_attend_last(int reply);

#endif
