/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Misbehaves on demand: the session's ref (or the cursor, pool key, task id) names the rule to break. One file for what
 * breaks in operations, because each needs a host around it.
 */
#define ZOO_NAME "rude"
#include <berth/provider.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <poll.h>
#include <unistd.h>

#define ZOO_OPEN rude_open
#define ZOO_FIND rude_find
#define ZOO_LIST rude_list
#define ZOO_PROVISION rude_provision
#define ZOO_INSPECT rude_inspect
#define ZOO_EXECUTE rude_execute
#define ZOO_FILE_LIST rude_file_list
#define ZOO_RELEASE rude_release
#define ZOO_OPTIONS options
#define ZOO_METRICS metrics

static int32_t rude_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			 struct berth_instance_info *ret_info);
static int32_t rude_find(void *inst, struct berth_call *call, const struct berth_identity *identity);
static int32_t rude_list(void *inst, struct berth_call *call, const struct berth_str *cursor);
static int32_t rude_provision(void *inst, struct berth_call *call, const struct berth_spec *spec);
static int32_t rude_inspect(void *inst, struct berth_call *call, const struct berth_session *session);
static int32_t rude_execute(void *inst, struct berth_call *call, const struct berth_session *session,
			    const struct berth_command *command);
static int32_t rude_file_list(void *inst, struct berth_call *call, const struct berth_session *session,
			      const struct berth_str *path, uint32_t flags);
static int32_t rude_release(void *inst, struct berth_call *call, const struct berth_session *session);

#define OPTION(name, type_, default_, secret_)                                                                         \
	{                                                                                                              \
		.struct_size = sizeof(struct berth_option), .type = type_, .key = name, .default_text = default_,      \
		.secret = secret_, .doc = "For a test."                                                                \
	}
static const struct berth_option option_rows[] = {
    OPTION("gate", BERTH_OPTION_INTEGER, NULL, 0), /* address of two semaphores: here it is, let it go */
    OPTION("wait", BERTH_OPTION_DURATION, "90s", 0), OPTION("room", BERTH_OPTION_SIZE, "1MiB", 0),
    OPTION("api_key", BERTH_OPTION_STRING, NULL, 1), OPTION("loud", BERTH_OPTION_BOOLEAN, NULL, 0),
    OPTION("settle", BERTH_OPTION_DURATION, NULL, 0),
};
static const struct berth_option *const options[] = {&option_rows[0], &option_rows[1], &option_rows[2],
						     &option_rows[3], &option_rows[4], &option_rows[5], NULL};
static const struct berth_metric metric_rows[] = {
    {sizeof(struct berth_metric), BERTH_METRIC_COUNTER, "calls", "", "Calls seen."},
    {sizeof(struct berth_metric), BERTH_METRIC_HISTOGRAM, "seconds", "seconds", "Time taken."},
};
static const struct berth_metric *const metrics[] = {&metric_rows[0], &metric_rows[1], NULL};

#include "zoo.h"

static sem_t *gate; /* [0] arrived, [1] go */
static struct berth_target *target;

static bool is(struct berth_str text, const char *word)
{
	return text.len == strlen(word) && !memcmp(text.ptr, word, text.len);
}

static int32_t rude_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			 struct berth_instance_info *ret_info)
{
	target = args->target;
	gate = args->options[0]->is_set ? (sem_t *)(uintptr_t)args->options[0]->integer : NULL;
	if (args->options[1]->integer != 90000 || args->options[2]->integer != 1 << 20 || args->options[3]->string.len ||
	    args->options[4]->is_set)
		return BERTH_INVALID;
	ret_info->create_settle_ms = args->options[5]->integer;
	return zoo_open(args, call, ret_inst, ret_info);
}

static void pass_gate(void)
{
	sem_post(&gate[0]);
	while (sem_wait(&gate[1]))
		;
}

static int32_t rude_find(void *inst, struct berth_call *call, const struct berth_identity *identity)
{
	struct berth_session_info info = zoo_session(zoo_str("found"));

	(void)inst;
	info.workspace_id = identity->workspace_id;
	info.task_id = identity->task_id;
	if (is(identity->task_id, "of-another"))
		info.task_id = zoo_str("if-another"); /* as long as the right one */
	if (is(identity->task_id, "half"))
		info.workspace_id = (struct berth_str){0};
	if (is(identity->task_id, "not-found"))
		return BERTH_NOT_FOUND;
	return host->emit_session(call, &info);
}

