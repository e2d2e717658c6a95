/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time. Deadlines inside a process use clock_boot_ns (CLOCK_BOOTTIME: counts through suspend, never jumps). Wall time is
 * only for people and for the first guess of a new store's clock; stored deadlines use the store's clock (store/clock.h).
 */
#ifndef CORE_CLOCK_H
#define CORE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define CLOCK_NS_PER_MS INT64_C(1000000)
#define CLOCK_NS_PER_S INT64_C(1000000000)

int64_t clock_boot_ns(void);
int64_t clock_wall_ms(void);
/* boot_ns + ms, saturating; ms < 0 or INT64_MAX = never. */
int64_t clock_after_ms(int64_t ms);
int64_t clock_left_ms(int64_t deadline_ns); /* >= 0 */
/* ms and up to a quarter of it more, by the salt, saturating: what was told one time together does not come back together. */
int64_t clock_spread_ms(int64_t ms, uint64_t salt);
/* The kernel's boot id, 36 characters and NUL. */
void clock_boot_id(char ret_id[37]);
/* RFC 3339 in UTC with milliseconds, "2026-11-29T10:00:00.123Z"; 0 gives "". */
void clock_format(int64_t unix_ms, char ret_text[32]);
int clock_parse(const char *text, int64_t *ret_unix_ms); /* 0 or ERR_INVALID_REQUEST */
/* "15m", "1h30m", "500ms", "2s", "0"; units ms s m h d. 0 or ERR_INVALID_REQUEST (also overflow, sign, no unit). */
int clock_parse_duration(const char *text, int64_t *ret_ms);
void clock_format_duration(int64_t ms, char ret_text[32]);

#endif
