/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and the log of calls, in files beneath the root that a shell can read.
 *
 * counters   one line of 32 bytes per row, "name          000000000012 ", shared by every process on the root, counted
 * up in place without a lock, kept over restarts calls.log  one line per call that may change something
 *
 * Any thread.
 */
#ifndef MOCK_TALLY_H
#define MOCK_TALLY_H

#include <stdint.h>

#include "op.h"

/* Rows behind those of the operations. */
#define TALLY_CREATED OP_COUNT       /* sessions that came into being */
#define TALLY_REMOVED (OP_COUNT + 1) /* sessions that ceased to be, by release, expiry or fault */
#define TALLY_STARTED (OP_COUNT + 2) /* commands that began to run */
#define TALLY_FAULTS (OP_COUNT + 3)  /* calls that a fault rule changed */
#define TALLY_COUNT (OP_COUNT + 4)

struct tally {
	char *map; /* the counters */
	int log_fd;
};

/* 0 or -errno; -EBADMSG: the file has other rows. with_log = 0 keeps calls.log away. */
int tally_open(struct tally *tally, int root_fd, int with_log);
void tally_close(struct tally *tally);
void tally_count(struct tally *tally, unsigned row);

/* Appends "<Unix ms> <op> <ref> <workspace>/<task> <code> <note>"; empty texts are written as "-". */
struct tally_line {
	enum op op;
	int32_t code;
	const char *ref, *workspace, *task, *note;
};
void tally_log(struct tally *tally, const struct tally_line *line);

#endif
