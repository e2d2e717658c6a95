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
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/json.h"

#define RETRY_PAUSE_MS 200
#define CANCEL_PAUSE_MS 1000 /* where a refusal names no time */
#define CANCEL_WORD_MS 3000  /* what is taken sooner is worth no word */

/* What became of the cancel: the daemon takes it, says that it never will, or is asked again. */
enum cancel_state { CANCEL_OPEN, CANCEL_SENT, CANCEL_TAKEN, CANCEL_REFUSED };

static atomic_int interrupts;
static atomic_int cancel_state;
static const char *_Atomic cancel_id;
static _Atomic int64_t cancel_next_ns;
static const char *_Atomic left_behind;

/* ---- signals ---- */

static void on_signal(int number)
{
	static const char open[] = "berthctl: left; the command may go on, berthctl executions shows it\n";
	static const char sent[] = "berthctl: left; the cancel was sent, berthctl executions shows what became of it\n";
	static const char taken[] = "berthctl: left; the command is being cancelled\n";
	int state = atomic_load(&cancel_state);
	const char *text = state == CANCEL_TAKEN ? taken : state == CANCEL_SENT ? sent : open;
	const char *behind = atomic_load(&left_behind);

	(void)number;
	if (atomic_fetch_add(&interrupts, 1) < 1)
		return;
	(void)!write(STDERR_FILENO, text, strlen(text));
	if (behind)
		(void)!write(STDERR_FILENO, behind, strlen(behind));
	_exit(CTL_CANCELLED);
}

void ctl_cancel_on_signal(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

void ctl_leave_behind(const char *sentence)
{
	atomic_store(&left_behind, sentence);
}

void ctl_cancel_target(const char *id)
{
	atomic_store(&cancel_id, id);
}

/* As a signal does. */
static void ask_cancel(void)
{
	int none = 0;

	atomic_compare_exchange_strong(&interrupts, &none, 1);
}

void ctl_execution_path(struct buf *path, const char *id, const char *rest)
{
	buf_init(path, 8192);
	buf_puts(path, "/sandbox/executions/");
	ctl_component(path, id);
	buf_puts(path, rest);
}

static void say_cancelling(const char *id)
{
	static atomic_bool told;

	if (atomic_exchange(&told, true))
		return;
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\nberthctl: cancelling %s; Ctrl-C again leaves without waiting for its end\n", id);
	else
		fprintf(stderr, "berthctl: cancelling %s\n", id);
}

/* A daemon that stops, whose store is away or that has too much to do: the next one, or this one later, takes it. */
static void put_off_cancel(const struct ctl_reply *reply)
{
	static _Atomic int64_t since_ns;
	static atomic_bool told;
	int64_t now = clock_boot_ns(), began = 0, pause = reply->status ? CANCEL_PAUSE_MS : RETRY_PAUSE_MS;

	if (reply->retry_after_ms > pause)
		pause = reply->retry_after_ms < CTL_OUTAGE_MS ? reply->retry_after_ms : CTL_OUTAGE_MS;
	atomic_store(&cancel_next_ns, now + pause * CLOCK_NS_PER_MS);
	if (!reply->status || atomic_compare_exchange_strong(&since_ns, &began, now) ||
	    now - began < CANCEL_WORD_MS * CLOCK_NS_PER_MS || atomic_exchange(&told, true))
		return; /* no answer at all is told of by whoever follows */

	const char *message = ctl_text(reply->json, "message");
	struct buf text;

	buf_init(&text, 65536);
	ctl_clean(&text, *message ? message : "the answer is not berthd's");
	fprintf(stderr, "berthctl: the cancel is not taken yet (status %ld): %s; trying again\n", reply->status, text.ptr);
	buf_fini(&text);
}

void ctl_pass_interrupt(struct ctl *ctl)
{
	const char *id = atomic_load(&cancel_id);
	int open = CANCEL_OPEN;
	struct ctl_reply reply;
	struct buf path;

	if (!id || !atomic_load(&interrupts) || clock_boot_ns() < atomic_load(&cancel_next_ns) ||
	    !atomic_compare_exchange_strong(&cancel_state, &open, CANCEL_SENT))
		return;
	say_cancelling(id);
	ctl_execution_path(&path, id, "");
	if (ctl_try(ctl, "DELETE", path.ptr, NULL, NULL, &reply) || ctl_comes_back(reply.status)) {
		put_off_cancel(&reply);
		atomic_store(&cancel_state, CANCEL_OPEN);
	} else if (reply.status / 100 == 2) {
		atomic_store(&cancel_state, CANCEL_TAKEN);
	} else {
		atomic_store(&cancel_state, CANCEL_REFUSED);
		ctl_explain(ctl, &reply, "cancel", NULL);
	}
	ctl_reply_fini(&reply);
	buf_fini(&path);
}

/* ---- streams ---- */

struct stream {
	struct ctl *ctl;
	const char *id;
	const char *name;
	int fd;
	int64_t offset;
	bool live;
	bool heard; /* a connection was good: what drops later is another outage */
	bool away;  /* the last one was none */
	int rc;
};

static void on_begun(void *arg, const struct ctl_reply *reply)
{
	struct stream *s = arg;

	(void)reply;
	s->heard = true;
	ctl_outage_over();
}

static int to_stream(void *arg, const void *ptr, size_t len)
{
	struct stream *s = arg;
	const char *at = ptr;

	while (len) {
		ssize_t done = write(s->fd, at, len);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0 && errno == EPIPE) {
			ask_cancel(); /* whoever read the output has had enough, as with a pipe of one machine */
			s->rc = CTL_OK;
			return -1;
		}
		if (done < 0) {
			s->rc = ctl_fail(CTL_ERROR, "cannot write the output: %m\n  it is kept: berthctl logs %s", s->id);
			return -1;
		}
		at += done;
		len -= (size_t)done;
		s->offset += done;
	}
	return 0;
}

