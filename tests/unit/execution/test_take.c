/* SPDX-License-Identifier: Apache-2.0 */
/* How long an execution waits for its session: no longer than its time in the queue allows, whatever providers say. */
#include "setup.h"

#include <stdio.h>

static struct host host;

/* The session's making goes on past the command's time in the queue, and then it is told to come back in an hour. */
static void expect_no_wait_past_the_queue(const char *faults, const char *reason)
{
	char id[IDENT_ID_MAX + 1], *retry;

	host_make(&host, "process");
	host.conf.exec_queue_ms = 300;
	host_up(&host);
	host_faults(&host, faults);
	host_start(&host, "t", "echo never", id);
	host_finish(&host, id);
	host_expect(&host, id, "attempt", "1");
	host_expect(&host, id, "status", "failed");
	host_expect(&host, id, "reason", reason);
	retry = host_get(&host, id, "retry_after_ms");
	assert_in_range(strtol(retry, NULL, 10), 3000000, 3600000);
	free(retry);
	host_check_history(&host, id);
	host_down(&host, 0);
	host_end(&host);
}

static void a_rate_limit_is_not_waited_for_past_the_queue(void **state)
{
	(void)state;
	expect_no_wait_past_the_queue("provision delay=1s code=RATE_LIMITED retry_after=1h\n", "rate_limited");
}

static void a_quota_is_not_waited_for_past_the_queue(void **state)
{
	(void)state;
	expect_no_wait_past_the_queue("provision delay=1s code=QUOTA retry_after=1h\n", "quota_exceeded");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_rate_limit_is_not_waited_for_past_the_queue),
		cmocka_unit_test(a_quota_is_not_waited_for_past_the_queue),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
