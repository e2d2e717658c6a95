/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sessions of the mock provider on disk: making, finding, changing and removing them. Entered by any thread of any
 * number of processes that share the root; every step is one rename, so that a kill -9 at any instant leaves a session
 * either there or not. Must never hand out a session that is not below sessions/, and never remove one that was not
 * renamed to trash/ first.
 */
#include "store.h"

#include "record.h"
#include "text.h"
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* An index entry or half-made session this old has lost its maker. */
#define ORPHAN_AGE_MS (60 * 60 * 1000)
/* How often making an index entry is retried while removers take its directories away. */
#define INDEX_TRIES 100

#define PATH_SIZE 512

static int make_dir(int parent_fd, const char *name)
{
	return mkdirat(parent_fd, name, 0700) && errno != EEXIST ? -errno : 0;
}

static int sub_dir(int parent_fd, const char *name, int *ret_fd)
{
	int rc = make_dir(parent_fd, name);

	if (rc)
		return rc;
	*ret_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret_fd < 0 ? -errno : 0;
}

static int read_boot_id(char ret[STORE_BOOT_MAX + 1])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return -errno;
	len = read(fd, ret, STORE_BOOT_MAX);
	close(fd);
	if (len <= 0)
		return -EIO;
	ret[len] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
	return 0;
}

int store_open(struct store *store, const char *root, bool bare)
{
	int rc = make_dir(AT_FDCWD, root);

	store->bare = bare;
	store->root_fd = store->sessions_fd = store->tasks_fd = store->new_fd = store->trash_fd = -1;
	if (rc)
		return rc;
	if (!realpath(root, store->root))
		return -errno;
	store->root_fd = open(store->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store->root_fd < 0)
		return -errno;
	rc = read_boot_id(store->boot);
	if (!rc)
		rc = sub_dir(store->root_fd, "sessions", &store->sessions_fd);
	if (!rc)
		rc = sub_dir(store->root_fd, "by-task", &store->tasks_fd);
	if (!rc)
		rc = sub_dir(store->root_fd, "new", &store->new_fd);
	if (!rc)
		rc = sub_dir(store->root_fd, "trash", &store->trash_fd);
	return rc;
}

