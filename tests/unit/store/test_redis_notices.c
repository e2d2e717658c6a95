/* SPDX-License-Identifier: Apache-2.0 */
/* Notices: what one process's step tells is heard by the others, once it is durable, and a lost connection is told. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/thread.h"
#include "redis_server.h"

#define PATIENCE_MS 20000

static struct redis_server server;

struct heard {
	struct lock lock;
	struct cond changed;
	unsigned lost;
	char last[64];
	unsigned count;
};

static void hear(const char *key, void *arg)
{
	struct heard *heard = arg;

	lock_take(&heard->lock);
	if (key) {
		snprintf(heard->last, sizeof(heard->last), "%s", key);
		heard->count++;
	} else {
		heard->lost++;
	}
	cond_wake_all(&heard->changed);
	lock_drop(&heard->lock);
}

static void wait_until(struct heard *heard, const unsigned *number, unsigned least)
{
	int64_t until_ns = clock_after_ms(PATIENCE_MS);

	lock_take(&heard->lock);
	while (*number < least)
		assert_true(cond_wait_until(&heard->changed, &heard->lock, until_ns));
	lock_drop(&heard->lock);
}

static void heard_init(struct heard *heard)
{
	*heard = (struct heard){0};
	lock_init(&heard->lock, LOCK_LEAF);
	cond_init(&heard->changed);
}

static void heard_fini(struct heard *heard)
{
	cond_fini(&heard->changed);
	lock_fini(&heard->lock);
}

struct tell {
	const char *key, *other;
	int fail;
};

static int tell_step(struct txn *txn, void *arg, struct err *err)
{
	const struct tell *tell = arg;
	int rc = txn_count_add(txn, "told", 1, err);

	if (rc == 0)
		rc = txn_notify(txn, tell->key, err);
	if (rc == 0)
		rc = txn_notify(txn, tell->key, err); /* told once */
	if (rc == 0 && tell->other)
		rc = txn_notify(txn, tell->other, err);
	if (rc == 0 && tell->fail)
		rc = err_set(err, tell->fail, "as asked");
	return rc;
}

static void open_two(const char *prefix, struct store *ret[2])
{
	struct err err = {0};

	for (int i = 0; i < 2; i++)
		assert_int_equal(redis_server_open(&server, prefix, &ret[i], &err), 0);
}

static void the_others_hear_what_was_committed(void **state)
{
	struct store *stores[2];
	struct heard own, other;
	struct err err = {0};

	(void)state;
	heard_init(&own);
	heard_init(&other);
	open_two("committed", stores);
	assert_int_equal(store_listen(stores[0], hear, &own, &err), 0);
	assert_int_equal(store_listen(stores[1], hear, &other, &err), 0);
	wait_until(&own, &own.lost, 1);
	wait_until(&other, &other.lost, 1);
	assert_int_equal(store_update(stores[0], tell_step, &(struct tell){.key = "exec:failed", .fail = ERR_CONFLICT}, &err),
			 ERR_CONFLICT);
	assert_int_equal(store_update(stores[0], tell_step, &(struct tell){.key = "exec:a\nb"}, &err), ERR_INTERNAL);
	assert_int_equal(store_update(stores[0], tell_step, &(struct tell){.key = "exec:a", .other = "task:a"}, &err), 0);
	wait_until(&other, &other.count, 2);
	assert_string_equal(other.last, "exec:a");
	/* The answer comes the same way back, so what went before has arrived by then. */
	assert_int_equal(store_update(stores[1], tell_step, &(struct tell){.key = "exec:b"}, &err), 0);
	wait_until(&own, &own.count, 1);
	assert_string_equal(own.last, "exec:b");
	store_close(stores[0]);
	store_close(stores[1]);
	assert_int_equal(own.count, 1);
	assert_int_equal(other.count, 2);
	heard_fini(&own);
	heard_fini(&other);
}

static unsigned read_number(struct heard *heard, const unsigned *number)
{
	unsigned now;

	lock_take(&heard->lock);
	now = *number;
	lock_drop(&heard->lock);
	return now;
}

