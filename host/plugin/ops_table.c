/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each operation may say and return: the one home of the contract's "must" as far as the host can see it.
 * Constant.
 */
#include "plugin/private.h"

#define BIT(code) (1u << (code))
#define CODES_ANY                                                                                                      \
	(BIT(BERTH_OK) | BIT(BERTH_INVALID) | BIT(BERTH_CAPACITY) | BIT(BERTH_QUOTA) | BIT(BERTH_RATE_LIMITED) |       \
	 BIT(BERTH_UNAUTHENTICATED) | BIT(BERTH_FORBIDDEN) | BIT(BERTH_UNAVAILABLE) | BIT(BERTH_TIMEOUT) |             \
	 BIT(BERTH_CANCELLED) | BIT(BERTH_UNSUPPORTED) | BIT(BERTH_UNKNOWN) | BIT(BERTH_STORAGE_FULL) |                \
	 BIT(BERTH_INTERNAL))
#define CODES_SESSION (CODES_ANY | BIT(BERTH_NOT_FOUND) | BIT(BERTH_SESSION_LOST))
#define CODES_CHANGING (CODES_SESSION | BIT(BERTH_CONFLICT))

#define AT(field) .name = #field, .off = offsetof(struct berth_ops, field)
const struct op op_table[] = {
    [OP_OPEN] = {AT(open), .codes = CODES_ANY},
    [OP_CHECK] = {AT(check), .codes = CODES_ANY},
    [OP_FIND] = {AT(find), .says = SAY_SESSION, .codes = CODES_ANY},
    [OP_LIST] = {AT(list), .says = SAY_SESSION | SAY_CURSOR, .codes = CODES_ANY},
    [OP_PROVISION] = {AT(provision), .says = SAY_CREATED | SAY_PROGRESS, .once = SAY_CREATED,
		      .codes = CODES_ANY | BIT(BERTH_CONFLICT)},
    [OP_AWAIT_READY] = {AT(await_ready), .says = SAY_SESSION | SAY_PROGRESS, .once = SAY_SESSION,
			.codes = CODES_SESSION},
    [OP_ASSIGN] = {AT(assign), .capability = BERTH_CAP_ASSIGN_TAGS, .says = SAY_SESSION, .once = SAY_SESSION,
		   .codes = CODES_CHANGING},
    [OP_INSPECT] = {AT(inspect), .says = SAY_SESSION, .once = SAY_SESSION, .codes = CODES_SESSION},
    [OP_EXECUTE] = {AT(execute), .says = SAY_STARTED | SAY_OUTPUT | SAY_GAP | SAY_ENDING | SAY_SOURCE,
		    .once = SAY_ENDING, .codes = CODES_CHANGING},
    [OP_REATTACH] = {AT(reattach), .capability = BERTH_CAP_REATTACH,
		     .says = SAY_STARTED | SAY_OUTPUT | SAY_GAP | SAY_ENDING, .once = SAY_ENDING,
		     .codes = CODES_SESSION | BIT(BERTH_NOT_STARTED)},
    [OP_FORGET] = {AT(forget), .capability = BERTH_CAP_REATTACH, .codes = CODES_CHANGING},
    [OP_SEND_SIGNAL] = {AT(send_signal), .capability = BERTH_CAP_SIGNAL, .codes = CODES_CHANGING},
    [OP_FILE_READ] = {AT(file_read), .says = SAY_DATA, .codes = CODES_SESSION},
    [OP_FILE_WRITE] = {AT(file_write), .says = SAY_SOURCE, .codes = CODES_CHANGING},
    [OP_FILE_STAT] = {AT(file_stat), .says = SAY_FILE, .once = SAY_FILE, .codes = CODES_SESSION},
    [OP_FILE_LIST] = {AT(file_list), .says = SAY_FILE, .codes = CODES_SESSION},
    [OP_FILE_REMOVE] = {AT(file_remove), .codes = CODES_CHANGING},
    [OP_FILE_MOVE] = {AT(file_move), .codes = CODES_CHANGING},
    [OP_IMPORT] = {AT(import_tar), .capability = BERTH_CAP_BULK, .says = SAY_SOURCE, .codes = CODES_CHANGING},
    [OP_EXPORT] = {AT(export_tar), .capability = BERTH_CAP_BULK, .says = SAY_DATA, .codes = CODES_SESSION},
    [OP_MARK] = {AT(mark), .capability = BERTH_CAP_CHANGES, .says = SAY_TOKEN, .once = SAY_TOKEN,
		 .codes = CODES_SESSION},
    [OP_CHANGES] = {AT(changes), .capability = BERTH_CAP_CHANGES, .says = SAY_CHANGE, .codes = CODES_SESSION},
    [OP_RENEW] = {AT(renew), .capability = BERTH_CAP_RENEW, .says = SAY_EXPIRY, .once = SAY_EXPIRY,
		  .codes = CODES_CHANGING},
    [OP_RELEASE] = {AT(release), .codes = CODES_SESSION},
};
