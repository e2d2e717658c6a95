/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables and the store's own rows in them; how an older schema becomes this one is in migrate.c. Entered at open (and
 * by the writer for the clock mark). It must never change a database that it does not recognise.
 */
#include <errno.h>

#include "core/buf.h"
#include "core/clock.h"
#include "core/json.h"
#include "core/limits.h"
#include "store/sqlite/sqlite.h"

#define KEY_SCHEMA STORE_RESERVED "schema"
#define KEY_ID STORE_RESERVED "id"
#define KEY_DEPLOYMENT STORE_RESERVED "deployment"
#define KEY_CLOCK STORE_RESERVED "clock"
#define DOC_MAX 512

enum table_shape {
	SHAPE_WIDE,   /* rows of any size */
	SHAPE_NARROW, /* kept in the key's own tree: a write changes one page and not two, but past a quarter of a page a
		       * row takes one more */
};

static const struct {
	const char *name;
	enum table_shape shape;
} tables[STORE_TABLE_COUNT] = {
#define X(table, sql, whole) [STORE_##table].name = sql,
	STORE_TABLES(X)
#undef X
	[STORE_META].shape = SHAPE_NARROW,
	[STORE_EXECUTION_INDEX].shape = SHAPE_NARROW,
	[STORE_CLAIM].shape = SHAPE_NARROW,
	[STORE_IDEMPOTENCY].shape = SHAPE_NARROW,
	[STORE_NONCE].shape = SHAPE_NARROW,
	[STORE_TARGET].shape = SHAPE_NARROW,
	[STORE_HOST].shape = SHAPE_NARROW,
};

#define STREAM(name) {"stream_" name, STORE_RESERVED "stream_" name}
static const struct {
	const char *table, *counter;
} streams[STREAM_COUNT] = {
	[STREAM_REQUESTS] = STREAM("requests"),
	[STREAM_EVENTS] = STREAM("events"),
	[STREAM_DEAD] = STREAM("dead"),
};

/* "@" is the table's name. grp and due are "" and 0 where a table does not use them: the partial indexes stay empty
 * then. */
#define COLUMNS "grp TEXT NOT NULL DEFAULT '',due INTEGER NOT NULL DEFAULT 0,rev INTEGER NOT NULL,doc BLOB NOT NULL"
#define INDEXES                                                                 \
	"CREATE INDEX @_due ON @(due) WHERE due>0;"                             \
	"CREATE INDEX @_grp ON @(grp,key) WHERE grp<>'';"

static const char *const shape_sql[] = {
	[SHAPE_WIDE] = "CREATE TABLE @(key TEXT NOT NULL PRIMARY KEY," COLUMNS ");" INDEXES,
	[SHAPE_NARROW] = "CREATE TABLE @(key TEXT NOT NULL PRIMARY KEY," COLUMNS ") WITHOUT ROWID;" INDEXES,
};
static const char stream_sql[] = "CREATE TABLE @(seq INTEGER PRIMARY KEY,subject TEXT NOT NULL,"
				 "at INTEGER NOT NULL,doc BLOB NOT NULL);"
				 "CREATE INDEX @_subject ON @(subject);";
static const char counters_sql[] =
	"CREATE TABLE counters(name TEXT PRIMARY KEY,value INTEGER NOT NULL) STRICT,WITHOUT ROWID;";

const char *schema_table(enum store_table table)
{
	return tables[table].name;
}

const char *schema_stream(enum store_stream stream)
{
	return streams[stream].table;
}

const char *schema_stream_counter(enum store_stream stream)
{
	return streams[stream].counter;
}

static void append_named(struct buf *buf, const char *sql, const char *name)
{
	for (; *sql != '\0'; sql++) {
		if (*sql == '@')
			buf_puts(buf, name);
		else
			buf_append(buf, sql, 1);
	}
}

static int create_tables(struct conn *conn, struct err *err)
{
	struct buf sql;
	size_t i;
	int rc;

	buf_init(&sql, 64 * LIMIT_KIB);
	buf_printf(&sql, "PRAGMA application_id=%d;", SQLITE_STORE_APP_ID);
	for (i = 0; i < STORE_TABLE_COUNT; i++)
		append_named(&sql, shape_sql[tables[i].shape], tables[i].name);
	for (i = 0; i < STREAM_COUNT; i++)
		append_named(&sql, stream_sql, streams[i].table);
	buf_puts(&sql, counters_sql);
	rc = sql.error != 0 ? err_set(err, ERR_NOMEM, "no memory for the schema") : conn_exec(conn, sql.ptr, err);
	buf_fini(&sql);
	return rc;
}

static int meta_set(struct conn *conn, const char *key, const char *doc, struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = conn_plain(conn, STMT_PLAIN_META_SET, &stmt, err);

	if (rc != 0)
		return rc;
	sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_text(stmt, 2, doc, -1, SQLITE_STATIC);
	return conn_run(conn, stmt, err);
}

/* Absent: "". */
static int meta_get(struct conn *conn, const char *key, char ret_doc[DOC_MAX], struct err *err)
{
	sqlite3_stmt *stmt;
	int rc = conn_plain(conn, STMT_PLAIN_META_GET, &stmt, err);
	const unsigned char *text;
	int code;

	ret_doc[0] = '\0';
	if (rc != 0)
		return rc;
	sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	code = sqlite3_step(stmt);
	if (code == SQLITE_ROW) {
		text = sqlite3_column_text(stmt, 0);
		snprintf(ret_doc, DOC_MAX, "%s", text != NULL ? (const char *)text : "");
	} else if (code != SQLITE_DONE) {
		rc = conn_error(conn, code, err);
	}
	conn_give(conn, stmt);
	return rc;
}