/* One connection's worth. True when the stream has ended or cannot go on: what is answered at last then counts. */
static bool stream_once(struct stream *s, int64_t until_ns)
{
	struct ctl_download how = {.sink = to_stream, .begun = on_begun, .arg = s, .silent = true, .patient = true};
	struct ctl_reply reply;
	struct buf path;
	char rest[80];
	bool over;
	int rc;

	snprintf(rest, sizeof(rest), "/%s?offset=%lld%s", s->name, (long long)s->offset, s->live ? "&follow=1" : "");
	ctl_execution_path(&path, s->id, rest);
	s->rc = CTL_OK;
	rc = ctl_download(s->ctl, path.ptr, &how, &reply);
	buf_fini(&path);
	over = rc == CTL_ERROR || (!rc && (!ctl_comes_back(reply.status) || !clock_left_ms(until_ns)));
	s->away = !over;
	if (!rc && reply.status / 100 != 2 && over)
		s->rc = ctl_explain(s->ctl, &reply, s->name, NULL);
	else if (!over)
		s->rc = CTL_UNAVAILABLE;
	ctl_reply_fini(&reply);
	return over;
}

static void *stream_main(void *arg)
{
	struct stream *s = arg;
	int64_t until_ns = clock_after_ms(CTL_OUTAGE_MS);

	while (!stream_once(s, until_ns)) {
		if (s->heard) /* it may have been silent for longer than an outage is waited for */
			until_ns = clock_after_ms(CTL_OUTAGE_MS);
		s->heard = false;
		if (!clock_left_ms(until_ns))
			break;
		ctl_outage_noticed();
		usleep(RETRY_PAUSE_MS * 1000);
	}
	return NULL;
}

int ctl_follow(struct ctl *ctl, const char *id, bool want_stdout, bool want_stderr, bool live)
{
	struct ctl twin = ctl_twin(ctl);
	struct stream out = {.ctl = ctl, .id = id, .name = "stdout", .fd = STDOUT_FILENO, .live = live};
	struct stream err = {.ctl = &twin, .id = id, .name = "stderr", .fd = STDERR_FILENO, .live = live};
	pthread_t thread;
	bool threaded = want_stdout && want_stderr && !pthread_create(&thread, NULL, stream_main, &err);

	fflush(stdout);
	if (want_stdout)
		stream_main(&out);
	if (threaded)
		pthread_join(thread, NULL);
	else if (want_stderr)
		stream_main(&err);
	ctl_disconnect(&twin);
	if (out.away || err.away)
		ctl_fail(CTL_UNAVAILABLE,
			 "berthd at %s has not answered for %d s\n  the command goes on without it; later: berthctl logs -f %s",
			 ctl->address, CTL_OUTAGE_MS / 1000, id);
	return out.rc ? out.rc : err.rc;
}