/* `count` sessions; goes on when it is refused. */
static int32_t rude_list(void *inst, struct berth_call *call, const struct berth_str *cursor)
{
	struct berth_session_info info = zoo_session(zoo_str("listed"));
	struct berth_str next = zoo_str("page-2");
	long count = cursor->len ? strtol(cursor->ptr, NULL, 10) : 2;
	int32_t rc = BERTH_OK;

	(void)inst;
	if (cursor->len && is(*cursor, "page-2"))
		return BERTH_OK;
	if (cursor->len && is(*cursor, "again"))
		return host->emit_cursor(call, cursor);
	for (long i = 0; i < count; i++)
		rc = host->emit_session(call, &info);
	if (rc == BERTH_OK)
		rc = host->emit_cursor(call, &next);
	return BERTH_OK;
}

static int32_t rude_provision(void *inst, struct berth_call *call, const struct berth_spec *spec)
{
	int32_t rc;

	if (is(spec->pool_key, "not-created"))
		return BERTH_OK;
	rc = zoo_provision(inst, call, spec);
	if (is(spec->pool_key, "created-twice"))
		zoo_provision(inst, call, spec);
	return rc;
}

/* Which field to spoil, and how. */
static void spoil(struct berth_session_info *info, struct berth_str rule)
{
	static char big[8192];

	memset(big, 'x', sizeof(big));
	if (is(rule, "long-ref"))
		info->ref = (struct berth_str){big, BERTH_REF_MAX + 1};
	else if (is(rule, "huge-length"))
		info->ref = (struct berth_str){big, SIZE_MAX};
	else if (is(rule, "null-ref"))
		info->ref = (struct berth_str){NULL, 5};
	else if (is(rule, "empty-ref"))
		info->ref = (struct berth_str){big, 0};
	else if (is(rule, "nul-ref"))
		info->ref = (struct berth_str){"a\0b", 3};
	else if (is(rule, "not-utf8"))
		info->root = (struct berth_str){"\xff\xfe", 2};
	else if (is(rule, "long-state"))
		info->state = (struct berth_str){big, BERTH_STATE_MAX + 1};
	else if (is(rule, "long-root"))
		info->root = (struct berth_str){big, BERTH_PATH_MAX + 1};
	else if (is(rule, "bad-phase"))
		info->phase = 77;
	else if (is(rule, "bad-isolation"))
		info->isolation = 9;
	else if (is(rule, "bad-time"))
		info->expires_ms = -1;
	else if (is(rule, "tiny-struct"))
		info->struct_size = 4;
	else if (is(rule, "huge-struct"))
		info->struct_size = UINT32_MAX;
	else if (is(rule, "short-struct"))
		info->struct_size = offsetof(struct berth_session_info, state);
	else if (is(rule, "long-reason"))
		info->dead_reason = (struct berth_str){big, BERTH_REASON_MAX + 1};
	else if (is(rule, "bad-identity"))
		info->workspace_id = info->task_id = zoo_str("../x");
	else if (is(rule, "state-bytes"))
		info->state = (struct berth_str){"\0\xff\0", 3};
}

struct foreign {
	struct berth_call *call;
	struct berth_session_info *info;
};

static void *from_thread(void *arg)
{
	struct foreign *foreign = arg;

	host->emit_session(foreign->call, foreign->info);
	return NULL;
}

