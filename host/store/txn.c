/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transaction a step works on: reads go to the implementation once and are remembered, writes stay here until the
 * implementation applies them. Entered by the one thread that runs the step. It must never write to the store itself,
 * and never lose a failure that the step ignored.
 */
#include <assert.h>
#include <string.h>

#include "core/limits.h"
#include "store/ops.h"

#define FIRST_BUCKETS 64

static const struct {
	const char *name;
	bool whole;
} tables[STORE_TABLE_COUNT] = {
#define X(table, sql, is_whole) [STORE_##table] = {sql, is_whole},
	STORE_TABLES(X)
#undef X
};

bool store_table_is_whole(enum store_table table)
{
	return tables[table].whole;
}

void txn_init(struct txn *txn, const struct store_ops *ops, void *conn, struct arena *arena, int64_t now_ms,
	      bool read_only)
{
	arena_reset(arena);
	*txn = (struct txn){
		.magic = TXN_MAGIC,
		.ops = ops,
		.conn = conn,
		.arena = arena,
		.now_ms = now_ms,
		.read_only = read_only,
	};
	txn->rows_end = &txn->rows;
	txn->counts_end = &txn->counts;
	txn->streams_end = &txn->streams;
}

/* Remembers a failure after which nothing of this step may be applied. */
static int fail(struct txn *txn, int rc, const struct err *err)
{
	if (rc != 0 && txn->failed.code == 0) {
		txn->failed = *err;
		txn->failed.code = rc;
	}
	return rc;
}

static int no_memory(struct txn *txn, struct err *err)
{
	struct err full;

	err_set(&full, ERR_NOMEM, "the step read or wrote more than its %zu MiB; page through with `after`",
		LIMIT_REQUEST_ARENA / LIMIT_MIB);
	if (err != NULL)
		*err = full;
	return fail(txn, ERR_NOMEM, &full);
}

int txn_end(const struct txn *txn, int rc, struct err *err)
{
	if (rc != 0 || txn->failed.code == 0)
		return rc;
	if (err != NULL)
		*err = txn->failed;
	return txn->failed.code;
}

bool txn_has_writes(const struct txn *txn)
{
	const struct txn_count *count;
	const struct txn_row *row;

	if (txn->streams != NULL)
		return true;
	for (count = txn->counts; count != NULL; count = count->next)
		if (count->delta != 0)
			return true;
	for (row = txn->rows; row != NULL; row = row->next)
		if (row->change != TXN_READ)
			return true;
	return false;
}

int txn_copy(struct txn *txn, const void *ptr, size_t len, const char **ret, struct err *err)
{
	char *copy = arena_alloc(txn->arena, len + 1);

	if (copy == NULL)
		return no_memory(txn, err);
	if (len > 0)
		memcpy(copy, ptr, len);
	copy[len] = '\0';
	*ret = copy;
	return 0;
}

int64_t txn_now(const struct txn *txn)
{
	assert(txn->magic == TXN_MAGIC);
	return txn->now_ms;
}

struct arena *txn_arena(struct txn *txn)
{
	assert(txn->magic == TXN_MAGIC);
	return txn->arena;
}

static int check_write(struct txn *txn, struct err *err)
{
	assert(txn->magic == TXN_MAGIC);
	if (!txn->read_only)
		return 0;
	return err_set(err, ERR_INTERNAL, "a view cannot write");
}

static int check_name(const char *what, const char *text, bool empty_ok, struct err *err)
{
	size_t len = text != NULL ? strlen(text) : 0;

	if (len > STORE_KEY_MAX || (len == 0 && !empty_ok))
		return err_set(err, ERR_INTERNAL, "a %s of %zu bytes cannot be stored (1 to %d)", what, len,
			       STORE_KEY_MAX);
	return 0;
}

static int check_reserved(const char *name, struct err *err)
{
	if (strncmp(name, STORE_RESERVED, strlen(STORE_RESERVED)) != 0)
		return 0;
	return err_set(err, ERR_INTERNAL, "%.64s belongs to the store itself", name);
}

static int check_size(const char *what, size_t len, struct err *err)
{
	if (len <= LIMIT_ROW)
		return 0;
	return err_set(err, ERR_PAYLOAD_TOO_LARGE, "a row of %s would have %zu bytes, more than %zu", what, len,
		       LIMIT_ROW);
}

static uint32_t hash_of(enum store_table table, const char *key)
{
	uint32_t hash = 2166136261u ^ (uint32_t)table;

	for (; *key != '\0'; key++)
		hash = (hash ^ (unsigned char)*key) * 16777619u;
	return hash;
}

