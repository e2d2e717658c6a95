/* SPDX-License-Identifier: Apache-2.0 */
/* What the requests of one executor share. */
#ifndef EXECUTOR_EXECUTOR_H
#define EXECUTOR_EXECUTOR_H

#include <stdatomic.h>

#include <berth/localfs.h>
#include <berth/supervised.h>

#include "keys.h"
#include "launcher.h"
#include "replay.h"
#include "state.h"

#define EXECUTOR_PROTOCOL 1

struct options {
	const char *listen;
	const char *root;
	const char *state;
	const char *keys_file;
	const char *keys;
	const char *pod_uid;
	const char *helper;
	int32_t uid; /* -1 = keep */
	int32_t gid;
	uint32_t max_operations;
};

struct executor {
	struct options options;
	struct state state;
	struct keys keys;
	struct replay replay;
	struct launcher launcher;
	struct berth_sup sup; /* graces are the request's */
	struct berth_localfs fs;
	struct berth_pair *env; /* the base environment */
	int64_t clock_ms;	/* wall clock less boot clock, as of the start */
	atomic_uint operations; /* in work */
	atomic_uint streams;	/* of them, execute and reattach */
	atomic_bool draining;
};

/* 0, or -1 with a sentence in text. */
int executor_init(struct executor *executor, const struct options *options, char *const env[], char *text, size_t cap);

/* Never jumps. */
int64_t executor_now_ms(const struct executor *executor);

/* The health object as text; free() it. ret_ready: whether it may serve. */
char *executor_health(struct executor *executor, bool *ret_ready);

#endif
