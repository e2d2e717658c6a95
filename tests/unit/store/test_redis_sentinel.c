/* SPDX-License-Identifier: Apache-2.0 */
/* A real sentinel, a master and a replica: what a failover leaves of the state, with min_acks 1. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/log.h"
#include "redis_server.h"

#define WAIT_MS 60000
#define ROWS 300

struct cluster {
	struct redis_server master, replica;
	pid_t sentinel;
	int port;
};

static void start_sentinel(struct cluster *cluster)
{
	char path[TEMPDIR_PATH];
	FILE *file;

	cluster->port = redis_server_free_port();
	tempdir_path(&cluster->master.dir, "sentinel.conf", path);
	file = fopen(path, "we");
	assert_non_null(file);
	fprintf(file,
		"port %d\nbind 127.0.0.1\ndir %s\nlogfile sentinel.log\nsentinel monitor main 127.0.0.1 %d 1\n"
		"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 5000\n",
		cluster->port, cluster->master.dir.root, cluster->master.port);
	assert_int_equal(fclose(file), 0);
	cluster->sentinel = fork();
	assert_true(cluster->sentinel >= 0);
	if (cluster->sentinel != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execlp("redis-sentinel", "redis-sentinel", path, (char *)NULL);
	_exit(127);
}

static void start_cluster(struct cluster *cluster)
{
	char port[16];
	const char *const words[] = {"--replicaof", "127.0.0.1", port, NULL};

	*cluster = (struct cluster){0};
	redis_server_start_tcp(&cluster->master, NULL);
	snprintf(port, sizeof(port), "%d", cluster->master.port);
	redis_server_start_tcp(&cluster->replica, words);
	cluster->replica.words[2] = strdup(port);
	start_sentinel(cluster);
}

static void stop_cluster(struct cluster *cluster)
{
	int status;

	kill(cluster->sentinel, SIGKILL);
	waitpid(cluster->sentinel, &status, 0);
	free((void *)(uintptr_t)cluster->replica.words[2]);
	redis_server_stop(&cluster->replica);
	redis_server_stop(&cluster->master);
}

/* The sentinel finds the replica by itself, a while after it was started. */
static int open_by_sentinel(struct cluster *cluster, int64_t ack_wait_ms, struct store **ret, struct err *err)
{
	char url[64];
	struct store_redis_config config = {
		.url = url,
		.deployment = "test",
		.host_id = "h",
		.prefix = "t",
		.min_acks = 1,
		.ack_wait_ms = ack_wait_ms,
	};

	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:1,127.0.0.1:%d/main", cluster->port);
	return store_open_redis(&config, ret, err);
}

/* A sentinel that sets a server's role cuts its clients' connections. */
static void wait_replication(struct redis_server *server, const char *word)
{
	int64_t until = clock_after_ms(WAIT_MS);
	bool found = false;

	while (!found) {
		char *text = redis_server_try(server, "INFO replication");

		found = text != NULL && strstr(text, word) != NULL;
		free(text);
		if (!found && clock_boot_ns() > until)
			fail_msg("no %s in time", word);
		redis_server_breathe();
	}
}

struct put {
	int number;
	char key[24];
};

static int put_step(struct txn *txn, void *arg, struct err *err)
{
	struct put *put = arg;

	return txn_put(txn, STORE_TASK, &(struct store_row){.key = put->key, .group = "g", .doc = "x", .doc_len = 1},
		       err);
}

/* Writes until it is told to end; acknowledged rows are remembered. */
struct writer {
	pthread_t thread;
	struct store *store;
	atomic_bool end;
	atomic_int count;
	bool acked[100000];
};

static void *writer_main(void *arg)
{
	struct writer *writer = arg;
	struct put put = {0};
	struct err err;

	for (; !atomic_load(&writer->end) && put.number < 100000; put.number++) {
		snprintf(put.key, sizeof(put.key), "%d", put.number);
		writer->acked[put.number] = store_update(writer->store, put_step, &put, &err) == 0;
		atomic_fetch_add(&writer->count, writer->acked[put.number]);
	}
	return NULL;
}

static void wait_count(struct writer *writer, int more)
{
	int64_t until = clock_after_ms(WAIT_MS);
	int want = atomic_load(&writer->count) + more;

	while (atomic_load(&writer->count) < want) {
		if (clock_boot_ns() > until)
			fail_msg("no %d rows more in time", more);
		redis_server_breathe();
	}
}

