/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several processes on one Redis, thousands of steps that get in each other's way, and a checker: money moves between
 * accounts and none is lost, whoever looks sees all of it; tickets are drawn one after another, each once, in the order
 * of the stream; numbers are never given twice. Assertions are made in the parent only; children report through a pipe.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log.h"
#include "cutproxy.h"
#include "redis_server.h"

#define CHILD "--child"
#define PROCESSES 3
#define THREADS 3
#define ROUNDS 150
#define ACCOUNTS 6
#define START 100
#define TOTAL ((long)ACCOUNTS * START)

struct tally {
	int moves, tickets, looks, failures, wrong;
	char why[160];
};

static int read_account(struct txn *txn, int account, long *ret, struct err *err)
{
	struct store_row row;
	char key[16];
	int rc;

	snprintf(key, sizeof(key), "account-%d", account);
	rc = txn_get(txn, STORE_TASK, key, &row, err);
	if (rc == 0)
		*ret = row.doc != NULL ? strtol(row.doc, NULL, 10) : START;
	return rc;
}

static int write_account(struct txn *txn, int account, long money, struct err *err)
{
	char key[16], text[24];
	struct store_row row = {.key = key, .group = "g", .doc = text};

	snprintf(key, sizeof(key), "account-%d", account);
	row.doc_len = (size_t)snprintf(text, sizeof(text), "%ld", money);
	row.due_ms = money > 0 ? money : 0; /* the index has to follow */
	return txn_put(txn, STORE_TASK, &row, err);
}

struct move {
	int from, to;
};

static int move_step(struct txn *txn, void *arg, struct err *err)
{
	const struct move *move = arg;
	long from, to;
	int rc = read_account(txn, move->from, &from, err);

	if (rc == 0)
		rc = read_account(txn, move->to, &to, err);
	if (rc == 0)
		rc = write_account(txn, move->from, from - 1, err);
	if (rc == 0)
		rc = write_account(txn, move->to, to + 1, err);
	return rc != 0 ? rc : txn_count_add(txn, "moves", 1, err);
}

static int ticket_step(struct txn *txn, void *arg, struct err *err)
{
	struct store_row row;
	char text[24], key[32];
	uint64_t number;
	long ticket;
	int rc = txn_get(txn, STORE_TARGET, "ticket", &row, err);

	(void)arg;
	if (rc == 0)
		rc = txn_next(txn, &number, err);
	if (rc != 0)
		return rc;
	ticket = row.doc != NULL ? strtol(row.doc, NULL, 10) : 0;
	snprintf(text, sizeof(text), "%ld", ticket);
	rc = txn_append(txn, STREAM_EVENTS, "ticket", text, strlen(text), err);
	snprintf(key, sizeof(key), "%llu", (unsigned long long)number);
	if (rc == 0)
		rc = txn_put(txn, STORE_HOST, &(struct store_row){.key = key, .doc = "x", .doc_len = 1}, err);
	snprintf(text, sizeof(text), "%ld", ticket + 1);
	row = (struct store_row){.key = "ticket", .doc = text, .doc_len = strlen(text)};
	return rc != 0 ? rc : txn_put(txn, STORE_TARGET, &row, err);
}

static int look_step(struct txn *txn, void *arg, struct err *err)
{
	long *sum = arg, money = 0;
	int i, rc = 0;

	*sum = 0;
	for (i = 0; rc == 0 && i < ACCOUNTS; i++) {
		rc = read_account(txn, i, &money, err);
		*sum += money;
	}
	return rc;
}

/* ---- children ---- */

struct worker {
	pthread_t thread;
	struct store *store;
	unsigned dice;
	struct tally tally;
};

static int one_round(struct worker *worker, struct err *err)
{
	struct move move;
	long sum = 0;
	int rc;

	worker->dice = worker->dice * 1664525u + 1013904223u;
	move.from = (int)((worker->dice >> 8) % ACCOUNTS);
	move.to = (int)((unsigned)move.from + 1 + (worker->dice >> 16) % (ACCOUNTS - 1)) % ACCOUNTS;
	switch ((worker->dice >> 28) % 4) {
	case 0:
		rc = store_update(worker->store, ticket_step, NULL, err);
		worker->tally.tickets += rc == 0;
		return rc;
	case 1:
		rc = store_view(worker->store, look_step, &sum, err);
		worker->tally.looks += rc == 0;
		worker->tally.wrong += rc == 0 && sum != TOTAL;
		return rc;
	default:
		rc = store_update(worker->store, move_step, &move, err);
		worker->tally.moves += rc == 0;
		return rc;
	}
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;
	struct err err = {0};
	int i;

	for (i = 0; i < ROUNDS; i++) {
		if (one_round(worker, &err) == 0)
			continue;
		worker->tally.failures++;
		snprintf(worker->tally.why, sizeof(worker->tally.why), "%.150s", err.msg);
	}
	return NULL;
}

