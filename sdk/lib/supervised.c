/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entry points of supervised execution and what they share: the directories of one execution id. Any thread; no
 * state between calls but the run directory. Must never act on a process that it has not identified by its start time,
 * and never remove the mark that a command started.
 */
#include "supervised_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int id_ok(const struct berth_str *id)
{
	if (id->len == 0 || id->len > SUP_ID_MAX || id->ptr[0] == '.')
		return 0;
	for (size_t i = 0; i < id->len; i++) {
		char c = id->ptr[i];
		int plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

		if (!plain && c != '_' && c != '-' && c != '.')
			return 0;
	}
	return 1;
}

static int32_t op_init(struct sup_op *op, const struct berth_host *host, struct berth_call *call,
		       const struct berth_sup *sup, const struct berth_str *execution_id)
{
	*op = (struct sup_op){.host = host, .call = call, .sup = sup, .id_fd = -1, .attempt_fd = -1, .wake_fd = -1};
	if (!id_ok(execution_id))
		return localfs_fail(host, call, BERTH_INVALID, "execution_id",
				    "an execution id is 1 to 128 of A-Za-z0-9._- and does not start with a dot");
	memcpy(op->id, execution_id->ptr, execution_id->len);
	op->id[execution_id->len] = '\0';
	return BERTH_OK;
}

