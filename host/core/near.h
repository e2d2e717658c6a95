/* SPDX-License-Identifier: Apache-2.0 */
/* How far a word is from another one: what "did you mean" goes by. Pure, any thread. */
#ifndef CORE_NEAR_H
#define CORE_NEAR_H

#include <stddef.h>

#define NEAR_SLIPS 2 /* what is further away is another word */

/* Letters to add, drop or change; SIZE_MAX for a `b` of 64 bytes or more. */
size_t near_distance(const char *a, const char *b);

#endif
