/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the daemon's log lines. Any thread enters; a line is built apart and leaves by one write(2), so lines never mix; those
 * of log_emit_later leave together (log_batch.c). Never blocks on a lock but for these, never changes errno, and never
 * writes a byte that could end the line or drive a terminal.
 */
#include "core/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/buf.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/log_batch.h"
#include "core/trace.h"

#define LINE_MAX_BYTES ((size_t)64 * 1024)
#define VALUE_MAX_BYTES ((size_t)4096) /* of one value; the rest is counted, see put_value */

static _Atomic int least_level = LOG_INFO;
static _Atomic int line_format = LOG_LOGFMT;
static _Thread_local char request[LOG_REQUEST_MAX + 1];
static _Thread_local char trace[TRACE_MAX + 1];
static _Thread_local char thread_name[16];

static const char *const level_words[] = {
	[LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};

void log_init(enum log_level least, enum log_format format)
{
	atomic_store(&least_level, (int)least);
	atomic_store(&line_format, (int)format);
}

int log_level_parse(const char *word)
{
	for (int i = LOG_DEBUG; word && i <= LOG_ERROR; i++) {
		if (strcmp(word, level_words[i]) == 0)
			return i;
	}
	return -1;
}

static void keep(char *to, size_t size, const char *text)
{
	size_t len = text ? strnlen(text, size - 1) : 0;

	if (len)
		memcpy(to, text, len);
	to[len] = '\0';
}

void log_set_request(const char *request_id)
{
	keep(request, sizeof(request), request_id);
	if (!*request)
		trace[0] = '\0';
}

void log_set_trace(const char *traceparent)
{
	keep(trace, sizeof(trace), traceparent);
}

const char *log_trace(void)
{
	return trace;
}

const char *log_request(void)
{
	return request;
}

static const char *current_thread_name(void)
{
	if (!thread_name[0] && pthread_getname_np(pthread_self(), thread_name, sizeof(thread_name)) != 0)
		snprintf(thread_name, sizeof(thread_name), "?");
	return thread_name;
}

static bool is_bare(const char *ptr, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)ptr[i];

		if (c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\')
			return false;
	}
	return len > 0;
}

static void put_key(struct buf *line, const char *key, bool json)
{
	if (!json) {
		if (line->len)
			buf_puts(line, " ");
		buf_puts(line, key);
		buf_puts(line, "=");
		return;
	}
	buf_puts(line, line->len ? "," : "{");
	json_put_string(line, key, strlen(key));
	buf_puts(line, ":");
}

static void put_value(struct buf *line, const char *ptr, size_t len, bool json)
{
	size_t kept = len < VALUE_MAX_BYTES ? len : VALUE_MAX_BYTES;

	if (!json && is_bare(ptr, kept))
		buf_append(line, ptr, kept);
	else
		json_put_string(line, ptr, kept);
}

static void put_number(struct buf *line, const char *key, int64_t num, bool json)
{
	put_key(line, key, json);
	buf_put_int(line, num);
}

static void put_string(struct buf *line, const char *key, const char *ptr, size_t len, bool json)
{
	char cut_key[64];

	put_key(line, key, json);
	put_value(line, ptr, len, json);
	if (len > VALUE_MAX_BYTES) {
		snprintf(cut_key, sizeof(cut_key), "%.50s_cut_bytes", key);
		put_number(line, cut_key, (int64_t)(len - VALUE_MAX_BYTES), json);
	}
}

static void put_head(struct buf *line, enum log_level level, const char *msg, bool json)
{
	char ts[32];

	clock_format(clock_wall_ms(), ts);
	put_string(line, "ts", ts, strlen(ts), json);
	put_string(line, "level", level_words[level], strlen(level_words[level]), json);
	put_string(line, "msg", msg, strlen(msg), json);
	put_string(line, "thread", current_thread_name(), strlen(current_thread_name()), json);
	if (request[0])
		put_string(line, "request", request, strlen(request), json);
}

/* A failed write has nobody left to be told. What a pipe took only in part is sent on, or the line would lose its end. */
void log_write(const char *ptr, size_t len)
{
	while (len) {
		ssize_t n = write(STDERR_FILENO, ptr, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		ptr += n;
		len -= (size_t)n;
	}
}

static void emit_line(struct buf *line, enum log_level level, const char *msg, const struct log_field *fields,
		      bool json)
{
	put_head(line, level, msg, json);
	for (; fields && fields->key; fields++) {
		if (fields->str)
			put_string(line, fields->key, fields->str,
				   fields->len == SIZE_MAX ? strlen(fields->str) : fields->len, json);
		else
			put_number(line, fields->key, fields->num, json);
	}
	buf_puts(line, json ? "}\n" : "\n");
}

static void emit(enum log_level level, const char *msg, const struct log_field *fields, bool later)
{
	static const char lost[] = "level=error msg=\"a log line was lost: too long or out of memory\"\n";
	static const char lost_json[] =
		"{\"level\":\"error\",\"msg\":\"a log line was lost: too long or out of memory\"}\n";
	int saved = errno;
	bool json = atomic_load_explicit(&line_format, memory_order_relaxed) == LOG_JSON;
	struct buf line;

	if ((int)level < atomic_load_explicit(&least_level, memory_order_relaxed))
		return;
	buf_init(&line, LINE_MAX_BYTES);
	emit_line(&line, level, msg, fields, json);
	if (line.error)
		log_write(json ? lost_json : lost, json ? sizeof(lost_json) - 1 : sizeof(lost) - 1);
	else if (!later || !log_batch_add(line.ptr, line.len))
		log_write(line.ptr, line.len);
	buf_fini(&line);
	errno = saved;
}

void log_emit(enum log_level level, const char *msg, const struct log_field *fields)
{
	emit(level, msg, fields, false);
}

void log_emit_later(enum log_level level, const char *msg, const struct log_field *fields)
{
	emit(level, msg, fields, true);
}
