/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: one table, and finding the row for a method and path. Pure functions.
 */
#ifndef API_ROUTER_H
#define API_ROUTER_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"

struct req;

#define ROUTE_PARAMS 2

#define ROUTE_INLINE 1u	   /* answered on the loop thread: must not wait for anything */
#define ROUTE_LONG 2u	   /* may block for long: runs on the transfers' pool */
#define ROUTE_STREAM_IN 4u /* the handler runs while the body comes, and reads it with stream_read */
#define ROUTE_HEAD 8u	   /* HEAD is answered like this GET, without the bytes */
#define ROUTE_ALWAYS 16u   /* answered while the server stops, too */
#define ROUTE_EVERY_HOST 32u /* answered also by a host without the role api */

/* What a handler returns besides an error code. */
#define REQ_DONE 0
#define REQ_PARKED 1   /* it waits (wait.h); the handler is called again; req must not be touched any more */
#define REQ_STREAMED 2 /* the answer was given already; bytes may have followed */

/* The reference's codes where they differ from ours; answered as details.reference_code. NULL = the same. */
struct route_reference {
	const char *failed; /* a failure that is not the caller's */
	const char *away;   /* the store is not available */
	const char *not_found;
	const char *too_large;
	const char *conflict;
};

struct route {
	const char *method;  /* NULL ends the table */
	const char *pattern; /* "/sandbox/task/:id"; a ":name" segment is a parameter */
	unsigned scope;	     /* one SCOPE_ bit, or SCOPE_OPEN */
	unsigned flags;
	size_t body_max;			 /* 0: a body is refused; not looked at for STREAM_IN */
	const char *query;			 /* accepted query parameters, separated by spaces; NULL = none */
	const struct route_reference *reference; /* may be NULL */
	const char *audit;			 /* the action that its audit line names; NULL: no line */
	/* On the loop thread before the body is read: refuses what head and query already tell. May be NULL. */
	int (*check)(struct req *req, struct err *err);
	/* On the loop thread instead of the handler: answers when it can without waiting for anything. May be NULL. */
	bool (*quick)(struct req *req);
	/* On a worker (INLINE: on the loop thread). An error code, or REQ_… */
	int (*handler)(struct req *req, struct err *err);
};

struct route_match {
	const struct route *route;
	size_t param_count;
	struct {
		const char *name; /* in the pattern, not NUL-terminated */
		size_t name_len;
		const char *ptr; /* in the path, still encoded */
		size_t len;
	} params[ROUTE_PARAMS];
	char allow[64]; /* with ERR_METHOD_NOT_ALLOWED: value of the Allow header */
};

/* `path` is the request target up to '?', as it came. 0, ERR_NOT_FOUND or ERR_METHOD_NOT_ALLOWED. */
int router_find(const struct route *table, const char *method, const char *path, size_t len, struct route_match *ret,
		struct err *err);

#endif
