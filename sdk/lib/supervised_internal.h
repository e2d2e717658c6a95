/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervised*.c files share. */
#ifndef SUPERVISED_INTERNAL_H
#define SUPERVISED_INTERNAL_H

#include <berth/supervised.h>
#include <stddef.h>

#include "localfs_errno.h"
#include "supervised_files.h"

#define SUP_ID_MAX 128u

/* Callers may be built with an earlier struct berth_sup. */
#define SUP_HAS(sup, field) ((sup)->struct_size >= offsetof(struct berth_sup, field) + sizeof((sup)->field))

/* One operation on one execution id. */
struct sup_op {
	const struct berth_host *host;
	struct berth_call *call;
	const struct berth_sup *sup;
	char id[SUP_ID_MAX + 1];
	uint32_t attempt; /* once attempt_fd is open */
	int id_fd;      /* <run_dir>/<id>; -1 = not open */
	int attempt_fd; /* <run_dir>/<id>/<attempt> */
	int wake_fd;    /* FIFO, read end */
	uint64_t offset[2];
};

/* supervised.c */
/* 0 or a negative errno. */
int sup_op_open_id(struct sup_op *op, int create);
int sup_op_open_attempt(struct sup_op *op, uint32_t attempt);
/* Gives the two directories back for a long wait, and takes them again. */
void sup_op_rest(struct sup_op *op);
int sup_op_resume(struct sup_op *op);
/* Its command traces it, so that no signal wakes it; or, for KILL, has stopped it and may do so again after SIGCONT. */
int sup_held_up(const struct sup_started *started, uint32_t signal);
/* Ends from outside what runs of it, with the helper, and waits for that. -ETIMEDOUT: not all; -ESRCH: nothing ran. */
int sup_op_end(struct sup_op *op, int64_t deadline_ns);
/* Removes <attempt> and what is in it. */
int sup_op_drop_attempt(struct sup_op *op, const char *attempt);

/* supervised_start.c: writes the attempt's files and launches; OK = a supervisor has been forked. */
int32_t sup_start(struct sup_op *op, const struct berth_command *command);
/* Runs the helper to its end; returns its exit code or a negative errno. */
int sup_helper(const char *helper, char *const argv[], int64_t deadline_ns);

/* supervised_env.c: the environment file's bytes, heap; INVALID with reason env. */
int32_t sup_env_build(struct sup_op *op, const struct berth_command *command, char **ret_bytes, size_t *ret_len);

/* supervised_follow.c: streams output until the status is there. look: 1 = look before the first wait. */
int32_t sup_follow(struct sup_op *op, int look);

#endif