static bool grow_buckets(struct txn *txn)
{
	size_t count = txn->bucket_count == 0 ? FIRST_BUCKETS : txn->bucket_count * 4;
	struct txn_row **buckets = arena_alloc(txn->arena, count * sizeof(*buckets));
	struct txn_row *row;

	if (buckets == NULL)
		return false;
	for (row = txn->rows; row != NULL; row = row->next) {
		row->chain = buckets[row->hash % count];
		buckets[row->hash % count] = row;
	}
	txn->buckets = buckets;
	txn->bucket_count = count;
	return true;
}

/* The step's entry for a row; made when new. NULL when the arena is full. */
static struct txn_row *entry_of(struct txn *txn, enum store_table table, const char *key)
{
	uint32_t hash = hash_of(table, key);
	struct txn_row *row = txn->bucket_count > 0 ? txn->buckets[hash % txn->bucket_count] : NULL;

	for (; row != NULL; row = row->chain)
		if (row->hash == hash && row->table == table && strcmp(row->base.key, key) == 0)
			return row;
	if (txn->row_count >= txn->bucket_count * 2 && !grow_buckets(txn))
		return NULL;
	row = arena_alloc(txn->arena, sizeof(*row));
	if (row == NULL)
		return NULL;
	row->base = (struct store_row){.key = arena_strdup(txn->arena, key), .group = ""};
	if (row->base.key == NULL)
		return NULL;
	row->row = row->base;
	row->table = table;
	row->hash = hash;
	row->chain = txn->buckets[hash % txn->bucket_count];
	txn->buckets[hash % txn->bucket_count] = row;
	*txn->rows_end = row;
	txn->rows_end = &row->next;
	txn->row_count++;
	return row;
}

int txn_get(struct txn *txn, enum store_table table, const char *key, struct store_row *ret, struct err *err)
{
	struct err local;
	struct txn_row *entry;
	int rc;

	assert(txn->magic == TXN_MAGIC);
	if (err == NULL)
		err = &local;
	rc = check_name("key", key, false, err);
	if (rc != 0)
		return rc;
	entry = entry_of(txn, table, key);
	if (entry == NULL)
		return no_memory(txn, err);
	if (!entry->known && entry->change == TXN_READ) {
		rc = txn->ops->get(txn, table, entry->base.key, &entry->base, &entry->rev, err);
		if (rc != 0)
			return fail(txn, rc, err);
		entry->known = true;
		entry->row = entry->base;
	}
	*ret = entry->row;
	return 0;
}

static int check_row(enum store_table table, const struct store_row *row, struct err *err)
{
	int rc = check_name("key", row->key, false, err);

	if (rc == 0)
		rc = check_name("group", row->group, true, err);
	if (rc == 0 && table == STORE_META)
		rc = check_reserved(row->key, err);
	if (rc == 0)
		rc = check_size(tables[table].name, row->doc_len, err);
	if (rc == 0 && (row->doc == NULL || row->due_ms < 0))
		rc = err_set(err, ERR_INTERNAL, "a row of %s without a document or with a negative due",
			     tables[table].name);
	return rc;
}

int txn_put(struct txn *txn, enum store_table table, const struct store_row *row, struct err *err)
{
	struct store_row copy = {.due_ms = row->due_ms, .doc_len = row->doc_len, .group = ""};
	struct txn_row *entry;
	int rc = check_write(txn, err);

	if (rc == 0)
		rc = check_row(table, row, err);
	if (rc == 0)
		rc = txn_copy(txn, row->doc, row->doc_len, &copy.doc, err);
	if (rc == 0 && row->group != NULL && row->group[0] != '\0')
		rc = txn_copy(txn, row->group, strlen(row->group), &copy.group, err);
	if (rc != 0)
		return rc;
	entry = entry_of(txn, table, row->key);
	if (entry == NULL)
		return no_memory(txn, err);
	copy.key = entry->base.key;
	entry->row = copy;
	entry->change = TXN_PUT;
	return 0;
}

int txn_fresh(struct txn *txn, const char *key, struct err *err)
{
	int rc = check_write(txn, err);

	if (rc == 0)
		rc = check_name("key", key, false, err);
	return rc != 0 ? rc : txn_copy(txn, key, strlen(key), &txn->fresh, err);
}