int schema_set(struct conn *conn, int schema, struct err *err)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", schema);
	return meta_set(conn, KEY_SCHEMA, text, err);
}

int schema_create(struct conn *conn, const char *id, const char *deployment, const struct store_clock *clock,
		  struct err *err)
{
	int rc = conn_run_plain(conn, STMT_PLAIN_BEGIN_WRITE, err);

	if (rc != 0)
		return rc;
	rc = create_tables(conn, err);
	if (rc == 0)
		rc = meta_set(conn, KEY_ID, id, err);
	if (rc == 0)
		rc = meta_set(conn, KEY_DEPLOYMENT, deployment, err);
	if (rc == 0)
		rc = schema_set(conn, SQLITE_STORE_SCHEMA, err);
	if (rc == 0)
		rc = schema_save_clock(conn, clock, err);
	if (rc == 0)
		rc = conn_run_plain(conn, STMT_PLAIN_COMMIT, err);
	return rc;
}

/* The number as it was stored; -1 when it is none. */
static int parse_schema(const char *text)
{
	char *end;
	long number;

	errno = 0;
	number = strtol(text, &end, 10);
	return errno != 0 || end == text || *end != '\0' || number < 0 || number > INT32_MAX ? -1 : (int)number;
}

int schema_check(struct conn *conn, const char *deployment, int *ret_schema, char ret_id[33], struct err *err)
{
	char text[DOC_MAX], owner[DOC_MAX];
	int app_id = 0, tables_found = 0, schema;
	int rc = conn_read_int(conn, "PRAGMA application_id", &app_id, err);

	if (rc == 0)
		rc = conn_read_int(conn, "SELECT count(*) FROM sqlite_schema WHERE type='table' AND name='meta'",
				   &tables_found, err);
	if (rc != 0)
		return rc;
	if (app_id != SQLITE_STORE_APP_ID || tables_found != 1)
		return err_set(err, ERR_CONFIG, "%s is an SQLite database, but not one of Berth", conn->name);
	rc = meta_get(conn, KEY_SCHEMA, text, err);
	if (rc != 0)
		return rc;
	schema = parse_schema(text);
	if (schema > SQLITE_STORE_SCHEMA)
		return err_set(err, ERR_CONFIG, "%s was made by a newer berthd (schema %d, this one knows %d)",
			       conn->name, schema, SQLITE_STORE_SCHEMA);
	rc = meta_get(conn, KEY_DEPLOYMENT, owner, err);
	if (rc == 0)
		rc = meta_get(conn, KEY_ID, text, err);
	if (rc != 0)
		return rc;
	if (schema < 0 || owner[0] == '\0' || strlen(text) != 32)
		return err_set(err, ERR_CONFIG, "%s does not say its schema, deployment and id; it is damaged",
			       conn->name);
	if (strcmp(owner, deployment) != 0)
		return err_set(err, ERR_CONFIG, "%s belongs to the deployment \"%.64s\", not to \"%.64s\"", conn->name,
			       owner, deployment);
	*ret_schema = schema;
	memcpy(ret_id, text, 33);
	return 0;
}

struct clock_doc {
	int64_t time_ms, boot_ns, offset_ms;
	const char *boot_id;
};

static const struct json_field clock_fields[] = {
	{.name = "time_ms", .type = JSON_I64, .flags = JSON_REQUIRED, .off = offsetof(struct clock_doc, time_ms)},
	{.name = "boot_ns", .type = JSON_I64, .flags = JSON_REQUIRED, .off = offsetof(struct clock_doc, boot_ns)},
	{.name = "offset_ms", .type = JSON_I64, .flags = JSON_REQUIRED, .off = offsetof(struct clock_doc, offset_ms)},
	{.name = "boot_id", .type = JSON_STR, .flags = JSON_REQUIRED, .off = offsetof(struct clock_doc, boot_id)},
	{0},
};

int schema_load_clock(struct conn *conn, struct store_clock *ret, struct err *err)
{
	struct store_clock clock = {0};
	struct clock_doc doc;
	char text[DOC_MAX];
	int rc = meta_get(conn, KEY_CLOCK, text, err);

	if (rc != 0)
		return rc;
	rc = json_decode_text(conn->arena, clock_fields, text, strlen(text), &doc, sizeof(doc), err);
	/* Out of these bounds the clock's arithmetic would overflow. */
	if (rc != 0 || doc.time_ms <= 0 || doc.time_ms > STORE_CLOCK_MAX_MS || doc.boot_ns < 0 ||
	    doc.offset_ms < -STORE_CLOCK_MAX_MS || doc.offset_ms > STORE_CLOCK_MAX_MS ||
	    strlen(doc.boot_id) >= sizeof(clock.boot_id)) {
		err_set(err, ERR_STORE, "the state database %s: its clock mark is damaged", conn->name);
		err_reason(err, "corrupt");
		return ERR_STORE;
	}
	clock.time_ms = doc.time_ms;
	clock.boot_ns = doc.boot_ns;
	clock.offset_ms = doc.offset_ms;
	snprintf(clock.boot_id, sizeof(clock.boot_id), "%s", doc.boot_id);
	arena_reset(conn->arena);
	*ret = clock;
	return 0;
}

int schema_save_clock(struct conn *conn, const struct store_clock *clock, struct err *err)
{
	struct clock_doc doc = {clock->time_ms, clock->boot_ns, clock->offset_ms, clock->boot_id};
	struct buf buf;
	int rc;

	buf_init(&buf, DOC_MAX);
	rc = json_encode(&buf, clock_fields, &doc, 0);
	rc = rc != 0 ? err_set(err, ERR_NOMEM, "no memory for the clock mark") : meta_set(conn, KEY_CLOCK, buf.ptr,
											  err);
	buf_fini(&buf);
	return rc;
}
