/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a check of a configuration needs instead of the state directory: a folder on loan for the targets' private ones,
 * and a look at what a start would find. A check leaves nothing behind, whoever runs it.
 */
#ifndef PLUGIN_TRIAL_H
#define PLUGIN_TRIAL_H

#include <limits.h>
#include <sys/types.h>

#include "conf/conf.h"
#include "core/err.h"

struct trial {
	char dir[PATH_MAX];
	int fd; /* open as long as the folder is wanted; -1: there is none */
	pid_t keeper;
};

/* Refuses what the start of any user would: a state directory that cannot be made or is none, folders of targets that
 * are not as the targets' open wants them. What only this user may not do is a warning in the log. Makes nothing. */
int trial_look(const struct conf *conf, struct err *err);

/* Opens each required target in a process of its own, `program -t --target NAME`, whose sentences go to standard error: how many
 * were refused. */
size_t trial_apart(const struct conf *conf, const char *program);

/* Makes the folder, in $TMPDIR or /tmp. A process of its own removes it when this one ends it or ends, however it does.
 * Before there are threads. */
int trial_begin(struct trial *trial, struct err *err);
/* Returns when the folder is gone; a warning in the log when it cannot be removed. Does nothing when there is none. */
void trial_end(struct trial *trial);

#endif
