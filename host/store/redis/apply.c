/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a step: one script that checks every row it read and applies what it wrote. Entered by the thread that
 * runs the step. What Redis answers goes into the cache, so that a step that met a conflict finds the rows there.
 */
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "obs/metrics.h"
#include "store/redis/redis.h"

#define SLOTS_KEPT_S "86400"
#define TOUCH_EVERY_NS (3600 * CLOCK_NS_PER_S)

struct building {
	struct rconn *conn;
	const struct txn *txn;
	struct wire_args args;
	bool writes;
	bool touches;	 /* it sets the slots' time to live, if it is applied */
	unsigned others; /* messages that were heard before it was sent */
};

static void put_number(struct building *b, int64_t number)
{
	const char *text = arena_printf(b->txn->arena, "%lld", (long long)number);

	if (text == NULL)
		b->args.error = ERR_NOMEM;
	else
		wire_text(&b->args, text);
}

/* There was never a row of that key: the script need not look for one. */
static bool is_fresh(const struct building *b, const struct txn_row *row)
{
	return !row->known && b->txn->fresh != NULL && strcmp(b->txn->fresh, row->base.key) == 0;
}

static const char *letter_of(const struct building *b, const struct txn_row *row, enum txn_change change)
{
	static const char *const letters[][2] = {[TXN_READ] = {"r", "r"}, [TXN_PUT] = {"p", "P"}, [TXN_DELETE] = {"d", "D"}};
	static const char *const fresh[] = {"q", "Q"};
	bool whole = store_table_is_whole(row->table);

	return change == TXN_PUT && is_fresh(b, row) ? fresh[whole] : letters[change][whole];
}

static void put_row(struct building *b, const struct txn_row *row)
{
	enum txn_change change = b->writes ? row->change : TXN_READ;
	const char *tail;
	size_t len;

	if (change == TXN_READ && !row->known)
		return;
	wire_text(&b->args, letter_of(b, row, change));
	wire_text(&b->args, row_table(row->table));
	wire_text(&b->args, row->base.key);
	if (row->known)
		put_number(b, row->rev);
	else
		wire_text(&b->args, "");
	if (change != TXN_PUT)
		return;
	wire_text(&b->args, row->row.group);
	put_number(b, row->row.due_ms);
	if (row_tail(b->txn->arena, &row->row, &tail, &len) != 0)
		b->args.error = ERR_NOMEM;
	else
		wire_arg(&b->args, tail, len);
}

static void put_count(struct building *b, const struct txn_count *count)
{
	if (count->known) {
		wire_text(&b->args, "n");
		wire_text(&b->args, count->name);
		put_number(b, count->base);
	}
	if (!b->writes || count->delta == 0)
		return;
	wire_text(&b->args, "c");
	wire_text(&b->args, count->name);
	put_number(b, count->delta);
}

static void put_id(struct building *b, uint64_t seq)
{
	char id[48];
	const char *text;

	seq_format(seq <= INT64_MAX ? seq : INT64_MAX, id, NULL);
	text = arena_strdup(b->txn->arena, id);
	if (text == NULL)
		b->args.error = ERR_NOMEM;
	else
		wire_text(&b->args, text);
}

static void put_stream(struct building *b, const struct txn_stream *op)
{
	static const char *const letters[] = {
		[TXN_APPEND] = "a", [TXN_ACK] = "k", [TXN_ACK_SUBJECT] = "s", [TXN_FORGET_SUBJECT] = "f", [TXN_TRIM] = "t"};

	wire_text(&b->args, letters[op->op]);
	wire_text(&b->args, b->conn->store->streams[op->stream]);
	wire_text(&b->args, entry_short(op->stream));
	switch (op->op) {
	case TXN_APPEND:
		wire_text(&b->args, op->subject);
		wire_text(&b->args, entry_names(op->doc, op->doc_len, op->subject) ? "0" : "1");
		wire_arg(&b->args, op->doc, op->doc_len);
		break;
	case TXN_ACK:
		put_id(b, op->seq);
		wire_text(&b->args, run_has_seen(b->conn->run, op->stream, op->seq) ? "1" : "0");
		break;
	case TXN_ACK_SUBJECT:
	case TXN_FORGET_SUBJECT:
		wire_text(&b->args, op->subject);
		break;
	case TXN_TRIM:
		put_id(b, op->seq);
		break;
	}
}

/* Whether this step is the one of the hour that sets the slots' time to live. */
static bool touch_due(struct redis_store *store)
{
	int64_t now_ns = clock_boot_ns();
	bool due;

	lock_take(&store->clock_lock);
	due = store->touched_ns == 0 || now_ns - store->touched_ns >= TOUCH_EVERY_NS;
	if (due)
		store->touched_ns = now_ns;
	lock_drop(&store->clock_lock);
	return due;
}

void apply_untouch(struct redis_store *store)
{
	lock_take(&store->clock_lock);
	store->touched_ns = 0;
	lock_drop(&store->clock_lock);
}

static void put_notice(struct building *b, const struct txn_notice *notice)
{
	wire_text(&b->args, "w");
	wire_text(&b->args, notice->key);
}