int txn_delete(struct txn *txn, enum store_table table, const char *key, struct err *err)
{
	struct txn_row *entry;
	int rc = check_write(txn, err);

	if (rc == 0)
		rc = check_name("key", key, false, err);
	if (rc == 0 && table == STORE_META)
		rc = check_reserved(key, err);
	if (rc != 0)
		return rc;
	entry = entry_of(txn, table, key);
	if (entry == NULL)
		return no_memory(txn, err);
	entry->row = (struct store_row){.key = entry->base.key, .group = ""};
	entry->change = TXN_DELETE;
	return 0;
}

int txn_scan_due(struct txn *txn, enum store_table table, int64_t upto, size_t limit, row_fn fn, void *arg,
		 struct err *err)
{
	struct err local;

	assert(txn->magic == TXN_MAGIC);
	if (err == NULL)
		err = &local;
	return fail(txn, txn->ops->scan_due(txn, table, upto, limit, fn, arg, err), err);
}

int txn_scan(struct txn *txn, enum store_table table, const char *group, const char *after, bool newest_first,
	     size_t limit, row_fn fn, void *arg, struct err *err)
{
	struct err local;

	assert(txn->magic == TXN_MAGIC);
	if (err == NULL)
		err = &local;
	if (after == NULL)
		after = "";
	if (group == NULL && !tables[table].whole)
		return fail(txn, err_set(err, ERR_INTERNAL, "%s cannot be scanned whole", tables[table].name), err);
	return fail(txn, txn->ops->scan(txn, table, group, after, newest_first, limit, fn, arg, err), err);
}

int txn_next(struct txn *txn, uint64_t *ret, struct err *err)
{
	struct err local;
	int rc;

	if (err == NULL)
		err = &local;
	rc = check_write(txn, err);
	if (rc != 0)
		return rc;
	return fail(txn, txn->ops->next(txn, ret, err), err);
}

static int count_entry(struct txn *txn, const char *name, struct txn_count **ret, struct err *err)
{
	struct txn_count *count = txn->counts;
	int rc = check_name("counter's name", name, false, err);

	if (rc == 0)
		rc = check_reserved(name, err);
	if (rc != 0)
		return rc;
	while (count != NULL && strcmp(count->name, name) != 0)
		count = count->next;
	if (count == NULL) {
		count = arena_alloc(txn->arena, sizeof(*count));
		if (count == NULL)
			return no_memory(txn, err);
		count->name = arena_strdup(txn->arena, name);
		if (count->name == NULL)
			return no_memory(txn, err);
		*txn->counts_end = count;
		txn->counts_end = &count->next;
	}
	*ret = count;
	return 0;
}

int txn_count_add(struct txn *txn, const char *name, int64_t delta, struct err *err)
{
	struct txn_count *count = NULL;
	int rc = check_write(txn, err);

	if (rc == 0)
		rc = count_entry(txn, name, &count, err);
	if (rc != 0)
		return rc;
	if (__builtin_add_overflow(count->delta, delta, &count->delta))
		return err_set(err, ERR_INTERNAL, "the counter %.64s would overflow", name);
	return 0;
}

int txn_count_get(struct txn *txn, const char *name, int64_t *ret, struct err *err)
{
	struct err local;
	struct txn_count *count = NULL;
	int rc;

	assert(txn->magic == TXN_MAGIC);
	if (err == NULL)
		err = &local;
	rc = count_entry(txn, name, &count, err);
	if (rc != 0)
		return rc;
	if (!count->known) {
		rc = txn->ops->count_get(txn, name, &count->base, err);
		if (rc != 0)
			return fail(txn, rc, err);
		count->known = true;
	}
	if (__builtin_add_overflow(count->base, count->delta, ret))
		return err_set(err, ERR_INTERNAL, "the counter %.64s would overflow", name);
	return 0;
}

static int stream_op(struct txn *txn, const struct txn_stream *op, struct err *err)
{
	struct txn_stream *copy = arena_alloc(txn->arena, sizeof(*copy));

	if (copy == NULL)
		return no_memory(txn, err);
	*copy = *op;
	*txn->streams_end = copy;
	txn->streams_end = &copy->next;
	return 0;
}

int txn_append(struct txn *txn, enum store_stream stream, const char *subject, const char *doc, size_t len,
	       struct err *err)
{
	struct txn_stream op = {.op = TXN_APPEND, .stream = stream, .doc_len = len};
	int rc = check_write(txn, err);