/* In a process that was just executed: a sanitizer takes no new threads after a fork of several. */
static int child_main(char **args)
{
	struct redis_server server = {.pid = 0};
	unsigned seed = (unsigned)strtoul(args[2], NULL, 10);
	int fd = (int)strtol(args[1], NULL, 10), i;
	struct worker workers[THREADS];
	struct store *store;
	struct err err = {0};

	log_init(LOG_ERROR, LOG_LOGFMT);
	signal(SIGPIPE, SIG_IGN); /* as the daemon does */
	snprintf(server.url, sizeof(server.url), "%s", args[0]);
	if (redis_server_open(&server, "t", &store, &err) != 0) {
		fprintf(stderr, "%s\n", err.msg);
		return 1;
	}
	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.store = store, .dice = seed * 7919u + (unsigned)i * 104729u};
		if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0)
			return 2;
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		if (write(fd, &workers[i].tally, sizeof(workers[i].tally)) != sizeof(workers[i].tally))
			return 3;
	}
	store_close(store);
	return 0;
}

static pid_t start_child(const struct redis_server *server, int fd, int number)
{
	char fd_text[16], seed[16];
	pid_t pid;

	snprintf(fd_text, sizeof(fd_text), "%d", fd);
	snprintf(seed, sizeof(seed), "%d", number + 1);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		execl("/proc/self/exe", "race", CHILD, server->url, fd_text, seed, (char *)NULL);
		_exit(127);
	}
	return pid;
}

static struct tally run_children(struct redis_server *server)
{
	struct tally all = {0}, one;
	int fds[2], status, i;
	pid_t pids[PROCESSES];

	assert_int_equal(pipe(fds), 0);
	for (i = 0; i < PROCESSES; i++)
		pids[i] = start_child(server, fds[1], i);
	close(fds[1]);
	while (read(fds[0], &one, sizeof(one)) == sizeof(one)) {
		all.moves += one.moves;
		all.tickets += one.tickets;
		all.looks += one.looks;
		all.failures += one.failures;
		all.wrong += one.wrong;
		if (one.why[0] != '\0')
			memcpy(all.why, one.why, sizeof(all.why));
	}
	close(fds[0]);
	for (i = 0; i < PROCESSES; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	return all;
}

/* ---- the checker ---- */

struct found {
	long money, tickets, due, numbers;
	int64_t moves;
	bool in_order;
};

static bool see_account(const struct store_row *row, void *arg)
{
	((struct found *)arg)->money += strtol(row->doc, NULL, 10);
	return true;
}

static bool see_due(const struct store_row *row, void *arg)
{
	((struct found *)arg)->due += row->due_ms;
	return true;
}

static bool see_number(const struct store_row *row, void *arg)
{
	(void)row;
	((struct found *)arg)->numbers++;
	return true;
}

static bool see_ticket(const struct stream_entry *entry, void *arg)
{
	struct found *found = arg;

	found->in_order &= strtol(entry->doc, NULL, 10) == found->tickets;
	found->tickets++;
	return true;
}

static int check_step(struct txn *txn, void *arg, struct err *err)
{
	struct found *found = arg;
	int rc;

	*found = (struct found){.in_order = true};
	rc = txn_scan(txn, STORE_TASK, "g", "", false, SIZE_MAX, see_account, found, err);
	if (rc == 0)
		rc = txn_scan_due(txn, STORE_TASK, INT64_MAX, SIZE_MAX, see_due, found, err);
	if (rc == 0)
		rc = txn_scan(txn, STORE_HOST, NULL, "", false, SIZE_MAX, see_number, found, err);
	if (rc == 0)
		rc = txn_read_subject(txn, STREAM_EVENTS, "ticket", 0, SIZE_MAX, see_ticket, found, err);
	return rc != 0 ? rc : txn_count_get(txn, "moves", &found->moves, err);
}

static void check(struct redis_server *server, const struct tally *tally)
{
	struct store *store = NULL;
	struct err err = {0};
	struct found found;

	if (tally->failures != 0)
		fail_msg("%d failures: %s", tally->failures, tally->why);
	assert_int_equal(tally->wrong, 0);
	assert_true(tally->moves > ROUNDS && tally->tickets > ROUNDS && tally->looks > ROUNDS);
	assert_int_equal(redis_server_open(server, "t", &store, &err), 0);
	assert_int_equal(store_view(store, check_step, &found, &err), 0);
	assert_int_equal(found.money, TOTAL);
	assert_int_equal(found.due, TOTAL); /* nobody was poor */
	assert_int_equal(found.moves, tally->moves);
	assert_int_equal(found.tickets, tally->tickets);
	assert_int_equal(found.numbers, tally->tickets);
	assert_true(found.in_order);
	store_close(store);
}

static void test_race(void **state)
{
	struct redis_server server;
	struct tally tally;

	(void)state;
	redis_server_start(&server, NULL);
	tally = run_children(&server);
	check(&server, &tally);
	redis_server_stop(&server);
}

/* The same while answers get lost. */
static void test_race_with_cuts(void **state)
{
	struct redis_server server;
	struct cutproxy *proxy;
	struct tally tally;
	char url[sizeof(server.url)];

	(void)state;
	redis_server_start(&server, NULL);
	proxy = cutproxy_start(&server);
	memcpy(url, server.url, sizeof(url));
	snprintf(server.url, sizeof(server.url), "%s", cutproxy_url(proxy));
	cutproxy_cut(proxy, 100);
	tally = run_children(&server);
	assert_true(cutproxy_cuts(proxy) > 10);
	memcpy(server.url, url, sizeof(url));
	check(&server, &tally);
	cutproxy_stop(proxy);
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
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_race_with_cuts),
	};

	if (argc == 5 && strcmp(argv[1], CHILD) == 0)
		return child_main(argv + 2);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, quiet, NULL);
}
