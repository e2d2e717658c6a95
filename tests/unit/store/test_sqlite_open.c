/* SPDX-License-Identifier: Apache-2.0 */
/* What may be opened and what is refused, with the sentence the operator reads; one process per database. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance.h"
#include "store/sqlite/sqlite.h"
#include "tempdir.h"

struct fixture {
	struct tempdir dir;
	char path[TEMPDIR_PATH];
};

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	tempdir_make(&fixture->dir);
	tempdir_path(&fixture->dir, "berth.db", fixture->path);
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

static int open_as(const char *path, const char *deployment, struct store **ret, struct err *err)
{
	err_clear(err);
	return store_open_sqlite(&(struct store_config){.path = path, .deployment = deployment, .host_id = "h-1"}, ret,
				 err);
}

static struct store *open_good(const char *path)
{
	struct store *store = NULL;
	struct err err;

	if (open_as(path, "test", &store, &err) != 0)
		fail_msg("%s", err.msg);
	return store;
}

static void assert_open_refused(const char *path, const char *sentence)
{
	struct store *store = NULL;
	struct err err;
	int rc = open_as(path, "test", &store, &err);

	assert_true(rc == ERR_CONFIG || rc == ERR_STORE || rc == ERR_IN_USE);
	assert_null(store);
	if (strstr(err.msg, sentence) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", err.msg, sentence);
}

static void make_store(const char *path)
{
	struct store *store = open_good(path);

	conformance_put(store, STORE_TASK, "k", "g", 1, "doc");
	store_close(store);
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

static int query_int(const char *path, const char *sql)
{
	sqlite3_stmt *stmt = NULL;
	sqlite3 *db;
	int value = -1;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW)
		value = sqlite3_column_int(stmt, 0);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return value;
}

static void write_file(const char *path, const char *bytes, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, len), len);
	close(fd);
}

/* The bytes of a file, to prove that a refusal changed nothing. */
static char *slurp(const char *path, size_t *ret_len)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	char *bytes;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	bytes = malloc((size_t)st.st_size + 1);
	assert_non_null(bytes);
	assert_int_equal(read(fd, bytes, (size_t)st.st_size), st.st_size);
	close(fd);
	*ret_len = (size_t)st.st_size;
	return bytes;
}

static void assert_refused_untouched(const char *path, const char *sentence)
{
	size_t len_before, len_after;
	char *before = slurp(path, &len_before), *after;

	assert_open_refused(path, sentence);
	after = slurp(path, &len_after);
	assert_int_equal(len_before, len_after);
	assert_memory_equal(before, after, len_before);
	free(before);
	free(after);
}

