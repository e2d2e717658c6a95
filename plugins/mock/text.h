/* SPDX-License-Identifier: Apache-2.0 */
/* Small parsers, checks and clocks. Pure but for the clocks; any thread. */
#ifndef MOCK_TEXT_H
#define MOCK_TEXT_H

#include <berth/types.h>
#include <stdbool.h>
#include <string.h>

int64_t text_now_ms(void);  /* CLOCK_REALTIME, Unix ms */
int64_t text_boot_ns(void); /* CLOCK_BOOTTIME, as the deadlines of calls */

/* Decimal digits only, the whole text; false when it is anything else or does not fit. */
bool text_number(const char *text, uint64_t *ret);
/* A number with ms, s, m or h behind it, as milliseconds; a bare 0 is allowed. */
bool text_duration(const char *text, int64_t *ret_ms);
/* A number with nothing, KiB, MiB or GiB behind it, as bytes. */
bool text_size(const char *text, uint64_t *ret);

/* Copies a string of one line into dst; false when it does not fit or holds a control byte. */
bool text_copy(char *dst, size_t cap, struct berth_str src);
/* A part of a task identity: first alphanumeric, then alphanumeric or one of ". _ -", 1 to 128 bytes. */
bool text_ident(struct berth_str part);
/* A short stable word: [a-z0-9_], 1 to BERTH_REASON_MAX bytes. */
bool text_word(const char *text);

static inline struct berth_str text_str(const char *text)
{
	return (struct berth_str){.ptr = text, .len = strlen(text)};
}

#endif
