/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redis on bad days: scripts forgotten, connections cut, killed and started anew, emptied, full, loading, a replica.
 * Each test has a server of its own.
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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance.h"
#include "core/clock.h"
#include "core/log.h"
#include "cutproxy.h"
#include "obs/metrics.h"
#include "redis_server.h"

#define PREFIX "t"
#define THREADS 4
#define WAIT_MS 30000

static const char *const always[] = {"--appendfsync", "always", NULL};

static struct store *open_good(struct redis_server *server)
{
	struct store *store = NULL;
	struct err err = {0};

	if (redis_server_open(server, PREFIX, &store, &err) != 0)
		fail_msg("%s", err.msg);
	return store;
}

/* Adds one to a row, to a counter and to a stream. */
static int add_step(struct txn *txn, void *arg, struct err *err)
{
	const char *key = arg;
	struct store_row row;
	char text[24];
	int rc = txn_get(txn, STORE_TASK, key, &row, err);

	if (rc != 0)
		return rc;
	snprintf(text, sizeof(text), "%ld", (row.doc != NULL ? strtol(row.doc, NULL, 10) : 0) + 1);
	row = (struct store_row){.key = key, .group = "g", .due_ms = 5, .doc = text, .doc_len = strlen(text)};
	rc = txn_put(txn, STORE_TASK, &row, err);
	if (rc == 0)
		rc = txn_count_add(txn, "adds", 1, err);
	return rc != 0 ? rc : txn_append(txn, STREAM_EVENTS, key, "{}", 2, err);
}

struct sums {
	int64_t rows, count, entries;
};

static bool sum_row(const struct store_row *row, void *arg)
{
	((struct sums *)arg)->rows += strtol(row->doc, NULL, 10);
	return true;
}

static bool sum_entry(const struct stream_entry *entry, void *arg)
{
	(void)entry;
	((struct sums *)arg)->entries++;
	return true;
}

static int sum_step(struct txn *txn, void *arg, struct err *err)
{
	struct sums *sums = arg;
	int rc;

	*sums = (struct sums){0};
	rc = txn_scan(txn, STORE_TASK, "g", "", false, SIZE_MAX, sum_row, sums, err);
	if (rc == 0)
		rc = txn_read_stream(txn, STREAM_EVENTS, 0, SIZE_MAX, sum_entry, sums, err);
	return rc != 0 ? rc : txn_count_get(txn, "adds", &sums->count, err);
}

static struct sums sum(struct store *store)
{
	struct sums sums;
	struct err err = {0};

	if (store_view(store, sum_step, &sums, &err) != 0)
		fail_msg("%s", err.msg);
	return sums;
}

static void assert_sums(struct store *store, int64_t number)
{
	struct sums sums = sum(store);

	assert_int_equal(sums.rows, number);
	assert_int_equal(sums.count, number);
	assert_int_equal(sums.entries, number);
}

static int try_step(struct store *store, store_step step, const char *key, struct err *err)
{
	return store_update(store, step, (void *)(uintptr_t)key, err);
}

static void add(struct store *store, const char *key)
{
	struct err err = {0};

	if (try_step(store, add_step, key, &err) != 0)
		fail_msg("%s (%s)", err.msg, err.reason);
}

/* ---- scripts are forgotten ---- */

static void test_script_flush(void **state)
{
	struct redis_server server;
	struct store *store;

	(void)state;
	redis_server_start(&server, NULL);
	store = open_good(&server);
	add(store, "a");
	redis_server_must(&server, "SCRIPT FLUSH", "OK");
	add(store, "a");
	assert_sums(store, 2);
	redis_server_must(&server, "SCRIPT FLUSH", "OK");
	assert_sums(store, 2);
	store_close(store);
	redis_server_stop(&server);
}

/* ---- answers are lost ---- */

struct worker {
	pthread_t thread;
	struct store *store;
	int rounds, failures, unknown;
	char key[16];
	struct err err;
};

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	int i;

	for (i = 0; i < worker->rounds; i++) {
		if (try_step(worker->store, add_step, i % 3 == 0 ? "shared" : worker->key, &worker->err) == 0)
			continue;
		worker->failures++;
		worker->unknown += strcmp(worker->err.reason, "outcome_unknown") == 0;
	}
	return NULL;
}

static void run_workers(struct store *store, struct worker workers[THREADS], int rounds)
{
	int i;

	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.store = store, .rounds = rounds};
		snprintf(workers[i].key, sizeof(workers[i].key), "own-%d", i);
		assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
	}
}

static void join_workers(struct worker workers[THREADS])
{
	int i;

	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
}

