/* SPDX-License-Identifier: Apache-2.0 */
/* Where Redis may be, what it must be, what its user must be allowed; the sentence of every refusal. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conformance.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/thread.h"
#include "redis_server.h"
#include "store/redis/redis.h"

/* ---- the address ---- */

static void test_url(void **state)
{
	static const struct {
		const char *text, *host, *user, *password, *master;
		int port, database, sentinels;
	} good[] = {
		{"redis://redis", "redis", NULL, NULL, NULL, 6379, 0, 0},
		{"redis://redis:7000/3", "redis", NULL, NULL, NULL, 7000, 3, 0},
		{"redis://:pw@10.0.0.1/", "10.0.0.1", NULL, "pw", NULL, 6379, 0, 0},
		{"redis://berth:a%40b%2Fc%25@[::1]:1", "::1", "berth", "a@b/c%", NULL, 1, 0, 0},
		{"redis://u:a@b@h", "h", "u", "a@b", NULL, 6379, 0, 0},
		{"unix:///run/redis.sock", "/run/redis.sock", NULL, NULL, NULL, 0, 0, 0},
		{"unix:///run/a@b.sock", "/run/a@b.sock", NULL, NULL, NULL, 0, 0, 0},
		{"unix://u:p@/run/r?db=2", "/run/r", "u", "p", NULL, 0, 2, 0},
		{"redis+sentinel://a,b:5,[::2]:6/main/4", NULL, NULL, NULL, "main", 0, 4, 3},
		{"redis+sentinel://u:p@a/main", NULL, "u", "p", "main", 0, 0, 1},
	};
	struct redis_url url;
	struct err err = {0};
	size_t i, len;

	(void)state;
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		if (redis_url_parse(good[i].text, &url, &err) != 0)
			fail_msg("%s: %s", good[i].text, err.msg);
		if (good[i].host != NULL)
			assert_string_equal(url.server.host, good[i].host);
		if (good[i].user != NULL)
			assert_string_equal(url.user, good[i].user);
		else
			assert_null(url.user);
		if (good[i].password != NULL)
			assert_string_equal(secret_ptr(url.password, &len), good[i].password);
		if (good[i].master != NULL)
			assert_string_equal(url.master, good[i].master);
		assert_int_equal(url.server.port, good[i].port);
		assert_int_equal(url.database, good[i].database);
		assert_int_equal(url.sentinel_count, good[i].sentinels);
		redis_url_fini(&url);
	}
}

static void test_bad_url(void **state)
{
	static const char *const bad[][2] = {
		{"", "missing"},
		{"localhost:6379", "scheme"},
		{"http://h", "scheme"},
		{"redis://", "host is missing"},
		{"redis://h:0", "port"},
		{"redis://h:65536", "port"},
		{"redis://h:+5", "port"},
		{"redis://::1:5", "[ ]"},
		{"redis://[::1", "[ ]"},
		{"redis://h/x", "database"},
		{"redis://h/-1", "database"},
		{"redis://justauser@h", "login"},
		{"redis://u:@h", "empty"},
		{"redis://u:sesame%0@h", "badly encoded"},
		{"redis://u:sesame%00@h", "badly encoded"},
		{"unix://run/redis.sock", "begins with /"},
		{"unix:///r?x=1", "db=<number>"},
		{"redis+sentinel://a,b", "name of the master"},
		{"redis+sentinel:///main", "host is missing"},
		{"redis+sentinel://1,2,3,4,5,6,7,8,9/m", "more than 8"},
		{"rediss://u:sesame@h", "TLS tunnel"},
		{"rediss://h", "unix socket"},
		{"rediss://h", "newer hiredis"},
	};
	struct redis_url url;
	struct err err = {0};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(redis_url_parse(bad[i][0], &url, &err), ERR_CONFIG);
		if (strstr(err.msg, bad[i][1]) == NULL || strstr(err.msg, "sesame") != NULL)
			fail_msg("%s: %s", bad[i][0], err.msg);
	}
}

/* ---- what Redis must be ---- */

