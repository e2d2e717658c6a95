/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance cases with threads, and with processes that are killed while they write. Assertions are made in the
 * test's thread only; threads and children report.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance.h"
#include "conformance_cases.h"
#include "core/secret.h"

#define THREADS 16

struct worker {
	pthread_t thread;
	struct store *store;
	int number;
	int rounds;
	int failures;
	struct err err;
	int64_t last_ms;
};

static void run_workers(struct store *store, struct worker *workers, int rounds, void *(*main)(void *))
{
	int i;

	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.store = store, .number = i, .rounds = rounds};
		assert_int_equal(pthread_create(&workers[i].thread, NULL, main, &workers[i]), 0);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	for (i = 0; i < THREADS; i++)
		if (workers[i].failures != 0)
			fail_msg("thread %d: %d failures, last: %s", i, workers[i].failures, workers[i].err.msg);
}

/* ---- steps that fail among steps that do not ---- */

struct some_arg {
	char key[24];
	bool fails;
};

static int some_step(struct txn *txn, void *arg, struct err *err)
{
	const struct some_arg *some = arg;
	int rc = txn_put(txn, STORE_TASK, &(struct store_row){.key = some->key, .doc = "x", .doc_len = 1}, err);

	if (rc == 0)
		rc = txn_count_add(txn, "good", 1, err);
	if (rc != 0)
		return rc;
	return some->fails ? err_set(err, ERR_CONFLICT, "as asked") : 0;
}

static void *some_main(void *arg)
{
	struct worker *worker = arg;
	struct some_arg some;
	int i, rc;

	for (i = 0; i < worker->rounds; i++) {
		some.fails = (i + worker->number) % 2 == 1;
		snprintf(some.key, sizeof(some.key), "%s/%d/%d", some.fails ? "bad" : "good", worker->number, i);
		rc = store_update(worker->store, some_step, &some, &worker->err);
		worker->failures += rc != (some.fails ? ERR_CONFLICT : 0);
	}
	return NULL;
}

struct census {
	int64_t rows, bad, good;
};

static bool census_row(const struct store_row *row, void *arg)
{
	struct census *census = arg;

	census->rows++;
	census->bad += strncmp(row->key, "bad", 3) == 0;
	return true;
}

static int census_step(struct txn *txn, void *arg, struct err *err)
{
	struct census *census = arg;
	int rc;

	*census = (struct census){0};
	rc = txn_count_get(txn, "good", &census->good, err);
	return rc != 0 ? rc : txn_scan(txn, STORE_TASK, NULL, "", false, SIZE_MAX, census_row, census, err);
}

void conformance_failing_steps(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct worker workers[THREADS];
	struct census census;

	run_workers(store, workers, 100, some_main);
	assert_int_equal(store_view(store, census_step, &census, NULL), 0);
	assert_int_equal(census.bad, 0);
	assert_int_equal(census.rows, THREADS * 50);
	assert_int_equal(census.good, THREADS * 50);
	store_close(store);
}

/* ---- read, modify, write ---- */

struct add_arg {
	char own[16];
};

static int add_to(struct txn *txn, const char *key, struct err *err)
{
	struct store_row row;
	char text[24];
	int rc = txn_get(txn, STORE_TASK, key, &row, err);
	long value = rc == 0 && row.doc != NULL ? strtol(row.doc, NULL, 10) : 0;

	if (rc != 0)
		return rc;
	snprintf(text, sizeof(text), "%ld", value + 1);
	return txn_put(txn, STORE_TASK, &(struct store_row){.key = key, .doc = text, .doc_len = strlen(text)}, err);
}

static int add_step(struct txn *txn, void *arg, struct err *err)
{
	int rc = add_to(txn, "shared", err);

	if (rc == 0)
		rc = add_to(txn, ((struct add_arg *)arg)->own, err);
	return rc != 0 ? rc : txn_count_add(txn, "adds", 1, err);
}

static void *add_main(void *arg)
{
	struct worker *worker = arg;
	struct add_arg add;
	int i;

	snprintf(add.own, sizeof(add.own), "own-%d", worker->number);
	for (i = 0; i < worker->rounds; i++)
		worker->failures += store_update(worker->store, add_step, &add, &worker->err) != 0;
	return NULL;
}

static void assert_number(struct store *store, const char *key, long number)
{
	char *doc = conformance_get(store, STORE_TASK, key);

	assert_non_null(doc);
	assert_int_equal(strtol(doc, NULL, 10), number);
	free(doc);
}

void conformance_read_modify_write(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct worker workers[THREADS];
	char key[16];
	int i;

	run_workers(store, workers, 100, add_main);
	store_close(store);
	store = conformance_open(env);
	assert_number(store, "shared", THREADS * 100);
	for (i = 0; i < THREADS; i++) {
		snprintf(key, sizeof(key), "own-%d", i);
		assert_number(store, key, 100);
	}
	store_close(store);
}

/* ---- a view sees one moment ---- */

