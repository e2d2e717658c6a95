/* SPDX-License-Identifier: Apache-2.0 */
/* An older database becomes one of today, with all that it held, or stays as it was. */
#include <glob.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "conformance.h"
#include "faultfs.h"
#include "store/sqlite/sqlite.h"
#include "tempdir.h"

struct fixture {
	struct tempdir dir;
	char path[TEMPDIR_PATH], fresh[TEMPDIR_PATH];
};

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	tempdir_make(&fixture->dir);
	tempdir_path(&fixture->dir, "berth.db", fixture->path);
	tempdir_path(&fixture->dir, "fresh.db", fixture->fresh);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	tempdir_remove(&fixture->dir);
	free(fixture);
	return 0;
}

static int open_with(const char *path, const struct migration *steps, size_t count, struct store **ret, struct err *err)
{
	err_clear(err);
	return sqlite_open_with(&(struct store_config){.path = path, .deployment = "test"}, steps, count, ret, err);
}

static struct store *open_good(const char *path)
{
	struct store *store = NULL;
	struct err err;

	if (open_with(path, migrations, MIGRATIONS, &store, &err) != 0)
		fail_msg("%s", err.msg);
	return store;
}

static void run_sql(const char *path, const char *sql)
{
	char *text = NULL;
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK)
		fail_msg("%s", text);
	sqlite3_close(db);
}

/* One value as text, to be freed. */
static char *query(const char *path, const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	sqlite3 *db;
	char *text;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	text = strdup((const char *)sqlite3_column_text(stmt, 0));
	assert_non_null(text);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return text;
}

static void assert_query(const char *path, const char *sql, const char *expected)
{
	char *text = query(path, sql);

	assert_string_equal(text, expected);
	free(text);
}

static size_t find_backups(struct fixture *fixture, char ret_path[TEMPDIR_PATH])
{
	char pattern[TEMPDIR_PATH];
	glob_t found = {0};
	size_t count = 0;

	tempdir_path(&fixture->dir, "berth.db*.bak*", pattern);
	if (glob(pattern, 0, NULL, &found) == 0) {
		count = found.gl_pathc;
		snprintf(ret_path, TEMPDIR_PATH, "%s", found.gl_pathv[0]);
	}
	globfree(&found);
	return count;
}

/* ---- the first schema ---- */

#define TABLE_OF_1(name)                                                                                                \
	"ALTER TABLE " name " RENAME TO t;DROP INDEX " name "_due;DROP INDEX " name "_grp;"                             \
	"CREATE TABLE " name "(key TEXT NOT NULL PRIMARY KEY,grp TEXT NOT NULL DEFAULT '',"                             \
	"due INTEGER NOT NULL DEFAULT 0,rev INTEGER NOT NULL,doc BLOB NOT NULL);"                                       \
	"CREATE INDEX " name "_due ON " name "(due) WHERE due>0;"                                                       \
	"CREATE INDEX " name "_grp ON " name "(grp,key) WHERE grp<>'';"                                                 \
	"INSERT INTO " name " SELECT key,grp,due,rev,doc FROM t;DROP TABLE t;"
#define STREAM_OF_1(name)                                                                                               \
	"DROP TABLE " name ";"                                                                                          \
	"CREATE TABLE " name "(seq INTEGER PRIMARY KEY AUTOINCREMENT,subject TEXT NOT NULL,"                            \
	"at INTEGER NOT NULL,doc BLOB NOT NULL);CREATE INDEX " name "_subject ON " name "(subject);"

static const char schema_1[] =
	TABLE_OF_1("claims")
	STREAM_OF_1("stream_requests") STREAM_OF_1("stream_events") STREAM_OF_1("stream_dead")
	"DELETE FROM counters WHERE name LIKE 'store.stream_%';"
	"UPDATE meta SET doc='1' WHERE key='store.schema';"
	"INSERT INTO stream_requests(subject,at,doc) VALUES('a',1,'one'),('b',2,'two');"
	"INSERT INTO stream_events(seq,subject,at,doc) VALUES(70,'a',1,'first'),(71,'b',2,'gone');"
	"DELETE FROM stream_events WHERE seq=71;";

#define OBJECT_LEN 9000 /* more than a page */

static int put_object(struct txn *txn, void *arg, struct err *err)
{
	return txn_put(txn, STORE_OBJECT, &(struct store_row){.key = "e/stdout", .group = "", .doc = arg,
							      .doc_len = OBJECT_LEN}, err);
}

static void make_schema_1(const char *path)
{
	struct store *store = open_good(path);
	char bytes[OBJECT_LEN];

	memset(bytes, 'x', sizeof(bytes));
	bytes[17] = '\0';
	conformance_put(store, STORE_TASK, "ws/t", "ws", 7, "{\"task\":1}");
	conformance_put(store, STORE_CLAIM, "e", "h", 5, "{\"claim\":1}");
	conformance_put(store, STORE_COMMAND, "e", "", 0, "{\"body\":1}");
	assert_int_equal(store_update(store, put_object, bytes, NULL), 0);
	store_close(store);
	run_sql(path, schema_1);
}

