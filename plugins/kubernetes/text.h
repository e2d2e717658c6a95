/* SPDX-License-Identifier: Apache-2.0 */
/* Growing texts, encodings, clocks and the plugin's own error. Pure but for the clocks; any thread. */
#ifndef KUBERNETES_TEXT_H
#define KUBERNETES_TEXT_H

#include <berth/types.h>
#include <stdbool.h>
#include <stdint.h>

/* What went wrong, in words of the ABI, until an operation hands it to the host. */
struct kerr {
	int32_t code;
	bool told; /* the host's own HTTP service has explained it */
	bool retryable;
	int64_t retry_after_ms;
	char reason[BERTH_REASON_MAX + 1];
	char text[600];
};

/* Returns code. Retryable is what the code usually is; say otherwise afterwards. */
int32_t kerr_set(struct kerr *err, int32_t code, const char *reason, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* A text that grows to at most `max` bytes; after that, or without memory, `bad` is set and it stays as it was. Always
 * ends in NUL once something was added. */
struct buf {
	char *ptr;
	size_t len, cap, max;
	bool bad;
};

void buf_put(struct buf *buf, const void *ptr, size_t len);
void buf_add(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_percent(struct buf *buf, const char *text); /* everything but unreserved bytes percent-encoded */
void buf_wipe(struct buf *buf);			     /* frees, after overwriting */

struct berth_str str_of(const char *text); /* NULL is empty */
bool str_is(struct berth_str text, const char *word);
bool text_is_utf8(struct berth_str text);
char *str_dup(struct berth_str text); /* NULL: no memory, or it holds a NUL */

/* Lower-case base32 without padding: 8 characters for 5 bytes. cap holds the NUL too. */
void text_base32(const void *ptr, size_t len, char *ret, size_t cap);
/* SHA-256 over count parts, each preceded by its length, so that no two lists of parts share a digest by their joints.
 * False: libcrypto has no memory. */
bool text_sha256(const char *const *parts, size_t count, unsigned char ret[32]);
/* Standard base64 with padding, white space allowed. NULL: malformed or no memory; else to be freed. */
void *text_base64(const char *text, size_t *ret_len);

int64_t text_now_ms(void);  /* Unix ms */
int64_t text_boot_ns(void); /* CLOCK_BOOTTIME */
/* RFC 3339 in UTC, as Kubernetes writes it ("2026-01-02T03:04:05Z", fractions allowed); 0: not one. */
int64_t text_time_ms(const char *text);
void text_time(int64_t ms, char ret[32]);
/* A Kubernetes quantity ("500m", "1.5Gi", "1e9"), in thousandths; false: not one, negative, or too large. */
bool text_quantity(const char *text, uint64_t *ret_milli);

#endif
