/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an older schema becomes this one, by the thread that opens the store. It must never migrate without a backup copy
 * beside the database, nor leave a database between two schemas.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite/sqlite.h"

/* ---- the steps; their text never changes, whatever a later schema is ---- */

/* 2: fewer pages per commit. Claims in their key's own tree, and numbers of streams that the store
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
	{1, TO_2_TABLE("claims") TO_2_STREAM("stream_requests") TO_2_STREAM("stream_events")
		    TO_2_STREAM("stream_dead")},
};

/* ---- running them ---- */

/* VACUUM INTO fills an empty file, and leaves its mode alone. */
static int make_private(const char *path, struct err *err)
{
	int fd;

	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_set(err, ERR_STORE, "%s", strerror(errno));
	close(fd);
	return 0;
}

static int sync_file(const char *path, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = 0;

	if (fd < 0 || fsync(fd) != 0)
		rc = err_set(err, ERR_STORE, "it cannot be synced: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	return rc;
}

static int copy_into(struct conn *conn, const char *path, struct err *err)
{
	char *sql = sqlite3_mprintf("VACUUM INTO %Q", path);
	int rc = sql != NULL ? make_private(path, err) : err_set(err, ERR_NOMEM, "no memory");

	if (rc == 0)
		rc = conn_exec(conn, sql, err);
	if (rc == 0)
		rc = sync_file(path, err);
	sqlite3_free(sql);
	return rc;
}

/* A copy beside the database, named after its schema once it is whole. One that an earlier try left is replaced: a
 * migration that fails at each start must not fill the disk with copies. */
static int backup(struct conn *conn, const char *path, int schema, struct err *err)
{
	char *copy = sqlite3_mprintf("%s.schema-%d.bak", path, schema), *half = sqlite3_mprintf("%s.bak.new", path);
	char *journal = sqlite3_mprintf("%s.bak.new-journal", path);
	int rc = copy != NULL && half != NULL && journal != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory");

	if (rc == 0) {
		unlink(journal);
		rc = copy_into(conn, half, err);
		if (rc == 0 && rename(half, copy) != 0)
			rc = err_set(err, ERR_STORE, "%s", strerror(errno));
		if (rc == 0)
			rc = sync_parent(path, err);
		else
			unlink(half);
		unlink(journal);
	}
	if (rc != 0)
		err_prefix(err, "no backup copy could be made, so nothing was migrated");
	sqlite3_free(journal);
	sqlite3_free(half);
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
