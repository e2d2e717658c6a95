/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor of the Kubernetes provider and the one symbol it exports. Constant, but for the host's table that init
 * stores before anything else runs.
 */
#include "capabilities.h"
#include "kube.h"

static int32_t init(const struct berth_host *host)
{
	kube_host = host;
	return BERTH_OK;
}

static const struct berth_provider provider = {
	.magic = BERTH_PROVIDER_MAGIC,
	.abi_major = BERTH_ABI_MAJOR,
	.abi_minor = 0,
	.struct_size = sizeof(provider),
	.name = "kubernetes",
	.version = BERTH_VERSION,
	.build_id = "kubernetes " BERTH_VERSION,
	.capabilities = CAPABILITIES_ALL,
	.init = init,
	.ops = &kube_ops,
	.options = kube_options,
	.metrics = kube_metrics,
};

const struct berth_provider *berth_provider_entry_v1(void)
{
	return &provider;
}
