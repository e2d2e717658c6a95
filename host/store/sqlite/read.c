/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads of a step: on the writer's connection inside the group's transaction, or on a reader's snapshot. Entered by
 * whichever thread runs the step. What it hands out is copied into the step's arena, so it outlives the statement.
 */
#include <string.h>

#include "store/sqlite/sqlite.h"

static sqlite3_int64 clamp(size_t limit)
{
	return limit > INT64_MAX ? INT64_MAX : (sqlite3_int64)limit;
}

static void bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
	sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
}

/* A column's bytes, whatever its type; zero-length values come as NULL from SQLite but not from here. */
static int copy_column(struct txn *txn, sqlite3_stmt *stmt, int column, const char **ret, size_t *ret_len,
		       struct err *err)
{
	const void *ptr = sqlite3_column_blob(stmt, column);
	size_t len = (size_t)sqlite3_column_bytes(stmt, column);

	if (len > 0 && ptr == NULL)
		return conn_error(txn->conn, SQLITE_NOMEM, err);
	if (ret_len != NULL)
		*ret_len = len;
	if (len == 0) {
		*ret = "";
		return 0;
	}
	return txn_copy(txn, ptr, len, ret, err);
}

static int copy_row(struct txn *txn, sqlite3_stmt *stmt, struct store_row *ret, int64_t *ret_rev, struct err *err)
{
	int rc = copy_column(txn, stmt, 0, &ret->key, NULL, err);

	if (rc == 0)
		rc = copy_column(txn, stmt, 1, &ret->group, NULL, err);
	if (rc == 0)
		rc = copy_column(txn, stmt, 4, &ret->doc, &ret->doc_len, err);
	ret->due_ms = sqlite3_column_int64(stmt, 2);
	if (ret_rev != NULL)
		*ret_rev = sqlite3_column_int64(stmt, 3);
	return rc;
}

int read_get(struct txn *txn, enum store_table table, const char *key, struct store_row *ret_row, int64_t *ret_rev,
	     struct err *err)
{
	struct conn *conn = txn->conn;
	struct store_row row = {.key = key, .group = ""};
	sqlite3_stmt *stmt;
	int64_t rev = 0;
	int rc = conn_table(conn, table, STMT_GET, &stmt, err);
	int code;

	if (rc != 0)
		return rc;
	bind_text(stmt, 1, key);
	code = sqlite3_step(stmt);
	if (code == SQLITE_ROW)
		rc = copy_row(txn, stmt, &row, &rev, err);
	else if (code != SQLITE_DONE)
		rc = conn_error(conn, code, err);
	conn_give(conn, stmt);
	if (rc == 0) {
		row.key = key; /* lives in the arena already */
		*ret_row = row;
		*ret_rev = rev;
	}
	return rc;
}

static int each_row(struct txn *txn, sqlite3_stmt *stmt, row_fn fn, void *arg, struct err *err)
{
	struct store_row row;
	int rc = 0, code;

	while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
		rc = copy_row(txn, stmt, &row, NULL, err);
		if (rc != 0 || !fn(&row, arg))
			break;
	}
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		rc = conn_error(txn->conn, code, err);
	conn_give(txn->conn, stmt);
	return rc;
}

int read_scan_due(struct txn *txn, enum store_table table, int64_t upto, size_t limit, row_fn fn, void *arg,
		  struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = conn_table(txn->conn, table, STMT_DUE, &stmt, err);

	if (rc != 0)
		return rc;
	sqlite3_bind_int64(stmt, 1, upto);
	sqlite3_bind_int64(stmt, 2, clamp(limit));
	return each_row(txn, stmt, fn, arg, err);
}

static int scan_stmt(struct txn *txn, enum store_table table, const char *group, const char *after, bool down,
		     sqlite3_stmt **ret, struct err *err)
{
	static const enum table_stmt stmts[2][2] = {{STMT_ALL_UP, STMT_ALL_DOWN}, {STMT_GROUP_UP, STMT_GROUP_DOWN}};
	int rc = conn_table(txn->conn, table, stmts[group != NULL][down], ret, err);

	if (rc != 0)
		return rc;
	/* Every text sorts before every blob: "before an empty blob" means no bound. */
	if (down && after[0] == '\0')
		sqlite3_bind_zeroblob(*ret, 2, 0);
	else
		bind_text(*ret, 2, after);
	return 0;
}

int read_scan(struct txn *txn, enum store_table table, const char *group, const char *after, bool newest_first,
	      size_t limit, row_fn fn, void *arg, struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = scan_stmt(txn, table, group, after, newest_first, &stmt, err);

	if (rc != 0)
		return rc;
	if (group != NULL)
		bind_text(stmt, 1, group);
	sqlite3_bind_int64(stmt, 3, clamp(limit));
	return each_row(txn, stmt, fn, arg, err);
}

