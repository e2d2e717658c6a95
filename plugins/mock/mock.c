/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor of the mock provider and the one symbol it exports. Constant, but for the host's table that init
 * stores before anything else runs.
 */
#include "mock.h"

#include "shim.h"

static int32_t init(const struct berth_host *host)
{
	shim_init(host);
	return BERTH_OK;
}

static const struct berth_ops ops = {
    .struct_size = sizeof(ops),
    .open = mock_open,
    .close = mock_close,
    .check = mock_check,
    .find = mock_find,
    .list = mock_list,
    .provision = mock_provision,
    .await_ready = mock_await_ready,
    .assign = mock_assign,
    .inspect = mock_inspect,
    .execute = mock_execute,
    .reattach = mock_reattach,
    .forget = mock_forget,
    .send_signal = mock_send_signal,
    .file_read = mock_file_read,
    .file_write = mock_file_write,
    .file_stat = mock_file_stat,
    .file_list = mock_file_list,
    .file_remove = mock_file_remove,
    .file_move = mock_file_move,
    .import_tar = mock_import_tar,
    .export_tar = mock_export_tar,
    .mark = mock_mark,
    .changes = mock_changes,
    .renew = mock_renew,
    .release = mock_release,
};

static const struct berth_provider provider = {
    .magic = BERTH_PROVIDER_MAGIC,
    .abi_major = BERTH_ABI_MAJOR,
    .abi_minor = 0,
    .struct_size = sizeof(provider),
    .name = "mock",
    .version = "0.1.0",
    .build_id = "mock 0.1.0",
    .capabilities = MOCK_CAPABILITIES,
    .init = init,
    .ops = &ops,
    .options = mock_options,
};

const struct berth_provider *berth_provider_entry_v1(void)
{
	return &provider;
}
