/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structured log: one line per event on standard error, "ts=… level=… msg=… key=value…" (values quoted when needed), or
 * JSON lines. The thread's request id and thread name are added. Any thread; a line is one write(2).
 */
#ifndef CORE_LOG_H
#define CORE_LOG_H

#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

struct log_field {
	const char *key; /* NULL ends the list */
	const char *str; /* NULL: num is the value */
	int64_t num;
	size_t len; /* of str; SIZE_MAX = strlen */
};
static inline const char *log_text(const char *str)
{
	return str ? str : "";
}
#define KS(k, s) ((struct log_field){.key = (k), .str = log_text(s), .len = SIZE_MAX})
#define KB(k, p, n) ((struct log_field){.key = (k), .str = log_text(p), .len = (n)})
#define KI(k, i) ((struct log_field){.key = (k), .num = (int64_t)(i)})

void log_init(enum log_level least, enum log_format format);
void log_emit(enum log_level level, const char *msg, const struct log_field *fields);
/* The same where a moment's delay does no harm, and one write(2) per line would: see log_batch.h. Under no lock of LOCK_LEAF. */
void log_emit_later(enum log_level level, const char *msg, const struct log_field *fields);
void log_write(const char *text, size_t len); /* whole lines, as they are; async-signal-safe */
int log_level_parse(const char *word); /* -1 when not a level */
#define LOG_REQUEST_MAX 128
/* The request id added to this thread's lines; copied and cut to LOG_REQUEST_MAX, "" or NULL clears it. */
void log_set_request(const char *request_id);
const char *log_request(void);
/* The traceparent of what this thread works on; not part of its lines. Cleared with the request id. */
void log_set_trace(const char *traceparent);
const char *log_trace(void);

#define log_with(level, msg, ...) log_emit((level), (msg), (const struct log_field[]){__VA_ARGS__})
#define log_at(level, ...) log_with(level, __VA_ARGS__, {0})
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)

#endif