static void build(struct building *b)
{
	struct redis_store *store = b->conn->store;
	const struct txn_notice *notice;
	const struct txn_stream *op;
	const struct txn_count *count;
	const struct txn_row *row;
	bool alone;

	wire_text(&b->args, store->applier);
	put_number(b, b->conn->slot);
	put_number(b, b->writes ? (int64_t)++b->conn->number : 0);
	b->touches = b->writes && touch_due(store);
	wire_text(&b->args, b->touches ? SLOTS_KEPT_S : "");
	wire_text(&b->args, store->group);
	for (row = b->txn->rows; row != NULL; row = row->next)
		put_row(b, row);
	for (count = b->txn->counts; count != NULL; count = count->next)
		put_count(b, count);
	for (op = b->txn->streams; b->writes && op != NULL; op = op->next)
		put_stream(b, op);
	b->others = atomic_load(&store->others);
	alone = clock_boot_ns() < atomic_load_explicit(&store->alone_until_ns, memory_order_relaxed);
	for (notice = b->txn->notices; b->writes && !alone && notice != NULL; notice = notice->next)
		put_notice(b, notice);
}

/* ---- answers ---- */

static unsigned table_of(const char *name)
{
	unsigned table = 0;

	while (table <= REDIS_TABLE_COUNTERS && strcmp(row_table(table), name) != 0)
		table++;
	return table;
}

/* Triples of table, key and row as it is now. */
static int take_stale(struct rconn *conn, const redisReply *reply, struct err *err)
{
	struct arena *arena = arena_new(LIMIT_REQUEST_ARENA);
	struct cached_row row;
	unsigned table;
	size_t i;
	int rc = arena != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for rows");

	for (i = REDIS_HEAD; rc == 0 && i + 2 < reply->elements; i += 3) {
		table = table_of(reply->element[i]->str);
		if (table <= REDIS_TABLE_COUNTERS)
			rc = row_take(conn, arena, table, reply->element[i + 1]->str, reply->element[i + 2],
				      script_int(reply, 4), &row, err);
	}
	arena_free(arena);
	return rc != 0 ? rc : APPLY_STALE;
}

static void cache_count(struct redis_store *store, const struct txn_count *count, int64_t rev)
{
	char text[24];
	struct store_row row = {.key = count->name, .group = "", .doc = text};
	int64_t sum = count->base + count->delta; /* the script has refused what would overflow */

	if (count->delta == 0)
		return;
	if (!count->known || rev == 0) {
		cache_drop(store->cache, REDIS_TABLE_COUNTERS, count->name);
		return;
	}
	row.doc_len = (size_t)snprintf(text, sizeof(text), "%lld", (long long)sum);
	cache_put(store->cache, REDIS_TABLE_COUNTERS, &(struct cached_row){row, 0}, rev);
}

/* rev 0: applied before its answer was lost, at a revision that is not known any more. */
static void take_applied(struct rconn *conn, const struct txn *txn, int64_t rev)
{
	struct row_cache *cache = conn->store->cache;
	const struct txn_count *count;
	const struct txn_row *row;

	for (row = txn->rows; row != NULL; row = row->next) {
		if (row->change == TXN_READ)
			continue;
		if (rev == 0)
			cache_drop(cache, row->table, row->base.key);
		else
			cache_put(cache, row->table, &(struct cached_row){row->row, row->change == TXN_PUT ? rev : 0},
				  rev);
	}
	for (count = txn->counts; count != NULL; count = count->next)
		cache_count(conn->store, count, rev);
}

static int judge(struct building *b, const redisReply *reply, struct err *err)
{
	const char *word = script_word(reply);

	if (strcmp(word, "STALE") == 0)
		return take_stale(b->conn, reply, err);
	if (strcmp(word, "FULL") == 0)
		return err_set(err, ERR_INTERNAL, "the counter %.64s would overflow",
			       reply->elements > REDIS_HEAD ? reply->element[REDIS_HEAD]->str : "");
	if (b->writes && reply->elements > REDIS_HEAD)
		redis_heard_by(b->conn->store, script_int(reply, REDIS_HEAD), b->others);
	if (b->writes)
		take_applied(b->conn, b->txn, strcmp(word, "DONE") == 0 ? 0 : script_int(reply, 4));
	return 0;
}

int apply_step(struct rconn *conn, const struct txn *txn, bool writes, struct err *err)
{
	struct building b = {.conn = conn, .txn = txn, .writes = writes, .args.writes = writes};
	int64_t start_ns = clock_boot_ns();
	redisReply *reply = NULL;
	int rc;

	build(&b);
	rc = b.args.error != 0 ? err_set(err, ERR_NOMEM, "the step wrote more than it may hold")
			       : script_run(conn, SCRIPT_apply, &b.args, &reply, err);
	if (rc == 0)
		rc = judge(&b, reply, err);
	if (rc != 0 && b.touches)
		apply_untouch(conn->store); /* nothing, or nobody knows what, was done: the next one does it */
	freeReplyObject(reply);
	wire_fini(&b.args);
	if (writes && rc <= 0) {
		metric_add(rc != 0 ? METRIC_STORE_FAILURES : METRIC_STORE_GROUPS, 0, 0, 1);
		metric_observe_ns(METRIC_STORE_COMMIT_SECONDS, 0, clock_boot_ns() - start_ns);
	}
	return rc;
}
