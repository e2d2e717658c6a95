/* SPDX-License-Identifier: Apache-2.0 */
/* Names: task identities, ids made here, and the one path rule. Pure functions, any thread. */
#ifndef CORE_IDENT_H
#define CORE_IDENT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

#define IDENT_PART_MAX 128
#define IDENT_KEY_MAX (2 * IDENT_PART_MAX + 1)
#define IDENT_PATH_MAX 1024
#define IDENT_PATH_PART_MAX 255

/* The pair (workspace_id, task_id). */
struct ident {
	char workspace[IDENT_PART_MAX + 1];
	char task[IDENT_PART_MAX + 1];
};

/* First [A-Za-z0-9], then [A-Za-z0-9._-], 1..128 bytes. */
bool ident_part_valid(const char *ptr, size_t len);
/* Checks both parts; the error names the field that is wrong. */
int ident_make(struct ident *ret, const char *workspace, const char *task, struct err *err);
/* "workspace/task": the key of its row ('/' is in no part). */
void ident_key(const struct ident *ident, char ret_key[IDENT_KEY_MAX + 1]);
bool ident_equal(const struct ident *a, const struct ident *b);

/* prefix + count lower-case hex digits from the system's random source: "sexec_" 24, "evt_" 24, "" 32 for an intent. */
#define IDENT_ID_MAX 47
void ident_random(char ret_id[IDENT_ID_MAX + 1], const char *prefix, size_t count);
bool ident_is_random(const char *text, const char *prefix, size_t count);

/* The one path rule: relative, canonical, no "..", no backslash, no control bytes, 1..1024 bytes, components of 1..255
 * bytes, valid UTF-8. Refused, never repaired. `field` is named in the error. "." alone only when dot_ok. */
int ident_path_check(const char *field, const char *ptr, size_t len, bool dot_ok, struct err *err);
bool ident_utf8_valid(const char *ptr, size_t len);

#endif