void store_close(struct store *store)
{
	int fds[] = {store->root_fd, store->sessions_fd, store->tasks_fd, store->new_fd, store->trash_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

bool store_ref_valid(const char *ref, size_t len)
{
	if (len != 5 + 16 || memcmp(ref, "mock-", 5))
		return false;
	for (size_t i = 5; i < len; i++)
		if (!(ref[i] >= '0' && ref[i] <= '9') && !(ref[i] >= 'a' && ref[i] <= 'f'))
			return false;
	return true;
}

static void index_path(char ret[PATH_SIZE], const struct session *s, bool with_ref)
{
	snprintf(ret, PATH_SIZE, with_ref ? "%s/%s/%s" : "%s/%s", s->workspace, s->task, s->ref);
}

int store_index(const struct store *store, const struct session *s)
{
	char dir[PATH_SIZE], path[PATH_SIZE];
	int fd = -1;

	if (!*s->task)
		return 0;
	index_path(dir, s, false);
	index_path(path, s, true);
	/* A remover of the task's last session may take the directories away between two steps. */
	for (int i = 0; i < INDEX_TRIES && fd < 0; i++) {
		int rc = make_dir(store->tasks_fd, s->workspace);

		if (!rc)
			rc = make_dir(store->tasks_fd, dir);
		if (!rc) {
			fd = openat(store->tasks_fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
			rc = fd < 0 ? -errno : 0;
		}
		if (rc && rc != -ENOENT)
			return rc;
	}
	if (fd < 0)
		return -EAGAIN;
	close(fd);
	return 0;
}

static void unindex(const struct store *store, const struct session *s)
{
	char path[PATH_SIZE];

	if (!*s->task)
		return;
	index_path(path, s, true);
	unlinkat(store->tasks_fd, path, 0);
	index_path(path, s, false);
	if (!unlinkat(store->tasks_fd, path, AT_REMOVEDIR))
		unlinkat(store->tasks_fd, s->workspace, AT_REMOVEDIR);
}

static int build(const struct store *store, int dir_fd, const struct session *s, const struct berth_pair *env,
		 size_t env_count)
{
	static const char *const dirs[] = {"work", "home", "tmp", "run"};
	int rc = 0;

	for (size_t i = 0; !store->bare && !rc && i < sizeof(dirs) / sizeof(dirs[0]); i++)
		rc = make_dir(dir_fd, dirs[i]);
	if (!rc && env_count)
		rc = record_write_env(dir_fd, env, env_count);
	if (!rc)
		rc = record_write(dir_fd, s, !store->bare); /* the null runtime measures its host, not the disk */
	return rc;
}

int store_create(struct store *store, const struct session *s, const struct berth_pair *env, size_t env_count)
{
	int dir_fd = -1;
	int rc = store_index(store, s);

	if (rc)
		return rc;
	rc = sub_dir(store->new_fd, s->ref, &dir_fd);
	if (!rc)
		rc = build(store, dir_fd, s, env, env_count);
	if (!rc && renameat(store->new_fd, s->ref, store->sessions_fd, s->ref))
		rc = -errno;
	if (dir_fd >= 0)
		close(dir_fd);
	if (rc) {
		tree_remove(store->new_fd, s->ref);
		unindex(store, s);
	}
	return rc;
}

/* Opens the directory of a session; it may be in the trash by the time this returns. */
static int open_session(int parent_fd, const char *ref)
{
	int fd = openat(parent_fd, ref, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int store_load(const struct store *store, const char *ref, struct session *ret)
{
	int fd = open_session(store->sessions_fd, ref);
	int rc;

	if (fd < 0)
		return fd;
	rc = record_read(fd, ret);
	close(fd);
	return rc;
}

int store_hold(const struct store *store, const char *ref, struct session *ret)
{
	int fd = open_session(store->sessions_fd, ref);
	int rc;

	if (fd < 0)
		return fd;
	do {
		rc = flock(fd, LOCK_EX) ? -errno : 0;
	} while (rc == -EINTR);
	if (!rc)
		rc = record_read(fd, ret);
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

int store_save(const struct store *store, int held_fd, const struct session *s)
{
	return record_write(held_fd, s, !store->bare);
}

int store_env(const struct store *store, const char *ref, char **ret, size_t *ret_len)
{
	int fd = open_session(store->sessions_fd, ref);
	int rc;

	if (fd < 0)
		return fd;
	rc = record_read_env(fd, ret, ret_len);
	close(fd);
	return rc;
}

static int compare_refs(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int push_ref(struct store_refs *refs, size_t *cap, const char *name)
{
	if (refs->count == *cap) {
		size_t more = *cap ? *cap * 2 : 64;
		void *grown = realloc(refs->ref, more * sizeof(refs->ref[0]));

		if (!grown)
			return -ENOMEM;
		refs->ref = grown;
		*cap = more;
	}
	memcpy(refs->ref[refs->count++], name, strlen(name) + 1);
	return 0;
}

static int refs_of(int parent_fd, const char *path, struct store_refs *ret)
{
	struct store_refs refs = {0};
	int fd = openat(parent_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	size_t cap = 0;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	for (errno = 0; !rc && (entry = readdir(dir)); errno = 0)
		if (store_ref_valid(entry->d_name, strlen(entry->d_name)))
			rc = push_ref(&refs, &cap, entry->d_name);
	if (!rc && errno)
		rc = -errno;
	closedir(dir);
	if (rc) {
		store_refs_free(&refs);
		return rc;
	}
	if (refs.count)
		qsort(refs.ref, refs.count, sizeof(refs.ref[0]), compare_refs);
	*ret = refs;
	return 0;
}

int store_all(const struct store *store, struct store_refs *ret)
{
	return refs_of(store->sessions_fd, ".", ret);
}

int store_trashed(const struct store *store, struct store_refs *ret)
{
	return refs_of(store->trash_fd, ".", ret);
}

int store_by_task(const struct store *store, const char *workspace, const char *task, struct store_refs *ret)
{
	char path[PATH_SIZE];
	int rc;

	snprintf(path, sizeof(path), "%s/%s", workspace, task);
	rc = refs_of(store->tasks_fd, path, ret);
	if (rc == -ENOENT) {
		*ret = (struct store_refs){0};
		rc = 0;
	}
	return rc;
}

void store_refs_free(struct store_refs *refs)
{
	free(refs->ref);
	*refs = (struct store_refs){0};
}

/* A command of our own user may have closed it: then it cannot be moved, nor what runs in it be found. */
static void open_up(int parent_fd, const char *ref)
{
	int fd = tree_open(parent_fd, ref);

	if (fd >= 0)
		close(fd);
}

int store_trash(const struct store *store, const char *ref)
{
	open_up(store->sessions_fd, ref);
	if (!renameat(store->sessions_fd, ref, store->trash_fd, ref))
		return 0;
	if (errno != ENOENT)
		return -errno;
	open_up(store->trash_fd, ref);
	return faccessat(store->trash_fd, ref, F_OK, AT_SYMLINK_NOFOLLOW) ? -errno : 1;
}

int store_reap(const struct store *store, const char *ref)
{
	int fd = open_session(store->trash_fd, ref);
	struct session s;

	/* The index goes before the tree: whoever finishes after a crash still reads here which entry it was. */
	if (fd >= 0) {
		if (!record_read(fd, &s))
			unindex(store, &s);
		close(fd);
	}
	return tree_remove(store->trash_fd, ref);
}

/* By ctime: a rename sets it, and nobody can set it back. */
static bool older_than(int parent_fd, const char *name, int64_t age_ms)
{
	struct stat st;

	if (fstatat(parent_fd, name, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	return text_now_ms() - (int64_t)st.st_ctim.tv_sec * 1000 > age_ms;
}

bool store_trash_old(const struct store *store, const char *ref, int64_t age_ms)
{
	return older_than(store->trash_fd, ref, age_ms);
}

void store_drop_stale(const struct store *store, const char *workspace, const char *task, const char *ref)
{
	char path[PATH_SIZE];

	snprintf(path, sizeof(path), "%s/%s/%s", workspace, task, ref);
	if (older_than(store->tasks_fd, path, ORPHAN_AGE_MS))
		unlinkat(store->tasks_fd, path, 0);
}

void store_tidy(const struct store *store)
{
	struct store_refs refs;

	if (refs_of(store->new_fd, ".", &refs))
		return;
	for (size_t i = 0; i < refs.count; i++)
		if (older_than(store->new_fd, refs.ref[i], ORPHAN_AGE_MS))
			tree_remove(store->new_fd, refs.ref[i]);
	store_refs_free(&refs);
}
