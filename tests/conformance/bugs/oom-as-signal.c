/* SPDX-License-Identifier: Apache-2.0 */
/* Who was killed for its memory is reported as killed by anyone. */
#include "bug.h"

static int32_t emit_ending(struct berth_call *call, const struct berth_ending *ending)
{
	struct berth_ending bent = *ending;

	if (bent.kind == BERTH_ENDING_OOM) {
		bent.kind = BERTH_ENDING_SIGNAL;
		bent.signal = 9;
	}
	return real->emit_ending(call, &bent);
}

static void bend(struct berth_ops *ops, struct berth_host *host)
{
	(void)ops;
	host->emit_ending = emit_ending;
}
