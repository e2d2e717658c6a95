/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder on loan while a configuration is checked, and the look at what stands in the state directory. Main thread
 * only. The folder is removed by a process that waits for the end of a pipe: a plugin that crashes or hangs in open
 * ends the check in ways that leave no time to clean up. Must never change anything in the state directory.
 */
#include "plugin/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"

#define OPEN_AT_ONCE 16 /* folders, while the tree is removed */

/* ---- what a start would find ---- */

/* True: a start of this user would not get further, which says nothing of the daemon's. */
static bool is_right(int error)
{
	return error == EACCES || error == EPERM || error == EROFS;
}

static void warn_right(const char *what, const char *path, int error)
{
	log_warn("this user cannot use the state directory: its own start would be refused", KS("what", what),
		 KS("path", path), KS("why", strerror(error)));
}

/* It is not there: a start makes it, but not the folder above it. */
static int look_above(const char *dir, struct err *err)
{
	char above[PATH_MAX];
	struct stat st;
	char *end;

	snprintf(above, sizeof(above), "%s", dir);
	end = strrchr(above, '/');
	if (end)
		end[end == above] = '\0';
	if (stat(above, &st) != 0)
		return err_set(err, ERR_CONFIG, "cannot make state_dir %s: %s", dir, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return err_set(err, ERR_CONFIG, "cannot make state_dir %s: %s", dir, strerror(ENOTDIR));
	if (access(above, W_OK | X_OK) != 0)
		warn_right("make it", dir, errno);
	return 0;
}

static int look_target(const struct conf *conf, const char *name, uid_t owner, struct err *err)
{
	char path[PATH_MAX];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s/targets%s%s", conf->state_dir, *name ? "/" : "", name) >=
	    (int)sizeof(path))
		return err_set(err, ERR_CONFIG, "state_dir: the path is too long");
	if (lstat(path, &st) != 0)
		return 0; /* a start makes it */
	if (!S_ISDIR(st.st_mode))
		return err_set(err, ERR_CONFIG, "%s: expected a folder, got another kind of file", path);
	if (st.st_uid != owner || (st.st_mode & 077))
		return err_set(err, ERR_CONFIG, "%s: expected a folder of uid %u with mode 0700, got uid %u, mode %04o",
			       path, (unsigned)owner, (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777));
	return 0;
}

int trial_look(const struct conf *conf, struct err *err)
{
	const char *dir = conf->state_dir;
	struct stat st;
	int r = 0;

	if (stat(dir, &st) != 0) {
		if (errno == ENOENT)
			return look_above(dir, err);
		if (!is_right(errno))
			return err_set(err, ERR_CONFIG, "cannot use state_dir %s: %s", dir, strerror(errno));
		warn_right("look", dir, errno);
		return 0;
	}
	if (!S_ISDIR(st.st_mode))
		return err_set(err, ERR_CONFIG, "cannot use state_dir %s: %s", dir, strerror(ENOTDIR));
	if (access(dir, R_OK | W_OK | X_OK) != 0)
		warn_right("write", dir, errno);
	r = look_target(conf, "", st.st_uid, err);
	for (size_t i = 0; r == 0 && i < conf->target_count; i++)
		r = look_target(conf, conf->targets[i].name, st.st_uid, err);
	return r;
}

/* ---- the folder ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* The keeper: out of reach of what is sent to the check's group. It has no threads, and never returns. */
static _Noreturn void keep(const struct trial *trial, int read_fd)
{
	char byte;

	setsid();
	while (read(read_fd, &byte, 1) < 0 && errno == EINTR)
		;
	_exit(nftw(trial->dir, remove_one, OPEN_AT_ONCE, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) == 0 ? 0 : 1);
}

int trial_begin(struct trial *trial, struct err *err)
{
	const char *base = getenv("TMPDIR");
	int fds[2];

	snprintf(trial->dir, sizeof(trial->dir), "%.3000s/berthd-check-XXXXXX", base && *base == '/' ? base : "/tmp");
	if (pipe2(fds, O_CLOEXEC) != 0)
		return err_set(err, ERR_IO, "cannot make a pipe: %s", strerror(errno));
	if (!mkdtemp(trial->dir)) {
		err_set(err, ERR_IO, "%s: cannot make a folder for the check: %s", trial->dir, strerror(errno));
		goto out;
	}
	trial->keeper = fork();
	if (trial->keeper == 0) {
		close(fds[1]);
		keep(trial, fds[0]);
	}
	if (trial->keeper < 0) {
		err_set(err, ERR_IO, "cannot start a process: %s", strerror(errno));
		rmdir(trial->dir);
		goto out;
	}
	close(fds[0]);
	trial->fd = fds[1];
	return 0;

out:
	close(fds[0]);
	close(fds[1]);
	return ERR_IO;
}

void trial_end(struct trial *trial)
{
	int status = 0;
	pid_t pid;

	if (trial->fd < 0)
		return;
	close(trial->fd);
	do
		pid = waitpid(trial->keeper, &status, 0);
	while (pid < 0 && errno == EINTR);
	if (pid != trial->keeper || status != 0)
		log_warn("the folder of the check could not be removed", KS("path", trial->dir));
}

/* ---- one target after the other ---- */

extern char **environ;

static bool is_taken(const char *program, const char *file, const char *target)
{
	const char *const argv[] = {program, "-t", "--target", target, "-c", file, NULL};
	posix_spawn_file_actions_t actions;
	int status = -1, rc;
	pid_t pid;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	rc = posix_spawn(&pid, program, &actions, NULL, (char *const *)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (rc != 0) {
		log_warn("a target could not be checked by itself", KS("target", target), KS("why", strerror(rc)));
		return true;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0;
}

size_t trial_apart(const struct conf *conf, const char *program)
{
	size_t refused = 0;

	for (size_t i = 0; i < conf->target_count; i++)
		refused += conf->targets[i].required && !is_taken(program, conf->file, conf->targets[i].name);
	return refused;
}
