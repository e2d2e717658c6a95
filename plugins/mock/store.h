/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mock provider's sessions, as files beneath its root. They outlive the process, and several processes may use one
 * root at once. The layout is documented in docs/mock.md:
 *
 *   sessions/<ref>/session           the truth: a session exists exactly when this directory has its name
 *   by-task/<workspace>/<task>/<ref> index; written before the session, so that find misses none; verified on read
 *   new/<ref>  trash/<ref>           being made; being removed
 *
 * All functions may be called from any thread and return 0 or -errno.
 */
#ifndef MOCK_STORE_H
#define MOCK_STORE_H

#include <berth/types.h>
#include <stdbool.h>

#define STORE_REF_MAX 31
#define STORE_BOOT_MAX 63

struct session {
	char ref[STORE_REF_MAX + 1];
	char deployment[256];
	char workspace[129]; /* both empty while warm */
	char task[129];
	char intent[65];
	char boot[STORE_BOOT_MAX + 1];
	int64_t created_ms;
	int64_t expires_ms; /* 0 = never */
	int64_t ready_ms;   /* when await_ready says so */
	int64_t deaf_ms;    /* until then its executor refuses (fault ready_early) */
	int64_t visible_ms; /* until then no lookup sees it (fault late) */
};

struct store {
	char root[4096]; /* absolute, without symlinks */
	char boot[STORE_BOOT_MAX + 1];
	bool bare; /* sessions are only their file: no work, home, tmp, run */
	int root_fd, sessions_fd, tasks_fd, new_fd, trash_fd;
};

struct store_refs {
	char (*ref)[STORE_REF_MAX + 1];
	size_t count;
};

int store_open(struct store *store, const char *root, bool bare);
void store_close(struct store *store);

/* True for a text that this provider could have made as a ref. */
bool store_ref_valid(const char *ref, size_t len);

/* Makes the session in one step; s->ref must be set and new. Variables in env are kept for its commands. */
int store_create(struct store *store, const struct session *s, const struct berth_pair *env, size_t env_count);
/* -ENOENT: certainly not there. -EBADMSG: not a session file. */
int store_load(const struct store *store, const char *ref, struct session *ret);
/* As store_load, and keeps other writers of this session out until the returned descriptor (of its directory) is
 * closed. */
int store_hold(const struct store *store, const char *ref, struct session *ret);
int store_save(const struct store *store, int held_fd, const struct session *s);
/* The index entry of a session that gets its identity later; before store_save. */
int store_index(const struct store *store, const struct session *s);

/* The variables of store_create, NUL-separated "NAME=value"; malloc'ed, *ret_len bytes. */
int store_env(const struct store *store, const char *ref, char **ret, size_t *ret_len);

/* The refs of the directory of sessions, or of one task, in ascending order; free with store_refs_free. Those of a task
 * may name sessions that are gone or not made yet. */
int store_all(const struct store *store, struct store_refs *ret);
int store_by_task(const struct store *store, const char *workspace, const char *task, struct store_refs *ret);
int store_trashed(const struct store *store, struct store_refs *ret);
void store_refs_free(struct store_refs *refs);
/* Drops the index entry of a session that is not there, once its maker can no longer be about to make it. */
void store_drop_stale(const struct store *store, const char *workspace, const char *task, const char *ref);

/* Point of no return: no lookup finds it from here on. 1 when it was in the trash already. */
int store_trash(const struct store *store, const char *ref);
/* Removes what store_trash put aside. Its processes must be gone. */
int store_reap(const struct store *store, const char *ref);
/* True for what is in the trash, and was put there this long ago. */
bool store_trash_old(const struct store *store, const char *ref, int64_t age_ms);
/* Removes half-made sessions that a process left behind when it died. */
void store_tidy(const struct store *store);

#endif