static int append_step(struct txn *txn, void *arg, struct err *err)
{
	return txn_append(txn, STREAM_EVENTS, arg, "doc", 3, err);
}

#define LAYOUT                                                                                                          \
	"SELECT group_concat(sql,char(10)) FROM "                                                                       \
	"(SELECT sql FROM sqlite_schema WHERE sql<>'' AND name NOT LIKE 'sqlite_%' ORDER BY name)"

static void test_from_1(void **state)
{
	struct fixture *fixture = *state;
	struct store *store;
	char *doc, *layout, subject[] = "c";

	make_schema_1(fixture->path);
	store = open_good(fixture->path);
	doc = conformance_get(store, STORE_CLAIM, "e");
	assert_string_equal(doc, "{\"claim\":1}");
	free(doc);
	assert_int_equal(store_update(store, append_step, subject, NULL), 0);
	store_close(store);
	store_close(open_good(fixture->fresh));
	layout = query(fixture->fresh, LAYOUT);
	assert_query(fixture->path, LAYOUT, layout);
	free(layout);
	assert_query(fixture->path, "SELECT doc FROM meta WHERE key='store.schema'", "2");
	assert_query(fixture->path, "SELECT key||grp||due||rev||doc FROM claims", "eh51{\"claim\":1}");
	assert_query(fixture->path, "SELECT key||doc FROM commands", "e{\"body\":1}");
	assert_query(fixture->path, "SELECT length(doc)||typeof(doc) FROM objects WHERE key='e/stdout'", "9000blob");
	assert_query(fixture->path, "SELECT group_concat(seq||subject||at||doc) FROM stream_requests", "1a1one,2b2two");
	/* 71 was given once: it is not given again, though nothing is left of it. */
	assert_query(fixture->path, "SELECT group_concat(seq||subject) FROM stream_events", "70a,72c");
	assert_query(fixture->path, "PRAGMA integrity_check", "ok");
}

static void test_a_copy_is_kept(void **state)
{
	struct fixture *fixture = *state;
	char backup[TEMPDIR_PATH];
	struct stat st;

	umask(022);
	make_schema_1(fixture->path);
	store_close(open_good(fixture->path));
	assert_int_equal(find_backups(fixture, backup), 1);
	assert_query(backup, "SELECT doc FROM meta WHERE key='store.schema'", "1");
	assert_query(backup, "SELECT count(*) FROM claims", "1");
	assert_int_equal(stat(backup, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	store_close(open_good(fixture->path));
	assert_int_equal(find_backups(fixture, backup), 1);
}

/* The disk is full at each write in turn, one start after another, as a service manager would start it. */
static void test_full_disk(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = NULL;
	char backup[TEMPDIR_PATH];
	int works, rc = ERR_STORE;
	struct err err;

	make_schema_1(fixture->path);
	for (works = 0; rc != 0; works++) {
		faultfs_set_after(FAULTFS_WRITE, works, SQLITE_FULL);
		rc = open_with(fixture->path, migrations, MIGRATIONS, &store, &err);
		faultfs_set(FAULTFS_WRITE, 0);
		assert_true(find_backups(fixture, backup) <= 1);
		assert_query(fixture->path, "SELECT count(*) FROM claims", "1");
	}
	assert_true(works > 20);
	store_close(store);
	assert_int_equal(find_backups(fixture, backup), 1);
	assert_query(backup, "SELECT doc FROM meta WHERE key='store.schema'", "1");
	assert_query(fixture->path, "SELECT doc FROM meta WHERE key='store.schema'", "2");
	assert_query(fixture->path, "PRAGMA integrity_check", "ok");
}

static void test_fails_whole(void **state)
{
	static const struct migration broken[] = {{1, "DELETE FROM claims; DELETE FROM none;"}};
	struct fixture *fixture = *state;
	struct store *store = NULL;
	char backup[TEMPDIR_PATH];
	struct err err;

	make_schema_1(fixture->path);
	assert_int_equal(open_with(fixture->path, broken, 1, &store, &err), ERR_STORE);
	assert_query(fixture->path, "SELECT doc FROM meta WHERE key='store.schema'", "1");
	assert_query(fixture->path, "SELECT count(*) FROM claims", "1");
	assert_int_equal(find_backups(fixture, backup), 1);
	assert_int_equal(open_with(fixture->path, NULL, 0, &store, &err), ERR_CONFIG);
	assert_non_null(strstr(err.msg, "has schema 1 and this berthd knows no way from 1 to 2"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_from_1),
		TEST(test_a_copy_is_kept),
		TEST(test_full_disk),
		TEST(test_fails_whole),
	};

	faultfs_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
