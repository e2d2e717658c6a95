/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an older schema becomes this one, by the thread that opens the store. It must never migrate without a backup copy
 * beside the database, nor leave a database between two schemas.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "core/clock.h"
#include "store/sqlite/sqlite.h"

/* ---- the steps; their text never changes, whatever a later schema is ---- */

/* 2: fewer pages per commit. Rows of open executions in their key's own tree, and numbers of streams that the store
 * gives itself (group.c) instead of a row that each entry changes. */
#define TO_2_TABLE(name)                                                                                                \
	"ALTER TABLE " name " RENAME TO old;DROP INDEX " name "_due;DROP INDEX " name "_grp;"                           \
	"CREATE TABLE " name "(key TEXT NOT NULL PRIMARY KEY,grp TEXT NOT NULL DEFAULT '',"                             \
	"due INTEGER NOT NULL DEFAULT 0,rev INTEGER NOT NULL,doc BLOB NOT NULL) WITHOUT ROWID;"                         \
	"CREATE INDEX " name "_due ON " name "(due) WHERE due>0;"                                                       \
	"CREATE INDEX " name "_grp ON " name "(grp,key) WHERE grp<>'';"                                                 \
	"INSERT INTO " name "(key,grp,due,rev,doc) SELECT key,grp,due,rev,doc FROM old ORDER BY key;DROP TABLE old;"
#define TO_2_STREAM(name)                                                                                               \
	"INSERT INTO counters(name,value) SELECT 'store." name "',seq+1 FROM sqlite_sequence WHERE name='" name "';"    \
	"ALTER TABLE " name " RENAME TO old;DROP INDEX " name "_subject;"                                               \
	"CREATE TABLE " name "(seq INTEGER PRIMARY KEY,subject TEXT NOT NULL,at INTEGER NOT NULL,doc BLOB NOT NULL);"   \
	"CREATE INDEX " name "_subject ON " name "(subject);"                                                           \
	"INSERT INTO " name "(seq,subject,at,doc) SELECT seq,subject,at,doc FROM old ORDER BY seq;DROP TABLE old;"

const struct migration migrations[MIGRATIONS] = {
	{1, TO_2_TABLE("claims") TO_2_TABLE("commands") TO_2_TABLE("objects") TO_2_STREAM("stream_requests")
		    TO_2_STREAM("stream_events") TO_2_STREAM("stream_dead")},
};

/* ---- running them ---- */

static int sync_file(const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = 0;

	if (fd < 0 || fsync(fd) != 0)
		rc = err_set(err, ERR_STORE, "the backup copy cannot be synced: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

/* A copy beside the database that nothing overwrites: its name carries the schema and the time. */
static int backup(struct conn *conn, const char *path, int schema, struct err *err)
{
	char *copy = sqlite3_mprintf("%s.schema-%d-%lld.bak", path, schema, (long long)clock_wall_ms());
	char *sql = copy != NULL ? sqlite3_mprintf("VACUUM INTO %Q", copy) : NULL;
	int rc;

	if (sql == NULL)
		rc = err_set(err, ERR_NOMEM, "no memory for the backup copy");
	else
		rc = conn_exec(conn, sql, err);
	if (rc == 0)
		rc = sync_file(copy, err);
	if (rc != 0)
		err_prefix(err, "no backup copy could be made, so nothing was migrated");
	sqlite3_free(sql);
	sqlite3_free(copy);
	return rc;
}

static const struct migration *find_step(const struct migration *steps, size_t count, int from)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (steps[i].from == from)
			return &steps[i];
	return NULL;
}

static int run_steps(struct conn *conn, int schema, const struct migration *steps, size_t count, struct err *err)
{
	int rc = conn_run_plain(conn, STMT_PLAIN_BEGIN_WRITE, err);

	if (rc != 0)
		return rc;
	for (; rc == 0 && schema < SQLITE_STORE_SCHEMA; schema++)
		rc = conn_exec(conn, find_step(steps, count, schema)->sql, err);
	if (rc == 0)
		rc = schema_set(conn, SQLITE_STORE_SCHEMA, err);
	if (rc == 0)
		rc = conn_run_plain(conn, STMT_PLAIN_COMMIT, err);
	if (rc != 0 && !sqlite3_get_autocommit(conn->db))
		conn_run_plain(conn, STMT_PLAIN_ROLLBACK, NULL);
	return rc;
}

int schema_migrate(struct conn *conn, const char *path, int schema, const struct migration *steps, size_t count,
		   struct err *err)
{
	int from, rc;

	if (schema == SQLITE_STORE_SCHEMA)
		return 0;
	for (from = schema; from < SQLITE_STORE_SCHEMA; from++)
		if (find_step(steps, count, from) == NULL)
			return err_set(err, ERR_CONFIG, "%s has schema %d and this berthd knows no way from %d to %d",
				       conn->name, schema, from, from + 1);
	rc = backup(conn, path, schema, err);
	if (rc == 0)
		rc = run_steps(conn, schema, steps, count, err);
	return rc;
}
