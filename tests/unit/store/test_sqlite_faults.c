/* SPDX-License-Identifier: Apache-2.0 */
/* Disks that are full, broken or slow to give up; steps that break their group; the log under load. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "conformance.h"
#include "core/failpoint.h"
#include "core/limits.h"
#include "faultfs.h"
#include "store/sqlite/sqlite.h"
#include "tempdir.h"

static char failpoints[TEMPDIR_PATH];

struct fixture {
	struct tempdir dir;
	char path[TEMPDIR_PATH];
	struct store *store;
};

static void reopen(struct fixture *fixture)
{
	struct err err;

	store_close(fixture->store);
	fixture->store = NULL;
	if (store_open_sqlite(&(struct store_config){.path = fixture->path, .deployment = "test", .readers = 2},
			      &fixture->store, &err) != 0)
		fail_msg("%s", err.msg);
}

static void copy_file(const char *from, const char *to)
{
	static char bytes[LIMIT_KIB * LIMIT_KIB];
	FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
	size_t len;

	assert_true(in != NULL && out != NULL);
	len = fread(bytes, 1, sizeof(bytes), in);
	assert_true(len > 0 && len < sizeof(bytes));
	assert_int_equal(fwrite(bytes, 1, len, out), len);
	fclose(in);
	fclose(out);
}

/* The store is opened again from what is on the disk now, as after a kill. */
static void crash(struct fixture *fixture)
{
	char from[TEMPDIR_PATH], to[TEMPDIR_PATH];

	tempdir_path(&fixture->dir, "berth.db-wal", from);
	tempdir_path(&fixture->dir, "crashed.db-wal", to);
	copy_file(from, to);
	tempdir_path(&fixture->dir, "crashed.db", to);
	copy_file(fixture->path, to);
	tempdir_path(&fixture->dir, "crashed.db", fixture->path);
	reopen(fixture);
}

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	tempdir_make(&fixture->dir);
	tempdir_path(&fixture->dir, "berth.db", fixture->path);
	reopen(fixture);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;
	int i;

	for (i = 0; i < FAULTFS_CALLS; i++)
		faultfs_set((enum faultfs_call)i, 0);
	store_close(fixture->store);
	tempdir_remove(&fixture->dir);
	free(fixture);
	return 0;
}

struct row_arg {
	const char *key, *doc;
	size_t len;
};

static int put_step(struct txn *txn, void *arg, struct err *err)
{
	const struct row_arg *row = arg;

	return txn_put(txn, STORE_TASK, &(struct store_row){.key = row->key, .group = "g", .doc = row->doc,
							    .doc_len = row->len}, err);
}

static int put(struct store *store, const char *key, struct err *err)
{
	err_clear(err);
	return store_update(store, put_step, &(struct row_arg){key, "doc", 3}, err);
}

static void assert_present(struct store *store, const char *key, bool present)
{
	char *doc = conformance_get(store, STORE_TASK, key);

	if ((doc != NULL) != present)
		fail_msg("%s is %s", key, doc != NULL ? "there" : "missing");
	free(doc);
}

/* A write fails in a way, the sentence says so, and the store works again afterwards. */
static void fault_and_recover(struct fixture *fixture, enum faultfs_call call, int code, const char *reason,
			      const char *sentence)
{
	struct err err;

	faultfs_set(call, code);
	assert_int_equal(put(fixture->store, "lost", &err), ERR_STORE);
	assert_string_equal(err.reason, reason);
	assert_string_equal(err.msg, sentence);
	assert_true(err.retryable);
	assert_false(store_healthy(fixture->store, &err));
	assert_string_equal(err.msg, sentence);
	assert_present(fixture->store, "lost", false);
	faultfs_set(call, 0);
	assert_true(store_healthy(fixture->store, &err));
	assert_int_equal(put(fixture->store, "kept", &err), 0);
	assert_true(store_healthy(fixture->store, &err));
	reopen(fixture);
	assert_present(fixture->store, "lost", false);
	assert_present(fixture->store, "kept", true);
}

static void test_disk_full(void **state)
{
	fault_and_recover(*state, FAULTFS_WRITE, SQLITE_FULL, "disk_full",
			  "the state database berth.db: there is no room left on its disk");
}

static void test_write_error(void **state)
{
	fault_and_recover(*state, FAULTFS_WRITE, SQLITE_IOERR_WRITE, "outcome_unknown",
			  "the state database berth.db: its disk reports an I/O error");
}