static void test_cut_answers(void **state)
{
	struct redis_server server;
	struct worker workers[THREADS];
	struct cutproxy *proxy;
	struct store *store;
	int i;

	(void)state;
	redis_server_start(&server, NULL);
	proxy = cutproxy_start(&server);
	snprintf(server.url, sizeof(server.url), "%s", cutproxy_url(proxy));
	store = open_good(&server);
	cutproxy_cut(proxy, 20);
	run_workers(store, workers, 250);
	join_workers(workers);
	cutproxy_cut(proxy, 0);
	for (i = 0; i < THREADS; i++)
		if (workers[i].failures != 0)
			fail_msg("%d failures: %s (%s)", workers[i].failures, workers[i].err.msg,
				 workers[i].err.reason);
	assert_true(cutproxy_cuts(proxy) > 20);
	/* Every step once, whether its answer arrived or not. */
	assert_sums(store, THREADS * 250);
	store_close(store);
	cutproxy_stop(proxy);
	redis_server_stop(&server);
}

/* ---- killed and started anew ---- */

static void test_kill_and_restart(void **state)
{
	struct redis_server server;
	struct worker workers[THREADS];
	struct store *store;
	int64_t done = 0, unknown = 0, hold;
	struct sums sums;
	int round, i;

	(void)state;
	redis_server_start(&server, always);
	store = open_good(&server);
	assert_int_equal(store_hold_ms(store), 0);
	for (round = 0; round < 3; round++) {
		int64_t before = sum(store).rows;

		run_workers(store, workers, 150);
		while (sum(store).rows < before + 100)
			redis_server_breathe();
		redis_server_kill(&server);
		redis_server_again(&server);
		join_workers(workers);
		for (i = 0; i < THREADS; i++) {
			done += workers[i].rounds - workers[i].failures;
			unknown += workers[i].unknown;
		}
	}
	add(store, "last");
	sums = sum(store);
	assert_true(sums.rows >= done + 1 && sums.rows <= done + unknown + 1);
	assert_int_equal(sums.rows, sums.count);
	assert_int_equal(sums.rows, sums.entries);
	hold = store_hold_ms(store);
	assert_true(hold > 0 && hold <= 60000);
	store_close(store);
	redis_server_stop(&server);
}

/* Away: an answer at once, with a time to come back; then all is as it was. */
static void test_away(void **state)
{
	struct redis_server server;
	struct store *store;
	struct err err = {0};
	int64_t start;

	(void)state;
	redis_server_start(&server, always);
	store = open_good(&server);
	add(store, "a");
	redis_server_kill(&server);
	assert_int_equal(try_step(store, add_step, "a", &err), ERR_STORE);
	assert_true(err.retry_after_ms >= 1000);
	start = clock_boot_ns();
	assert_int_equal(store_view(store, sum_step, &(struct sums){0}, &err), ERR_STORE);
	assert_string_equal(err.reason, "away");
	assert_false(store_healthy(store, &err));
	assert_true(clock_boot_ns() - start < 5 * CLOCK_NS_PER_S);
	redis_server_again(&server);
	start = clock_after_ms(WAIT_MS);
	while (!store_healthy(store, &err) && clock_boot_ns() < start)
		redis_server_breathe();
	assert_sums(store, sum(store).count);
	assert_true(store_hold_ms(store) > 0);
	store_close(store);
	redis_server_stop(&server);
}

/* A frozen server looks like a dead one; what it was sent before is applied once. */
static void test_frozen(void **state)
{
	struct redis_server server;
	struct store *store;
	struct err err = {0};

	(void)state;
	redis_server_start(&server, always);
	store = open_good(&server);
	add(store, "a");
	kill(server.pid, SIGSTOP);
	assert_int_equal(try_step(store, add_step, "a", &err), ERR_STORE);
	assert_string_equal(err.reason, "outcome_unknown");
	kill(server.pid, SIGCONT);
	while (!store_healthy(store, &err))
		redis_server_breathe();
	assert_sums(store, sum(store).count);
	add(store, "a");
	assert_true(sum(store).rows == 2 || sum(store).rows == 3);
	store_close(store);
	redis_server_stop(&server);
}

/* ---- the store is lost ---- */

static void test_flushed(void **state)
{
	struct redis_server server;
	struct store *store;
	struct err err = {0};
	char id[33];
	uint64_t cached;

	(void)state;
	redis_server_start(&server, NULL);
	store = open_good(&server);
	snprintf(id, sizeof(id), "%s", store_id(store));
	add(store, "a");
	redis_server_must(&server, "FLUSHALL", "OK");
	cached = metric_value(METRIC_STORE_ROUND_TRIPS, 0, 0);
	/* A step whose rows are all known here is refused like any other. */
	assert_int_equal(try_step(store, add_step, "a", &err), ERR_STORE);
	assert_string_equal(err.reason, "store_lost");
	assert_int_equal(metric_value(METRIC_STORE_ROUND_TRIPS, 0, 0), cached + 1);
	assert_false(store_healthy(store, &err));
	redis_server_must(&server, "EXISTS t:store", "0");
	assert_true(store_is_lost(store));
	store_close(store);
	store = open_good(&server);
	assert_true(store_is_new(store));
	assert_false(store_is_lost(store));
	assert_string_not_equal(store_id(store), id);
	assert_sums(store, 0);
	store_close(store);
	redis_server_stop(&server);
}

