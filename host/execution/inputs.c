/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the files of a session that a command names as its environment and its standard input. The worker that owns the
 * run enters, before the command starts: a target that serves one call at a time could not read a file under a running
 * command. Never evaluates anything, and never keeps standard input in memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "core/limits.h"
#include "execution/env.h"
#include "execution/execution_private.h"

#define READ_MS 60000

void inputs_init(struct inputs *in)
{
	*in = (struct inputs){.stdin_fd = -1};
	buf_init(&in->env_text, LIMIT_ENV_BYTES);
}

void inputs_fini(struct inputs *in)
{
	arena_free(in->arena);
	buf_fini(&in->env_text);
	if (in->stdin_fd >= 0)
		close(in->stdin_fd);
}

static int read_op(struct run *run, struct call *call, void *arg, struct err *err)
{
	return call_file_read(call, &run->hold->session, arg, 0, UINT64_MAX, err);
}

/* The file's own faults, told from those of the provider. */
static int judge(int rc, const char *field, const char *path, struct err *err)
{
	if (rc == ERR_NOT_FOUND)
		err_set(err, ERR_INVALID_REQUEST, "%s: there is no file %.128s", field, path);
	else if (rc == ERR_PAYLOAD_TOO_LARGE)
		err_set(err, ERR_INVALID_REQUEST, "%s: the file is too large", field);
	else if (rc == ERR_PROVIDER)
		err_prefix(err, "%s", field);
	else
		return rc;
	err_reason(err, field);
	return err->code;
}

static int to_buf(void *arg, unsigned stream, const void *ptr, size_t len)
{
	(void)stream;
	return buf_append(arg, ptr, len);
}

static int load_env(struct run *run, struct inputs *in, struct err *err)
{
	struct call_sink sink = {.write = to_buf, .arg = &in->env_text};
	char path[IDENT_PATH_MAX + 1];
	int rc;

	if (!run->plan.env_ref)
		return 0;
	snprintf(path, sizeof(path), "%s", run->plan.env_ref);
	rc = call_short(run, READ_MS, &sink, read_op, path, err);
	if (rc)
		return judge(rc, "env_ref", path, err);
	in->arena = arena_new((LIMIT_ENV_PAIRS + 2) * sizeof(struct berth_pair));
	if (!in->arena)
		return err_set(err, ERR_PROVIDER_UNAVAILABLE, "no memory for an environment");
	return env_parse(in->arena, in->env_text.ptr ? in->env_text.ptr : "", in->env_text.len, &in->env,
			 &in->env_count, err);
}

struct stdin_sink {
	int fd;
	uint64_t left;
};

static int to_file(void *arg, unsigned stream, const void *ptr, size_t len)
{
	struct stdin_sink *sink = arg;
	const char *at = ptr;

	(void)stream;
	if (len > sink->left)
		return ERR_PAYLOAD_TOO_LARGE;
	sink->left -= len;
	while (len > 0) {
		ssize_t n = write(sink->fd, at, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return ERR_IO;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/* A file without a name. */
static int open_nameless(const char *dir, struct err *err)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/stdin-XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return err_set(err, ERR_PROVIDER_UNAVAILABLE, "stdin_ref: cannot stage it on this host (errno %d)",
			       errno);
	unlink(path);
	return fd;
}

static int load_stdin(struct run *run, struct inputs *in, struct err *err)
{
	struct executions *e = run->e;
	struct stdin_sink to = {.left = (uint64_t)e->config.conf->file_max_bytes};
	struct call_sink sink = {.write = to_file, .arg = &to};
	char path[IDENT_PATH_MAX + 1];
	int rc;

	if (!run->plan.stdin_ref)
		return 0;
	to.fd = open_nameless(blob_staging_dir(e->config.blobs), err);
	if (to.fd < 0)
		return to.fd;
	in->stdin_fd = to.fd;
	snprintf(path, sizeof(path), "%s", run->plan.stdin_ref);
	rc = call_short(run, READ_MS, &sink, read_op, path, err);
	if (rc)
		return judge(rc, "stdin_ref", path, err);
	if (lseek(to.fd, 0, SEEK_SET) != 0)
		return err_set(err, ERR_PROVIDER_UNAVAILABLE, "stdin_ref: cannot read what was staged (errno %d)",
			       errno);
	return 0;
}

int inputs_load(struct run *run, struct inputs *in, struct err *err)
{
	int rc = load_env(run, in, err);

	return rc ? rc : load_stdin(run, in, err);
}
