/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Range header, one range of bytes. Pure.
 */
#ifndef API_RANGE_H
#define API_RANGE_H

#include <stdint.h>

struct range {
	uint64_t from;
	uint64_t until; /* past the last byte */
};

enum range_kind {
	RANGE_NONE, /* absent, another unit, several ranges or not understood: the whole is the right answer */
	RANGE_PART,
	RANGE_UNSATISFIABLE,
};

/* `ret` is written with RANGE_PART only. */
enum range_kind range_parse(const char *header, uint64_t size, struct range *ret);

#endif
