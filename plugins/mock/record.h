/* SPDX-License-Identifier: Apache-2.0 */
/* The files of one session's directory that the mock itself writes: "session" and "env". 0 or -errno; any thread. */
#ifndef MOCK_RECORD_H
#define MOCK_RECORD_H

#include "store.h"

/* Whole or not at all: temporary name, then rename. With sync also after a power cut. */
int record_write(int dir_fd, const struct session *s, bool sync);
/* -EBADMSG: not what record_write writes. */
int record_read(int dir_fd, struct session *ret);

/* NAME=value, each ended by NUL. Read: malloc'ed; no file = nothing, NULL and 0. */
int record_write_env(int dir_fd, const struct berth_pair *env, size_t count);
int record_read_env(int dir_fd, char **ret, size_t *ret_len);

#endif