static int next_step(struct txn *txn, void *arg, struct err *err)
{
	return txn_next(txn, arg, err);
}

/* Two hosts begin anew: one makes the store, the other takes it; numbers and clock go on. */
static void test_renewed(void **state)
{
	struct redis_server server;
	struct store *a, *b;
	struct err err = {0};
	char id[33];
	uint64_t before = 0, after = 0;
	int64_t time_before, time_after;

	(void)state;
	redis_server_start(&server, NULL);
	a = open_good(&server);
	b = open_good(&server);
	snprintf(id, sizeof(id), "%s", store_id(a));
	add(a, "a");
	add(b, "a");
	assert_int_equal(store_update(a, next_step, &before, &err), 0);
	assert_int_equal(store_now(a, &time_before, &err), 0);
	assert_int_equal(store_renew(a, true, &err), 0);
	assert_string_equal(store_id(a), id); /* nothing was lost */
	redis_server_must(&server, "FLUSHALL", "OK");
	assert_int_equal(try_step(a, add_step, "a", &err), ERR_STORE);
	assert_int_equal(store_renew(a, false, &err), ERR_STORE); /* there is none to take, and none is begun */
	assert_string_equal(err.reason, "store_lost");
	redis_server_must(&server, "EXISTS t:store", "0");
	assert_true(store_is_lost(a));
	assert_int_equal(store_renew(a, true, &err), 0);
	assert_string_not_equal(store_id(a), id);
	add(a, "a");
	assert_int_equal(try_step(b, add_step, "a", &err), ERR_STORE);
	assert_string_equal(err.reason, "store_lost");
	assert_int_equal(store_renew(b, false, &err), 0);
	assert_string_equal(store_id(a), store_id(b));
	add(b, "a"); /* what it knew of the former store does not count */
	assert_sums(a, 2);
	assert_int_equal(store_update(a, next_step, &after, &err), 0);
	assert_true(after > before);
	assert_int_equal(store_now(b, &time_after, &err), 0);
	assert_true(time_after >= time_before);
	store_close(b);
	store_close(a);
	redis_server_stop(&server);
}

/* ---- what goes by itself ---- */

/* So many openings have left numbers of applications, and each of those keys has a time to live. */
static void assert_slots_end(struct redis_server *server, const char *count)
{
	/* Tabs, since the words of a command are cut at blanks. */
	redis_server_must(server, "EVAL return#redis.call('KEYS','t:applied:*') 0", count);
	redis_server_must(server,
			  "EVAL for\t_,k\tin\tipairs(redis.call('KEYS','t:applied:*'))do\t"
			  "if\tredis.call('TTL',k)<1\tthen\treturn\tk\tend\tend\treturn'all' 0",
			  "all");
}

/* The first step that writes sets it; when that one is refused, the next one does. */
static void test_slots_end(void **state)
{
	struct redis_server server;
	struct store *a, *b, *c;
	struct err err = {0};

	(void)state;
	redis_server_start(&server, NULL);
	a = open_good(&server);
	b = open_good(&server);
	c = open_good(&server);
	add(a, "k");
	assert_slots_end(&server, "1");
	free(conformance_get(b, STORE_TASK, "k"));
	add(a, "k");
	add(b, "k"); /* first by what it remembers, which is so no more */
	assert_slots_end(&server, "2");
	redis_server_must(&server, "CONFIG SET maxmemory 1", "OK");
	assert_int_equal(try_step(c, add_step, "k", &err), ERR_STORE);
	redis_server_must(&server, "CONFIG SET maxmemory 0", "OK");
	add(c, "k");
	assert_slots_end(&server, "3");
	redis_server_must(&server, "FLUSHALL", "OK");
	assert_int_equal(try_step(a, add_step, "k", &err), ERR_STORE);
	assert_int_equal(store_renew(a, true, &err), 0);
	add(a, "k");
	assert_slots_end(&server, "1");
	store_close(c);
	store_close(b);
	store_close(a);
	redis_server_stop(&server);
}

/* ---- full ---- */

static int delete_step(struct txn *txn, void *arg, struct err *err)
{
	return txn_delete(txn, STORE_TASK, arg, err);
}