/* One that is alone tells nobody; a newcomer says that it is there, and hears from then on. */
static void a_newcomer_hears_one_that_was_alone(void **state)
{
	struct store *stores[2];
	struct heard own, other;
	struct err err = {0};
	int64_t until_ns;

	(void)state;
	heard_init(&own);
	heard_init(&other);
	open_two("alone", stores);
	assert_int_equal(store_listen(stores[0], hear, &own, &err), 0);
	wait_until(&own, &own.lost, 1);
	for (int i = 0; i < 50; i++)
		assert_int_equal(store_update(stores[0], tell_step, &(struct tell){.key = "exec:a"}, &err), 0);
	assert_int_equal(store_listen(stores[1], hear, &other, &err), 0);
	until_ns = clock_after_ms(PATIENCE_MS);
	while (read_number(&other, &other.count) == 0 && clock_left_ms(until_ns) > 0)
		assert_int_equal(store_update(stores[0], tell_step, &(struct tell){.key = "exec:a"}, &err), 0);
	assert_int_not_equal(read_number(&other, &other.count), 0);
	store_close(stores[0]);
	store_close(stores[1]);
	assert_int_equal(own.count, 0);
	heard_fini(&own);
	heard_fini(&other);
}

static void a_lost_connection_is_told(void **state)
{
	struct store *stores[2];
	struct heard heard;
	struct err err = {0};

	(void)state;
	heard_init(&heard);
	open_two("lost", stores);
	assert_int_equal(store_listen(stores[1], hear, &heard, &err), 0);
	wait_until(&heard, &heard.lost, 1);
	redis_server_kill(&server);
	redis_server_again(&server);
	wait_until(&heard, &heard.lost, 2);
	for (int i = 0; i < 50 && store_update(stores[0], tell_step, &(struct tell){.key = "exec:c"}, &err) != 0; i++)
		;
	wait_until(&heard, &heard.count, 1);
	assert_string_equal(heard.last, "exec:c");
	/* No call after the end. */
	assert_int_equal(store_listen(stores[1], NULL, NULL, &err), 0);
	assert_int_equal(store_update(stores[0], tell_step, &(struct tell){.key = "exec:d"}, &err), 0);
	store_close(stores[0]);
	store_close(stores[1]);
	assert_string_equal(heard.last, "exec:c");
	heard_fini(&heard);
}

static bool was_refused(void)
{
	char *text = redis_server_ask(&server, "ACL LOG");
	bool any = strcmp(text, "0") != 0;

	free(text);
	return any;
}

/* What is refused once is asked for again, and nobody takes it for given meanwhile. */
static void a_refused_subscription_is_asked_for_again(void **state)
{
	struct store *stores[2];
	struct heard heard;
	struct err err = {0};
	int64_t until_ns = clock_after_ms(PATIENCE_MS);

	(void)state;
	heard_init(&heard);
	open_two("refused", stores);
	assert_int_equal(store_listen(stores[1], hear, &heard, &err), 0);
	wait_until(&heard, &heard.lost, 1);
	redis_server_must(&server, "ACL SETUSER default resetchannels", "OK");
	free(redis_server_ask(&server, "CLIENT KILL TYPE pubsub"));
	while (!was_refused() && clock_left_ms(until_ns) > 0)
		;
	assert_int_equal(read_number(&heard, &heard.lost), 1);
	redis_server_must(&server, "ACL SETUSER default allchannels", "OK");
	wait_until(&heard, &heard.lost, 2);
	assert_int_equal(store_update(stores[0], tell_step, &(struct tell){.key = "exec:e"}, &err), 0);
	wait_until(&heard, &heard.count, 1);
	assert_string_equal(heard.last, "exec:e");
	store_close(stores[0]);
	store_close(stores[1]);
	heard_fini(&heard);
}

static int setup(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN); /* as in berthd */
	redis_server_start(&server, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	redis_server_stop(&server);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_others_hear_what_was_committed),
		cmocka_unit_test(a_newcomer_hears_one_that_was_alone),
		cmocka_unit_test(a_lost_connection_is_told),
		cmocka_unit_test(a_refused_subscription_is_asked_for_again),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
