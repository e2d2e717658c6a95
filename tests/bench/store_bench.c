/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store costs over SQLite itself: 64 threads doing steps of 7 puts of 600 bytes, against a bare program that
 * queues the same rows to one thread with group commit. Not a test: run it by hand, "store_bench [folder [seconds]]".
 */
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/ident.h"
#include "store/store.h"

#define THREADS 64
#define PUTS 7
#define ROW 600

struct rows {
	char keys[PUTS][48];
	char doc[ROW];
};

static const enum store_table store_tables[PUTS] = {STORE_TASK,	 STORE_EXECUTION, STORE_COMMAND, STORE_CLAIM,
						    STORE_OBJECT, STORE_WARM,	  STORE_HOST};
static atomic_bool stop;
static atomic_ulong steps;
static void *(*client_main)(void *);

static void die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static void fill_rows(struct rows *rows)
{
	char id[IDENT_ID_MAX + 1];
	int i;

	ident_random(id, "", 24);
	for (i = 0; i < PUTS; i++)
		snprintf(rows->keys[i], sizeof(rows->keys[i]), "%s", id);
	memset(rows->doc, 'd', sizeof(rows->doc));
}

/* Steps per second of all clients. */
static double measure(void *arg, int seconds)
{
	pthread_t threads[THREADS];
	int64_t start;
	int i;

	atomic_store(&stop, false);
	atomic_store(&steps, 0);
	start = clock_boot_ns();
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, client_main, arg) != 0)
			die("cannot start a thread");
	sleep((unsigned)seconds);
	atomic_store(&stop, true);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return (double)atomic_load(&steps) * 1e9 / (double)(clock_boot_ns() - start);
}

/* ---- the store ---- */

static int put_step(struct txn *txn, void *arg, struct err *err)
{
	const struct rows *rows = arg;
	int i, rc = 0;

	for (i = 0; rc == 0 && i < PUTS; i++)
		rc = txn_put(txn, store_tables[i],
			     &(struct store_row){.key = rows->keys[i], .doc = rows->doc, .doc_len = ROW}, err);
	return rc;
}

static void *store_client(void *arg)
{
	struct rows rows;

	while (!atomic_load(&stop)) {
		fill_rows(&rows);
		if (store_update(arg, put_step, &rows, NULL) != 0)
			die("the step failed");
		atomic_fetch_add(&steps, 1);
	}
	return NULL;
}

static double bench_store(const char *folder, int seconds)
{
	char path[4096];
	struct store *store;
	struct err err;
	double rate;

	snprintf(path, sizeof(path), "%s/store.db", folder);
	if (store_open_sqlite(&(struct store_config){.path = path, .deployment = "bench"}, &store, &err) != 0)
		die(err.msg);
	client_main = store_client;
	rate = measure(store, seconds);
	store_close(store);
	return rate;
}

/* ---- bare SQLite ---- */

struct bare_job {
	struct bare_job *next;
	const struct rows *rows;
	pthread_cond_t cond;
	bool done;
};

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	struct bare_job *head, **tail;
	bool stop;
	sqlite3 *db;
	sqlite3_stmt *puts[PUTS], *begin, *commit;
} bare = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void run(sqlite3_stmt *stmt)
{
	if (sqlite3_step(stmt) != SQLITE_DONE)
		die(sqlite3_errmsg(bare.db));
	sqlite3_reset(stmt);
}

static void bare_put(const struct rows *rows)
{
	int i;

	for (i = 0; i < PUTS; i++) {
		sqlite3_bind_text(bare.puts[i], 1, rows->keys[i], -1, SQLITE_STATIC);
		sqlite3_bind_blob(bare.puts[i], 2, rows->doc, ROW, SQLITE_STATIC);
		run(bare.puts[i]);
	}
}

static void bare_group(struct bare_job *jobs)
{
	struct bare_job *job, *next;

	run(bare.begin);
	for (job = jobs; job != NULL; job = job->next)
		bare_put(job->rows);
	run(bare.commit);
	pthread_mutex_lock(&bare.mutex);
	for (job = jobs; job != NULL; job = next) {
		next = job->next;
		job->done = true;
		pthread_cond_signal(&job->cond);
	}
	pthread_mutex_unlock(&bare.mutex);
}