static void test_sync_error(void **state)
{
	fault_and_recover(*state, FAULTFS_SYNC, SQLITE_IOERR_FSYNC, "outcome_unknown",
			  "the state database berth.db: its disk reports an I/O error");
}

/* ---- reads ---- */

static void fill(struct store *store)
{
	char *doc = calloc(1, 65536), key[16];
	struct err err;
	int i;

	assert_non_null(doc);
	for (i = 0; i < 20; i++) {
		snprintf(key, sizeof(key), "key-%02d", i);
		assert_int_equal(store_update(store, put_step, &(struct row_arg){key, doc, 65536}, &err), 0);
	}
	free(doc);
}

/* Ignores what the read said and writes. */
static int careless_step(struct txn *txn, void *arg, struct err *err)
{
	struct store_row row;

	(void)arg;
	txn_get(txn, STORE_TASK, "key-07", &row, NULL);
	return txn_put(txn, STORE_TASK, &(struct store_row){.key = "careless", .doc = "x", .doc_len = 1}, err);
}

static void read_fault(struct fixture *fixture, int code, const char *reason)
{
	struct err err = {0};
	char *doc = NULL;

	fill(fixture->store);
	reopen(fixture);
	faultfs_set(FAULTFS_READ, code);
	assert_int_equal(store_get(fixture->store, STORE_TASK, "key-07", &doc, NULL, &err), ERR_STORE);
	assert_string_equal(err.reason, reason);
	assert_null(doc);
	err_clear(&err);
	assert_int_equal(store_update(fixture->store, careless_step, NULL, &err), ERR_STORE);
	assert_string_equal(err.reason, reason);
	faultfs_set(FAULTFS_READ, 0);
	assert_present(fixture->store, "careless", false);
	assert_present(fixture->store, "key-07", true);
	assert_int_equal(store_update(fixture->store, careless_step, NULL, &err), 0);
	assert_present(fixture->store, "careless", true);
}

static void test_read_error(void **state)
{
	read_fault(*state, SQLITE_IOERR_READ, "io");
}

static void test_read_corrupt(void **state)
{
	read_fault(*state, SQLITE_CORRUPT, "corrupt");
}

/* ---- failpoints ---- */

static void arm(const char *line)
{
	FILE *file = fopen(failpoints, "we");

	assert_non_null(file);
	assert_true(fputs(line, file) >= 0);
	fclose(file);
}

static void test_failpoints(void **state)
{
	struct fixture *fixture = *state;
	struct err err;

	arm("store.commit.before error\n");
	assert_int_equal(put(fixture->store, "before", &err), ERR_STORE);
	assert_string_not_equal(err.reason, "outcome_unknown");
	arm("store.commit.after error\n");
	assert_int_equal(put(fixture->store, "after", &err), ERR_STORE);
	assert_string_equal(err.reason, "outcome_unknown");
	arm("");
	assert_present(fixture->store, "before", false);
	assert_present(fixture->store, "after", true);
	assert_int_equal(put(fixture->store, "before", &err), 0);
}

/* ---- groups ---- */

#define CALLERS 24

static sem_t held, release;

/* Holds the writer, so that what is queued meanwhile joins its group; only once, when the group is run again. */
static int hold_step(struct txn *txn, void *arg, struct err *err)
{
	bool *was_held = arg;

	(void)txn;
	(void)err;
	if (*was_held)
		return 0;
	*was_held = true;
	sem_post(&held);
	while (sem_wait(&release) != 0)
		continue;
	return 0;
}

static void *hold_main(void *arg)
{
	bool was_held = false;

	store_update(arg, hold_step, &was_held, NULL);
	return NULL;
}

struct caller {
	pthread_t thread;
	struct store *store;
	char key[16];
	bool breaks;
	int rc;
	unsigned runs;
	struct err err;
};

/* A breaking step passes every check and is refused only when it is applied: the counter is nearly full already. */
static int caller_step(struct txn *txn, void *arg, struct err *err)
{
	struct caller *caller = arg;
	int rc = txn_put(txn, STORE_TASK, &(struct store_row){.key = caller->key, .doc = "x", .doc_len = 1}, err);

	caller->runs++;
	return rc != 0 || !caller->breaks ? rc : txn_count_add(txn, "full", INT64_MAX, err);
}

static void *caller_main(void *arg)
{
	struct caller *caller = arg;

	caller->rc = store_update(caller->store, caller_step, caller, &caller->err);
	return NULL;
}

