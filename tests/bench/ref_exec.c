/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What executions have to be measured against: SQLite with WAL and synchronous=FULL, one writing thread that commits
 * what is queued as one group, and clients that make two sequential commits per execution, each of 12 upserts of 600
 * bytes over 4 tables (the first makes the rows, the second changes them). "ref_exec DATABASE CLIENTS SECONDS" prints
 * executions per second.
 */
#include <sqlite3.h>
#include <string.h>

#include "ref.h"

#define TABLES 4
#define UPSERTS 12
#define ROW 600

struct job {
	struct job *next;
	const char *keys; /* the execution's: each upsert adds its number */
	pthread_cond_t done_cond;
	bool done;
};

static struct ref_load load;
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	struct job *head, **tail;
	bool stop;
	sqlite3 *db;
	sqlite3_stmt *upserts[TABLES], *begin, *commit;
	char doc[ROW];
} store = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static void run(sqlite3_stmt *stmt)
{
	if (sqlite3_step(stmt) != SQLITE_DONE)
		ref_die(sqlite3_errmsg(store.db));
	sqlite3_reset(stmt);
}

static void upsert_all(const struct job *job)
{
	char key[64];

	for (int i = 0; i < UPSERTS; i++) {
		sqlite3_stmt *stmt = store.upserts[i % TABLES];

		snprintf(key, sizeof(key), "%s/%d", job->keys, i);
		sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
		sqlite3_bind_text(stmt, 2, store.doc, ROW, SQLITE_STATIC);
		run(stmt);
	}
}

static void run_group(struct job *jobs)
{
	struct job *next;

	run(store.begin);
	for (struct job *job = jobs; job != NULL; job = job->next)
		upsert_all(job);
	run(store.commit);
	pthread_mutex_lock(&store.mutex);
	for (struct job *job = jobs; job != NULL; job = next) {
		next = job->next;
		job->done = true;
		pthread_cond_signal(&job->done_cond);
	}
	pthread_mutex_unlock(&store.mutex);
}

static void *writer_main(void *arg)
{
	pthread_mutex_lock(&store.mutex);
	while (store.head != NULL || !store.stop) {
		struct job *jobs = store.head;

		if (jobs == NULL) {
			pthread_cond_wait(&store.cond, &store.mutex);
			continue;
		}
		store.head = NULL;
		store.tail = &store.head;
		pthread_mutex_unlock(&store.mutex);
		run_group(jobs);
		pthread_mutex_lock(&store.mutex);
	}
	pthread_mutex_unlock(&store.mutex);
	return arg;
}

static void commit_one(const char *keys)
{
	struct job job = {.keys = keys, .done_cond = PTHREAD_COND_INITIALIZER};

	pthread_mutex_lock(&store.mutex);
	*store.tail = &job;
	store.tail = &job.next;
	pthread_cond_signal(&store.cond);
	while (!job.done)
		pthread_cond_wait(&job.done_cond, &store.mutex);
	pthread_mutex_unlock(&store.mutex);
	pthread_cond_destroy(&job.done_cond);
}

static void *client_main(void *arg)
{
	char keys[48];

	for (unsigned long i = 0; !atomic_load(&load.stop); i++) {
		snprintf(keys, sizeof(keys), "sexec_%016lx%08lx", (unsigned long)ref_now_ns(),
			 (unsigned long)(intptr_t)arg * 65536 + i % 65536);
		commit_one(keys);
		commit_one(keys);
		atomic_fetch_add(&load.done, 1);
	}
	return NULL;
}

static void execute(const char *sql)
{
	if (sqlite3_exec(store.db, sql, NULL, NULL, NULL) != SQLITE_OK)
		ref_die(sqlite3_errmsg(store.db));
}

static void prepare(const char *sql, sqlite3_stmt **ret)
{
	if (sqlite3_prepare_v3(store.db, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL) != SQLITE_OK)
		ref_die(sqlite3_errmsg(store.db));
}

static void store_open(const char *path)
{
	char sql[256];

	if (sqlite3_open(path, &store.db) != SQLITE_OK)
		ref_die("cannot open the database");
	execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-16384");
	for (int i = 0; i < TABLES; i++) {
		snprintf(sql, sizeof(sql), "CREATE TABLE t%d(key TEXT PRIMARY KEY, doc BLOB)", i);
		execute(sql);
		snprintf(sql, sizeof(sql),
			 "INSERT INTO t%d VALUES(?1,?2) ON CONFLICT(key) DO UPDATE SET doc=excluded.doc", i);
		prepare(sql, &store.upserts[i]);
	}
	prepare("BEGIN IMMEDIATE", &store.begin);
	prepare("COMMIT", &store.commit);
	memset(store.doc, 'd', sizeof(store.doc));
	store.tail = &store.head;
}

static void store_close(pthread_t writer)
{
	pthread_mutex_lock(&store.mutex);
	store.stop = true;
	pthread_cond_signal(&store.cond);
	pthread_mutex_unlock(&store.mutex);
	pthread_join(writer, NULL);
	for (int i = 0; i < TABLES; i++)
		sqlite3_finalize(store.upserts[i]);
	sqlite3_finalize(store.begin);
	sqlite3_finalize(store.commit);
	sqlite3_close(store.db);
}

int main(int argc, char **argv)
{
	static const char usage[] = "usage: ref_exec DATABASE CLIENTS SECONDS";
	pthread_t writer;

	if (argc != 4)
		ref_die(usage);
	store_open(argv[1]);
	if (pthread_create(&writer, NULL, writer_main, NULL) != 0)
		ref_die("cannot start the writer");
	ref_measure(&load, ref_number(argv[2], usage), ref_number(argv[3], usage), client_main);
	store_close(writer);
	return 0;
}
