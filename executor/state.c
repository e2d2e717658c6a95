/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the state directory: `executor` (run id and pinned identity), `run/` (the supervisors' files), `marks/`. Opened
 * on the main thread; pinning and attempts are entered by any worker. Must never serve a second identity, nor let an
 * attempt through that a higher one has overtaken.
 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../sdk/lib/supervised_files.h"

static void random_hex(char out[33])
{
	uint8_t bytes[16];

	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2hex(out, 33, bytes, sizeof(bytes));
}

/* Makes the directory with its parents. */
static int make_path(const char *path, mode_t mode)
{
	char part[PATH_MAX];

	for (const char *slash = path; (slash = strchr(slash + 1, '/'));) {
		snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
		if (mkdir(part, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return mkdir(path, mode) < 0 && errno != EEXIST ? -errno : 0;
}

static int open_dir(int at, const char *path, mode_t mode)
{
	int fd;

	if (mkdirat(at, path, mode) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static int open_path(const char *path, mode_t mode, char canonical[PATH_MAX])
{
	int rc = strlen(path) >= PATH_MAX ? -ENAMETOOLONG : make_path(path, mode);
	int fd;

	if (rc < 0)
		return rc;
	if (!realpath(path, canonical))
		return -errno;
	fd = open(canonical, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int read_record(struct state *state)
{
	char text[SUP_SMALL_MAX];
	int rc = sup_read_file(state->state_fd, "executor", text, sizeof(text));

	if (rc < 0)
		return rc;
	if (sup_value(text, "run", state->run_id, sizeof(state->run_id)) != 32)
		return -EBADMSG;
	rc = sup_value(text, "workspace", state->workspace_id, sizeof(state->workspace_id));
	if (rc == -ENOENT)
		return 0;
	if (rc < 0 || sup_value(text, "task", state->task_id, sizeof(state->task_id)) < 0 ||
	    !token_id_ok(state->workspace_id, strlen(state->workspace_id)) ||
	    !token_id_ok(state->task_id, strlen(state->task_id)))
		return -EBADMSG;
	state->pinned = true;
	return 0;
}

static int write_record(struct state *state, const char *workspace_id, const char *task_id)
{
	char text[SUP_SMALL_MAX];
	int len = snprintf(text, sizeof(text), "run=%s\n", state->run_id);

	if (workspace_id)
		len += snprintf(text + len, sizeof(text) - (size_t)len, "workspace=%s\ntask=%s\n", workspace_id,
				task_id);
	return sup_replace_file(state->state_fd, "executor.tmp", "executor", text, (size_t)len, 1);
}

static int load_record(struct state *state)
{
	int rc = read_record(state);

	if (rc != -ENOENT)
		return rc;
	random_hex(state->run_id);
	return write_record(state, NULL, NULL);
}

/* Changes with whatever loses files or processes: the machine, the container (its first process), the state directory,
 * the root. */
static void make_boot_id(struct state *state)
{
	char boot[SUP_BOOT_MAX] = "", text[512];
	struct stat ns = {0}, root = {0};
	struct sup_proc first = {0};
	uint8_t digest[crypto_hash_sha256_BYTES];
	int len;

	(void)sup_boot_id(boot, sizeof(boot));
	(void)stat("/proc/self/ns/pid", &ns);
	(void)sup_proc_read(1, &first);
	(void)fstat(state->root_fd, &root);
	len = snprintf(text, sizeof(text), "%s %ju %" PRIu64 " %s %ju %ju", boot, (uintmax_t)ns.st_ino, first.start,
		       state->run_id, (uintmax_t)root.st_dev, (uintmax_t)root.st_ino);
	crypto_hash_sha256(digest, (const uint8_t *)text, (size_t)len);
	sodium_bin2hex(state->boot_id, sizeof(state->boot_id), digest, 16);
}

static bool inside(const char *path, const char *root)
{
	size_t len = strlen(root);

	return strncmp(path, root, len) == 0 && (path[len] == '/' || path[len] == '\0' || len == 1);
}

static int open_below(struct state *state, const char *canonical, bool shared)
{
	if ((size_t)snprintf(state->run_dir, sizeof(state->run_dir), "%s/run", canonical) >= sizeof(state->run_dir))
		return -ENAMETOOLONG;
	state->run_fd = open_dir(state->state_fd, "run", 0700);
	if (state->run_fd < 0)
		return state->run_fd;
	state->marks_fd = open_dir(state->state_fd, "marks", 0700);
	if (state->marks_fd < 0)
		return state->marks_fd;
	/* Another user's command must reach its script, and nothing else. */
	if (shared && (fchmod(state->state_fd, 0711) < 0 || fchmod(state->run_fd, 0711) < 0))
		return -errno;
	return 0;
}

int state_open(struct state *state, const char *root, const char *dir, bool shared, char *text, size_t cap)
{
	char canonical[PATH_MAX];
	int rc;

	pthread_mutex_init(&state->lock, NULL);
	state->root_fd = open_path(root, 0755, state->root);
	if (state->root_fd < 0) {
		snprintf(text, cap, "root %s: %s", root, strerror(-state->root_fd));
		return -1;
	}
	state->state_fd = open_path(dir, shared ? 0711 : 0700, canonical);
	rc = state->state_fd < 0 ? state->state_fd : 0;
	if (rc == 0 && inside(canonical, state->root)) {
		snprintf(text, cap, "state directory %s lies inside the root %s", canonical, state->root);
		return -1;
	}
	if (rc == 0 && flock(state->state_fd, LOCK_EX | LOCK_NB) < 0)
		rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (rc == 0)
		rc = open_below(state, canonical, shared);
	if (rc == 0)
		rc = load_record(state);
	if (rc < 0) {
		snprintf(text, cap, "state directory %s: %s", dir,
			 rc == -EBUSY ? "another executor uses it" : strerror(-rc));
		return -1;
	}
	random_hex(state->instance);
	make_boot_id(state);
	return 0;
}

static int pin_locked(struct state *state, const char *workspace_id, const char *task_id)
{
	int rc;

	if (state->pinned)
		return strcmp(workspace_id, state->workspace_id) || strcmp(task_id, state->task_id) ? -EACCES : 0;
	rc = write_record(state, workspace_id, task_id);
	if (rc < 0)
		return rc;
	snprintf(state->workspace_id, sizeof(state->workspace_id), "%s", workspace_id);
	snprintf(state->task_id, sizeof(state->task_id), "%s", task_id);
	state->pinned = true;
	return 0;
}

int state_pin(struct state *state, const char *workspace_id, const char *task_id)
{
	int rc;

	pthread_mutex_lock(&state->lock);
	rc = pin_locked(state, workspace_id, task_id);
	pthread_mutex_unlock(&state->lock);
	return rc;
}

bool state_pinned(struct state *state)
{
	bool pinned;

	pthread_mutex_lock(&state->lock);
	pinned = state->pinned;
	pthread_mutex_unlock(&state->lock);
	return pinned;
}

static bool gone(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 || st.st_nlink == 0;
}

const char *state_lost(const struct state *state)
{
	if (gone(state->state_fd) || gone(state->run_fd))
		return "state_lost";
	return gone(state->root_fd) ? "root_lost" : NULL;
}

/* An emptied one is a number that was lost, not none. */
static int seen_read(int id_fd, uint32_t *ret_attempt)
{
	char text[SUP_SMALL_MAX];
	int64_t seen;
	int rc = sup_read_file(id_fd, "seen", text, sizeof(text));

	if (rc < 0)
		return rc;
	if (sup_number_in(text, "attempt", 0, UINT32_MAX, &seen) < 0)
		return -EBADMSG;
	*ret_attempt = (uint32_t)seen;
	return 0;
}

/* Highest attempt that the files of the id know of, by those that can be read whatever is returned. */
static int known_attempt(int id_fd, uint32_t *ret_attempt)
{
	struct sup_started started = {0};
	uint32_t poisoned = 0, seen = 0;
	const int reads[] = {sup_poison_read(id_fd, &poisoned), sup_started_read(id_fd, &started),
			     seen_read(id_fd, &seen)};

	*ret_attempt = started.attempt > poisoned ? started.attempt : poisoned;
	*ret_attempt = seen > *ret_attempt ? seen : *ret_attempt;
	for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
		if (reads[i] < 0 && reads[i] != -ENOENT)
			return sup_damaged(reads[i]) ? -EBADMSG : reads[i];
	return 0;
}

/* 1 = it is higher than what is known. */
static int judge(int id_fd, uint32_t attempt)
{
	uint32_t known = 0;
	int rc = known_attempt(id_fd, &known);

	if (attempt < known)
		return -ESTALE;
	if (rc < 0)
		return rc;
	/* The first leaves no trace of its own: nothing is lower. */
	return attempt != known && attempt != 1;
}

static int raise_locked(int id_fd, uint32_t attempt)
{
	char text[32];
	int len;
	int rc = judge(id_fd, attempt);

	if (rc <= 0)
		return rc;
	len = snprintf(text, sizeof(text), "attempt=%" PRIu32 "\n", attempt);
	return sup_replace_file(id_fd, "seen.tmp", "seen", text, (size_t)len, 0);
}

int state_attempt(struct state *state, const char *execution_id, uint32_t attempt)
{
	int fd = openat(state->run_fd, execution_id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int lock, rc;

	if (fd < 0 && errno == ENOENT && attempt <= 1)
		return 0;
	if (fd < 0 && errno == ENOENT)
		fd = open_dir(state->run_fd, execution_id, 0700);
	else if (fd < 0)
		fd = -errno;
	if (fd < 0)
		return fd;
	rc = judge(fd, attempt);
	/* Only a raise needs the lock, which a command may hold against its cancel: what is known never sinks. */
	if (rc > 0) {
		lock = sup_lock(fd);
		rc = lock < 0 ? lock : raise_locked(fd, attempt);
		if (lock >= 0)
			close(lock);
	}
	close(fd);
	return rc;
}
