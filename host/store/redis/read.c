/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of a step: from the cache where it knows the row, else from Redis. Entered by the thread that runs the step, on
 * the connection it holds. What is handed out lives in the step's arena. Rows that a scan finds go into the cache,
 * since a step gets them again.
 */
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis.h"

#define PAGE_ROWS 256
#define PAGE_BYTES "4194304"

static void number_text(int64_t number, char ret[24])
{
	snprintf(ret, 24, "%lld", (long long)number);
}

static int run(struct txn *txn, enum redis_script script, struct wire_args *args, redisReply **ret, struct err *err)
{
	int rc;

	if (args->error != 0)
		rc = err_set(err, ERR_NOMEM, "no memory to talk to Redis");
	else
		rc = script_run(txn->conn, script, args, ret, err);
	wire_fini(args);
	return rc;
}

static int fetch(struct txn *txn, unsigned table, const char *key, struct cached_row *ret, struct err *err)
{
	struct rconn *conn = txn->conn;
	struct wire_args args = {0};
	redisReply *reply = NULL;
	int rc;

	wire_text(&args, row_table(table));
	wire_text(&args, key);
	rc = run(txn, SCRIPT_get, &args, &reply, err);
	if (rc == 0 && reply->elements != REDIS_HEAD + 1)
		rc = err_set(err, ERR_STORE, "the state store: an answer of Redis is not what it should be");
	if (rc == 0)
		rc = row_take(conn, txn->arena, table, key, reply->element[REDIS_HEAD], script_int(reply, 4), ret, err);
	freeReplyObject(reply);
	conn->run->fetched++;
	return rc;
}

static int get(struct txn *txn, unsigned table, const char *key, struct cached_row *ret, struct err *err)
{
	struct rconn *conn = txn->conn;

	if (cache_get(conn->store->cache, table, key, txn->arena, ret)) {
		conn->run->cached++;
		return 0;
	}
	return fetch(txn, table, key, ret, err);
}

int redis_get(struct txn *txn, enum store_table table, const char *key, struct store_row *ret_row, int64_t *ret_rev,
	      struct err *err)
{
	struct cached_row row;
	int rc = get(txn, table, key, &row, err);

	if (rc != 0)
		return rc;
	row.row.key = key; /* lives in the arena already */
	*ret_row = row.row;
	*ret_rev = row.rev;
	return 0;
}

int redis_count(struct txn *txn, const char *name, int64_t *ret, struct err *err)
{
	struct cached_row row;
	int rc = get(txn, REDIS_TABLE_COUNTERS, name, &row, err);

	if (rc == 0)
		*ret = strtoll(row.row.doc, NULL, 10);
	return rc;
}

int redis_due_size(struct txn *txn, enum store_table table, int64_t *ret, struct err *err)
{
	struct wire_args args = {0};
	redisReply *reply = NULL;
	int rc;

	wire_text(&args, row_table(table));
	rc = run(txn, SCRIPT_dues, &args, &reply, err);
	if (rc == 0)
		*ret = script_int(reply, REDIS_HEAD);
	freeReplyObject(reply);
	return rc;
}

int redis_next(struct txn *txn, uint64_t *ret, struct err *err)
{
	struct wire_args none = {0};
	redisReply *reply = NULL;
	int rc = run(txn, SCRIPT_next, &none, &reply, err);

	if (rc == 0)
		*ret = (uint64_t)script_int(reply, REDIS_HEAD);
	freeReplyObject(reply);
	return rc;
}

/* ---- scans ---- */

struct scan {
	struct txn *txn;
	enum store_table table;
	size_t left;
	row_fn fn;
	void *arg;
	bool ended; /* fn has seen enough */
	int64_t last_due;
	size_t last_due_count; /* rows of that due that were seen */
};