static void test_private_files(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = open_good(fixture->path);
	struct stat st;

	assert_int_equal(stat(fixture->path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	store_close(store);
	/* One file and the lock remain. */
	assert_int_equal(query_int(fixture->path, "SELECT count(*) FROM meta WHERE key LIKE 'store.%'"), 4);
	assert_int_equal(query_int(fixture->path, "SELECT doc FROM meta WHERE key='store.schema'"),
			 SQLITE_STORE_SCHEMA);
}

static void test_operator_can_read(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = open_good(fixture->path);

	conformance_put(store, STORE_EXECUTION, "e", "g", 5, "{\"state\":42}");
	store_close(store);
	assert_int_equal(query_int(fixture->path, "SELECT json_extract(doc,'$.state') FROM executions WHERE key='e'"),
			 42);
	assert_int_equal(query_int(fixture->path, "SELECT rev FROM executions WHERE key='e' AND grp='g' AND due=5"), 1);
}

static void test_in_use(void **state)
{
	struct fixture *fixture = *state;
	char twin[TEMPDIR_PATH], sentence[64];
	struct store *store = open_good(fixture->path), *other = NULL;
	struct err err;

	snprintf(sentence, sizeof(sentence), "berth.db is in use by berthd pid %ld", (long)getpid());
	assert_open_refused(fixture->path, sentence);
	/* By another name it is the same database. */
	tempdir_path(&fixture->dir, "link.db", twin);
	assert_int_equal(symlink(fixture->path, twin), 0);
	assert_open_refused(twin, sentence);
	assert_int_equal(open_as(twin, "test", &other, &err), ERR_IN_USE);
	store_close(store);
	store = open_good(twin);
	assert_false(store_is_new(store));
	store_close(store);
}

static void test_in_use_by_another_process(void **state)
{
	struct fixture *fixture = *state;
	char sentence[64], ready;
	struct store *store = NULL;
	struct err err;
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (pid == 0) {
		if (open_as(fixture->path, "test", &store, &err) != 0 || write(fds[1], "r", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(fds[0], &ready, 1), 1);
	snprintf(sentence, sizeof(sentence), "is in use by berthd pid %ld", (long)pid);
	assert_open_refused(fixture->path, sentence);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	store = open_good(fixture->path);
	assert_false(store_is_new(store));
	store_close(store);
	close(fds[0]);
	close(fds[1]);
}

static void test_other_deployment(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = NULL;
	struct err err;

	make_store(fixture->path);
	assert_int_equal(open_as(fixture->path, "prod", &store, &err), ERR_CONFIG);
	assert_string_equal(err.msg, "berth.db belongs to the deployment \"test\", not to \"prod\"");
	assert_int_equal(open_as(fixture->path, "", &store, &err), ERR_CONFIG);
	store_close(open_good(fixture->path));
}

static void test_newer_schema(void **state)
{
	struct fixture *fixture = *state;

	make_store(fixture->path);
	run_sql(fixture->path, "UPDATE meta SET doc='7' WHERE key='store.schema'");
	assert_refused_untouched(fixture->path, "berth.db was made by a newer berthd (schema 7, this one knows 2)");
}

static void test_damaged_meta(void **state)
{
	struct fixture *fixture = *state;

	make_store(fixture->path);
	run_sql(fixture->path, "UPDATE meta SET doc='x' WHERE key='store.schema'");
	assert_open_refused(fixture->path, "does not say its schema");
	run_sql(fixture->path,
		"UPDATE meta SET doc='2' WHERE key='store.schema'; UPDATE meta SET doc='{' WHERE key='store.clock'");
	assert_open_refused(fixture->path, "its clock mark is damaged");
}

static void test_not_ours(void **state)
{
	struct fixture *fixture = *state;
	char text[4096];

	memset(text, 'x', sizeof(text));
	write_file(fixture->path, text, sizeof(text));
	assert_refused_untouched(fixture->path, "is not a Berth database");
	write_file(fixture->path, "", 0);
	assert_refused_untouched(fixture->path, "berth.db is empty");
	unlink(fixture->path);
	run_sql(fixture->path, "CREATE TABLE meta(key TEXT)");
	assert_refused_untouched(fixture->path, "is an SQLite database, but not one of Berth");
	unlink(fixture->path);
	assert_int_equal(mkdir(fixture->path, 0700), 0);
	assert_open_refused(fixture->path, "is not a regular file");
}

static void test_no_place(void **state)
{
	struct fixture *fixture = *state;
	char path[TEMPDIR_PATH];

	tempdir_path(&fixture->dir, "none/berth.db", path);
	assert_open_refused(path, "No such file or directory");
	assert_open_refused("", "needs a path");
	make_store(fixture->path);
	assert_int_equal(chmod(fixture->path, 0400), 0);
	assert_open_refused(fixture->path, "berth.db is read-only");
}

/* A database that is gone while its log is there was not never there. */
static void test_lost_database(void **state)
{
	struct fixture *fixture = *state;
	char log[TEMPDIR_PATH];

	tempdir_path(&fixture->dir, "berth.db-wal", log);
	write_file(log, "frames", 6);
	assert_open_refused(fixture->path, "is missing but its log");
	assert_int_equal(access(fixture->path, F_OK), -1);
}

static void fill(struct store *store)
{
	char doc[2001], key[16];
	int i;

	memset(doc, 'd', sizeof(doc) - 1);
	doc[sizeof(doc) - 1] = '\0';
	for (i = 0; i < 100; i++) {
		snprintf(key, sizeof(key), "key-%d", i);
		conformance_put(store, STORE_TASK, key, "g", 1, doc);
	}
}

static void test_truncated(void **state)
{
	struct fixture *fixture = *state;
	struct store *store = open_good(fixture->path);
	struct stat st;

	fill(store);
	store_close(store);
	assert_int_equal(stat(fixture->path, &st), 0);
	assert_int_equal(truncate(fixture->path, st.st_size / 2), 0);
	assert_refused_untouched(fixture->path, "damaged");
	assert_int_equal(truncate(fixture->path, 100), 0);
	assert_refused_untouched(fixture->path, "");
}

/* Copies the database with its log while it is open, as a crash leaves it, and damages pages in the middle. */
static void test_damaged_after_crash(void **state)
{
	struct fixture *fixture = *state;
	char copy[TEMPDIR_PATH], log[TEMPDIR_PATH], copy_log[TEMPDIR_PATH];
	struct store *store = open_good(fixture->path);
	size_t len, log_len, i;
	char *bytes, *frames;

	fill(store);
	store_close(store);
	store = open_good(fixture->path);
	conformance_put(store, STORE_TASK, "k", "g", 1, "doc");
	tempdir_path(&fixture->dir, "copy.db", copy);
	tempdir_path(&fixture->dir, "copy.db-wal", copy_log);
	tempdir_path(&fixture->dir, "berth.db-wal", log);
	frames = slurp(log, &log_len);
	store_close(store);
	bytes = slurp(fixture->path, &len);
	write_file(copy, bytes, len);
	write_file(copy_log, frames, log_len);
	store = open_good(copy);
	free(conformance_get(store, STORE_TASK, "k"));
	store_close(store);
	for (i = 8192; i < len - 4096; i++)
		bytes[i] = (char)(i * 31);
	write_file(copy, bytes, len);
	write_file(copy_log, frames, log_len);
	assert_open_refused(copy, "copy.db: the file is damaged");
	free(bytes);
	free(frames);
}

/* A crash while the database was being made leaves no database, and no trap for the next start. */
static void test_half_made(void **state)
{
	struct fixture *fixture = *state;
	char half[TEMPDIR_PATH];
	struct store *store;

	tempdir_path(&fixture->dir, "berth.db.new", half);
	write_file(half, "half", 4);
	store = open_good(fixture->path);
	assert_true(store_is_new(store));
	assert_int_equal(access(half, F_OK), -1);
	store_close(store);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_private_files),
		TEST(test_operator_can_read),
		TEST(test_in_use),
		TEST(test_in_use_by_another_process),
		TEST(test_other_deployment),
		TEST(test_newer_schema),
		TEST(test_damaged_meta),
		TEST(test_not_ours),
		TEST(test_no_place),
		TEST(test_lost_database),
		TEST(test_truncated),
		TEST(test_damaged_after_crash),
		TEST(test_half_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