static bool store_opens(struct cluster *cluster, int64_t ack_wait_ms, struct store **ret)
{
	int64_t until = clock_after_ms(WAIT_MS);
	struct err err = {0};

	while (open_by_sentinel(cluster, ack_wait_ms, ret, &err) != 0) {
		if (clock_boot_ns() > until)
			fail_msg("%s", err.msg);
		redis_server_breathe();
	}
	return true;
}

static void test_failover(void **state)
{
	static struct writer writer;
	struct cluster cluster;
	struct err err = {0};
	size_t len;
	char key[24], *doc;
	int i;

	(void)state;
	start_cluster(&cluster);
	wait_replication(&cluster.master, "state=online");
	assert_true(store_opens(&cluster, 2000, &writer.store));
	assert_int_equal(pthread_create(&writer.thread, NULL, writer_main, &writer), 0);
	wait_count(&writer, ROWS);
	/* The master dies in the middle of it; without a second replica the new one has nobody to acknowledge. */
	redis_server_kill(&cluster.master);
	wait_replication(&cluster.replica, "role:master");
	redis_server_again(&cluster.master);
	wait_count(&writer, ROWS);
	atomic_store(&writer.end, true);
	pthread_join(writer.thread, NULL);
	for (i = 0; i < 100000; i++) {
		if (!writer.acked[i])
			continue;
		snprintf(key, sizeof(key), "%d", i);
		assert_int_equal(store_get(writer.store, STORE_TASK, key, &doc, &len, &err), 0);
		if (doc == NULL)
			fail_msg("row %d was acknowledged and is lost", i);
		free(doc);
	}
	assert_true(store_hold_ms(writer.store) > 0);
	store_close(writer.store);
	stop_cluster(&cluster);
}

static int get_step(struct txn *txn, void *arg, struct err *err)
{
	struct put *put = arg;
	struct store_row row;
	int rc = txn_get(txn, STORE_TASK, put->key, &row, err);

	if (rc == 0 && row.doc == NULL)
		fail_msg("no row \"%s\"", put->key);
	return rc;
}

/* Too few replicas: the step is applied, but nobody is told that it is safe. */
static void test_too_few(void **state)
{
	struct cluster cluster;
	struct store *store = NULL;
	struct put put = {.key = "k"};
	struct err err = {0};

	(void)state;
	start_cluster(&cluster);
	wait_replication(&cluster.master, "state=online");
	assert_true(store_opens(&cluster, 2000, &store));
	assert_int_equal(store_update(store, put_step, &put, &err), 0);
	kill(cluster.replica.pid, SIGSTOP);
	/* What reads a row that is remembered asks Redis whether it still stands, and no replica. */
	assert_int_equal(store_update(store, get_step, &put, &err), 0);
	assert_int_equal(store_update(store, put_step, &put, &err), ERR_STORE);
	assert_string_equal(err.reason, "outcome_unknown");
	/* A repetition that finds it done is no answer that it is safe. */
	assert_int_equal(store_update(store, get_step, &put, &err), ERR_STORE);
	assert_string_equal(err.reason, "outcome_unknown");
	assert_int_equal(store_view(store, get_step, &put, &err), 0);
	kill(cluster.replica.pid, SIGCONT);
	assert_int_equal(store_update(store, get_step, &put, &err), 0);
	assert_int_equal(store_update(store, put_step, &put, &err), 0);
	store_close(store);
	stop_cluster(&cluster);
}

/* The replicas' word may take longer than any other answer of Redis. */
static void test_long_wait(void **state)
{
	struct cluster cluster;
	struct store *store = NULL;
	struct put put = {.key = "k"};
	struct err err = {0};

	(void)state;
	start_cluster(&cluster);
	wait_replication(&cluster.master, "state=online");
	assert_true(store_opens(&cluster, 6000, &store));
	kill(cluster.replica.pid, SIGSTOP);
	assert_int_equal(store_update(store, put_step, &put, &err), ERR_STORE);
	assert_string_equal(err.reason, "outcome_unknown");
	assert_non_null(strstr(err.msg, "0 of the 1 replicas"));
	assert_true(store_healthy(store, &err));
	kill(cluster.replica.pid, SIGCONT);
	assert_int_equal(store_update(store, put_step, &put, &err), 0);
	store_close(store);
	stop_cluster(&cluster);
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
		cmocka_unit_test(test_failover),
		cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_long_wait),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, quiet, NULL);
}