static int hand_out(struct scan *scan, const redisReply *key, const redisReply *text, int64_t asof, struct err *err)
{
	struct cached_row row;
	const char *name = arena_strndup(scan->txn->arena, key->str, (size_t)key->len);
	int rc;

	if (name == NULL)
		return err_set(err, ERR_NOMEM, "the step read more than it may hold; page through with `after`");
	rc = row_take(scan->txn->conn, scan->txn->arena, scan->table, name, text, asof, &row, err);
	if (rc != 0)
		return rc;
	scan->last_due_count = row.row.due_ms == scan->last_due ? scan->last_due_count + 1 : 1;
	scan->last_due = row.row.due_ms;
	scan->left--;
	scan->ended = !scan->fn(&row.row, scan->arg);
	return 0;
}

static int hand_out_all(struct scan *scan, const redisReply *reply, size_t from, struct err *err)
{
	int rc = 0;
	size_t i;

	for (i = from; rc == 0 && !scan->ended && scan->left > 0 && i + 1 < reply->elements; i += 2)
		rc = hand_out(scan, reply->element[i], reply->element[i + 1], script_int(reply, 4), err);
	return rc;
}

static size_t page_size(size_t left)
{
	return left < PAGE_ROWS ? left : PAGE_ROWS;
}

static bool has_more(const redisReply *reply)
{
	return script_int(reply, REDIS_HEAD) == 1;
}

int redis_scan(struct txn *txn, enum store_table table, const char *group, const char *after, bool newest_first,
	       size_t limit, row_fn fn, void *arg, struct err *err)
{
	struct scan scan = {.txn = txn, .table = table, .left = limit, .fn = fn, .arg = arg};
	const char *last = after;
	bool more = limit > 0 && (group == NULL || *group != '\0');
	redisReply *reply;
	char rows[24];
	int rc = 0;

	while (rc == 0 && more && !scan.ended && scan.left > 0) {
		struct wire_args args = {0};

		reply = NULL;
		number_text((int64_t)page_size(scan.left), rows);
		wire_text(&args, row_table(table));
		wire_text(&args, group != NULL ? group : "");
		wire_text(&args, last);
		wire_text(&args, newest_first ? "down" : "up");
		wire_text(&args, rows);
		wire_text(&args, PAGE_BYTES);
		rc = run(txn, SCRIPT_scan, &args, &reply, err);
		if (rc == 0) {
			more = has_more(reply);
			rc = hand_out_all(&scan, reply, REDIS_HEAD + 2, err);
		}
		if (rc == 0 && more)
			rc = txn_copy(txn, reply->element[REDIS_HEAD + 1]->str,
				      (size_t)reply->element[REDIS_HEAD + 1]->len, &last, err);
		freeReplyObject(reply);
	}
	return rc;
}

int redis_scan_due(struct txn *txn, enum store_table table, int64_t upto, size_t limit, row_fn fn, void *arg,
		   struct err *err)
{
	struct scan scan = {.txn = txn, .table = table, .left = limit, .fn = fn, .arg = arg};
	char from[24] = "", known[24], to[24], rows[24];
	bool more = limit > 0;
	redisReply *reply;
	int rc = 0;

	number_text(upto, to);
	while (rc == 0 && more && !scan.ended && scan.left > 0) {
		struct wire_args args = {0};

		reply = NULL;
		number_text((int64_t)page_size(scan.left), rows);
		number_text((int64_t)scan.last_due_count, known);
		wire_text(&args, row_table(table));
		wire_text(&args, from);
		wire_text(&args, known);
		wire_text(&args, to);
		wire_text(&args, rows);
		wire_text(&args, PAGE_BYTES);
		rc = run(txn, SCRIPT_due, &args, &reply, err);
		if (rc == 0) {
			more = has_more(reply) && reply->elements > REDIS_HEAD + 1;
			rc = hand_out_all(&scan, reply, REDIS_HEAD + 1, err);
		}
		freeReplyObject(reply);
		number_text(scan.last_due, from);
	}
	return rc;
}
