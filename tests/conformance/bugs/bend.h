/* SPDX-License-Identifier: Apache-2.0 */
/* The entry of a provider with one mistake: BUG_OF's own, whose tables bend() has changed; under the name BUG_NAME. */
#ifndef BEND_H
#define BEND_H

static int32_t bug_init(const struct berth_host *given)
{
	static struct berth_host bent;
	struct berth_ops scratch = *BUG_OF()->ops;

	real = given;
	bent = *given;
	bend(&scratch, &bent);
	return BUG_OF()->init(&bent);
}

const struct berth_provider *berth_provider_entry_v1(void)
{
	static struct berth_provider provider;
	static struct berth_ops ops;
	struct berth_host scratch = {0};

	provider = *BUG_OF();
	ops = *provider.ops;
	provider.name = BUG_NAME;
	provider.init = bug_init;
	provider.ops = &ops;
	bend(&ops, &scratch);
	return &provider;
}

#endif
