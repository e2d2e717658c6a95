/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations and the names of codes: what fault rules, counters and the log of calls share. Constant. */
#ifndef MOCK_OP_H
#define MOCK_OP_H

#include <berth/types.h>
#include <stdbool.h>

enum op {
	OP_OPEN,
	OP_CHECK,
	OP_FIND,
	OP_LIST,
	OP_PROVISION,
	OP_AWAIT_READY,
	OP_ASSIGN,
	OP_INSPECT,
	OP_EXECUTE,
	OP_REATTACH,
	OP_FORGET,
	OP_SEND_SIGNAL,
	OP_FILE_READ,
	OP_FILE_WRITE,
	OP_FILE_STAT,
	OP_FILE_LIST,
	OP_FILE_REMOVE,
	OP_FILE_MOVE,
	OP_IMPORT_TAR,
	OP_EXPORT_TAR,
	OP_MARK,
	OP_CHANGES,
	OP_RENEW,
	OP_RELEASE,
	OP_COUNT
};
#define OP_BIT(op) (UINT32_C(1) << (op))
#define OP_ALL (OP_BIT(OP_COUNT) - 1)
#define OPS_OUTPUT (OP_BIT(OP_EXECUTE) | OP_BIT(OP_REATTACH))
#define OPS_NO_SESSION (OP_BIT(OP_OPEN) | OP_BIT(OP_CHECK) | OP_BIT(OP_FIND) | OP_BIT(OP_LIST))
#define OPS_EMIT_SESSION                                                                                               \
	(OP_BIT(OP_FIND) | OP_BIT(OP_LIST) | OP_BIT(OP_PROVISION) | OP_BIT(OP_AWAIT_READY) | OP_BIT(OP_ASSIGN) |       \
	 OP_BIT(OP_INSPECT))

struct op_row {
	const char *name;
	bool changes; /* gets a line in calls.log */
};
extern const struct op_row op_table[OP_COUNT];

/* "UNAVAILABLE" and so on; "?" for a number that is no code. */
const char *op_code_name(int32_t code);
/* False for a name that is no code. */
bool op_code_by_name(const char *name, int32_t *ret);

#endif
