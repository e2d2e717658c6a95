/* SPDX-License-Identifier: Apache-2.0 */
/* Nonces: each serves once until its token expires, however many there are, and none is forgotten to make room. */
#include "replay.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Spread and not, as the bytes come from outside. */
static void nonce_of(uint8_t nonce[TOKEN_NONCE], uint64_t number, int spread)
{
	uint64_t first = spread ? number * UINT64_C(0x9e3779b97f4a7c15) : 7;

	memcpy(nonce, &first, 8);
	memcpy(nonce + 8, &number, 8);
}

static int take(struct replay *replay, uint64_t number, int spread, int64_t expires, int64_t now)
{
	uint8_t nonce[TOKEN_NONCE];

	nonce_of(nonce, number, spread);
	return replay_take(replay, nonce, expires, now);
}

static void takes_once(void **state)
{
	struct replay replay;

	(void)state;
	replay_init(&replay, REPLAY_MAX);
	for (uint64_t i = 0; i < 20000; i++)
		assert_int_equal(take(&replay, i, 1, 1000, 1), 0);
	for (uint64_t i = 0; i < 20000; i++)
		assert_int_equal(take(&replay, i, 1, 1000, 1000), -EEXIST);
	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(take(&replay, i, 0, 1000, 1), 0);
	for (uint64_t i = 0; i < 500; i++)
		assert_int_equal(take(&replay, i, 0, 1000, 1), -EEXIST);
	replay_fini(&replay);
}

static void forgets_the_expired_only(void **state)
{
	struct replay replay;
	size_t size;

	(void)state;
	replay_init(&replay, REPLAY_MAX);
	/* Every tenth lives long. */
	for (uint64_t i = 0; i < 50000; i++)
		assert_int_equal(take(&replay, i, 1, i % 10 ? (int64_t)i + 100 : 1000000, (int64_t)i), 0);
	size = replay.size;
	for (uint64_t i = 0; i < 50000; i += 10)
		assert_int_equal(take(&replay, i, 1, 1000000, 60000), -EEXIST);
	/* The table follows what is alive, not what has ever come. */
	assert_true(size <= 32768);
	replay_fini(&replay);
}

static void refuses_when_full(void **state)
{
	struct replay replay;

	(void)state;
	replay_init(&replay, 1000);
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(take(&replay, i, 1, 500, 1), 0);
	assert_int_equal(take(&replay, 1000, 1, 500, 1), -ENOSPC);
	assert_int_equal(take(&replay, 1000, 1, 500, 500), -ENOSPC);
	for (uint64_t i = 0; i < 1000; i++)
		assert_true(take(&replay, i, 1, 500, 1) < 0);
	assert_int_equal(take(&replay, 1000, 1, 900, 501), 0);
	assert_int_equal(take(&replay, 1000, 1, 900, 501), -EEXIST);
	replay_fini(&replay);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_once),
		cmocka_unit_test(forgets_the_expired_only),
		cmocka_unit_test(refuses_when_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