static size_t queue_length(struct store *base)
{
	struct sqlite_store *store = sqlite_of(base);
	struct job *job;
	size_t length = 0;

	lock_take(&store->lock);
	for (job = store->queue; job != NULL; job = job->next)
		length++;
	lock_drop(&store->lock);
	return length;
}

/* Runs all callers as one group behind a held writer. */
static void run_group(struct store *store, struct caller *callers, void (*before_release)(void))
{
	pthread_t holder;
	size_t i;

	assert_int_equal(pthread_create(&holder, NULL, hold_main, store), 0);
	while (sem_wait(&held) != 0)
		continue;
	for (i = 0; i < CALLERS; i++)
		assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]), 0);
	while (queue_length(store) < CALLERS)
		sched_yield();
	if (before_release != NULL)
		before_release();
	sem_post(&release);
	for (i = 0; i < CALLERS; i++)
		pthread_join(callers[i].thread, NULL);
	pthread_join(holder, NULL);
}

static void name_callers(struct store *store, struct caller *callers, size_t breaks)
{
	size_t i;

	for (i = 0; i < CALLERS; i++) {
		callers[i] = (struct caller){.store = store, .breaks = i == breaks};
		snprintf(callers[i].key, sizeof(callers[i].key), "caller-%zu", i);
	}
}

static int fill_counter_step(struct txn *txn, void *arg, struct err *err)
{
	(void)arg;
	return txn_count_add(txn, "full", INT64_MAX - 1, err);
}

static void test_broken_group(void **state)
{
	struct fixture *fixture = *state;
	struct caller callers[CALLERS];
	size_t i;

	assert_int_equal(store_update(fixture->store, fill_counter_step, NULL, NULL), 0);
	name_callers(fixture->store, callers, CALLERS / 2);
	run_group(fixture->store, callers, NULL);
	for (i = 0; i < CALLERS; i++) {
		assert_int_equal(callers[i].rc, callers[i].breaks ? ERR_STORE : 0);
		assert_present(fixture->store, callers[i].key, !callers[i].breaks);
	}
	assert_true(store_healthy(fixture->store, NULL));
}

static void break_disk(void)
{
	faultfs_set(FAULTFS_WRITE, SQLITE_FULL);
}

static void test_full_group(void **state)
{
	struct fixture *fixture = *state;
	struct caller callers[CALLERS];
	size_t i;

	name_callers(fixture->store, callers, CALLERS);
	run_group(fixture->store, callers, break_disk);
	faultfs_set(FAULTFS_WRITE, 0);
	for (i = 0; i < CALLERS; i++) {
		assert_int_equal(callers[i].rc, ERR_STORE);
		assert_string_equal(callers[i].err.reason, "disk_full");
		assert_present(fixture->store, callers[i].key, false);
		assert_int_equal(callers[i].runs, 1);
	}
}

/* ---- a transaction larger than the writer's cache: pages go to the log before its end, and come back from there ---- */

#define BIG_ROWS 16
#define BIG_DOC (200 * LIMIT_KIB)

static int big_step(struct txn *txn, void *arg, struct err *err)
{
	struct row_arg row = {.doc = arg, .len = BIG_DOC};
	char key[16];
	int rc = 0;

	for (int i = 0; rc == 0 && i < BIG_ROWS; i++) {
		snprintf(key, sizeof(key), "big-%02d", i);
		row.key = key;
		rc = put_step(txn, &row, err);
	}
	return rc;
}

static void assert_big(struct store *store, char letter)
{
	char key[16];

	for (int i = 0; i < BIG_ROWS; i++) {
		char *doc;

		snprintf(key, sizeof(key), "big-%02d", i);
		doc = conformance_get(store, STORE_TASK, key);
		assert_non_null(doc);
		assert_int_equal(strlen(doc), BIG_DOC);
		assert_int_equal(strspn(doc, (char[]){letter, 0}), BIG_DOC);
		free(doc);
	}
}