	if (rc == 0)
		rc = check_name("subject", subject, true, err);
	if (rc == 0)
		rc = check_size("a stream", len, err);
	if (rc == 0)
		rc = txn_copy(txn, subject, subject != NULL ? strlen(subject) : 0, &op.subject, err);
	if (rc == 0)
		rc = txn_copy(txn, doc, len, &op.doc, err);
	return rc != 0 ? rc : stream_op(txn, &op, err);
}

int txn_ack(struct txn *txn, enum store_stream stream, uint64_t seq, struct err *err)
{
	int rc = check_write(txn, err);

	return rc != 0 ? rc : stream_op(txn, &(struct txn_stream){.op = TXN_ACK, .stream = stream, .seq = seq}, err);
}

static int subject_op(struct txn *txn, enum txn_stream_op what, enum store_stream stream, const char *subject, struct err *err)
{
	struct txn_stream op = {.op = what, .stream = stream};
	int rc = check_write(txn, err);

	if (rc == 0)
		rc = check_name("subject", subject, false, err);
	if (rc == 0)
		rc = txn_copy(txn, subject, strlen(subject), &op.subject, err);
	return rc != 0 ? rc : stream_op(txn, &op, err);
}

int txn_ack_subject(struct txn *txn, enum store_stream stream, const char *subject, struct err *err)
{
	return subject_op(txn, TXN_ACK_SUBJECT, stream, subject, err);
}

int txn_forget_subject(struct txn *txn, enum store_stream stream, const char *subject, struct err *err)
{
	return subject_op(txn, TXN_FORGET_SUBJECT, stream, subject, err);
}

int txn_read_stream(struct txn *txn, enum store_stream stream, uint64_t after, size_t limit, entry_fn fn, void *arg,
		    struct err *err)
{
	struct err local;

	assert(txn->magic == TXN_MAGIC);
	if (err == NULL)
		err = &local;
	return fail(txn, txn->ops->read_stream(txn, stream, NULL, after, limit, fn, arg, err), err);
}

int txn_read_subject(struct txn *txn, enum store_stream stream, const char *subject, uint64_t after, size_t limit,
		     entry_fn fn, void *arg, struct err *err)
{
	struct err local;

	assert(txn->magic == TXN_MAGIC && subject != NULL);
	if (err == NULL)
		err = &local;
	return fail(txn, txn->ops->read_stream(txn, stream, subject, after, limit, fn, arg, err), err);
}

int txn_notify(struct txn *txn, const char *key, struct err *err)
{
	struct txn_notice *notice;
	int rc = check_write(txn, err);

	if (rc == 0)
		rc = check_name("notice", key, false, err);
	if (rc == 0 && strchr(key, '\n') != NULL)
		rc = err_set(err, ERR_INTERNAL, "a notice is one line");
	if (rc != 0 || txn->ops->listen == NULL)
		return rc;
	for (notice = txn->notices; notice != NULL; notice = notice->next)
		if (strcmp(notice->key, key) == 0)
			return 0;
	notice = arena_alloc(txn->arena, sizeof(*notice));
	if (notice == NULL)
		return no_memory(txn, err);
	notice->next = txn->notices;
	txn->notices = notice;
	return txn_copy(txn, key, strlen(key), &notice->key, err);
}

int txn_stream_size(struct txn *txn, enum store_stream stream, int64_t *ret, struct err *err)
{
	struct err local;

	assert(txn->magic == TXN_MAGIC);
	if (err == NULL)
		err = &local;
	return fail(txn, txn->ops->stream_size(txn, stream, ret, err), err);
}

int txn_due_size(struct txn *txn, enum store_table table, int64_t *ret, struct err *err)
{
	struct err local;

	assert(txn->magic == TXN_MAGIC);
	if (err == NULL)
		err = &local;
	return fail(txn, txn->ops->due_size(txn, table, ret, err), err);
}

int txn_trim(struct txn *txn, enum store_stream stream, int64_t older_than_ms, size_t limit, size_t *ret_count,
	     struct err *err)
{
	struct txn_stream op = {.op = TXN_TRIM, .stream = stream};
	struct err local;
	size_t count = 0;
	int rc;

	if (err == NULL)
		err = &local;
	rc = check_write(txn, err);
	if (rc != 0)
		return rc;
	rc = txn->ops->find_trim(txn, stream, older_than_ms, limit, &count, &op.seq, err);
	if (rc != 0)
		return fail(txn, rc, err);
	if (count > 0)
		rc = stream_op(txn, &op, err);
	if (rc == 0 && ret_count != NULL)
		*ret_count = count;
	return rc;
}
