/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the file of fault rules of the mock provider. */
#include <stdlib.h>
#include <string.h>

#include "../../plugins/mock/fault.h"
#include "fuzz.h"

static void check_rule(const struct fault_rule *rule)
{
	FUZZ_CHECK(rule->line > 0 && rule->ops && !(rule->ops & ~OP_ALL) && rule->fx.set);
	FUZZ_CHECK(strlen(rule->task) < sizeof(rule->task) && strlen(rule->fx.reason) <= BERTH_REASON_MAX);
	FUZZ_CHECK(rule->any_task || strchr(rule->task, '/'));
	FUZZ_CHECK(!effect_has(&rule->fx, FX_GAP) || rule->fx.gap[0] < rule->fx.gap[1]);
	FUZZ_CHECK(!effect_has(&rule->fx, FX_REASON) || effect_has(&rule->fx, FX_CODE));
	FUZZ_CHECK(rule->fx.delay_ms >= 0 && rule->fx.stall_ms >= 0 && rule->fx.late_ms >= 0 && rule->fx.clamp_ms >= 0);
	FUZZ_PLANTED(rule->task, strlen(rule->task));
}

static void check_set(const struct fault_set *set)
{
	FUZZ_CHECK(set->count <= FAULT_RULES_MAX);
	for (size_t i = 0; i < set->count; i++)
		check_rule(&set->rules[i]);
	for (unsigned op = 0; op < OP_COUNT; op++) {
		struct effect fx = {0};
		uint32_t allowed = fault_allowed(op);

		for (size_t i = 0; i < set->count; i++)
			if (set->rules[i].ops & OP_BIT(op))
				fault_merge(&fx, &set->rules[i].fx, allowed);
		FUZZ_CHECK(!(fx.set & ~allowed));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_copy(data, size);
	char error[FAULT_ERROR_MAX] = "";
	struct fault_set *set = fault_parse(text, error);

	if (set)
		check_set(set);
	else
		FUZZ_CHECK(strncmp(error, "line ", 5) == 0 && memchr(error, '\0', sizeof(error)));
	free(set);
	free(text);
	return 0;
}
