/* SPDX-License-Identifier: Apache-2.0 */
/* Placement's rules (P7) and the choice among found sessions; pure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "session/lookup.h"
#include "session/placement.h"

static const struct placement_target targets[] = {
	{.name = "plain", .region = ""},
	{.name = "eu-1", .region = "eu", .sessions = 5, .max_sessions = 10},
	{.name = "eu-2", .region = "eu", .sessions = 1, .max_sessions = 10},
	{.name = "us", .region = "us", .drained = true},
	{.name = "down", .region = "asia", .down = true},
	{.name = "full", .region = "af", .sessions = 3, .max_sessions = 3},
};
#define COUNT (sizeof(targets) / sizeof(*targets))

static void placement_follows_the_rules(void **state)
{
	static const struct {
		const char *region;
		bool pin;
		int code;
		const char *name; /* or a part of the sentence */
	} cases[] = {
		{"", false, 0, "plain"},
		{NULL, false, 0, "plain"},
		{"eu", false, 0, "eu-1"},
		{"eu", true, 0, "eu-2"},
		{"EU", false, ERR_NO_TARGET, "\"EU\""},
		{" eu", false, ERR_NO_TARGET, "no target"},
		{"us", false, ERR_NO_TARGET, "drained"},
		{"asia", false, ERR_NO_TARGET, "refused"},
		{"af", false, ERR_CAPACITY, "full"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct err err = {0};
		size_t pick = COUNT;

		assert_int_equal(placement_pick(targets, COUNT, cases[i].region, cases[i].pin, &pick, &err), cases[i].code);
		if (cases[i].code)
			assert_non_null(strstr(err.msg, cases[i].name));
		else
			assert_string_equal(targets[pick].name, cases[i].name);
	}
}

static void full_is_retryable_and_named(void **state)
{
	struct err err = {0};
	size_t pick;

	(void)state;
	assert_int_equal(placement_pick(&targets[5], 1, "", false, &pick, &err), ERR_CAPACITY);
	assert_true(err.retryable);
	assert_string_equal(err.reason, "max_sessions");
	assert_int_equal(placement_pick(targets, 0, "", false, &pick, &err), ERR_NO_TARGET);
}

static struct made found(const char *ref, const char *intent, int64_t created_ms, uint32_t phase)
{
	return (struct made){.ref = ref, .intent = intent, .created_ms = created_ms, .phase = phase, .state = "",
			     .boot_id = "", .root = ""};
}

static void lookup_chooses_the_one_to_use(void **state)
{
	const char *old[] = {"old"};
	const struct binding row = {.intent = "ours", .superseded = old, .superseded_count = 1};
	struct made list[] = {
		found("superseded", "old", 1, BERTH_PHASE_READY), found("dead", "ours", 1, BERTH_PHASE_DEAD),
		found("young", "other", 30, BERTH_PHASE_READY),   found("elder", "other", 20, BERTH_PHASE_READY),
		found("ageless", "other", 0, BERTH_PHASE_READY),
	};

	(void)state;
	assert_null(lookup_pick(list, 0, &row, false));
	assert_null(lookup_pick(list, 2, &row, false));
	assert_string_equal(lookup_pick(list, 5, &row, false)->ref, "elder");
	assert_null(lookup_pick(list, 5, &row, true));
	list[2].intent = "ours";
	assert_string_equal(lookup_pick(list, 5, &row, false)->ref, "young");
	assert_string_equal(lookup_pick(list, 5, &row, true)->ref, "young");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(placement_follows_the_rules),
		cmocka_unit_test(full_is_retryable_and_named),
		cmocka_unit_test(lookup_chooses_the_one_to_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
