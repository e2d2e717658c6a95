/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal: what a store implementation provides, and the transaction that buffers a step's writes on top of it.
 *
 * An implementation runs a step like this: txn_init, step(txn, arg), txn_end (turns what the step ignored into an
 * error), then applies txn->rows, txn->counts and txn->streams as one atomic unit. Every row the step read carries the
 * revision it had, so that an optimistic store can check them with the same script that applies the writes.
 */
#ifndef STORE_OPS_H
#define STORE_OPS_H

#include "store/store.h"

#define STORE_MAGIC 0x5354524du
#define TXN_MAGIC 0x54584e4du
#define STORE_KEY_MAX 1280 /* bytes of a key, group, subject or counter name */
#define STORE_RESERVED "store." /* rows of META and counters that belong to the store itself */

enum txn_change { TXN_READ, TXN_PUT, TXN_DELETE };

/* One row the step read or wrote: what it was (when known) and what it will be. */
struct txn_row {
	struct txn_row *next;  /* in the order of first use */
	struct txn_row *chain; /* of its hash bucket */
	uint32_t hash;
	enum store_table table;
	bool known;	       /* base and rev were read */
	int64_t rev;	       /* 0: there was no such row */
	struct store_row base; /* key always set */
	enum txn_change change;
	struct store_row row; /* after the step's own writes */
};

struct txn_count {
	struct txn_count *next;
	const char *name;
	bool known; /* base was read */
	int64_t base;
	int64_t delta;
};

enum txn_stream_op { TXN_APPEND, TXN_ACK, TXN_ACK_SUBJECT, TXN_FORGET_SUBJECT, TXN_TRIM };

struct txn_stream {
	struct txn_stream *next;
	enum txn_stream_op op;
	enum store_stream stream;
	uint64_t seq;	     /* ACK: the entry; TRIM: the last one to go */
	const char *subject; /* APPEND, ACK_SUBJECT, FORGET_SUBJECT */
	const char *doc;
	size_t doc_len;
};

struct txn_notice {
	struct txn_notice *next;
	const char *key;
};

struct txn {
	unsigned magic;
	const struct store_ops *ops;
	void *conn; /* the implementation's */
	struct arena *arena;
	int64_t now_ms;
	bool read_only;
	const char *fresh; /* NULL, or a key that has no row yet */
	struct err failed; /* a failure the step may have ignored: it must not commit */
	struct txn_row *rows, **rows_end;
	struct txn_row **buckets;
	size_t bucket_count, row_count;
	struct txn_count *counts, **counts_end;
	struct txn_stream *streams, **streams_end;
	struct txn_notice *notices; /* in no order */
};

typedef bool (*row_fn)(const struct store_row *row, void *arg);
typedef bool (*entry_fn)(const struct stream_entry *entry, void *arg);

/* Reads run in the thread of the step, on txn->conn; what they hand out lives in txn->arena. They see what is stored,
 * not the step's own writes. */
struct store_ops {
	const char *name;
	bool exclusive; /* one process per store */
	int (*update)(struct store *store, store_step step, void *arg, struct err *err);
	int (*view)(struct store *store, store_step step, void *arg, struct err *err);
	int (*now)(struct store *store, int64_t *ret_ms, struct err *err);
	bool (*healthy)(struct store *store, struct err *err);
	void (*close)(struct store *store); /* frees the store */
	int64_t (*hold_ms)(struct store *store); /* NULL: never holds */
	/* NULL: the id of the store never changes, and it cannot be lost while it is open. */
	const char *(*id)(const struct store *store);
	bool (*lost)(struct store *store);
	int (*renew)(struct store *store, bool begin, struct err *err);
	/* NULL: there is no other process to hear or tell. fn NULL ends it. */
	int (*listen)(struct store *store, void (*fn)(const char *key, void *arg), void *arg, struct err *err);
	/* Absent: ret_row->doc NULL and *ret_rev 0. */
	int (*get)(struct txn *txn, enum store_table table, const char *key, struct store_row *ret_row,
		   int64_t *ret_rev, struct err *err);
	int (*scan_due)(struct txn *txn, enum store_table table, int64_t upto, size_t limit, row_fn fn, void *arg,
			struct err *err);
	int (*due_size)(struct txn *txn, enum store_table table, int64_t *ret, struct err *err);
	int (*scan)(struct txn *txn, enum store_table table, const char *group, const char *after, bool newest_first,
		    size_t limit, row_fn fn, void *arg, struct err *err);
	/* subject NULL: of all. */
	int (*read_stream)(struct txn *txn, enum store_stream stream, const char *subject, uint64_t after, size_t limit,
			   entry_fn fn, void *arg, struct err *err);
	/* The oldest entries, at most limit, that are older; *ret_last is the last of them. */
	int (*find_trim)(struct txn *txn, enum store_stream stream, int64_t older_than_ms, size_t limit,
			 size_t *ret_count, uint64_t *ret_last, struct err *err);
	int (*stream_size)(struct txn *txn, enum store_stream stream, int64_t *ret, struct err *err);
	int (*count_get)(struct txn *txn, const char *name, int64_t *ret, struct err *err);
	int (*next)(struct txn *txn, uint64_t *ret, struct err *err);
};

/* First member of every implementation's store. */
struct store {
	unsigned magic;
	const struct store_ops *ops;
	char id[33];
	bool is_new;
};

/* The arena is borrowed; txn_init resets it. */
void txn_init(struct txn *txn, const struct store_ops *ops, void *conn, struct arena *arena, int64_t now_ms,
	      bool read_only);
/* The verdict on a step that returned rc: rc, or the failure the step swallowed. */
int txn_end(const struct txn *txn, int rc, struct err *err);
bool txn_has_writes(const struct txn *txn);
bool store_table_is_whole(enum store_table table);
/* Copies bytes into the arena with a NUL after them; ERR_NOMEM past its cap. */
int txn_copy(struct txn *txn, const void *ptr, size_t len, const char **ret, struct err *err);

#endif