static int copy_entry(struct txn *txn, sqlite3_stmt *stmt, struct stream_entry *ret, struct err *err)
{
	int rc = copy_column(txn, stmt, 1, &ret->subject, NULL, err);

	ret->seq = (uint64_t)sqlite3_column_int64(stmt, 0);
	ret->at_ms = sqlite3_column_int64(stmt, 2);
	return rc != 0 ? rc : copy_column(txn, stmt, 3, &ret->doc, &ret->doc_len, err);
}

int read_stream(struct txn *txn, enum store_stream stream, const char *subject, uint64_t after, size_t limit,
		entry_fn fn, void *arg, struct err *err)
{
	struct stream_entry entry;
	sqlite3_stmt *stmt;
	int rc = conn_stream(txn->conn, stream, subject ? STMT_STREAM_READ_SUBJECT : STMT_STREAM_READ, &stmt, err);
	int code;

	if (rc != 0)
		return rc;
	if (subject != NULL)
		bind_text(stmt, 3, subject);
	sqlite3_bind_int64(stmt, 1, clamp(after));
	sqlite3_bind_int64(stmt, 2, clamp(limit));
	while ((code = sqlite3_step(stmt)) == SQLITE_ROW) {
		rc = copy_entry(txn, stmt, &entry, err);
		if (rc != 0 || !fn(&entry, arg))
			break;
	}
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		rc = conn_error(txn->conn, code, err);
	conn_give(txn->conn, stmt);
	return rc;
}

/* Entries are stamped by a clock that never goes back, so the old ones are the first ones. */
int read_find_trim(struct txn *txn, enum store_stream stream, int64_t older_than_ms, size_t limit, size_t *ret_count,
		   uint64_t *ret_last, struct err *err)
{
	sqlite3_stmt *stmt;
	size_t count = 0;
	int rc = conn_stream(txn->conn, stream, STMT_STREAM_HEAD, &stmt, err);
	int code;

	if (rc != 0)
		return rc;
	sqlite3_bind_int64(stmt, 1, clamp(limit));
	while ((code = sqlite3_step(stmt)) == SQLITE_ROW && sqlite3_column_int64(stmt, 1) < older_than_ms) {
		*ret_last = (uint64_t)sqlite3_column_int64(stmt, 0);
		count++;
	}
	if (code != SQLITE_ROW && code != SQLITE_DONE)
		rc = conn_error(txn->conn, code, err);
	conn_give(txn->conn, stmt);
	*ret_count = count;
	return rc;
}

/* Ends a statement that counts. */
static int take_size(struct txn *txn, sqlite3_stmt *stmt, int64_t *ret, struct err *err)
{
	int code = sqlite3_step(stmt), rc = 0;

	if (code == SQLITE_ROW)
		*ret = sqlite3_column_int64(stmt, 0);
	else
		rc = conn_error(txn->conn, code, err);
	conn_give(txn->conn, stmt);
	return rc;
}

int read_stream_size(struct txn *txn, enum store_stream stream, int64_t *ret, struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = conn_stream(txn->conn, stream, STMT_STREAM_SIZE, &stmt, err);

	return rc != 0 ? rc : take_size(txn, stmt, ret, err);
}

int read_due_size(struct txn *txn, enum store_table table, int64_t *ret, struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = conn_table(txn->conn, table, STMT_DUE_SIZE, &stmt, err);

	return rc != 0 ? rc : take_size(txn, stmt, ret, err);
}

int read_count(struct txn *txn, const char *name, int64_t *ret, struct err *err)
{
	struct conn *conn = txn->conn;
	sqlite3_stmt *stmt;
	int rc = conn_plain(conn, STMT_PLAIN_COUNT_GET, &stmt, err);
	int code;

	if (rc != 0)
		return rc;
	bind_text(stmt, 1, name);
	code = sqlite3_step(stmt);
	if (code == SQLITE_ROW || code == SQLITE_DONE)
		*ret = code == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
	else
		rc = conn_error(conn, code, err);
	conn_give(conn, stmt);
	return rc;
}

/* Taken from memory and never given back, not even by a step that fails; the group's commit stores how far it got. */
int read_next(struct txn *txn, uint64_t *ret, struct err *err)
{
	struct sqlite_store *store = ((struct conn *)txn->conn)->store;

	if (store->next >= INT64_MAX)
		return err_set(err, ERR_INTERNAL, "the deployment's counter is used up");
	*ret = store->next++;
	return 0;
}
