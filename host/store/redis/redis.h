/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to the Redis store: its connections, the scripts' calls, the cache of rows, the clock, and what the files
 * share. */
#ifndef STORE_REDIS_REDIS_H
#define STORE_REDIS_REDIS_H

#include <hiredis/hiredis.h>
#include <stdatomic.h>

#include "core/clock.h"
#include "core/secret.h"
#include "core/thread.h"
#include "store/ops.h"
#include "store/redis/scripts.h"

#define REDIS_SCHEMA 1
#define REDIS_SENTINELS_MAX 8
#define REDIS_TABLE_COUNTERS STORE_TABLE_COUNT /* counters are cached and checked as rows of one more table */
#define REDIS_HEAD 6			       /* elements that every answer of a script begins with */
#define REDIS_SEQ_BITS 21		       /* of a stream entry's number; the rest is its time */

/* ---- url.c: where Redis is ---- */

struct redis_address {
	char *host; /* or the path of a socket */
	int port;   /* 0: a socket */
};

struct redis_url {
	struct redis_address server;
	struct redis_address sentinels[REDIS_SENTINELS_MAX];
	size_t sentinel_count; /* 0: server is the master itself */
	char *master;	       /* the sentinels' name of it */
	char *user;	       /* NULL: none */
	struct secret *password;
	int database;
};

/* redis://[user:password@]host[:port][/db], unix://[user:password@]/path[?db=n],
 * redis+sentinel://[user:password@]host[:port],…/master[/db]. ERR_CONFIG, never with the password in it. */
int redis_url_parse(const char *text, struct redis_url *ret, struct err *err);
void redis_url_fini(struct redis_url *url);

/* ---- connections ---- */

/* One connection and the slot in which Redis remembers its last application; used by one thread at a time. */
struct rconn {
	redisContext *ctx; /* NULL: none, or it broke */
	struct redis_store *store;
	struct rconn *next; /* idle */
	struct arena *arena;
	unsigned slot;
	uint64_t number; /* of the last application */
	char run_id[48]; /* of the Redis it leads to */
	bool absorbs;	 /* in the middle of absorbing a jump of the clock */
	struct redis_run *run;
};

/* What Redis says of itself; see info.c. */
struct redis_info {
	char run_id[48], mode[16], role[16], policy[32], version[24];
	bool aof, cluster, loading;
};

struct redis_clock {
	int64_t base_ms, base_ns; /* store time at a moment of CLOCK_BOOTTIME; base_ns 0: not known yet */
	int64_t unsure_ms;	  /* the base may be so much behind: the answer it is of was so long on its way */
	int64_t last_ms;	  /* what was given out */
	int64_t moves;		  /* how often the offset had been moved when it was heard of last */
	int64_t agreed;		  /* the value of moves with which a sample agreed last; -1: none */
	int64_t quiet_ms;	  /* store time until which nobody reclaims, as all hosts know it */
	int64_t hold_ns;	  /* the same, of this process only: it was cut off */
};

struct row_cache;

/* An id that the store had; threads may still read it when another one has taken its place. */
struct redis_id {
	struct redis_id *before;
	char text[48];
};

struct redis_store {
	struct store base;
	_Atomic(struct redis_id *) id; /* NULL: not open yet */
	struct redis_url url;
	char *prefix, *deployment, *group;
	char *key;     /* of the store's own row; every script names it */
	char *applier; /* this opening's name of its slots */
	char *streams[STREAM_COUNT];
	unsigned min_acks;
	int64_t ack_wait_ms, hold_ms;
	/* Writes that may be on too few replicas, and how many of them a later one, which has enough, came after. */
	_Atomic unsigned unacked, made_up;
	bool is_volatile;
	char boot_id[37];
	char sha[SCRIPT_COUNT][41];
	struct row_cache *cache;

	struct lock lock; /* connections, and how Redis is */
	struct cond freed; /* a connection; one waiter for each */
	struct rconn *idle;
	unsigned conns, conns_max;
	struct cond changed; /* how Redis is */
	unsigned failures;	 /* attempts to connect that failed since one did not */
	int64_t try_ns, away_ns; /* when the next attempt is due; since when it is away (0: it is not) */
	bool trying;
	struct err trouble; /* of the last attempt */
	atomic_bool lost;   /* another store, or none, stands where ours was */

