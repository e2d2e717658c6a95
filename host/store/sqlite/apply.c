/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes what a step left in its txn, inside the group's transaction. Entered by the writer thread only. It must stop
 * at the first failure: the caller rolls the whole group back.
 */
#include "store/sqlite/sqlite.h"

/* Documents are JSON text almost everywhere: stored as text they can be looked into with json_extract in the sqlite3
 * shell. */
static void bind_doc(sqlite3_stmt *stmt, int at, enum store_table table, const struct store_row *row)
{
	if (table == STORE_OBJECT)
		sqlite3_bind_blob64(stmt, at, row->doc, row->doc_len, SQLITE_STATIC);
	else
		sqlite3_bind_text64(stmt, at, row->doc, row->doc_len, SQLITE_STATIC, SQLITE_UTF8);
}

/* The narrowest statement: what was read is still true, since steps run one after another in this transaction. A
 * statement that names a column writes the pages of its index, also when the value stays what it was. */
static enum table_stmt put_stmt(const struct txn_row *row)
{
	if (!row->known)
		return STMT_UPSERT;
	if (row->rev == 0)
		return STMT_INSERT;
	if (strcmp(row->base.group, row->row.group) != 0)
		return STMT_UPSERT;
	return row->base.due_ms == row->row.due_ms ? STMT_UPDATE_DOC : STMT_UPDATE_DUE;
}

static int apply_row(struct conn *conn, const struct txn_row *row, struct err *err)
{
	enum table_stmt which = row->change == TXN_DELETE ? STMT_DELETE : put_stmt(row);
	sqlite3_stmt *stmt;
	int rc;

	if (row->change == TXN_READ || (row->change == TXN_DELETE && row->known && row->rev == 0))
		return 0;
	rc = conn_table(conn, row->table, which, &stmt, err);
	if (rc != 0)
		return rc;
	sqlite3_bind_text(stmt, 1, row->base.key, -1, SQLITE_STATIC);
	if (which == STMT_UPDATE_DOC || which == STMT_UPDATE_DUE) {
		bind_doc(stmt, 2, row->table, &row->row);
		if (which == STMT_UPDATE_DUE)
			sqlite3_bind_int64(stmt, 3, row->row.due_ms);
	} else if (which != STMT_DELETE) {
		sqlite3_bind_text(stmt, 2, row->row.group, -1, SQLITE_STATIC);
		sqlite3_bind_int64(stmt, 3, row->row.due_ms);
		bind_doc(stmt, 4, row->table, &row->row);
	}
	return conn_run(conn, stmt, err);
}

static int apply_count(struct conn *conn, const struct txn_count *count, struct err *err)
{
	sqlite3_stmt *stmt;
	int rc;

	if (count->delta == 0)
		return 0;
	rc = conn_plain(conn, STMT_PLAIN_COUNT_ADD, &stmt, err);
	if (rc != 0)
		return rc;
	sqlite3_bind_text(stmt, 1, count->name, -1, SQLITE_STATIC);
	sqlite3_bind_int64(stmt, 2, count->delta);
	return conn_run(conn, stmt, err);
}

static const enum stream_stmt stream_stmts[] = {
	[TXN_APPEND] = STMT_STREAM_APPEND,
	[TXN_ACK] = STMT_STREAM_ACK,
	[TXN_ACK_SUBJECT] = STMT_STREAM_ACK_SUBJECT,
	[TXN_TRIM] = STMT_STREAM_TRIM,
};

static int apply_stream(struct conn *conn, const struct txn *txn, const struct txn_stream *op, struct err *err)
{
	sqlite3_stmt *stmt;
	int rc;

	if (op->op == TXN_FORGET_SUBJECT)
		return 0; /* the index is of what is there */
	rc = conn_stream(conn, op->stream, stream_stmts[op->op], &stmt, err);
	if (rc != 0)
		return rc;
	if (op->op == TXN_ACK || op->op == TXN_TRIM)
		sqlite3_bind_int64(stmt, 1, op->seq > INT64_MAX ? INT64_MAX : (int64_t)op->seq);
	else
		sqlite3_bind_text(stmt, 1, op->subject, -1, SQLITE_STATIC);
	if (op->op == TXN_APPEND) {
		sqlite3_bind_int64(stmt, 2, txn->now_ms);
		sqlite3_bind_text64(stmt, 3, op->doc, op->doc_len, SQLITE_STATIC, SQLITE_UTF8);
		sqlite3_bind_int64(stmt, 4, conn->store->numbers[op->stream].next++);
	}
	return conn_run(conn, stmt, err);
}

int apply_txn(struct conn *conn, const struct txn *txn, struct err *err)
{
	const struct txn_stream *op;
	const struct txn_count *count;
	const struct txn_row *row;
	int rc = 0;

	for (row = txn->rows; rc == 0 && row != NULL; row = row->next)
		rc = apply_row(conn, row, err);
	for (count = txn->counts; rc == 0 && count != NULL; count = count->next)
		rc = apply_count(conn, count, err);
	for (op = txn->streams; rc == 0 && op != NULL; op = op->next)
		rc = apply_stream(conn, txn, op, err);
	return rc;
}
