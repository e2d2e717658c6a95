/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults on demand: a text file of rules that may change while it is in use. Grammar and meaning of every word are in
 * docs/mock.md. Any thread.
 */
#ifndef MOCK_FAULT_H
#define MOCK_FAULT_H

#include <berth/types.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "op.h"

/* What a rule does; a bit of effect.set. */
enum {
	FX_CODE,
	FX_REASON,
	FX_RETRY_AFTER,
	FX_RETRYABLE,
	FX_DELAY,
	FX_HANG,
	FX_STALL,
	FX_LOST_REPLY,
	FX_CUT,
	FX_READY_EARLY,
	FX_VANISH,
	FX_CLAMP,
	FX_LATE,
	FX_FLOOD,
	FX_GAP,
	FX_QUIESCENT,
	FX_ENDING,
	FX_ISOLATION,
	FX_GARBAGE,
	FX_COUNT
};

/* What garbage is made: bits of effect.garbage. */
#define GARBAGE_REF UINT32_C(1)
#define GARBAGE_NUL UINT32_C(2)
#define GARBAGE_REASON UINT32_C(4)
#define GARBAGE_KIND UINT32_C(8)
#define GARBAGE_TWICE UINT32_C(16)
#define GARBAGE_NONE UINT32_C(32)
#define GARBAGE_CODE UINT32_C(64)

struct effect {
	uint32_t set; /* bits 1 << FX_* */
	int32_t code;
	char reason[BERTH_REASON_MAX + 1];
	int64_t retry_after_ms, delay_ms, stall_ms, ready_early_ms, clamp_ms, late_ms;
	uint64_t retryable, cut, flood, gap[2]; /* gap: from, to */
	uint32_t quiescent, ending, isolation, garbage;
};

static inline bool effect_has(const struct effect *fx, unsigned what)
{
	return fx->set & UINT32_C(1) << what;
}

struct fault_rule {
	unsigned line;
	uint32_t ops; /* bits of OP_BIT */
	bool any_task;
	char task[257]; /* "workspace/task"; "/" never occurs, so a warm session matches only any_task */
	uint64_t nth, every, from, count; /* 0 = no such condition */
	struct effect fx;
	atomic_uint_fast64_t seen;  /* matching calls */
	atomic_uint_fast64_t fired; /* of these, those with every condition but count */
};

#define FAULT_RULES_MAX 256
#define FAULT_LINE_MAX 1024
#define FAULT_FILE_MAX (64 * 1024)
#define FAULT_ERROR_MAX 256

struct fault_set {
	atomic_uint refs;
	size_t count;
	struct fault_rule rules[FAULT_RULES_MAX];
};

/* Parses the whole text (changed on the way). A set with one reference, or NULL and a sentence that names the line. */
struct fault_set *fault_parse(char *text, char ret_error[FAULT_ERROR_MAX]);
/* The effects that the grammar allows for an operation, as bits. */
uint32_t fault_allowed(enum op op);
/* Adds those effects of more that are allowed and that fx does not have yet. */
void fault_merge(struct effect *fx, const struct effect *more, uint32_t allowed);

struct faults {
	const char *path;
	int64_t recheck_ns; /* how long a look at the file is good for; 0 = look every time */
	atomic_int_fast64_t checked_ns;
	atomic_bool active;   /* there are rules */
	atomic_bool news;     /* an error that fault_news has not given out yet */
	pthread_mutex_t lock; /* what follows */
	bool seen;            /* the file was there; its identity: */
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
	struct fault_set *set;       /* NULL: no file, no rules, or not understood */
	char error[FAULT_ERROR_MAX]; /* why it was not understood */
};

void fault_init(struct faults *faults, const char *path, int64_t recheck_ns);
void fault_fini(struct faults *faults);
/* Merges the effects of every rule that this call fires; false when there is none. */
bool fault_take(struct faults *faults, enum op op, const char *workspace, const char *task, struct effect *ret);
/* Why the file as it is now is not understood: true and a sentence. */
bool fault_error(struct faults *faults, char ret_error[FAULT_ERROR_MAX]);
/* The same, but only once per version of the file: for the log. */
bool fault_news(struct faults *faults, char ret_error[FAULT_ERROR_MAX]);

#endif
