/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to the database: its settings, its cached statements, and the sentences for SQLite's result codes. A
 * connection is used by one thread at a time (it is opened without SQLite's own mutexes). No other file talks to
 * sqlite3_prepare or sqlite3_errmsg.
 */
#include <string.h>

#include "core/limits.h"
#include "store/sqlite/sqlite.h"

#define BUSY_MS 5000
#define SQL_MAX 512

static const char *const table_sql[STMT_TABLE_COUNT] = {
#define X(name, sql) [STMT_##name] = sql,
	SQLITE_TABLE_STMTS(X)
#undef X
};
static const char *const stream_sql[STMT_STREAM_COUNT] = {
#define X(name, sql) [STMT_STREAM_##name] = sql,
	SQLITE_STREAM_STMTS(X)
#undef X
};
static const char *const plain_sql[STMT_PLAIN_COUNT] = {
#define X(name, sql) [STMT_PLAIN_##name] = sql,
	SQLITE_PLAIN_STMTS(X)
#undef X
};

static const struct {
	int code;
	const char *reason;
	const char *sentence;
} troubles[] = {
	{SQLITE_FULL, "disk_full", "there is no room left on its disk"},
	{SQLITE_IOERR, "io", "its disk reports an I/O error"},
	{SQLITE_CORRUPT, "corrupt", "the file is damaged; restore it from a backup"},
	{SQLITE_NOTADB, "corrupt", "the file is not a database"},
	{SQLITE_BUSY, "busy", "another program keeps it locked"},
	{SQLITE_LOCKED, "busy", "another program keeps it locked"},
	{SQLITE_READONLY, "read_only", "it cannot be written"},
	{SQLITE_PERM, "read_only", "it cannot be written"},
	{SQLITE_CANTOPEN, "cannot_open", "it cannot be opened"},
	{SQLITE_NOMEM, "memory", "memory is out"},
	{SQLITE_TOOBIG, "too_big", "a row is too big"},
};

int conn_error(struct conn *conn, int code, struct err *err)
{
	size_t i;

	for (i = 0; i < sizeof(troubles) / sizeof(troubles[0]); i++) {
		if (troubles[i].code != (code & 0xff))
			continue;
		err_set(err, ERR_STORE, "the state database %s: %s", conn->name, troubles[i].sentence);
		err_reason(err, troubles[i].reason);
		return ERR_STORE;
	}
	err_set(err, ERR_STORE, "the state database %s: %s", conn->name, sqlite3_errstr(code));
	err_reason(err, "sqlite");
	return ERR_STORE;
}

int conn_exec(struct conn *conn, const char *sql, struct err *err)
{
	int rc = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : conn_error(conn, rc, err);
}

static void expand(char *ret, size_t size, const char *sql, const char *name)
{
	const char *mark = strchr(sql, '@');

	snprintf(ret, size, "%.*s%s%s", (int)(mark - sql), sql, name, mark + 1);
}

/* The cached statement; a private one when that is in the middle of a scan (a scan inside a scan's callback). */
static int take(struct conn *conn, sqlite3_stmt **cached, const char *sql, const char *name, sqlite3_stmt **ret,
		struct err *err)
{
	bool busy = *cached != NULL && sqlite3_stmt_busy(*cached);
	char text[SQL_MAX];
	int rc;

	if (*cached != NULL && !busy) {
		*ret = *cached;
		return 0;
	}
	if (name != NULL) {
		expand(text, sizeof(text), sql, name);
		sql = text;
	}
	rc = sqlite3_prepare_v3(conn->db, sql, -1, busy ? 0 : SQLITE_PREPARE_PERSISTENT, ret, NULL);
	if (rc != SQLITE_OK)
		return conn_error(conn, rc, err);
	if (busy)
		conn->privates++;
	else
		*cached = *ret;
	return 0;
}

int conn_plain(struct conn *conn, enum plain_stmt which, sqlite3_stmt **ret, struct err *err)
{
	return take(conn, &conn->plain[which], plain_sql[which], NULL, ret, err);
}

int conn_table(struct conn *conn, enum store_table table, enum table_stmt which, sqlite3_stmt **ret, struct err *err)
{
	return take(conn, &conn->table[table][which], table_sql[which], schema_table(table), ret, err);
}

int conn_stream(struct conn *conn, enum store_stream stream, enum stream_stmt which, sqlite3_stmt **ret,
		struct err *err)
{
	return take(conn, &conn->stream[stream][which], stream_sql[which], schema_stream(stream), ret, err);
}

static bool is_cached(const struct conn *conn, const sqlite3_stmt *stmt)
{
	sqlite3_stmt *const *all = &conn->table[0][0];
	size_t i, count = STORE_TABLE_COUNT * STMT_TABLE_COUNT;

	for (i = 0; i < count; i++)
		if (all[i] == stmt)
			return true;
	all = &conn->stream[0][0];
	for (i = 0; i < STREAM_COUNT * STMT_STREAM_COUNT; i++)
		if (all[i] == stmt)
			return true;
	for (i = 0; i < STMT_PLAIN_COUNT; i++)
		if (conn->plain[i] == stmt)
			return true;
	return false;
}

void conn_give(struct conn *conn, sqlite3_stmt *stmt)
{
	if (conn->privates == 0 || is_cached(conn, stmt)) {
		sqlite3_reset(stmt);
		return;
	}
	sqlite3_finalize(stmt);
	conn->privates--;
}

int conn_run(struct conn *conn, sqlite3_stmt *stmt, struct err *err)
{
	int rc = sqlite3_step(stmt);

	sqlite3_reset(stmt);
	return rc == SQLITE_DONE ? 0 : conn_error(conn, rc, err);
}

int conn_run_plain(struct conn *conn, enum plain_stmt which, struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = conn_plain(conn, which, &stmt, err);

	return rc != 0 ? rc : conn_run(conn, stmt, err);
}

int conn_read_int(struct conn *conn, const char *sql, int *ret, struct err *err)
{
	sqlite3_stmt *stmt = NULL;
	int code = sqlite3_prepare_v2(conn->db, sql, -1, &stmt, NULL);

	if (code == SQLITE_OK)
		code = sqlite3_step(stmt);
	if (code == SQLITE_ROW)
		*ret = sqlite3_column_int(stmt, 0);
	sqlite3_finalize(stmt);
	return code == SQLITE_ROW ? 0 : conn_error(conn, code, err);
}

/* The journal mode is stored in the file, but only the writer may set it; a file system without shared memory
 * refuses. */
int conn_set_wal(struct conn *conn, struct err *err)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(conn->db, "PRAGMA journal_mode=WAL", -1, &stmt, NULL);
	const unsigned char *mode;

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW) {
		sqlite3_finalize(stmt);
		return conn_error(conn, rc, err);
	}
	mode = sqlite3_column_text(stmt, 0);
	rc = mode != NULL && strcmp((const char *)mode, "wal") == 0 ? 0 : ERR_STORE;
	sqlite3_finalize(stmt);
	if (rc != 0)
		err_set(err, rc, "the state database %s: its file system cannot hold a write-ahead log", conn->name);
	return rc;
}

