/* SPDX-License-Identifier: Apache-2.0 */
/* One UTF-8 sequence at a time, by Unicode's table 3-7: no overlong forms, no surrogates, nothing past U+10FFFF. */
#ifndef CORE_UTF8_H
#define CORE_UTF8_H

#include <stddef.h>

/* Bytes of the valid sequence at ptr (1..4), 0 when there is none. len >= 1. */
size_t utf8_length(const char *ptr, size_t len);
/* Offset of the first byte that starts no valid sequence; len when all is valid. */
size_t utf8_valid_prefix(const char *ptr, size_t len);

#endif