	struct lock clock_lock;
	struct redis_clock clock;
	int64_t marked_ns;  /* when the mark was last left */
	int64_t touched_ns; /* when the slots' time to live was last set */

	struct lock lane_lock; /* steps that met a conflict go one by one */
	struct cond lane_free;
	bool lane_taken;

	struct redis_listener *listener; /* NULL: nobody listens */
	atomic_bool hears;		 /* its subscription stands */
	atomic_uint others;		 /* messages of others that it heard */
	_Atomic int64_t alone_until_ns;	 /* until then nobody else hears notices, so none are sent; see listen.c */
};

static inline struct redis_store *redis_of(struct store *store)
{
	return (struct redis_store *)store;
}

/* wire.c: one connection. */
/* Connects, logs in, checks that it is a master; *ret_info says what it is. */
int wire_connect(struct rconn *conn, struct redis_info *ret_info, struct err *err);
void wire_drop(struct rconn *conn);
/* Drops a connection that was closed while it was idle, before anything is sent on it whose fate would not be known. */
void wire_check_idle(struct rconn *conn);
/* Sends a command and, after it, `then` unless NULL, which may take then_ms by itself; the answers in *ret (to be freed)
 * and *ret_then. WIRE_BROKEN: the connection is gone, and nobody knows whether the command was run. */
#define WIRE_BROKEN 1
struct wire_args {
	const char **ptr;
	size_t *len;
	int count, room;
	int error;
	bool writes; /* of a script: redis.min_acks replicas must have what it does */
};
int wire_send(struct rconn *conn, const struct wire_args *args, const struct wire_args *then, int64_t then_ms,
	      redisReply **ret, redisReply **ret_then, struct err *err);
void wire_arg(struct wire_args *args, const char *ptr, size_t len);
void wire_text(struct wire_args *args, const char *text);
void wire_fini(struct wire_args *args);
/* What an error of Redis means here: ERR_STORE with a reason, or ERR_CONFIG. *ret_again: it passes by itself. */
int wire_error(const char *text, bool *ret_again, struct err *err);

/* info.c */
void info_parse(const char *text, struct redis_info *ret);
/* Refusals at start, each with its sentence. */
int info_check(const struct redis_store *store, const struct redis_info *info, struct err *err);

/* conns.c */
struct rconn *conns_take(struct redis_store *store);
void conns_give(struct rconn *conn);
/* A connection that works, at the latest at until_ns; unless `patient`, it fails at once while Redis is known to be
 * away. */
int conns_connect(struct rconn *conn, int64_t until_ns, bool patient, struct err *err);
void conns_close(struct redis_store *store);
/* A pause of some ms at random, longer the more rounds there were. */
void conns_pause(const struct rconn *conn, unsigned round);
bool conns_healthy(struct store *base, struct err *err);

/* script.c */
int script_load(struct rconn *conn, struct err *err); /* the digests, once */
/* Runs a script: prefix and store id are put before `args`, which hold what follows them. The connection is made again
 * when it breaks; the script is sent again then, so it must bear that. *ret begins with REDIS_HEAD elements. */
int script_run(struct rconn *conn, enum redis_script script, const struct wire_args *args, redisReply **ret,
	       struct err *err);
/* The same on the connection as it is, once. WIRE_BROKEN when it broke. */
int script_once(struct rconn *conn, enum redis_script script, const struct wire_args *args, redisReply **ret,
		struct err *err);
const char *script_word(const redisReply *reply);
int64_t script_int(const redisReply *reply, size_t at); /* of element `at`; 0 when it is none */

/* guard.c: the clock. */
int64_t guard_now(struct redis_store *store);
/* Takes a sample: Redis' time lies between the two moments of this process. */
void guard_sample(struct rconn *conn, const redisReply *reply, int64_t sent_ns, int64_t got_ns);
/* With the answer of "open", that lies between the two moments. A clock that goes already goes on. */
int guard_start(struct rconn *conn, const redisReply *open, int64_t sent_ns, int64_t got_ns, struct err *err);
/* Leaves the clock's mark in the store, and tells it which Redis this is; on a connection that was just made. */
int guard_seen(struct rconn *conn, struct err *err);
void guard_mark(struct rconn *conn); /* every few seconds */
void guard_outage(struct redis_store *store);
int64_t guard_hold_ms(struct store *base);

