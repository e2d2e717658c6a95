/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nonces of signed tokens: a row for each used one until its token has ended. Steps of the store and of its callers; any
 * thread.
 */
#ifndef EXECUTION_NONCE_H
#define EXECUTION_NONCE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/ident.h"
#include "store/store.h"

/* How long past its token's end a row stays: the clock that judges tokens may be behind the store's. */
#define NONCE_KEEP_MS (5 * 60 * 1000)

/* In the place of a body's digest: the nonce is of a cancel, which has none. */
#define NONCE_CANCEL "cancel"

/* Inside a step. *ret_used tells whether the nonce was used; then ret_id has the execution that it was used for, when it
 * was a create's of a body with this digest, or a cancel's, as sha256 says, and its record is there, else "". */
int nonce_look_step(struct txn *txn, const char *key, const char *sha256, bool *ret_used,
		    char ret_id[IDENT_ID_MAX + 1], struct err *err);
int nonce_put_step(struct txn *txn, const char *key, int64_t expires_ms, const char *id, const char *sha256,
		   struct err *err);
/* Removes rows of ended tokens, at most a page; *ret_more: there are others. A step of its own. */
int nonce_sweep_step(struct txn *txn, void *ret_more, struct err *err);
/* What a caller is told. */
int nonce_refuse(struct err *err);

#endif
