/* SPDX-License-Identifier: Apache-2.0 */
/* The codes of berth/types.h as words, for whoever writes or reads them as such: a row per code. Not installed. */
#ifndef SDK_CODES_H
#define SDK_CODES_H

#include <berth/types.h>

/* X(name, word, HTTP status of an executor's answer) */
#define CODES(X)					\
	X(OK, "ok", 200)				\
	X(INVALID, "invalid", 400)			\
	X(NOT_FOUND, "not_found", 404)			\
	X(NOT_STARTED, "not_started", 404)		\
	X(CONFLICT, "conflict", 409)			\
	X(CAPACITY, "capacity", 503)			\
	X(QUOTA, "quota", 429)				\
	X(RATE_LIMITED, "rate_limited", 429)		\
	X(UNAUTHENTICATED, "unauthenticated", 401)	\
	X(FORBIDDEN, "forbidden", 403)			\
	X(UNAVAILABLE, "unavailable", 503)		\
	X(TIMEOUT, "timeout", 504)			\
	X(CANCELLED, "cancelled", 499)			\
	X(SESSION_LOST, "session_lost", 410)		\
	X(UNSUPPORTED, "unsupported", 501)		\
	X(UNKNOWN, "unknown", 500)			\
	X(STORAGE_FULL, "storage_full", 507)		\
	X(INTERNAL, "internal", 500)

#define CODES_ONE(name, word, status) +1
_Static_assert(0 CODES(CODES_ONE) == BERTH_CODE_MAX + 1, "every code has a row");
#undef CODES_ONE

#endif
