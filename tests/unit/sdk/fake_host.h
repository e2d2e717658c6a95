/* SPDX-License-Identifier: Apache-2.0 */
/* A host for tests of the SDK's library: records what an operation reports, feeds it, cancels it. */
#ifndef FAKE_HOST_H
#define FAKE_HOST_H

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <berth/host.h>

struct fake_file {
	char path[BERTH_PATH_MAX + 1];
	uint32_t kind;
	uint32_t mode;
	uint64_t size;
};

struct fake_bytes {
	char *ptr;
	size_t len;
	size_t cap;
};

struct berth_call {
	int64_t deadline_ns;
	atomic_uint cancel;
	int cancel_fd;
	unsigned int cancel_after; /* looks that still say no; 0 = only by hand */
	struct fake_bytes stream[3];
	atomic_size_t arrived; /* bytes of all streams, for other threads */
	bool discard;          /* count output, keep none */
	uint64_t discarded;
	struct berth_ending ending;
	char ending_reason[BERTH_REASON_MAX + 1];
	int endings;
	int fails;
	int logs;
	char log[256]; /* the last */
	int32_t code;
	char reason[64];
	char text[256];
	struct fake_file *files;
	size_t file_count;
	size_t file_limit; /* 0 = none: then emit_file answers QUOTA */
	const char *source;
	size_t source_len;
	size_t source_chunk; /* 0 = as much as fits */
	int32_t source_end;  /* code at the end */
	int32_t sink_code;   /* answered from the first byte on */
	uint64_t gap_from[3], gap_to[3];
	/* Called before each source_read and sink_write; for races. */
	void (*hook)(void *ctx);
	void *hook_ctx;
};

static inline int64_t fake_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void fake_log(struct berth_target *target, struct berth_call *call, uint32_t level, const struct berth_str *text,
		     const struct berth_pair *pairs, size_t count)
{
	(void)target, (void)level, (void)pairs, (void)count;
	call->logs++;
	snprintf(call->log, sizeof(call->log), "%.*s", (int)text->len, text->ptr);
}

static void fake_info(struct berth_call *call, struct berth_call_info *ret_info)
{
	ret_info->deadline_ns = call->deadline_ns;
}

static int32_t fake_fail(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable,
			 int64_t retry_after_ms, const char *text)
{
	(void)retryable, (void)retry_after_ms;
	call->fails++;
	call->code = code;
	assert_true(strlen(reason) <= BERTH_REASON_MAX);
	snprintf(call->reason, sizeof(call->reason), "%s", reason);
	snprintf(call->text, sizeof(call->text), "%s", text);
	return code;
}

static int32_t fake_emit_ending(struct berth_call *call, const struct berth_ending *ending)
{
	call->endings++;
	call->ending = *ending;
	snprintf(call->ending_reason, sizeof(call->ending_reason), "%.*s", (int)ending->reason.len, ending->reason.ptr);
	return BERTH_OK;
}

static int32_t fake_emit_file(struct berth_call *call, const struct berth_file_info *info)
{
	struct fake_file *file;

	if (call->file_limit && call->file_count == call->file_limit)
		return BERTH_QUOTA;
	call->files = realloc(call->files, (call->file_count + 1) * sizeof(*call->files));
	assert_non_null(call->files);
	file = &call->files[call->file_count++];
	*file = (struct fake_file){.kind = info->kind, .mode = info->mode, .size = info->size};
	snprintf(file->path, sizeof(file->path), "%.*s", (int)info->path.len, info->path.ptr);
	return BERTH_OK;
}

static int32_t fake_gap(struct berth_call *call, uint32_t stream, uint64_t from, uint64_t to)
{
	call->gap_from[stream] = from;
	call->gap_to[stream] = to;
	return BERTH_OK;
}

static int32_t fake_sink_write(struct berth_call *call, uint32_t stream, const void *ptr, size_t len)
{
	struct fake_bytes *bytes = &call->stream[stream];

	if (call->hook)
		call->hook(call->hook_ctx);
	if (call->sink_code)
		return call->sink_code;
	atomic_fetch_add(&call->arrived, len);
	if (call->discard) {
		call->discarded += len;
		return BERTH_OK;
	}
	if (bytes->len + len > bytes->cap) {
		bytes->cap = (bytes->len + len) * 2;
		bytes->ptr = realloc(bytes->ptr, bytes->cap);
		assert_non_null(bytes->ptr);
	}
	memcpy(bytes->ptr + bytes->len, ptr, len);
	bytes->len += len;
	return BERTH_OK;
}

static int32_t fake_source_read(struct berth_call *call, void *buf, size_t cap, size_t *ret_len)
{
	size_t n = call->source_chunk && call->source_chunk < cap ? call->source_chunk : cap;

	if (call->hook)
		call->hook(call->hook_ctx);
	if (call->source_len == 0) {
		*ret_len = 0;
		return call->source_end;
	}
	n = n < call->source_len ? n : call->source_len;
	memcpy(buf, call->source, n);
	call->source += n;
	call->source_len -= n;
	*ret_len = n;
	return BERTH_OK;
}

static uint32_t fake_cancel_state(struct berth_call *call)
{
	if (call->cancel_after && --call->cancel_after == 0)
		atomic_store(&call->cancel, BERTH_CANCEL_STOP);
	return atomic_load(&call->cancel);
}

static int32_t fake_cancel_fd(struct berth_call *call)
{
	return call->cancel_fd;
}

static void fake_random(void *buf, size_t len)
{
	assert_int_equal(getrandom(buf, len, 0), len);
}

static const struct berth_host fake_host __attribute__((unused)) = {
	.struct_size = sizeof(fake_host),
	.log = fake_log,
	.info = fake_info,
	.fail = fake_fail,
	.emit_ending = fake_emit_ending,
	.emit_file = fake_emit_file,
	.gap = fake_gap,
	.sink_write = fake_sink_write,
	.source_read = fake_source_read,
	.cancel_state = fake_cancel_state,
	.cancel_fd = fake_cancel_fd,
	.random = fake_random,
};

static inline void fake_call_init(struct berth_call *call)
{
	memset(call, 0, sizeof(*call));
	call->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert_true(call->cancel_fd >= 0);
	call->deadline_ns = fake_now_ns() + INT64_C(60000000000);
}

static inline void fake_call_fini(struct berth_call *call)
{
	close(call->cancel_fd);
	for (int i = 0; i < 3; i++)
		free(call->stream[i].ptr);
	free(call->files);
}

static inline void fake_cancel(struct berth_call *call, uint32_t state)
{
	uint64_t one = 1;

	atomic_store(&call->cancel, state);
	assert_int_equal(write(call->cancel_fd, &one, sizeof(one)), sizeof(one));
}

static inline struct berth_str fake_str(const char *text)
{
	return (struct berth_str){text, strlen(text)};
}

/* Waits for a condition, without a fixed sleep: looks again every 2 ms for at most 20 s. */
#define FAKE_WAIT(condition)                                                                                           \
	do {                                                                                                           \
		int64_t fake_until = fake_now_ns() + INT64_C(20000000000);                                             \
		while (!(condition)) {                                                                                 \
			if (fake_now_ns() > fake_until)                                                                \
				fail_msg("waited 20 s for: %s", #condition);                                           \
			poll(NULL, 0, 2);                                                                              \
		}                                                                                                      \
	} while (0)

#endif