static void assert_whole(const struct fixture *fixture)
{
	sqlite3_stmt *stmt;
	sqlite3 *db;

	assert_int_equal(sqlite3_open_v2(fixture->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	assert_string_equal(sqlite3_column_text(stmt, 0), "ok");
	sqlite3_finalize(stmt);
	sqlite3_close(db);
}

/* The disk fills up at each of its writes in turn, until one transaction finds room for all. */
static void test_full_within_a_big_step(void **state)
{
	struct fixture *fixture = *state;
	char *doc = calloc(1, BIG_DOC + 1), letter = 'a';
	struct err err;
	int works, rc = ERR_STORE;

	assert_non_null(doc);
	memset(doc, letter, BIG_DOC);
	assert_int_equal(store_update(fixture->store, big_step, doc, &err), 0);
	for (works = 0; rc != 0; works++) {
		memset(doc, 'b' + works % 25, BIG_DOC);
		faultfs_set_after(FAULTFS_WRITE, works, SQLITE_FULL);
		rc = store_update(fixture->store, big_step, doc, &err);
		faultfs_set(FAULTFS_WRITE, 0);
		letter = rc == 0 ? doc[0] : letter;
		if (rc != 0)
			assert_string_equal(err.reason, "disk_full");
		assert_int_equal(put(fixture->store, "small", &err), 0);
		assert_big(fixture->store, letter);
	}
	assert_true(works > 20); /* 3.2 MiB, gathered to writes of at most 124 KiB */
	assert_whole(fixture);
	reopen(fixture);
	assert_big(fixture->store, letter);
	free(doc);
}

/* One write fails and those after it work: what was not written may not be missing from a commit. The fault may meet a step that
 * is run again alone, or a checkpoint: then the step is done. */
static void test_one_write_fails_within_a_big_step(void **state)
{
	struct fixture *fixture = *state;
	char *doc = calloc(1, BIG_DOC + 1), letter = 'a';
	struct err err;

	assert_non_null(doc);
	memset(doc, letter, BIG_DOC);
	assert_int_equal(store_update(fixture->store, big_step, doc, &err), 0);
	for (int works = 0; works < 40; works++) {
		memset(doc, 'b' + works % 25, BIG_DOC);
		faultfs_set_once(FAULTFS_WRITE, works, SQLITE_FULL);
		if (store_update(fixture->store, big_step, doc, &err) == 0)
			letter = doc[0];
		faultfs_set(FAULTFS_WRITE, 0);
		assert_big(fixture->store, letter);
	}
	assert_whole(fixture);
	reopen(fixture);
	assert_big(fixture->store, letter);
	free(doc);
}

/* ---- numbers of streams ---- */

static int append_step(struct txn *txn, void *arg, struct err *err)
{
	(void)arg;
	return txn_append(txn, STREAM_EVENTS, "s", "{}", 2, err);
}

static bool see_number(const struct stream_entry *entry, void *arg)
{
	*(uint64_t *)arg = entry->seq;
	return true;
}

static int last_number_step(struct txn *txn, void *arg, struct err *err)
{
	return txn_read_stream(txn, STREAM_EVENTS, 0, SIZE_MAX, see_number, arg, err);
}

static int trim_all_step(struct txn *txn, void *arg, struct err *err)
{
	return txn_trim(txn, STREAM_EVENTS, INT64_MAX, SIZE_MAX, arg, err);
}

/* The first commit that puts numbers aside fails; those that were given afterwards are not given again by who opens what a crash
 * left. */
static void test_numbers_after_a_failed_commit(void **state)
{
	struct fixture *fixture = *state;
	uint64_t last = 0, next = 0;
	size_t trimmed;

	faultfs_set(FAULTFS_SYNC, SQLITE_IOERR_FSYNC);
	assert_int_equal(store_update(fixture->store, append_step, NULL, NULL), ERR_STORE);
	faultfs_set(FAULTFS_SYNC, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(store_update(fixture->store, append_step, NULL, NULL), 0);
	assert_int_equal(store_view(fixture->store, last_number_step, &last, NULL), 0);
	assert_int_equal(store_update(fixture->store, trim_all_step, &trimmed, NULL), 0);
	assert_int_equal(trimmed, 3);
	crash(fixture);
	assert_int_equal(store_update(fixture->store, append_step, NULL, NULL), 0);
	assert_int_equal(store_view(fixture->store, last_number_step, &next, NULL), 0);
	assert_true(next > last);
}

/* ---- the log ---- */

static int64_t size_of(struct fixture *fixture, const char *name)
{
	char path[TEMPDIR_PATH];
	struct stat st;

	tempdir_path(&fixture->dir, name, path);
	return stat(path, &st) == 0 ? st.st_size : -1;
}

/* Rows that differ each time: SQLite leaves pages alone that would stay as they are. */
static void write_mib(struct fixture *fixture, int mib, char *doc)
{
	char key[16];
	struct err err;
	int i;

	for (i = 0; i < mib * 2; i++) {
		snprintf(key, sizeof(key), "key-%02d", i % 16);
		memset(doc, 'a' + i / 16 % 26, LIMIT_ROW / 2);
		assert_int_equal(store_update(fixture->store, put_step, &(struct row_arg){key, doc, LIMIT_ROW / 2},
					      &err), 0);
	}
}

static void test_log_is_bounded(void **state)
{
	struct fixture *fixture = *state;
	char *doc = calloc(1, LIMIT_ROW / 2);

	write_mib(fixture, 120, doc);
	assert_true(size_of(fixture, "berth.db-wal") < 96 * INT64_C(1048576));
	store_close(fixture->store);
	fixture->store = NULL;
	assert_int_equal(size_of(fixture, "berth.db-wal"), -1);
	assert_true(size_of(fixture, "berth.db") > 8 * INT64_C(1048576));
	reopen(fixture);
	free(doc);
}

struct reader_arg {
	struct fixture *fixture;
	char *doc;
	int64_t log_size;
};

/* While a view lasts its snapshot stays in the log, so the log grows past every mark; nobody may wait for that for
 * ever. */
static int long_view(struct txn *txn, void *arg, struct err *err)
{
	struct reader_arg *reader = arg;
	struct store_row row;
	int rc = txn_get(txn, STORE_TASK, "first", &row, err);

	if (rc != 0 || row.doc == NULL)
		return ERR_INTERNAL;
	write_mib(reader->fixture, 90, reader->doc);
	reader->log_size = size_of(reader->fixture, "berth.db-wal");
	return txn_get(txn, STORE_TASK, "key-00", &row, err) != 0 || row.doc != NULL ? ERR_INTERNAL : 0;
}

static void test_log_under_a_long_view(void **state)
{
	struct fixture *fixture = *state;
	struct reader_arg reader = {fixture, calloc(1, LIMIT_ROW / 2), 0};
	struct err err;

	assert_int_equal(put(fixture->store, "first", &err), 0);
	assert_int_equal(store_view(fixture->store, long_view, &reader, &err), 0);
	assert_true(reader.log_size > 80 * INT64_C(1048576));
	write_mib(fixture, 100, reader.doc);
	assert_true(size_of(fixture, "berth.db-wal") < reader.log_size + 16 * INT64_C(1048576));
	free(reader.doc);
}

/* More views at once than connections: they take turns. */
static void *view_main(void *arg)
{
	struct caller *caller = arg;
	char *doc = NULL;

	caller->rc = store_get(caller->store, STORE_TASK, caller->key, &doc, NULL, &caller->err);
	if (caller->rc == 0 && doc == NULL)
		caller->rc = ERR_NOT_FOUND;
	free(doc);
	return NULL;
}

static void test_views_take_turns(void **state)
{
	struct fixture *fixture = *state;
	struct caller callers[CALLERS];
	struct err err;
	size_t i;

	name_callers(fixture->store, callers, CALLERS);
	for (i = 0; i < CALLERS; i++)
		assert_int_equal(put(fixture->store, callers[i].key, &err), 0);
	for (i = 0; i < CALLERS; i++)
		assert_int_equal(pthread_create(&callers[i].thread, NULL, view_main, &callers[i]), 0);
	for (i = 0; i < CALLERS; i++) {
		pthread_join(callers[i].thread, NULL);
		assert_int_equal(callers[i].rc, 0);
	}
	assert_true(sqlite_of(fixture->store)->readers_open <= 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_disk_full),
		TEST(test_write_error),
		TEST(test_sync_error),
		TEST(test_read_error),
		TEST(test_read_corrupt),
		TEST(test_failpoints),
		TEST(test_broken_group),
		TEST(test_full_group),
		TEST(test_full_within_a_big_step),
		TEST(test_one_write_fails_within_a_big_step),
		TEST(test_numbers_after_a_failed_commit),
		TEST(test_log_is_bounded),
		TEST(test_log_under_a_long_view),
		TEST(test_views_take_turns),
	};
	struct tempdir dir;
	struct err err = {0};
	int rc;

	sem_init(&held, 0, 0);
	sem_init(&release, 0, 0);
	tempdir_make(&dir);
	tempdir_path(&dir, "failpoints", failpoints);
	arm("");
	setenv("BERTH_FAILPOINTS", failpoints, 1);
	if (failpoint_init(&err) != 0)
		return 1;
	faultfs_install();
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	tempdir_remove(&dir);
	return rc;
}
