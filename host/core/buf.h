/* SPDX-License-Identifier: Apache-2.0 */
/* A growable byte buffer with a maximum given at init. Errors stick: append freely, check `error` once. */
#ifndef CORE_BUF_H
#define CORE_BUF_H

#include <stddef.h>
#include <stdint.h>

struct buf {
	char *ptr; /* always NUL-terminated once anything was appended */
	size_t len;
	size_t cap;
	size_t max;
	int error; /* ERR_NOMEM, or ERR_PAYLOAD_TOO_LARGE past max */
};

void buf_init(struct buf *buf, size_t max);
void buf_fini(struct buf *buf);
void buf_clear(struct buf *buf); /* len and error to 0, memory kept */
int buf_append(struct buf *buf, const void *ptr, size_t len); /* 0 or buf->error */
int buf_puts(struct buf *buf, const char *str);
int buf_put_int(struct buf *buf, int64_t value); /* in decimal digits */
int buf_printf(struct buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_reserve(struct buf *buf, size_t more);
char *buf_take(struct buf *buf); /* hands the memory over (free), NULL on error; buf is empty afterwards */

#endif