static void assert_refused(struct redis_server *server, int code, const char *sentence)
{
	struct store *store = NULL;
	struct err err = {0};

	assert_int_equal(redis_server_open(server, "t", &store, &err), code);
	assert_null(store);
	if (strstr(err.msg, sentence) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", err.msg, sentence);
}

static void test_refusals(void **state)
{
	char port[16];
	const char *const cluster[] = {"--cluster-enabled", "yes", "--cluster-port", port, NULL};
	struct redis_server server;

	(void)state;
	redis_server_start(&server, NULL);
	redis_server_must(&server, "CONFIG SET appendonly no", "OK");
	assert_refused(&server, ERR_CONFIG, "set appendonly yes");
	redis_server_must(&server, "CONFIG SET appendonly yes", "OK");
	redis_server_must(&server, "CONFIG SET maxmemory-policy allkeys-lru", "OK");
	assert_refused(&server, ERR_CONFIG, "allkeys-lru");
	redis_server_must(&server, "CONFIG SET maxmemory-policy noeviction", "OK");
	/* None of them left anything behind. */
	redis_server_must(&server, "DBSIZE", "0");
	redis_server_must(&server, "CONFIG SET requirepass sesame", "OK");
	assert_refused(&server, ERR_STORE, "asks for a password");
	snprintf(server.url, sizeof(server.url), "unix://:wrong@%s", server.socket);
	assert_refused(&server, ERR_STORE, "refuses the password");
	redis_server_kill(&server);
	assert_refused(&server, ERR_STORE, "cannot be reached");
	redis_server_stop(&server);
	snprintf(port, sizeof(port), "%d", redis_server_free_port());
	redis_server_start_tcp(&server, cluster);
	assert_refused(&server, ERR_CONFIG, "Cluster");
	redis_server_stop(&server);
}

static void test_volatile(void **state)
{
	static const char *const words[] = {"--appendonly", "no", "--maxmemory-policy", "allkeys-lru", NULL};
	struct redis_server server;
	struct store *store = NULL;
	struct err err = {0};
	struct store_redis_config config = {
		.url = server.url, .deployment = "test", .host_id = "h", .is_volatile = true};

	(void)state;
	redis_server_start(&server, words);
	assert_int_equal(store_open_redis(&config, &store, &err), 0);
	store_close(store);
	redis_server_must(&server, "EXISTS agentarea:sandbox:store", "1");
	redis_server_must(&server, "EXISTS agentarea.sandbox.execution.requests", "1");
	redis_server_stop(&server);
}

static void test_owner(void **state)
{
	struct redis_server server;
	struct store *store = NULL;
	struct err err = {0};

	(void)state;
	redis_server_start(&server, NULL);
	assert_int_equal(redis_server_open(&server, "t", &store, &err), 0);
	store_close(store);
	redis_server_must(&server, "HSET t:store deployment others", "0");
	assert_refused(&server, ERR_CONFIG, "belong to the deployment \"others\"");
	redis_server_must(&server, "HSET t:store deployment test", "0");
	redis_server_must(&server, "HSET t:store schema 2", "0");
	assert_refused(&server, ERR_CONFIG, "newer berthd");
	redis_server_must(&server, "HDEL t:store schema", "1");
	assert_refused(&server, ERR_CONFIG, "is damaged");
	redis_server_must(&server, "DEL t:store", "1");
	redis_server_must(&server, "SET t:store x", "OK");
	assert_refused(&server, ERR_STORE, "holds something else");
	redis_server_stop(&server);
}

/* ---- what its user must be allowed ---- */

/* As docs/redis.md gives it; the tests below prove that it is enough, and that no word of it is too many. */
#define ACL_COMMANDS                                                                                                   \
	"+evalsha +eval +script|load +info +ping +time +subscribe +publish +hget +hmget +hset +hdel +hlen +hincrby "   \
	"+exists +expire +del +zadd +zcard +zrem +zrange +zrangebylex +zrevrangebylex +zrangebyscore +xadd +xdel +xack "      \
	"+xrange +xinfo|stream +xinfo|groups +xpending +xgroup|create"
#define ACL_KEYS "~t:* ~t.* resetchannels &t:* &t.*"

/* Without the word of that number; SIZE_MAX: with all. False: there is no such word. */
static bool set_user(struct redis_server *server, size_t without)
{
	char commands[1024] = ACL_COMMANDS, line[2048] = "ACL SETUSER berth reset on >sesame " ACL_KEYS " -@all", *save,
	     *word;
	bool found = without == SIZE_MAX;
	size_t i = 0;

	for (word = strtok_r(commands, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save), i++) {
		found |= i == without;
		if (i != without)
			snprintf(line + strlen(line), sizeof(line) - strlen(line), " %s", word);
	}
	redis_server_must(server, line, "OK");
	return found;
}

static int everything_step(struct txn *txn, void *arg, struct err *err)
{
	struct store_row row = {.key = "k", .group = arg, .due_ms = 9, .doc = "x", .doc_len = 1};
	uint64_t number;
	int64_t dues;
	size_t count;
	int rc = txn_next(txn, &number, err);

	rc = rc != 0 ? rc : txn_due_size(txn, STORE_TASK, &dues, err);
	rc = rc != 0 ? rc : txn_put(txn, STORE_TASK, &row, err);
	rc = rc != 0 ? rc : txn_delete(txn, STORE_HOST, "k", err);
	rc = rc != 0 ? rc : txn_count_add(txn, "c", 1, err);
	rc = rc != 0 ? rc : txn_append(txn, STREAM_REQUESTS, "s", "{}", 2, err);
	rc = rc != 0 ? rc : txn_append(txn, STREAM_EVENTS, "s", "{}", 2, err);
	rc = rc != 0 ? rc : txn_append(txn, STREAM_DEAD, "s", "{}", 2, err);
	rc = rc != 0 ? rc : txn_ack_subject(txn, STREAM_REQUESTS, "s", err);
	return rc != 0 ? rc : txn_trim(txn, STREAM_EVENTS, txn_now(txn), 10, &count, err);
}

struct heard {
	struct lock lock;
	struct cond changed;
	bool any;
};

static void on_notice(const char *key, void *arg)
{
	struct heard *heard = arg;

	(void)key;
	lock_take(&heard->lock);
	heard->any = true;
	cond_wake_all(&heard->changed);
	lock_drop(&heard->lock);
}

/* Listens until it is told that it does, or not in `ms`. */
static bool listens(struct store *store, int64_t ms)
{
	struct heard heard = {.any = false};
	int64_t until = clock_after_ms(ms);
	struct err err = {0};

	lock_init(&heard.lock, LOCK_LEAF);
	cond_init(&heard.changed);
	assert_int_equal(store_listen(store, on_notice, &heard, &err), 0);
	lock_take(&heard.lock);
	while (!heard.any && cond_wait_until(&heard.changed, &heard.lock, until))
		;
	lock_drop(&heard.lock);
	assert_int_equal(store_listen(store, NULL, NULL, &err), 0);
	cond_fini(&heard.changed);
	lock_fini(&heard.lock);
	return heard.any;
}

/* Everything the store can do; false where it was refused something. */
static bool run_everything(struct redis_server *server, int64_t listen_ms)
{
	static const char *const groups[] = {"g", "h", "", "g"};
	struct store *store = NULL;
	struct err err = {0};
	bool good = redis_server_open(server, "t", &store, &err) == 0;
	size_t i;

	if (!good)
		return false;
	good = listens(store, listen_ms);
	for (i = 0; good && i < 4; i++)
		good = store_update(store, everything_step, (void *)(uintptr_t)groups[i], &err) == 0;
	redis_server_must(server, "SCRIPT FLUSH", "OK");
	good = good && store_update(store, everything_step, (void *)(uintptr_t) "g", &err) == 0 &&
	       store_healthy(store, &err);
	store_close(store);
	return good;
}

static bool nothing_refused(struct redis_server *server)
{
	char *text = redis_server_ask(server, "ACL LOG");
	bool nothing = strcmp(text, "0") == 0;

	free(text);
	return nothing;
}

static void test_least_rights(void **state)
{
	struct redis_server server;

	(void)state;
	redis_server_start(&server, NULL);
	set_user(&server, SIZE_MAX);
	snprintf(server.url, sizeof(server.url), "unix://berth:sesame@%s", server.socket);
	assert_true(run_everything(&server, 20000));
	assert_true(nothing_refused(&server));
	redis_server_stop(&server);
}

/* The script that opens tries what the others do: without a right nothing is begun. A script that is refused half-way
 * would leave half a step behind. */
static void test_too_few_rights(void **state)
{
	struct redis_server server;
	size_t i;

	(void)state;
	redis_server_start(&server, NULL);
	snprintf(server.url, sizeof(server.url), "unix://berth:sesame@%s", server.socket);
	for (i = 0; set_user(&server, i); i++) {
		if (run_everything(&server, 300))
			fail_msg("word %zu of the ACL is not needed", i);
		redis_server_must(&server, "FLUSHALL", "OK");
	}
	redis_server_must(&server, "ACL SETUSER berth reset on >sesame ~other:* &* +@all", "OK");
	assert_refused(&server, ERR_STORE, "may not do");
	redis_server_stop(&server);
}

/* Steps bear a notice that is refused, so only the start can tell; and it begins nothing. */
static void test_rights_to_hear_and_tell(void **state)
{
	static const struct {
		const char *rights, *said;
	} rows[] = {
		{"+@all -publish &*", "PUBLISH"},
		{"+@all -subscribe &*", "SUBSCRIBE"},
		{"+@all -ping &*", "PING"},
		{"+@all", "SUBSCRIBE t:notices"},
		{"+@all &t.*", "SUBSCRIBE t:notices"},
		{"+@all &t:* &t.requests &t.events", "SUBSCRIBE t.dead"},
	};
	struct redis_server server;
	char line[128];

	(void)state;
	redis_server_start(&server, NULL);
	snprintf(server.url, sizeof(server.url), "unix://berth:sesame@%s", server.socket);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(line, sizeof(line), "ACL SETUSER berth reset on >sesame ~* resetchannels %s", rows[i].rights);
		redis_server_must(&server, line, "OK");
		assert_refused(&server, ERR_STORE, rows[i].said);
		redis_server_must(&server, "DBSIZE", "0");
	}
	redis_server_stop(&server);
}

static void test_documented(void **state)
{
	char *text = calloc(1, 65536);
	FILE *file = fopen(BERTH_TEST_SOURCE_DIR "/docs/redis.md", "re");

	(void)state;
	assert_non_null(text);
	assert_non_null(file);
	assert_true(fread(text, 1, 65535, file) > 0);
	fclose(file);
	if (strstr(text, ACL_COMMANDS) == NULL)
		fail_msg("docs/redis.md gives another ACL than the one that was tested");
	free(text);
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
		cmocka_unit_test(test_url),
		cmocka_unit_test(test_bad_url),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_volatile),
		cmocka_unit_test(test_owner),
		cmocka_unit_test(test_least_rights),
		cmocka_unit_test(test_too_few_rights),
		cmocka_unit_test(test_rights_to_hear_and_tell),
		cmocka_unit_test(test_documented),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, quiet, NULL);
}
