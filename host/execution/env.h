/* SPDX-License-Identifier: Apache-2.0 */
/* The environment file of a command: NUL-separated NAME=VALUE pairs. Pure. */
#ifndef EXECUTION_ENV_H
#define EXECUTION_ENV_H

#include <berth/types.h>

#include "core/arena.h"
#include "core/err.h"

/* Pairs point into `text`; the array is in the arena. A pair may end in a NUL or in the end of the text.
 * ERR_INVALID_REQUEST, reason env_ref, names the pair by its number and never shows a value. */
int env_parse(struct arena *arena, const char *text, size_t len, struct berth_pair **ret, size_t *ret_count,
	      struct err *err);

#endif