static void op_fini(struct sup_op *op)
{
	int fds[] = {op->wake_fd, op->attempt_fd, op->id_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int sup_op_open_id(struct sup_op *op, int create)
{
	int run = open(op->sup->run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	if (run < 0)
		return errno == ENOENT && create ? -EIO : -errno;
	if (create && mkdirat(run, op->id, 0700) < 0 && errno != EEXIST)
		rc = -errno;
	if (rc == 0) {
		op->id_fd = openat(run, op->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		rc = op->id_fd < 0 ? -errno : 0;
	}
	close(run);
	return rc;
}

int sup_op_open_attempt(struct sup_op *op, uint32_t attempt)
{
	char name[16];

	snprintf(name, sizeof(name), "%" PRIu32, attempt);
	op->attempt = attempt;
	op->attempt_fd = openat(op->id_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return op->attempt_fd < 0 ? -errno : 0;
}

void sup_op_rest(struct sup_op *op)
{
	close(op->attempt_fd);
	close(op->id_fd);
	op->attempt_fd = op->id_fd = -1;
}

int sup_op_resume(struct sup_op *op)
{
	int rc = sup_op_open_id(op, 0);

	return rc < 0 ? rc : sup_op_open_attempt(op, op->attempt);
}

int sup_op_drop_attempt(struct sup_op *op, const char *attempt)
{
	static const char *const names[] = {"spec", "script", "env", "stdin", "stdout", "stderr", "wake", "status"};
	int fd = openat(op->id_fd, attempt, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int rc = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (unlinkat(fd, names[i], 0) < 0 && errno != ENOENT)
			rc = -errno;
	close(fd);
	if (rc == 0 && unlinkat(op->id_fd, attempt, AT_REMOVEDIR) < 0 && errno != ENOENT)
		rc = -errno;
	return rc;
}

int32_t berth_sup_execute(const struct berth_host *host, struct berth_call *call, const struct berth_sup *sup,
			  const struct berth_command *command)
{
	struct sup_op op;
	int32_t rc = op_init(&op, host, call, sup, &command->execution_id);

	if (rc)
		return rc;
	rc = sup_start(&op, command);
	/* The launcher is gone; what the supervisor does next it will announce. */
	if (rc == BERTH_OK)
		rc = sup_follow(&op, 0);
	op_fini(&op);
	return rc;
}

static int32_t open_started(struct sup_op *op, uint32_t attempt)
{
	int rc = sup_op_open_attempt(op, attempt);

	if (rc == 0) {
		op->wake_fd = openat(op->attempt_fd, "wake", O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
		rc = op->wake_fd < 0 ? -errno : 0;
	}
	if (rc == -ENOENT)
		return localfs_fail(op->host, op->call, BERTH_NOT_FOUND, "forgotten",
				    "the command ended and its output was dropped");
	return rc < 0 ? localfs_fail_errno(op->host, op->call, rc, "open the attempt") : BERTH_OK;
}

static int32_t reattach(struct sup_op *op, const struct berth_resume *resume)
{
	struct sup_started started;
	int32_t code;
	int rc = sup_op_open_id(op, 1);

	if (rc == 0)
		rc = sup_poison(op->id_fd, resume->attempt, &started);
	if (rc < 0)
		return localfs_fail_errno(op->host, op->call, rc == -ENOENT ? -EIO : rc, "look for the command");
	if (rc == 0)
		return localfs_fail(op->host, op->call, BERTH_NOT_STARTED, "not_started",
				    "it has not started and will not");
	if (started.attempt > resume->attempt)
		return localfs_fail(op->host, op->call, BERTH_UNKNOWN, "stale_attempt",
				    "a later attempt of this execution is known");
	code = open_started(op, started.attempt);
	if (code)
		return code;
	op->offset[0] = resume->stdout_offset;
	op->offset[1] = resume->stderr_offset;
	return sup_follow(op, 1);
}

int32_t berth_sup_reattach(const struct berth_host *host, struct berth_call *call, const struct berth_sup *sup,
			   const struct berth_resume *resume)
{
	struct sup_op op;
	int32_t rc = op_init(&op, host, call, sup, &resume->execution_id);

	if (rc)
		return rc;
	rc = reattach(&op, resume);
	op_fini(&op);
	return rc;
}

/* A supervisor that was killed may have left processes; the helper knows how to find them. */
static int kill_left(const struct berth_sup *sup, const char *id, int64_t deadline_ns)
{
	char helper[] = "berth-supervise", verb[] = "kill-all", dir_key[] = "--run-dir", until_key[] = "--until",
	     id_key[] = "--id", dir[4096], name[SUP_ID_MAX + 1], until[24];
	char *argv[] = {helper, verb, dir_key, dir, until_key, until, id ? id_key : NULL, name, NULL};

	if ((size_t)snprintf(dir, sizeof(dir), "%s", sup->run_dir) >= sizeof(dir))
		return -ENAMETOOLONG;
	snprintf(until, sizeof(until), "%" PRId64, deadline_ns > 0 ? deadline_ns : INT64_C(1));
	snprintf(name, sizeof(name), "%s", id ? id : "");
	/* The helper keeps to the deadline itself; a second more, so that its own answer is heard. */
	return sup_helper(sup->helper, argv, deadline_ns > 0 ? deadline_ns + INT64_C(1000000000) : 1);
}

static int64_t call_deadline(const struct sup_op *op)
{
	struct berth_call_info info = {.struct_size = sizeof(info)};

	op->host->info(op->call, &info);
	return info.deadline_ns > 0 ? info.deadline_ns : sup_now_ns() + INT64_C(10000000000);
}

int sup_op_end(struct sup_op *op, int64_t deadline_ns)
{
	int rc = kill_left(op->sup, op->id, deadline_ns);

	if (rc > 0)
		rc = rc == SUP_EXIT_TIMEOUT ? -ETIMEDOUT : rc == SUP_EXIT_NOTHING ? -ESRCH : -EIO;
	return rc;
}

int sup_held_up(const struct sup_started *started, uint32_t signal)
{
	struct sup_proc proc;

	return sup_proc_read(started->pid, &proc) == 0 && proc.start == started->start &&
	       (proc.state == 't' || (proc.state == 'T' && signal == BERTH_SIGNAL_KILL));
}

static int32_t signal_started(struct sup_op *op, const struct sup_started *started, uint32_t signal)
{
	int rc = sup_supervisor_alive(started);
	int outside = rc > 0 && sup_held_up(started, signal);

	if (rc > 0 && !outside)
		rc = sup_signal_supervisor(started, signal == BERTH_SIGNAL_KILL ? SIGUSR1 : SIGTERM);
	else if (rc == 0)
		rc = -ESRCH;
	/* Not through the supervisor, then: the helper does not give up. */
	if (outside || (rc == -ESRCH && signal == BERTH_SIGNAL_KILL))
		rc = sup_op_end(op, call_deadline(op));
	if (rc == -ETIMEDOUT)
		return op->host->fail(op->call, BERTH_TIMEOUT, "processes_left", 1, 0, "processes are left");
	if (rc == -ESRCH)
		return localfs_fail(op->host, op->call, BERTH_NOT_FOUND, "not_running", "the command does not run");
	return rc < 0 ? localfs_fail_errno(op->host, op->call, rc, "signal the command") : BERTH_OK;
}

int32_t berth_sup_signal(const struct berth_host *host, struct berth_call *call, const struct berth_sup *sup,
			 const struct berth_str *execution_id, uint32_t signal)
{
	struct sup_started started;
	struct sup_op op;
	int32_t code = op_init(&op, host, call, sup, execution_id);
	int rc;

	if (code)
		return code;
	rc = sup_op_open_id(&op, 0);
	if (rc == 0)
		rc = sup_started_read(op.id_fd, &started);
	/* The helper finds it without its mark, and opens what was closed. */
	if ((sup_damaged(rc) || rc == -EACCES) && signal == BERTH_SIGNAL_KILL) {
		started = (struct sup_started){0};
		rc = 0;
	}
	if (signal != BERTH_SIGNAL_TERM && signal != BERTH_SIGNAL_KILL)
		code = localfs_fail(host, call, BERTH_UNSUPPORTED, "signal", "only TERM and KILL are known");
	else if (rc < 0)
		code = localfs_fail_errno(host, call, rc, "find the command");
	else
		code = signal_started(&op, &started, signal);
	op_fini(&op);
	return code;
}

static int running(struct sup_op *op)
{
	struct sup_started started;
	struct sup_status status;
	int rc = sup_started_read(op->id_fd, &started);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	rc = sup_op_open_attempt(op, started.attempt);
	if (rc == -ENOENT)
		return 0; /* forgotten before; its kept descendants live on */
	if (rc < 0)
		return rc;
	/* Mostly there, and cheaper than a look at the process. */
	if (sup_status_read(op->attempt_fd, &status) == 0)
		return 0;
	rc = sup_supervisor_alive(&started);
	if (rc <= 0)
		return rc;
	/* It may have ended in between. */
	rc = sup_status_read(op->attempt_fd, &status);
	return rc == 0 ? 0 : rc == -ENOENT ? 1 : rc;
}

/* Everything but the lock and the marks is an attempt. */
static int drop_all(struct sup_op *op)
{
	struct dirent *entry;
	int fd = openat(op->id_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int rc = 0;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (rc == 0 && (entry = readdir(dir)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			rc = sup_op_drop_attempt(op, entry->d_name);
	closedir(dir);
	return rc;
}

static int forget_locked(struct sup_op *op)
{
	/* Under the lock no attempt can start from files that are being removed. */
	int lock = sup_lock(op->id_fd);
	int rc;

	if (lock < 0)
		return lock;
	rc = running(op);
	if (rc == 0)
		rc = drop_all(op);
	close(lock);
	return rc;
}

int32_t berth_sup_forget(const struct berth_host *host, struct berth_call *call, const struct berth_sup *sup,
			 const struct berth_str *execution_id)
{
	struct sup_op op;
	int32_t code = op_init(&op, host, call, sup, execution_id);
	int rc;

	if (code)
		return code;
	rc = sup_op_open_id(&op, 0);
	if (rc == 0)
		rc = forget_locked(&op);
	if (rc == 1)
		code = localfs_fail(host, call, BERTH_CONFLICT, "running", "the command still runs");
	else if (rc < 0 && rc != -ENOENT)
		code = localfs_fail_errno(host, call, rc, "forget the command");
	op_fini(&op);
	return code;
}

int32_t berth_sup_kill_all(const struct berth_sup *sup, int64_t deadline_ns)
{
	switch (kill_left(sup, NULL, deadline_ns)) {
	case 0:
		return BERTH_OK;
	case SUP_EXIT_TIMEOUT:
	case -EINTR: /* the helper was killed at the deadline */
		return BERTH_TIMEOUT;
	default:
		return BERTH_UNAVAILABLE;
	}
}
