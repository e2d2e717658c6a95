/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer of the provider means for a command: doubt is never read as "did not run", an error never as an exit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "execution/execution_private.h"

static void an_ending_is_an_ending(void **state)
{
	static const uint32_t kinds[] = {BERTH_ENDING_EXIT, BERTH_ENDING_SIGNAL, BERTH_ENDING_TIMEOUT,
					 BERTH_ENDING_CANCELLED, BERTH_ENDING_OOM};
	(void)state;
	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		assert_int_equal(verdict_of(0, kinds[i], false, true), VERDICT_ENDED);
		assert_int_equal(verdict_of(0, kinds[i], true, false), VERDICT_ENDED);
	}
	assert_int_equal(verdict_of(0, BERTH_ENDING_SESSION_LOST, false, true), VERDICT_LOST);
	assert_int_equal(verdict_of(0, BERTH_ENDING_UNKNOWN, false, true), VERDICT_REATTACH);
	assert_int_equal(verdict_of(0, BERTH_ENDING_UNKNOWN, true, true), VERDICT_DOUBT);
	assert_int_equal(verdict_of(0, 0, false, true), VERDICT_REATTACH); /* U1: no ending, no exit */
}

static void before_any_sign_a_refusal_is_a_refusal(void **state)
{
	static const int refused[] = {ERR_PROVIDER, ERR_PROVIDER_AUTH, ERR_QUOTA, ERR_UNSUPPORTED,
				      ERR_STORAGE_FULL, ERR_INVALID_REQUEST};
	static const int again[] = {ERR_PROVIDER_UNAVAILABLE, ERR_QUEUE_FULL, ERR_RATE_LIMITED, ERR_CAPACITY};

	(void)state;
	for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		assert_int_equal(verdict_of(refused[i], 0, false, false), VERDICT_REFUSED);
	for (unsigned i = 0; i < sizeof(again) / sizeof(again[0]); i++)
		assert_int_equal(verdict_of(again[i], 0, false, false), VERDICT_AGAIN);
}

/* I4: whatever the code, a command that gave a sign is not run again and not called refused; nor is one that was asked
 * for. */
static void after_a_sign_no_code_leads_to_a_second_start(void **state)
{
	(void)state;
	for (int code = -1; code > -(int)ERR_ORDINAL_COUNT; code--) {
		enum verdict touched = verdict_of(code, 0, false, true), asked = verdict_of(code, 0, true, false);

		assert_true(touched == VERDICT_REATTACH || touched == VERDICT_LOST || touched == VERDICT_DETACHED);
		assert_true(asked != VERDICT_AGAIN && asked != VERDICT_REFUSED && asked != VERDICT_ENDED);
		assert_int_equal(asked == VERDICT_NOT_STARTED, code == ERR_NOT_STARTED);
	}
}

/* What execute cannot tell is asked for; it is never taken for "nothing happened". */
static void doubt_is_asked_for(void **state)
{
	static const int doubts[] = {ERR_OUTCOME_UNKNOWN, ERR_INTERNAL,	   ERR_PROVIDER_TIMEOUT, ERR_CANCELLED,
				     ERR_CONFLICT,	  ERR_NOT_STARTED, ERR_IO};

	(void)state;
	for (unsigned i = 0; i < sizeof(doubts) / sizeof(doubts[0]); i++)
		assert_int_equal(verdict_of(doubts[i], 0, false, false), VERDICT_REATTACH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_ending_is_an_ending),
		cmocka_unit_test(before_any_sign_a_refusal_is_a_refusal),
		cmocka_unit_test(after_a_sign_no_code_leads_to_a_second_start),
		cmocka_unit_test(doubt_is_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
