/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks every target once, before anything works with it, whether its provider takes its configuration as it stands:
 * what is wrong with it is said at the start and not by the first task. A provider that cannot be asked now is no
 * reason to stay down. Entered by the main thread between registry_open and the first use of a target; never changes a
 * target but to refuse it.
 */
#include "core/clock.h"
#include "core/log.h"
#include "plugin/call.h"
#include "plugin/private.h"

static int try_target(struct target *target, int64_t limit_ms, struct err *err)
{
	struct call *call = call_new(target, clock_after_ms(limit_ms), NULL);
	struct err why = {0};
	int r;

	if (!call)
		return err_set(err, ERR_NOMEM, "memory is out");
	r = call_check(call, &why);
	call_free(call);
	if (r != 0 && r != ERR_PROVIDER)
		log_warn("a target could not be checked now", KS("target", target->conf->name), KS("error", why.msg));
	if (r != ERR_PROVIDER)
		return 0;
	if (target->conf->required)
		return refused_target(&why, err);
	log_warn("a target is degraded: its provider refused its configuration", KS("target", target->conf->name),
		 KS("why", why.msg));
	target_refuse(target, why.msg);
	return 0;
}

int registry_try(struct registry *registry, int64_t limit_ms, struct err *err)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < registry->target_count; i++) {
		if (registry->targets[i]->state->opened)
			r = try_target(registry->targets[i], limit_ms, err);
	}
	return r;
}