static void *bare_writer(void *arg)
{
	struct bare_job *jobs;

	(void)arg;
	pthread_mutex_lock(&bare.mutex);
	while (bare.head != NULL || !bare.stop) {
		if (bare.head == NULL) {
			pthread_cond_wait(&bare.cond, &bare.mutex);
			continue;
		}
		jobs = bare.head;
		bare.head = NULL;
		bare.tail = &bare.head;
		pthread_mutex_unlock(&bare.mutex);
		bare_group(jobs);
		pthread_mutex_lock(&bare.mutex);
	}
	pthread_mutex_unlock(&bare.mutex);
	return NULL;
}

static void *bare_client(void *arg)
{
	struct rows rows;

	(void)arg;
	while (!atomic_load(&stop)) {
		struct bare_job job = {.rows = &rows, .cond = PTHREAD_COND_INITIALIZER};

		fill_rows(&rows);
		pthread_mutex_lock(&bare.mutex);
		*bare.tail = &job;
		bare.tail = &job.next;
		pthread_cond_signal(&bare.cond);
		while (!job.done)
			pthread_cond_wait(&job.cond, &bare.mutex);
		pthread_mutex_unlock(&bare.mutex);
		atomic_fetch_add(&steps, 1);
	}
	return NULL;
}

static void prepare(const char *sql, sqlite3_stmt **ret)
{
	if (sqlite3_prepare_v3(bare.db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL) != SQLITE_OK)
		die(sqlite3_errmsg(bare.db));
}

static void bare_open(const char *path)
{
	char sql[256];
	int i;

	if (sqlite3_open(path, &bare.db) != SQLITE_OK)
		die("cannot open the bare database");
	sqlite3_exec(bare.db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-16384", NULL, NULL,
		     NULL);
	for (i = 0; i < PUTS; i++) {
		snprintf(sql, sizeof(sql), "CREATE TABLE t%d(key TEXT PRIMARY KEY, doc BLOB)", i);
		sqlite3_exec(bare.db, sql, NULL, NULL, NULL);
		snprintf(sql, sizeof(sql),
			 "INSERT INTO t%d VALUES(?1,?2) ON CONFLICT(key) DO UPDATE SET doc=excluded.doc", i);
		prepare(sql, &bare.puts[i]);
	}
	prepare("BEGIN IMMEDIATE", &bare.begin);
	prepare("COMMIT", &bare.commit);
	bare.tail = &bare.head;
	bare.stop = false;
}

static double bench_bare(const char *folder, int seconds)
{
	char path[4096];
	pthread_t writer;
	double rate;
	int i;

	snprintf(path, sizeof(path), "%s/bare.db", folder);
	bare_open(path);
	if (pthread_create(&writer, NULL, bare_writer, NULL) != 0)
		die("cannot start the writer");
	client_main = bare_client;
	rate = measure(NULL, seconds);
	pthread_mutex_lock(&bare.mutex);
	bare.stop = true;
	pthread_cond_signal(&bare.cond);
	pthread_mutex_unlock(&bare.mutex);
	pthread_join(writer, NULL);
	for (i = 0; i < PUTS; i++)
		sqlite3_finalize(bare.puts[i]);
	sqlite3_finalize(bare.begin);
	sqlite3_finalize(bare.commit);
	sqlite3_close(bare.db);
	return rate;
}

int main(int argc, char **argv)
{
	const char *base = argc > 1 ? argv[1] : "/tmp";
	int seconds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 5;
	char folder[1024];
	double with, without;

	snprintf(folder, sizeof(folder), "%s/store-bench-XXXXXX", base);
	if (seconds <= 0 || mkdtemp(folder) == NULL)
		die("usage: store_bench [folder [seconds]]");
	without = bench_bare(folder, seconds);
	with = bench_store(folder, seconds);
	printf("bare SQLite %.0f steps/s, store %.0f steps/s, ratio %.2f (databases in %s)\n", without, with,
	       with / without, folder);
	return 0;
}
