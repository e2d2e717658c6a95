/* SPDX-License-Identifier: Apache-2.0 */
/* Every type of the ABI is reachable from this one symbol: what the baseline is recorded from. */
#include <berth/provider.h>

const struct berth_provider *berth_provider_entry_v1(void)
{
	static const struct berth_provider provider = {.magic = BERTH_PROVIDER_MAGIC};

	return &provider;
}
