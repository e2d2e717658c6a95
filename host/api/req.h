/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request: what it asked, who asked, the answer being made. References: the connection holds one until the request
 * is over, each job or wait under way holds one. A handler may use everything here but the fields marked private.
 */
#ifndef API_REQ_H
#define API_REQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/hangup.h"
#include "api/head.h"
#include "api/router.h"
#include "api/stream.h"
#include "api/uri.h"
#include "conf/conf.h"
#include "core/arena.h"
#include "core/buf.h"
#include "core/err.h"
#include "core/trace.h"
#include "core/watch.h"

struct conn;
struct server;
struct auth_set;
struct signed_token;

#define REQ_ID_MAX 64
#define REQ_KEY_MAX 300 /* a watch key */
#define REPLY_HEADERS 8

struct reply {
	unsigned status;
	struct buf body;
	const char *content_type; /* NULL: none */
	size_t header_count;
	struct {
		const char *name;
		const char *value; /* in the arena */
	} headers[REPLY_HEADERS];
	bool stream;   /* the bytes come through the window instead of `body` */
	uint64_t size; /* of a stream; UINT64_MAX = not known */
	bool close;
};

/* Bounds of what one request waits for; see wait.h. */
struct req_wait {
	struct watch_waiter waiter;
	atomic_int gate;
	/* NULL, or what a handler sets before it waits: tries to make the answer on the thread that brings the notice,
	 * without waiting for anything. False: nothing was made, the handler is entered again. */
	bool (*quick)(struct req *req);
	char key[REQ_KEY_MAX];
};

enum req_phase { REQ_HEAD, REQ_BODY, REQ_DISCARD, REQ_LINGER, REQ_WORK, REQ_SENT };

struct req {
	void *ctx; /* of the server: what handlers work on */
	char id[REQ_ID_MAX + 1];
	char trace[TRACE_MAX + 1]; /* what is passed on */
	struct arena *arena;
	struct head head;
	const struct route *route;
	const char *method;
	struct {
		const char *name;
		const char *value;
	} params[ROUTE_PARAMS];
	size_t param_count;
	struct uri_query query;
	struct auth_set *auth;		/* what `token` is of */
	const struct conf_token *token; /* NULL on an open route */
	const struct signed_token *sig; /* what `token` was made from, when it was a signed one */
	struct buf body;		/* empty for STREAM_IN, and once the request has waited */
	struct reply reply;
	struct {
		const char *workspace, *task, *object; /* NULL: not known */
	} audit;
	const char *client;  /* its address, as far as proxies are trusted */
	const char *details; /* members of the error's "details" object, or NULL */
	void *state;	     /* a handler's own, between calls of it; in the arena */
	void (*state_fini)(void *state);
	int64_t begun_ns;

	/* private */
	struct server *server;
	struct req *next, *prev; /* of the server's list */
	atomic_uint refs;
	atomic_bool hurried;
	enum req_phase phase;		       /* loop thread */
	const char *target;		       /* as it came */
	const char *target_begin, *target_end; /* where it stood in the library's buffer; to compare only */
	struct conn *conn;		       /* loop thread, until the request is over */
	struct stream stream;
	struct hangup_entry hangup;
	struct req_wait wait;
	int (*pump)(struct req *req); /* fills the window of an answer on demand; see req_answer_pulled */
	atomic_bool follows;	      /* a live stream: a client that hangs up ends it */
	uint64_t lingered;
	atomic_uint_fast64_t sent;
	size_t body_charged;
};

struct req *req_new(struct server *server, const char *target);
void req_ref(struct req *req);
void req_unref(struct req *req);
/* Gives the body and its part of what bodies may take back. By whoever owns the request. */
void req_drop_body(struct req *req);

/* ---- what was asked ---- */
const char *req_param(const struct req *req, const char *name); /* never NULL for a name of the pattern */
const char *req_query(const struct req *req, const char *name); /* NULL when absent */
int req_query_need(const struct req *req, const char *name, const char **ret, struct err *err);
int req_query_bool(const struct req *req, const char *name, bool absent, bool *ret, struct err *err);
int req_query_number(const struct req *req, const char *name, int64_t min, int64_t max, int64_t absent, int64_t *ret,
		     struct err *err);
/* A place in a stream, which a store may number by time: all of 64 bits. False: it is none. */
bool req_place(const char *text, uint64_t *ret);
/* ?wait=30s, at most LIMIT_WAIT_MS; a deadline on clock_boot_ns into ret. */
int req_query_wait(const struct req *req, int64_t absent_ms, int64_t *ret_deadline_ns, struct err *err);
/* workspace_id of the query (or the token's only one), checked against the token. */
int req_workspace(const struct req *req, const char **ret, struct err *err);

/* What the audit line of this request names; copied. NULL leaves what was there. */
void req_audit(struct req *req, const char *workspace, const char *task, const char *object);

/* ---- the answer ---- */
void req_header(struct req *req, const char *name, const char *value);
/* Body already in req->reply.body. */
void req_json(struct req *req, unsigned status);
void req_empty(struct req *req, unsigned status);
/* Replaces whatever was there by the error's body. Logs what the caller is not told. */
void req_error(struct req *req, const struct err *err);
/* The head is ready now, bytes follow with stream_write and end with stream_write_end; the handler then returns
 * REQ_STREAMED. */
void req_answer_stream(struct req *req, unsigned status, const char *content_type, uint64_t size);
/* The same, but the bytes are asked for: pump runs on a worker whenever the window is empty, fills it without
 * waiting and returns REQ_DONE (call stream_pumped first) or REQ_PARKED (wait.h). */
void req_answer_pulled(struct req *req, unsigned status, const char *content_type, uint64_t size,
		       int (*pump)(struct req *req));

#endif
