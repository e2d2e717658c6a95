/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor of the HTTP test provider and the one symbol it exports. Constant, but for the host's table that init
 * stores before anything else runs.
 */
#include "httpprov.h"

const struct berth_host *prov_host;

static int32_t init(const struct berth_host *host)
{
	prov_host = host;
	return BERTH_OK;
}

static const struct berth_ops ops = {
	.struct_size = sizeof(ops),
	.open = prov_open,
	.close = prov_close,
	.check = prov_check,
	.find = prov_find,
	.list = prov_list,
	.provision = prov_provision,
	.await_ready = prov_await_ready,
	.assign = prov_assign,
	.inspect = prov_inspect,
	.execute = prov_execute,
	.reattach = prov_reattach,
	.forget = prov_forget,
	.send_signal = prov_send_signal,
	.file_read = prov_file_read,
	.file_write = prov_file_write,
	.file_stat = prov_file_stat,
	.file_list = prov_file_list,
	.file_remove = prov_file_remove,
	.file_move = prov_file_move,
	.import_tar = prov_import_tar,
	.export_tar = prov_export_tar,
	.mark = prov_mark,
	.changes = prov_changes,
	.renew = prov_renew,
	.release = prov_release,
};

static const struct berth_provider provider = {
	.magic = BERTH_PROVIDER_MAGIC,
	.abi_major = BERTH_ABI_MAJOR,
	.abi_minor = 0,
	.struct_size = sizeof(provider),
	.name = "httpprov",
	.version = "0.1.0",
	.build_id = "httpprov 0.1.0",
	.capabilities = PROV_CAPABILITIES,
	.init = init,
	.ops = &ops,
	.options = prov_options,
};

const struct berth_provider *berth_provider_entry_v1(void)
{
	return &provider;
}
