/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes an attempt's files and launches berth-supervise, which detaches itself: the launched process is reaped here
 * within moments. Entered by host threads with small stacks. Must never fork without exec, never write into an
 * attempt directory that it did not make, never leave one behind that cannot start, and never take one away that may.
 */
#include "supervised_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "localfs_path.h"

#define STDIN_BLOCK 65536u
/* A launcher needs milliseconds, and waits 5 s for the lock at most; a command of the same user may have stopped it. */
#define LAUNCH_NS INT64_C(10000000000)
/* Where there is no descriptor to wait with. */
#define LOOK_MS 20

static int32_t fail_storage(struct sup_op *op, int err, const char *doing)
{
	/* A missing run directory is the operator's mistake or a session that is gone, not an absent command. */
	if (err == -ENOENT)
		return localfs_fail(op->host, op->call, BERTH_UNAVAILABLE, "run_dir", doing);
	return localfs_fail_errno(op->host, op->call, err, doing);
}

static int write_file(struct sup_op *op, const char *name, const void *data, size_t len, int private_to_us)
{
	const struct berth_sup *sup = op->sup;
	int fd = openat(op->attempt_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, private_to_us ? 0600 : 0400);
	int rc;

	if (fd < 0)
		return -errno;
	rc = sup_write_all(fd, data, len);
	/* -1 is what fchown takes for "keep", too. */
	if (rc == 0 && !private_to_us && (sup->uid >= 0 || sup->gid >= 0) &&
	    fchown(fd, (uid_t)sup->uid, (gid_t)sup->gid) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

static int format_spec(const struct sup_op *op, const struct berth_command *command, char *text, size_t cap)
{
	static const char *const keys[] = {"root", "cwd", "cgroup"};
	const struct berth_sup *sup = op->sup;
	const char *values[] = {sup->root, command->cwd.ptr, sup->cgroup ? sup->cgroup : ""};
	size_t lens[] = {strlen(sup->root), command->cwd.len, strlen(values[2])};
	uint64_t max[] = {command->stdout_max, command->stderr_max};
	int len;

	/* The file holds signed numbers, and no stream is longer than that. */
	for (int i = 0; i < 2; i++)
		max[i] = max[i] > INT64_MAX ? INT64_MAX : max[i];
	len = snprintf(text, cap,
		       "timeout_ms=%" PRId64 "\nkill_grace_ms=%" PRId64 "\ndrain_grace_ms=%" PRId64 "\n"
		       "stdout_max=%" PRIu64 "\nstderr_max=%" PRIu64 "\nkeep_descendants=%d\nhas_stdin=%d\n"
		       "uid=%" PRId32 "\ngid=%" PRId32 "\n",
		       command->timeout_ms, sup->kill_grace_ms, sup->drain_grace_ms, max[0], max[1],
		       command->keep_descendants != 0, command->has_stdin != 0, sup->uid, sup->gid);
	for (size_t i = 0; i < 3; i++) {
		int n;

		len += snprintf(text + len, cap - (size_t)len, "%s=", keys[i]);
		n = sup_escape(values[i], lens[i], text + len, cap - (size_t)len - 16);
		if (n < 0)
			return n;
		len += n;
		text[len++] = '\n';
	}
	return len;
}

static int write_spec(struct sup_op *op, const struct berth_command *command)
{
	size_t cap = SUP_SPEC_MAX;
	char *text = malloc(cap);
	int len, rc;

	if (!text)
		return -ENOMEM;
	len = format_spec(op, command, text, cap);
	rc = len < 0 ? len : write_file(op, "spec", text, (size_t)len, 1);
	free(text);
	return rc;
}

static int32_t copy_stdin(struct sup_op *op, int fd, char *block)
{
	for (;;) {
		size_t len = 0;
		int32_t rc = op->host->source_read(op->call, block, STDIN_BLOCK, &len);
		int err;

		if (rc)
			return rc;
		if (len == 0)
			return BERTH_OK;
		err = sup_write_all(fd, block, len);
		if (err < 0)
			return fail_storage(op, err, "write standard input");
	}
}

static int32_t write_stdin(struct sup_op *op)
{
	char *block = malloc(STDIN_BLOCK);
	int fd = openat(op->attempt_fd, "stdin", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int32_t rc;

	if (!block || fd < 0)
		rc = fail_storage(op, fd < 0 ? -errno : -ENOMEM, "make the standard input file");
	else
		rc = copy_stdin(op, fd, block);
	if (fd >= 0)
		close(fd);
	free(block);
	return rc;
}

static int32_t write_env(struct sup_op *op, const struct berth_command *command)
{
	char *bytes = NULL;
	size_t len = 0;
	int32_t rc = sup_env_build(op, command, &bytes, &len);
	int err;

	if (rc)
		return rc;
	err = write_file(op, "env", bytes, len, 1);
	free(bytes);
	return err < 0 ? fail_storage(op, err, "write the environment") : BERTH_OK;
}

static int32_t write_files(struct sup_op *op, const struct berth_command *command)
{
	int32_t rc = write_env(op, command);
	int err;

	if (rc)
		return rc;
	err = write_spec(op, command);
	if (err == 0)
		err = write_file(op, "script", command->script.ptr, command->script.len, 0);
	if (err == 0 && mkfifoat(op->attempt_fd, "wake", 0600) < 0)
		err = -errno;
	if (err == 0) {
		op->wake_fd = openat(op->attempt_fd, "wake", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		err = op->wake_fd < 0 ? -errno : 0;
	}
	if (err < 0)
		return fail_storage(op, err, "write the attempt's files");
	return command->has_stdin ? write_stdin(op) : BERTH_OK;
}

/* Waits for the child, but not beyond the deadline: then it is killed, and reaped all the same. */
static int wait_child(pid_t pid, int64_t deadline_ns)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd poller = {.fd = fd, .events = POLLIN};
	int64_t left;
	int status;
	pid_t rc;

	while ((rc = waitpid(pid, &status, WNOHANG)) == 0 && (left = deadline_ns - sup_now_ns()) > 0)
		poll(&poller, 1, fd < 0 ? LOOK_MS : left / 1000000 > 3600000 ? 3600000 : (int)(left / 1000000) + 1);
	if (fd >= 0)
		close(fd);
	if (rc == 0)
		kill(pid, SIGKILL);
	while (rc <= 0 && (rc = waitpid(pid, &status, 0)) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

int sup_helper(const char *helper, char *const argv[], int64_t deadline_ns)
{
	static char *const no_env[] = {NULL};
	pid_t pid;
	int rc = posix_spawn(&pid, helper, NULL, NULL, argv, no_env);

	return rc ? -rc : wait_child(pid, deadline_ns);
}

static int launch(struct sup_op *op, uint32_t attempt)
{
	char helper[] = "berth-supervise", run[] = "run", dir_key[] = "--dir", key[] = "--attempt";
	char dir[4096], number[16];
	char *argv[] = {helper, run, dir_key, dir, key, number, NULL};

	if ((size_t)snprintf(dir, sizeof(dir), "%s/%s", op->sup->run_dir, op->id) >= sizeof(dir))
		return -ENAMETOOLONG;
	if (op->sup->launch) {
		int rc = op->sup->launch(op->sup->launch_ctx, dir, attempt);

		if (rc != -ENOSYS)
			return rc;
	}
	snprintf(number, sizeof(number), "%" PRIu32, attempt);
	return sup_helper(op->sup->helper, argv, sup_now_ns() + LAUNCH_NS);
}

/* The launcher was killed, or somebody else reaped it. If it got as far as a supervisor, `started` is there; if it did
 * not, the poison sees to it that nothing starts late. */
static int32_t launch_lost(struct sup_op *op, uint32_t attempt)
{
	struct sup_started started;
	int rc = sup_poison(op->id_fd, attempt, &started);

	if (rc == 1 && started.attempt == attempt)
		return BERTH_OK;
	if (rc < 0)
		return op->host->fail(op->call, BERTH_UNKNOWN, "start_failed", 0, 0,
				      "berth-supervise was lost, and the attempt could not be closed");
	return op->host->fail(op->call, BERTH_UNAVAILABLE, "start_failed", 1, 0, "berth-supervise was lost");
}

static int32_t launch_failed(struct sup_op *op, int rc)
{
	if (rc == SUP_EXIT_STORAGE)
		return op->host->fail(op->call, BERTH_UNAVAILABLE, "run_dir", 1, 0,
				      "the run directory cannot be used");
	if (rc == SUP_EXIT_RESOURCES || rc == -EAGAIN || rc == -ENOMEM)
		return op->host->fail(op->call, BERTH_UNAVAILABLE, "resources", 1, 0, "no process is left");
	if (rc < 0)
		return localfs_fail(op->host, op->call, BERTH_INTERNAL, "helper", "berth-supervise cannot be run");
	return localfs_fail(op->host, op->call, BERTH_INTERNAL, "spec", "berth-supervise did not take its files");
}

static int32_t launch_result(struct sup_op *op, uint32_t attempt, int rc)
{
	switch (rc) {
	case SUP_EXIT_STARTED:
		return BERTH_OK;
	case SUP_EXIT_ALREADY:
		return localfs_fail(op->host, op->call, BERTH_CONFLICT, "started", "this execution has started before");
	case SUP_EXIT_POISONED:
		return localfs_fail(op->host, op->call, BERTH_CONFLICT, "poisoned", "this attempt must never start");
	case -EINTR:
	case -ECHILD:
		return launch_lost(op, attempt);
	default:
		return launch_failed(op, rc);
	}
}

/* "": a NULL pointer or the empty path is no directory; the rest of the judgement is the supervisor's. */
static int32_t check_command(struct sup_op *op, const struct berth_command *command)
{
	if (localfs_path_check(&command->cwd) < 0)
		return localfs_fail(op->host, op->call, BERTH_INVALID, "cwd",
				    "cwd must be a relative path of plain components, at most 1024 bytes");
	if (command->script.len && memchr(command->script.ptr, '\0', command->script.len))
		return localfs_fail(op->host, op->call, BERTH_INVALID, "script", "the script holds a NUL byte");
	if (command->attempt == 0 || command->timeout_ms <= 0)
		return localfs_fail(op->host, op->call, BERTH_INVALID, "command", "attempt and timeout start at 1");
	if (op->host->cancel_state(op->call) != BERTH_CANCEL_NONE)
		return localfs_fail(op->host, op->call, BERTH_CANCELLED, "cancelled", "cancelled before it started");
	return BERTH_OK;
}

/* The directory is the claim on this attempt: who makes it may write into it. */
static int make_attempt(struct sup_op *op, uint32_t attempt)
{
	char name[16];
	/* A command under another user must reach its script. */
	mode_t mode = op->sup->uid >= 0 ? 0711 : 0700;
	int rc;

	snprintf(name, sizeof(name), "%" PRIu32, attempt);
	if (mkdirat(op->id_fd, name, mode) < 0)
		return -errno;
	rc = sup_op_open_attempt(op, attempt);
	if (rc == 0 && mode == 0711 && (fchmod(op->attempt_fd, mode) < 0 || fchmod(op->id_fd, mode) < 0))
		rc = -errno;
	return rc;
}

int32_t sup_start(struct sup_op *op, const struct berth_command *command)
{
	char name[16];
	int32_t rc = check_command(op, command);
	int err;

	if (rc)
		return rc;
	err = sup_op_open_id(op, 1);
	if (err == 0)
		err = make_attempt(op, command->attempt);
	if (err == -EEXIST)
		return localfs_fail(op->host, op->call, BERTH_CONFLICT, "started", "this attempt was begun before");
	if (err < 0)
		return fail_storage(op, err, "make the attempt's directory");
	rc = write_files(op, command);
	if (rc == BERTH_OK) {
		rc = launch_result(op, command->attempt, launch(op, command->attempt));
		/* It may begin yet, with what it was given; forget removes that. */
		if (rc == BERTH_UNKNOWN)
			return rc;
	}
	if (rc) {
		snprintf(name, sizeof(name), "%" PRIu32, command->attempt);
		sup_op_drop_attempt(op, name);
	}
	return rc;
}