/*
 * The writer's cache is small on purpose: a commit after which B-tree pages have changed places looks at every cached page
 * (sqlite3_rekey by way of the pending-byte page, whose number is above all others, makes the cache look for pages past the
 * end of the file). With 16 MiB that was a twentieth of an execution; pages that are not cached come from the kernel's.
 */
static const char *const settings[] = {
	[CONN_WRITER] = "PRAGMA synchronous=FULL; PRAGMA cache_size=-2048; PRAGMA mmap_size=0; "
			"PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF; PRAGMA journal_size_limit=67108864",
	[CONN_READER] = "PRAGMA query_only=ON; PRAGMA cache_size=-4096; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY; "
			"PRAGMA trusted_schema=OFF",
	[CONN_CHECKPOINT] = "PRAGMA synchronous=FULL; PRAGMA cache_size=-256; PRAGMA mmap_size=0; "
			    "PRAGMA trusted_schema=OFF",
	[CONN_CREATE] = "PRAGMA synchronous=FULL; PRAGMA mmap_size=0",
};

static int configure(struct conn *conn, enum conn_kind kind, struct err *err)
{
	sqlite3_extended_result_codes(conn->db, 1);
	sqlite3_busy_timeout(conn->db, BUSY_MS);
	/* Checkpoints belong to their own thread; a stray one would stall the writer for milliseconds. */
	sqlite3_wal_autocheckpoint(conn->db, 0);
	return conn_exec(conn, settings[kind], err);
}

int conn_open(const char *path, const char *name, enum conn_kind kind, struct conn **ret, struct err *err)
{
	int flags = SQLITE_OPEN_NOMUTEX | (kind == CONN_READER ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
	struct conn *conn = calloc(1, sizeof(*conn));
	int rc;

	if (conn == NULL)
		return err_set(err, ERR_NOMEM, "no memory for a connection to the state database");
	conn->name = name;
	walfile_init();
	rc = sqlite3_open_v2(path, &conn->db, flags, kind == CONN_WRITER ? WALFILE_VFS : NULL);
	rc = rc == SQLITE_OK ? configure(conn, kind, err) : conn_error(conn, rc, err);
	if (rc == 0 && (kind == CONN_WRITER || kind == CONN_READER)) {
		conn->arena = arena_new(LIMIT_REQUEST_ARENA);
		if (conn->arena == NULL)
			rc = err_set(err, ERR_NOMEM, "no memory for a connection to the state database");
	}
	if (rc != 0) {
		conn_close(conn);
		return rc;
	}
	*ret = conn;
	return 0;
}

void conn_close(struct conn *conn)
{
	sqlite3_stmt *stmt;

	if (conn == NULL)
		return;
	while ((stmt = sqlite3_next_stmt(conn->db, NULL)) != NULL)
		sqlite3_finalize(stmt);
	sqlite3_close(conn->db);
	arena_free(conn->arena);
	free(conn);
}
