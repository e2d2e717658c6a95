/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Following a command: its two output streams at once, each resumed by offset when a connection drops, then its terminal record. The
 * second stream runs on a thread of its own; a signal only sets flags, and the waiting loop acts on them.
 */
#include "ctl/ctl.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/json.h"

#define RETRY_MAX 30
#define RETRY_PAUSE_MS 200

static atomic_int interrupts;
static atomic_bool cancel_sent;
static const char *_Atomic cancel_id;

struct stream {
	struct ctl *ctl;
	const char *id;
	const char *name;
	int fd;
	int64_t offset;
	int rc;
};

static void on_signal(int number)
{
	(void)number;
	if (atomic_fetch_add(&interrupts, 1) >= 1)
		_exit(CTL_CANCELLED); /* asked twice: leave at once, the execution goes on being cancelled */
}

void ctl_cancel_on_signal(const char *id)
{
	struct sigaction action = {.sa_handler = id ? on_signal : SIG_DFL};

	atomic_store(&cancel_id, id);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int to_stream(void *arg, const void *ptr, size_t len)
{
	struct stream *s = arg;
	const char *at = ptr;

	while (len) {
		ssize_t done = write(s->fd, at, len);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0) {
			s->rc = errno == EPIPE ? CTL_OK : ctl_fail(CTL_ERROR, "cannot write the output: %m");
			return -1;
		}
		at += done;
		len -= (size_t)done;
		s->offset += done;
	}
	return 0;
}

static void stream_path(const struct stream *s, struct buf *path)
{
	buf_init(path, 4096);
	buf_puts(path, "/sandbox/executions/");
	ctl_component(path, s->id);
	buf_printf(path, "/%s?follow=1&offset=%lld", s->name, (long long)s->offset);
}

/* One connection's worth. True when the stream has ended or cannot go on. */
static bool stream_once(struct stream *s)
{
	struct ctl_reply reply;
	struct buf path;
	int64_t before = s->offset;
	int rc;

	stream_path(s, &path);
	rc = ctl_download(s->ctl, path.ptr, to_stream, s, &reply);
	buf_fini(&path);
	if (!rc && reply.status / 100 == 2) {
		ctl_reply_fini(&reply);
		return true;
	}
	if (!rc && reply.status < 500)
		s->rc = ctl_explain(s->ctl, &reply, s->name);
	else if (rc == CTL_UNAVAILABLE || !rc)
		s->rc = s->offset > before ? CTL_OK : CTL_UNAVAILABLE;
	ctl_reply_fini(&reply);
	return s->rc != CTL_OK && s->rc != CTL_UNAVAILABLE;
}

static void *stream_main(void *arg)
{
	struct stream *s = arg;

	for (int tries = 0; tries < RETRY_MAX; tries++) {
		int64_t before = s->offset;

		s->rc = CTL_OK;
		if (stream_once(s))
			return NULL;
		if (s->offset > before)
			tries = 0;
		usleep(RETRY_PAUSE_MS * 1000);
	}
	return NULL;
}

int ctl_follow(struct ctl *ctl, const char *id, bool want_stdout, bool want_stderr)
{
	struct stream out = {.ctl = ctl, .id = id, .name = "stdout", .fd = STDOUT_FILENO};
	struct stream err = {.ctl = ctl, .id = id, .name = "stderr", .fd = STDERR_FILENO};
	pthread_t thread;
	bool threaded = want_stdout && want_stderr && !pthread_create(&thread, NULL, stream_main, &err);

	fflush(stdout);
	if (want_stdout)
		stream_main(&out);
	if (threaded)
		pthread_join(thread, NULL);
	else if (want_stderr)
		stream_main(&err);
	return out.rc ? out.rc : err.rc;
}

static bool is_terminal(struct json_object *record)
{
	const char *status = ctl_text(record, "status");

	return !strcmp(status, "completed") || !strcmp(status, "failed") || !strcmp(status, "cancelled");
}

void ctl_pass_interrupt(struct ctl *ctl)
{
	const char *id = atomic_load(&cancel_id);
	struct ctl_reply reply;
	struct buf path;

	if (!id || !atomic_load(&interrupts) || atomic_exchange(&cancel_sent, true))
		return;
	buf_init(&path, 4096);
	buf_puts(&path, "/sandbox/executions/");
	ctl_component(&path, id);
	fprintf(stderr, "berthctl: cancelling %s\n", id);
	ctl_call(ctl, "DELETE", path.ptr, NULL, &reply);
	ctl_reply_fini(&reply);
	buf_fini(&path);
}

int ctl_wait_terminal(struct ctl *ctl, const char *id, struct json_object **ret)
{
	int64_t revision = 0;
	int rc, outages = 0;

	for (;;) {
		struct ctl_reply reply;
		struct buf path;

		ctl_pass_interrupt(ctl);
		buf_init(&path, 4096);
		buf_puts(&path, "/sandbox/executions/");
		ctl_component(&path, id);
		if (revision)
			buf_printf(&path, "?wait=20s&revision=%lld", (long long)revision);
		rc = ctl_call(ctl, "GET", path.ptr, NULL, &reply);
		buf_fini(&path);
		if ((rc || reply.status >= 500) && ++outages < RETRY_MAX) {
			ctl_reply_fini(&reply);
			usleep(RETRY_PAUSE_MS * 1000);
			continue;
		}
		if (!rc && reply.status != 200)
			rc = ctl_explain(ctl, &reply, id);
		if (!rc && !is_terminal(reply.json)) {
			revision = ctl_number(reply.json, "revision", 0);
			outages = 0;
			ctl_reply_fini(&reply);
			continue;
		}
		*ret = rc ? NULL : json_object_get(reply.json);
		ctl_reply_fini(&reply);
		return rc;
	}
}