static void *update_both(void *arg)
{
	struct store *store = arg;

	conformance_put(store, STORE_TASK, "a", NULL, 0, "new");
	conformance_put(store, STORE_TASK, "b", NULL, 0, "new");
	return NULL;
}

struct moment_arg {
	struct store *store;
	bool same;
};

static int moment_step(struct txn *txn, void *arg, struct err *err)
{
	struct moment_arg *moment = arg;
	struct store_row a, b;
	pthread_t thread;
	int rc = txn_get(txn, STORE_TASK, "a", &a, err);

	if (rc != 0 || pthread_create(&thread, NULL, update_both, moment->store) != 0)
		return ERR_INTERNAL;
	pthread_join(thread, NULL);
	rc = txn_get(txn, STORE_TASK, "b", &b, err);
	moment->same = rc == 0 && strcmp(a.doc, b.doc) == 0 && strcmp(a.doc, "old") == 0;
	return rc;
}

void conformance_view_snapshot(const struct conformance_env *env)
{
	struct moment_arg moment = {0};
	struct store *store;
	char *doc;

	if (!env->snapshots)
		return;
	store = moment.store = conformance_open(env);
	conformance_put(store, STORE_TASK, "a", NULL, 0, "old");
	conformance_put(store, STORE_TASK, "b", NULL, 0, "old");
	assert_int_equal(store_view(store, moment_step, &moment, NULL), 0);
	assert_true(moment.same);
	doc = conformance_get(store, STORE_TASK, "b");
	assert_string_equal(doc, "new");
	free(doc);
	store_close(store);
}

/* ---- the clock never goes back ---- */

static int now_step(struct txn *txn, void *arg, struct err *err)
{
	(void)err;
	*(int64_t *)arg = txn_now(txn) == txn_now(txn) ? txn_now(txn) : -1;
	return 0;
}

static void *clock_main(void *arg)
{
	struct worker *worker = arg;
	int64_t now = 0;
	int i, rc;

	for (i = 0; i < worker->rounds; i++) {
		if (i % 3 == 0)
			rc = store_update(worker->store, now_step, &now, &worker->err);
		else if (i % 3 == 1)
			rc = store_view(worker->store, now_step, &now, &worker->err);
		else
			rc = store_now(worker->store, &now, &worker->err);
		worker->failures += rc != 0 || now < worker->last_ms;
		worker->last_ms = now;
	}
	return NULL;
}

void conformance_clock(const struct conformance_env *env)
{
	struct store *store = conformance_open(env);
	struct worker workers[THREADS];
	int64_t now, last = 0;
	int i;

	run_workers(store, workers, 60, clock_main);
	for (i = 0; i < THREADS; i++)
		last = workers[i].last_ms > last ? workers[i].last_ms : last;
	store_close(store);
	store = conformance_open(env);
	assert_int_equal(store_now(store, &now, NULL), 0);
	assert_true(now >= last);
	store_close(store);
}

/* ---- kill -9 ---- */

#define KILL_ROUNDS 10
#define KILL_THREADS 4
#define KILL_ROWS 20000

struct ack {
	int round, thread, number;
};

struct killed {
	struct store *store;
	struct ack next;
	int fd;
};

static int killed_step(struct txn *txn, void *arg, struct err *err)
{
	const struct ack *ack = arg;
	char key[48], text[24];
	uint64_t number;
	int rc = txn_next(txn, &number, err);

	if (rc != 0)
		return rc;
	snprintf(key, sizeof(key), "%d/%d/%d", ack->round, ack->thread, ack->number);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	rc = txn_put(txn, STORE_TASK, &(struct store_row){.key = key, .group = "g", .due_ms = 1, .doc = text,
							    .doc_len = strlen(text)}, err);
	if (rc == 0)
		rc = txn_append(txn, STREAM_REQUESTS, key, "{}", 2, err);
	if (rc == 0)
		rc = txn_append(txn, STREAM_EVENTS, key, "{}", 2, err);
	return rc != 0 ? rc : txn_count_add(txn, "good", 1, err);
}

static void *killed_main(void *arg)
{
	struct killed *killed = arg;

	for (; killed->next.number < KILL_ROWS; killed->next.number++) {
		if (store_update(killed->store, killed_step, &killed->next, NULL) != 0)
			break;
		if (write(killed->fd, &killed->next, sizeof(killed->next)) != sizeof(killed->next))
			break;
	}
	return NULL;
}

/* Never returns: writes until it is killed. */
static void child_main(const struct conformance_env *env, int round, int fd)
{
	struct killed killed[KILL_THREADS];
	pthread_t threads[KILL_THREADS];
	struct store *store;
	struct err err;
	int i;

	if (env->open(env->arg, &store, &err) != 0)
		_exit(1);
	for (i = 0; i < KILL_THREADS; i++) {
		killed[i] = (struct killed){store, {round, i, 0}, fd};
		if (pthread_create(&threads[i], NULL, killed_main, &killed[i]) != 0)
			_exit(2);
	}
	for (i = 0; i < KILL_THREADS; i++)
		pthread_join(threads[i], NULL);
	_exit(3);
}