/* cache.c: rows by table and key as they were last known, in any order of arrival. Any thread. */
struct cached_row {
	struct store_row row; /* doc NULL: there is none */
	int64_t rev;
};
struct row_cache *cache_new(size_t bytes_max);
void cache_free(struct row_cache *cache);
/* Copies into the arena. False: not known (or no memory). */
bool cache_get(struct row_cache *cache, unsigned table, const char *key, struct arena *arena, struct cached_row *ret);
/* asof: the store's last revision when the row was so; what is known of a later one stays. */
void cache_put(struct row_cache *cache, unsigned table, const struct cached_row *row, int64_t asof);
void cache_drop(struct row_cache *cache, unsigned table, const char *key);
void cache_clear(struct row_cache *cache);

/* row.c: rows as text. */
const char *row_table(unsigned table);
/* The part of a stored row after its revision: " <due> …" without the first blank. */
int row_tail(struct arena *arena, const struct store_row *row, const char **ret, size_t *ret_len);
/* Parses a stored row; bytes copied into the arena. */
/* Of an answer's element: a row, or none when it is nil. Into the cache, too. */
int row_take(struct rconn *conn, struct arena *arena, unsigned table, const char *key, const redisReply *element,
	     int64_t asof, struct cached_row *ret, struct err *err);
void seq_format(uint64_t seq, char ret_id[48], char ret_member[32]);
bool seq_parse(const char *id, uint64_t *ret);

/* What one run of a step has read. */
struct redis_run {
	unsigned cached;  /* rows from the cache */
	unsigned fetched; /* rows from Redis */
	struct redis_seen {
		enum store_stream stream;
		uint64_t seq;
	} * seqs; /* entries of streams that were handed out */
	size_t seq_count, seq_room;
};
bool run_has_seen(const struct redis_run *run, enum store_stream stream, uint64_t seq);

/* read.c: the reading half of the ops table. */
int redis_get(struct txn *txn, enum store_table table, const char *key, struct store_row *ret_row, int64_t *ret_rev,
	      struct err *err);
int redis_scan(struct txn *txn, enum store_table table, const char *group, const char *after, bool newest_first,
	       size_t limit, row_fn fn, void *arg, struct err *err);
int redis_scan_due(struct txn *txn, enum store_table table, int64_t upto, size_t limit, row_fn fn, void *arg,
		   struct err *err);
int redis_due_size(struct txn *txn, enum store_table table, int64_t *ret, struct err *err);
int redis_count(struct txn *txn, const char *name, int64_t *ret, struct err *err);
int redis_next(struct txn *txn, uint64_t *ret, struct err *err);

/* entries.c */
int redis_read_stream(struct txn *txn, enum store_stream stream, const char *subject, uint64_t after, size_t limit,
		      entry_fn fn, void *arg, struct err *err);
int redis_find_trim(struct txn *txn, enum store_stream stream, int64_t older_than_ms, size_t limit, size_t *ret_count,
		    uint64_t *ret_last, struct err *err);
int redis_stream_size(struct txn *txn, enum store_stream stream, int64_t *ret, struct err *err);
const char *entry_short(enum store_stream stream);
/* Does the document name its subject, so that no field has to? */
bool entry_names(const char *doc, size_t len, const char *subject);

/* apply.c: checks what a step read and applies what it wrote. APPLY_STALE: something is otherwise now; the cache knows.
 */
#define APPLY_STALE 1
int apply_step(struct rconn *conn, const struct txn *txn, bool writes, struct err *err);
/* The slots may be gone, and their time to live with them. */
void apply_untouch(struct redis_store *store);

/* step.c */
int step_update(struct store *base, store_step step, void *arg, struct err *err);
int step_view(struct store *base, store_step step, void *arg, struct err *err);

/* listen.c */
int redis_listen(struct store *base, void (*fn)(const char *key, void *arg), void *arg, struct err *err);
void redis_unlisten(struct redis_store *store);
/* Refuses, on a connection of its own, where the user may not use one of the channels. */
int redis_try_channels(struct redis_store *store, struct err *err);
/* So many heard the notices of a step; others: as store->others was before it was sent. */
void redis_heard_by(struct redis_store *store, int64_t receivers, unsigned others);

/* open.c */
const char *redis_id_of(const struct redis_store *store); /* "" before it is known */
extern const struct store_ops redis_ops;

#endif