static int32_t rude_inspect(void *inst, struct berth_call *call, const struct berth_session *session)
{
	struct berth_session_info info = zoo_session(zoo_str("ref"));
	struct foreign foreign = {call, &info};
	pthread_t thread;

	(void)inst;
	if (is(session->ref, "nothing"))
		return BERTH_OK;
	if (is(session->ref, "null-info"))
		return host->emit_session(call, NULL);
	if (is(session->ref, "unknown-code"))
		return 4711;
	if (is(session->ref, "negative-code"))
		return -1;
	if (is(session->ref, "not-started"))
		return BERTH_NOT_STARTED;
	if (is(session->ref, "not-cancelled"))
		return BERTH_CANCELLED;
	if (is(session->ref, "wrong-service"))
		return host->sink_write(call, BERTH_STREAM_STDOUT, "x", 1);
	if (is(session->ref, "long-fail"))
		return host->fail(call, BERTH_INVALID, "a_reason_that_is_much_longer_than_allowed", 0, 0, "");
	if (is(session->ref, "bad-fail"))
		return host->fail(call, BERTH_INVALID, "No Word", 0, 0, "");
	if (is(session->ref, "code")) /* the code is in the state */
		return (int32_t)strtol(session->state.ptr, NULL, 10);
	if (is(session->ref, "told"))
		return host->fail(call, BERTH_CAPACITY, "no_nodes", 1, 1500, "no\nnodes \xc3\xa9");
	if (is(session->ref, "told-otherwise")) {
		host->fail(call, BERTH_CAPACITY, "no_nodes", 1, 1500, "no nodes");
		return BERTH_QUOTA;
	}
	if (is(session->ref, "http")) {
		struct berth_http_request request = {.struct_size = sizeof(request)};
		struct berth_http_response response = {.struct_size = sizeof(response)};

		return host->http(target, call, &request, &response);
	}
	if (is(session->ref, "thread")) {
		pthread_create(&thread, NULL, from_thread, &foreign);
		pthread_join(thread, NULL);
		return BERTH_OK;
	}
	spoil(&info, session->ref);
	host->emit_session(call, &info);
	if (is(session->ref, "twice"))
		host->emit_session(call, &info);
	if (is(session->ref, "chdir") && (chdir("/") || umask(0) > 0777))
		return BERTH_INTERNAL;
	if (is(session->ref, "signals"))
		signal(SIGTERM, SIG_IGN);
	return BERTH_OK;
}

static int32_t end(struct berth_call *call, uint32_t kind)
{
	struct berth_ending ending = {.struct_size = sizeof(ending), .kind = kind};

	return host->emit_ending(call, &ending);
}

static int32_t wait_cancel(struct berth_call *call)
{
	struct pollfd fd = {.fd = host->cancel_fd(call), .events = POLLIN};

	sem_post(&gate[0]);
	while (host->cancel_state(call) == BERTH_CANCEL_NONE)
		poll(&fd, 1, -1);
	return host->cancel_state(call) == BERTH_CANCEL_STOP ? end(call, BERTH_ENDING_CANCELLED) : BERTH_CANCELLED;
}

static int32_t echo_stdin(struct berth_call *call)
{
	char buf[8];
	size_t len = 0;
	int32_t rc;

	do {
		rc = host->source_read(call, buf, sizeof(buf), &len);
		if (!rc && len)
			rc = host->sink_write(call, BERTH_STREAM_STDOUT, buf, len);
	} while (!rc && len);
	return rc ? rc : end(call, BERTH_ENDING_EXIT);
}

static int32_t rude_execute(void *inst, struct berth_call *call, const struct berth_session *session,
			    const struct berth_command *command)
{
	struct berth_str handle = zoo_str("handle");

	(void)inst;
	(void)command;
	if (is(session->ref, "two-endings")) {
		end(call, BERTH_ENDING_EXIT);
		end(call, BERTH_ENDING_EXIT);
		return BERTH_OK;
	}
	if (is(session->ref, "no-ending"))
		return BERTH_OK;
	if (is(session->ref, "bad-kind"))
		return end(call, 99);
	if (is(session->ref, "ending-and-code")) {
		end(call, BERTH_ENDING_EXIT);
		return BERTH_UNAVAILABLE;
	}
	if (is(session->ref, "bad-exit")) {
		struct berth_ending ending = {
		    .struct_size = sizeof(ending), .kind = BERTH_ENDING_EXIT, .exit_code = 256};

		return host->emit_ending(call, &ending);
	}
	if (is(session->ref, "bad-stream"))
		return host->sink_write(call, 7, "x", 1);
	if (is(session->ref, "data-stream"))
		return host->sink_write(call, BERTH_STREAM_DATA, "x", 1);
	if (is(session->ref, "null-bytes"))
		return host->sink_write(call, BERTH_STREAM_STDOUT, NULL, 5);
	if (is(session->ref, "huge-write"))
		return host->sink_write(call, BERTH_STREAM_STDOUT, "x", SIZE_MAX);
	if (is(session->ref, "long-handle")) {
		static char big[BERTH_HANDLE_MAX + 1];

		handle = (struct berth_str){big, sizeof(big)};
		return host->started(call, &handle);
	}
	if (is(session->ref, "nul-handle") || is(session->ref, "bytes-handle")) {
		handle = is(session->ref, "nul-handle") ? (struct berth_str){"a\0b", 3} : (struct berth_str){"\xff", 1};
		return host->started(call, &handle);
	}
	if (is(session->ref, "bad-gap"))
		return host->gap(call, BERTH_STREAM_STDOUT, 5, 5);
	if (is(session->ref, "deaf")) { /* goes on after the receiver said stop */
		for (int i = 0; i < 3; i++)
			host->sink_write(call, BERTH_STREAM_STDOUT, "x", 1);
		return end(call, BERTH_ENDING_EXIT);
	}
	if (is(session->ref, "late")) {
		struct berth_call_info info = {.struct_size = sizeof(info)};
		struct timespec now;

		host->info(call, &info);
		do
			clock_gettime(CLOCK_BOOTTIME, &now);
		while (now.tv_sec * INT64_C(1000000000) + now.tv_nsec < info.deadline_ns);
		return host->sink_write(call, BERTH_STREAM_STDOUT, "x", 1);
	}
	if (is(session->ref, "trickle")) { /* past its deadline, whatever it is told, until it is let go */
		while (sem_trywait(&gate[1])) {
			host->sink_write(call, BERTH_STREAM_STDOUT, "x", 1);
			poll(NULL, 0, 100);
		}
		return end(call, BERTH_ENDING_EXIT);
	}
	if (is(session->ref, "gate"))
		pass_gate();
	if (is(session->ref, "cancel"))
		return wait_cancel(call);
	if (is(session->ref, "echo"))
		return echo_stdin(call);
	if (is(session->ref, "full")) {
		host->started(call, &handle);
		host->sink_write(call, BERTH_STREAM_STDOUT, "out", 3);
		host->sink_write(call, BERTH_STREAM_STDERR, "err", 3);
		host->gap(call, BERTH_STREAM_STDOUT, 3, 9);
		return end(call, BERTH_ENDING_OOM);
	}
	return end(call, BERTH_ENDING_EXIT);
}

