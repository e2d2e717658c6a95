/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations and the names of codes. Constant data; any thread. */
#include "op.h"

#include <string.h>

#include "../../sdk/lib/codes.h"

const struct op_row op_table[OP_COUNT] = {
    [OP_OPEN] = {"open", false},
    [OP_CHECK] = {"check", false},
    [OP_FIND] = {"find", false},
    [OP_LIST] = {"list", false},
    [OP_PROVISION] = {"provision", true},
    [OP_AWAIT_READY] = {"await_ready", false},
    [OP_ASSIGN] = {"assign", true},
    [OP_INSPECT] = {"inspect", false},
    [OP_EXECUTE] = {"execute", true},
    [OP_REATTACH] = {"reattach", true},
    [OP_FORGET] = {"forget", true},
    [OP_SEND_SIGNAL] = {"send_signal", true},
    [OP_FILE_READ] = {"file_read", false},
    [OP_FILE_WRITE] = {"file_write", true},
    [OP_FILE_STAT] = {"file_stat", false},
    [OP_FILE_LIST] = {"file_list", false},
    [OP_FILE_REMOVE] = {"file_remove", true},
    [OP_FILE_MOVE] = {"file_move", true},
    [OP_IMPORT_TAR] = {"import_tar", true},
    [OP_EXPORT_TAR] = {"export_tar", false},
    [OP_MARK] = {"mark", false},
    [OP_CHANGES] = {"changes", false},
    [OP_RENEW] = {"renew", true},
    [OP_RELEASE] = {"release", true},
};

static const char *const code_names[] = {
#define ROW(name, word, status) [BERTH_##name] = #name,
	CODES(ROW)
#undef ROW
};
#define CODE_COUNT ((int32_t)(sizeof(code_names) / sizeof(code_names[0])))

const char *op_code_name(int32_t code)
{
	return code >= 0 && code < CODE_COUNT ? code_names[code] : "?";
}

bool op_code_by_name(const char *name, int32_t *ret)
{
	for (int32_t i = 0; i < CODE_COUNT; i++) {
		if (strcmp(code_names[i], name))
			continue;
		*ret = i;
		return true;
	}
	return false;
}
