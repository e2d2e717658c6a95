/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of whole folders, in either direction: two lists of what is there, file by file what differs, several at once, each
 * file whole or not at all; then folders' permissions and links. Repeating a copy goes on where it ended.
 */
#ifndef CTL_TREE_H
#define CTL_TREE_H

#include <pthread.h>

#include "ctl/commands.h"

enum entry_kind { ENTRY_FILE, ENTRY_FOLDER, ENTRY_LINK, ENTRY_OTHER };

struct entry {
	char *path; /* relative to the top of the copy; "" = the top itself */
	enum entry_kind kind;
	unsigned mode;
	int64_t size;
	char sha256[65]; /* "" = not known */
	char *target;	  /* of a link */
	const char *problem; /* why it cannot be copied; NULL = it can */
	bool used;	      /* a folder that a file below it makes */
};

struct tree {
	struct entry *entries; /* by path, once sorted */
	size_t count, cap;
	enum entry_kind top; /* what the top is; ENTRY_OTHER: nothing is there */
	bool nomem;
};

struct entry *tree_add(struct tree *tree, const char *path, size_t len, enum entry_kind kind);
void tree_sort(struct tree *tree); /* by path; of two of one path one stays */
struct entry *tree_find(const struct tree *tree, const char *path);
void tree_fini(struct tree *tree);

/* What lies below `local`. follow: links count as what they lead to. 0 or an exit code, with the sentence printed. */
int tree_walk(const char *local, bool follow, struct tree *ret);
/* What lies below `base` in the task's workspace, digests included: by a script in its sandbox. */
int tree_remote(struct ctl *ctl, const char *task, const char *base, struct tree *ret);
/* Whether there is such a folder, by the file route alone, which makes no session for a task that has none. 0 or an exit code, with
 * the sentence printed. */
int tree_remote_there(struct ctl *ctl, const char *task, const char *base);
/* The same as tree_remote by the file route alone: regular files, without modes and digests. */
int tree_remote_plain(struct ctl *ctl, const char *task, const char *base, struct tree *ret);
/* The script's output as a list; false when it is not what the script writes. */
bool tree_parse(const char *base, const char *ptr, size_t len, struct tree *ret);

/* base and path as one path of the workspace. */
void tree_join(const char *base, const char *path, struct buf *ret);
/* A link's target stays below the top when it is followed from where it is copied to. */
bool tree_link_inside(const char *path, const char *target);
/* Sets the problem of links by --links; true when the entry is to be left out without a word. */
bool tree_judge_link(struct entry *entry, const char *how);

/* ---- the copying ---- */
struct copy {
	struct ctl *ctl;
	const char *task, *base, *local, *top;
	struct tree source, there; /* there: what is at the other side already */
	int top_fd;	  /* get: the local folder */
	size_t *todo, todo_count;
	int (*one)(struct copy *copy, struct ctl *ctl, const struct entry *entry);
	/* Under the lock. */
	pthread_mutex_t lock;
	size_t next, copied, same, links, folders;
	int64_t bytes;
	struct ctl_progress progress;
	struct json_object *failed;
	int rc;	   /* of the first failure */
	bool stop; /* nothing more can work */
	bool running, again; /* again: what failed may work next time */
};

/* top: where the source is, for messages. */
int copy_init(struct copy *copy, struct ctl *ctl, const char *task, const char *base, const char *local,
	      const char *top);
void copy_fini(struct copy *copy);
/* Notes that a path was not copied, and says it. Any worker. */
void copy_failed(struct copy *copy, const char *path, int rc, const char *why);
void copy_moved(void *copy, int64_t bytes); /* progress */
/* The answer of an exchange: 0, or the failure noted; ret_again: worth another try. */
int copy_judge(struct copy *copy, const char *path, int rc, struct ctl_reply *reply, int try, bool *ret_again);
#define COPY_JOBS_MAX 16
int copy_check_jobs(int64_t jobs); /* 0 or CTL_USAGE, with the sentence printed */
/* Runs `one` over the todo list with so many workers; 0 = as many as is usual. */
void copy_run(struct copy *copy, int64_t jobs, const char *label);
int copy_report(struct copy *copy); /* the exit code */

int tree_put(struct ctl *ctl, const char *task, const char *local, const char *base, const struct put_options *o);
int tree_get(struct ctl *ctl, const char *task, const char *base, const char *local, const struct get_options *o);

#endif
