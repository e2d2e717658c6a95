/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that have ended and are to be forgotten beside what a request asks for: `forget` of execute and forget. */
#ifndef EXECUTOR_FORGET_H
#define EXECUTOR_FORGET_H

#include "call.h"

#define FORGET_MOST 32

/* Before anything is done: every member of args.forget is well-formed, and the answer will tell how many were
 * forgotten. Otherwise nothing is forgotten later either. */
int32_t forget_check(struct berth_call *call);
/* The first time only; what it meets does not change the result, and the request's own command is not among them. */
void forget_others(struct berth_call *call);

#endif