static int32_t rude_file_list(void *inst, struct berth_call *call, const struct berth_session *session,
			      const struct berth_str *path, uint32_t flags)
{
	struct berth_file_info info = {.struct_size = sizeof(info), .kind = BERTH_FILE_REGULAR, .path = session->ref};

	(void)inst;
	(void)flags;
	if (is(session->ref, "gate")) { /* what it was given must still be there, whoever has gone meanwhile */
		info.path = *path;
		pass_gate();
	}
	if (is(session->ref, "bad-kind"))
		info.kind = 0;
	if (is(session->ref, "bad-mode"))
		info.mode = 010000;
	if (is(session->ref, "any-bytes"))
		info.path = (struct berth_str){"d/\xff\n", 4};
	return host->emit_file(call, &info);
}

static bool no_secret(const char *option, size_t cap, int32_t code)
{
	char key[64];
	size_t len = 99;

	return host->secret(target, option, key, cap, &len) == code && len == 0;
}

/* Uses every service that takes no result. */
static int32_t use_services(struct berth_call *call)
{
	struct berth_call_info info = {.struct_size = sizeof(info)};
	struct berth_str text = zoo_str("hello");
	struct berth_pair pair = {zoo_str("Some-Key"), zoo_str("a value")};
	unsigned char random[16] = {0};
	char key[64];
	size_t len = 0;
	void *memory;

	host->log(target, call, BERTH_LOG_INFO, &text, &pair, 1);
	host->log(NULL, NULL, 99, NULL, NULL, 5);
	host->info(call, &info);
	host->random(random, sizeof(random));
	memory = host->alloc(1000);
	host->free(memory);
	host->free(NULL);
	host->counter(target, 0, 5);
	host->histogram(target, 1, 0.02);
	host->histogram(target, 1, 1000);
	host->counter(target, 1, 5);
	host->counter(target, 99, 5);
	host->changed(target);
	if (!memory || info.deadline_ns <= 0 || !is(info.request_id, "req-1") ||
	    !is(info.traceparent, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"))
		return BERTH_INTERNAL;
	if (host->secret(target, "api_key", key, sizeof(key), &len) || len != 32 || memcmp(key, "zoo-secret-", 11))
		return BERTH_UNAVAILABLE;
	if (!no_secret("api_key", 5, BERTH_INVALID) || !no_secret("wait", 64, BERTH_NOT_FOUND) ||
	    !no_secret("nosuch", 64, BERTH_NOT_FOUND))
		return BERTH_INVALID;
	return BERTH_OK;
}

static int32_t rude_release(void *inst, struct berth_call *call, const struct berth_session *session)
{
	(void)inst;
	if (is(session->ref, "gone"))
		return BERTH_NOT_FOUND;
	return is(session->ref, "services") ? use_services(call) : BERTH_OK;
}