static void test_full(void **state)
{
	struct redis_server server;
	struct store *store;
	struct err err = {0};

	(void)state;
	redis_server_start(&server, NULL);
	store = open_good(&server);
	add(store, "a");
	add(store, "b");
	redis_server_must(&server, "CONFIG SET maxmemory 1", "OK");
	assert_int_equal(try_step(store, add_step, "a", &err), ERR_STORE);
	assert_string_equal(err.reason, "full");
	assert_sums(store, 2);
	/* What makes room is still taken. */
	assert_int_equal(try_step(store, delete_step, "b", &err), 0);
	assert_int_equal(sum(store).rows, 1);
	redis_server_must(&server, "CONFIG SET maxmemory 0", "OK");
	add(store, "a");
	assert_int_equal(sum(store).rows, 2);
	store_close(store);
	redis_server_stop(&server);
}

/* ---- loading ---- */

static void test_loading(void **state)
{
	/* Redis looks at its sockets once in 1024 commands that it reads back. */
	static const char *const slow[] = {"--key-load-delay", "100", "--aof-use-rdb-preamble", "no", NULL};
	struct redis_server server;
	struct store *store;
	struct err err = {0};
	bool loading = false;
	char key[16];
	int i;

	(void)state;
	redis_server_start(&server, slow);
	store = open_good(&server);
	for (i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "k%d", i);
		add(store, key);
	}
	redis_server_must(&server, "CONFIG SET appendfsync always", "OK"); /* from here on it has all in its file */
	add(store, "k0");
	redis_server_kill(&server);
	redis_server_launch(&server);
	while (!store_healthy(store, &err))
		loading |= strcmp(err.reason, "loading") == 0;
	assert_true(loading);
	add(store, "k0");
	assert_int_equal(sum(store).rows, 3002);
	store_close(store);
	redis_server_stop(&server);
}

/* ---- a replica ---- */

static void test_replica(void **state)
{
	struct redis_server master, replica;
	char port[16];
	const char *const words[] = {"--replicaof", "127.0.0.1", port, NULL};
	struct store *store = NULL;
	struct err err = {0};

	(void)state;
	redis_server_start_tcp(&master, NULL);
	snprintf(port, sizeof(port), "%d", master.port);
	redis_server_start(&replica, words);
	assert_int_equal(redis_server_open(&replica, PREFIX, &store, &err), ERR_STORE);
	assert_string_equal(err.reason, "read_only");
	/* A master that becomes a replica under an open store. */
	store = open_good(&master);
	add(store, "a");
	redis_server_must(&replica, "REPLICAOF NO ONE", "OK");
	snprintf(port, sizeof(port), "%d", master.port);
	redis_server_must(&master, "REPLICAOF 127.0.0.1 1", "OK");
	assert_int_equal(try_step(store, add_step, "a", &err), ERR_STORE);
	assert_string_equal(err.reason, "read_only");
	redis_server_must(&master, "REPLICAOF NO ONE", "OK");
	while (!store_healthy(store, &err))
		redis_server_breathe();
	add(store, "a");
	assert_sums(store, 2);
	store_close(store);
	redis_server_stop(&replica);
	redis_server_stop(&master);
}

/* ---- revisions are never given twice ---- */

/* The last writes are lost with the server (a torn end of its file): rows that this process knows from then must not
 * pass for what others write now. */
static void test_lost_tail(void **state)
{
	struct redis_server server;
	struct store *mine, *others;
	char path[TEMPDIR_PATH];
	struct stat before;

	(void)state;
	redis_server_start(&server, always);
	mine = open_good(&server);
	others = open_good(&server);
	add(mine, "a");
	tempdir_path(&server.dir, "appendonlydir/appendonly.aof.1.incr.aof", path);
	assert_int_equal(stat(path, &before), 0);
	add(mine, "a");
	add(mine, "a");
	redis_server_kill(&server);
	assert_int_equal(truncate(path, before.st_size), 0);
	redis_server_again(&server);
	/* As many revisions as were lost, and the last of them on the same row. */
	add(others, "b");
	add(others, "a");
	add(mine, "a");
	assert_sums(others, 4);
	store_close(others);
	store_close(mine);
	redis_server_stop(&server);
}

static int quiet(void **state)
{
	(void)state;
	log_init(LOG_ERROR, LOG_LOGFMT);
	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_script_flush),
		cmocka_unit_test(test_cut_answers),
		cmocka_unit_test(test_kill_and_restart),
		cmocka_unit_test(test_away),
		cmocka_unit_test(test_frozen),
		cmocka_unit_test(test_flushed),
		cmocka_unit_test(test_renewed),
		cmocka_unit_test(test_slots_end),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_loading),
		cmocka_unit_test(test_replica),
		cmocka_unit_test(test_lost_tail),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, quiet, NULL);
}