/* Kills the child after some number of acknowledgements; *ret_last[thread] is the last acknowledged number, -1 for
 * none. */
static void kill_one(const struct conformance_env *env, int round, unsigned after, int ret_last[KILL_THREADS])
{
	unsigned seen = 0;
	struct ack ack;
	int pipe_fds[2], status, i;
	pid_t pid;

	for (i = 0; i < KILL_THREADS; i++)
		ret_last[i] = -1;
	assert_int_equal(pipe(pipe_fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(pipe_fds[0]);
		child_main(env, round, pipe_fds[1]);
	}
	close(pipe_fds[1]);
	while (read(pipe_fds[0], &ack, sizeof(ack)) == sizeof(ack)) {
		ret_last[ack.thread] = ack.number;
		if (++seen == after)
			kill(pid, SIGKILL);
	}
	close(pipe_fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

struct after_kill {
	int64_t rows, entries, good;
	uint64_t most, last_event;
	uint64_t *numbers;
	size_t room;
};

static bool after_kill_row(const struct store_row *row, void *arg)
{
	struct after_kill *after = arg;
	uint64_t number = strtoull(row->doc, NULL, 10);

	if ((size_t)after->rows < after->room)
		after->numbers[after->rows] = number;
	after->most = number > after->most ? number : after->most;
	after->rows++;
	return true;
}

static bool after_kill_entry(const struct stream_entry *entry, void *arg)
{
	(void)entry;
	((struct after_kill *)arg)->entries++;
	return true;
}

static bool after_kill_event(const struct stream_entry *entry, void *arg)
{
	struct after_kill *after = arg;

	assert_true(entry->seq > after->last_event);
	after->last_event = entry->seq;
	return true;
}

/* Whoever follows the events keeps the last number: a later entry has a higher one, though nothing is left of it. */
static int events_step(struct txn *txn, void *arg, struct err *err)
{
	struct after_kill *after = arg;
	size_t trimmed;
	int rc = txn_read_stream(txn, STREAM_EVENTS, 0, SIZE_MAX, after_kill_event, after, err);

	return rc != 0 ? rc : txn_trim(txn, STREAM_EVENTS, INT64_MAX, SIZE_MAX, &trimmed, err);
}

static int after_kill_step(struct txn *txn, void *arg, struct err *err)
{
	struct after_kill *after = arg;
	int rc;

	after->rows = after->entries = 0;
	rc = txn_scan(txn, STORE_TASK, "g", "", false, SIZE_MAX, after_kill_row, after, err);
	if (rc == 0)
		rc = txn_read_stream(txn, STREAM_REQUESTS, 0, SIZE_MAX, after_kill_entry, after, err);
	return rc != 0 ? rc : txn_count_get(txn, "good", &after->good, err);
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

static int one_next_step(struct txn *txn, void *arg, struct err *err)
{
	return txn_next(txn, arg, err);
}

/* Every acknowledged row is there, steps are whole, no number was given twice. */
static void check_after_kill(struct store *store, int round, const int last[KILL_THREADS], struct after_kill *after)
{
	uint64_t number = 0;
	char key[48], *doc;
	int64_t j;
	int i, n;

	for (i = 0; i < KILL_THREADS; i++) {
		for (n = 0; n <= last[i]; n++) {
			snprintf(key, sizeof(key), "%d/%d/%d", round, i, n);
			doc = conformance_get(store, STORE_TASK, key);
			if (doc == NULL)
				fail_msg("%s was acknowledged and is lost", key);
			free(doc);
		}
	}
	assert_int_equal(store_view(store, after_kill_step, after, NULL), 0);
	assert_int_equal(after->rows, after->entries);
	assert_int_equal(after->rows, after->good);
	assert_true((size_t)after->rows <= after->room);
	qsort(after->numbers, (size_t)after->rows, sizeof(after->numbers[0]), compare_numbers);
	for (j = 1; j < after->rows; j++)
		assert_true(after->numbers[j] > after->numbers[j - 1]);
	assert_int_equal(store_update(store, one_next_step, &number, NULL), 0);
	assert_true(number > after->most);
	assert_int_equal(store_update(store, events_step, after, NULL), 0);
}

void conformance_kill(const struct conformance_env *env)
{
	struct after_kill after = {.room = KILL_ROUNDS * 4000};
	int last[KILL_THREADS], round;
	struct store *store;
	uint16_t dice;

	after.numbers = calloc(after.room, sizeof(after.numbers[0]));
	assert_non_null(after.numbers);
	for (round = 0; round < KILL_ROUNDS; round++) {
		secret_random(&dice, sizeof(dice));
		kill_one(env, round, 1 + dice % 500, last);
		store = conformance_open(env);
		check_after_kill(store, round, last, &after);
		store_close(store);
	}
	free(after.numbers);
}