/* ---- the beginning ---- */

const char *ctl_no_execution(const char *word)
{
	return strncmp(word, "sexec_", 6) != 0 ? "an execution is meant (sexec_…), not a task; berthctl executions TASK lists those of one"
						: "berthctl executions lists those of a workspace";
}

static bool waits(struct json_object *record)
{
	const char *status = ctl_text(record, "status");

	return !strcmp(status, "queued") || !strcmp(status, "claimed");
}

/* Only says something; whatever goes wrong is for what comes after to see. */
void ctl_wait_running(struct ctl *ctl, const char *id, const char *task)
{
	int64_t began_ns = clock_boot_ns(), revision = 0;
	bool shown = false, more = isatty(STDERR_FILENO);

	while (more) {
		struct ctl_reply reply;
		struct buf path;
		char rest[64] = "";

		ctl_pass_interrupt(ctl);
		if (revision)
			snprintf(rest, sizeof(rest), "?wait=1s&revision=%lld", (long long)revision);
		ctl_execution_path(&path, id, rest);
		more = !ctl_try(ctl, "GET", path.ptr, NULL, NULL, &reply) && reply.status == 200 && waits(reply.json);
		if (more && ctl_waiting_say(ctl, task, ctl_text(reply.json, "status"), began_ns))
			shown = true;
		revision = ctl_number(reply.json, "revision", 0);
		ctl_reply_fini(&reply);
		buf_fini(&path);
	}
	if (shown)
		fputs("\r\x1b[K", stderr);
}

/* ---- the end ---- */

bool ctl_is_end(const char *status)
{
	return !strcmp(status, "completed") || !strcmp(status, "failed") || !strcmp(status, "cancelled");
}

/* One look: true when there is nothing more to wait for. */
static bool look(struct ctl *ctl, const char *id, int64_t until_ns, int64_t *revision, struct json_object **ret, bool *ret_away,
		 int *ret_rc)
{
	struct ctl_reply reply;
	struct buf path;
	char rest[64] = "";
	bool over = true;

	if (*revision)
		snprintf(rest, sizeof(rest), "?wait=20s&revision=%lld", (long long)*revision);
	ctl_execution_path(&path, id, rest);
	*ret_rc = ctl_try(ctl, "GET", path.ptr, NULL, NULL, &reply);
	*ret_away = *ret_rc || (ctl_comes_back(reply.status) && clock_left_ms(until_ns));
	if (*ret_away)
		over = false;
	else if (reply.status != 200)
		*ret_rc = ctl_explain(ctl, &reply, id, ctl_no_execution(id));
	else if (!*ctl_text(reply.json, "id"))
		*ret_rc = ctl_not_berthd(ctl);
	else if (ctl_is_end(ctl_text(reply.json, "status")))
		*ret = json_object_get(reply.json);
	else {
		*revision = ctl_number(reply.json, "revision", 0);
		over = false;
	}
	ctl_reply_fini(&reply);
	buf_fini(&path);
	return over;
}

int ctl_wait_terminal(struct ctl *ctl, const char *id, struct json_object **ret)
{
	int64_t revision = 0, until_ns = clock_after_ms(CTL_OUTAGE_MS);
	int rc = 0;
	bool away;

	for (;;) {
		ctl_pass_interrupt(ctl);
		if (look(ctl, id, until_ns, &revision, ret, &away, &rc))
			return rc;
		if (ctl_stopped())
			return CTL_ERROR;
		if (!away) {
			ctl_outage_over();
			until_ns = clock_after_ms(CTL_OUTAGE_MS);
			continue;
		}
		if (!clock_left_ms(until_ns))
			return ctl_fail(CTL_UNAVAILABLE,
					"berthd at %s has not answered for %d s\n  what became of it, later: berthctl logs -f %s",
					ctl->address, CTL_OUTAGE_MS / 1000, id);
		ctl_outage_noticed();
		usleep(RETRY_PAUSE_MS * 1000);
	}
}
