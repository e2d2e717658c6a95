/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what: bearer tokens of the configuration. Fails closed. Pure but for the time passed in; any thread.
 */
#ifndef API_AUTH_H
#define API_AUTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conf/conf.h"
#include "core/err.h"

struct auth {
	const struct conf_token *tokens; /* borrowed */
	size_t token_count;
	const struct secret *control; /* borrowed; NULL: no signed tokens */
};

/* The tokens of one reading of the configuration; requests hold on to theirs, so that a reload cannot pull it away. */
struct auth_set {
	atomic_uint refs;
	struct auth auth;
	struct conf *owner; /* freed with the last reference; NULL: its tokens live longer */
};
struct auth_set *auth_set_new(const struct auth *auth, struct conf *owner); /* NULL when memory is out */
struct auth_set *auth_set_ref(struct auth_set *set);
void auth_set_unref(struct auth_set *set); /* NULL is fine */

/* `header` is the value of the one Authorization header, NULL when there was none. ERR_UNAUTHORIZED: absent,
 * malformed, unknown, ended, or no configured token carries the scope; ERR_FORBIDDEN: a good token of other scopes.
 * Every configured token is compared, whatever the outcome. */
int auth_check(const struct auth *auth, const char *header, unsigned scope, int64_t now_ms,
	       const struct conf_token **ret, struct err *err);
/* Names the first of the scopes that are missing; returns ERR_FORBIDDEN. */
int auth_lacks(unsigned missing, struct err *err);
bool auth_allows(const struct conf_token *token, const char *workspace);
/* A request names a workspace: ERR_SCOPE_MISMATCH when it is outside the token. */
int auth_workspace(const struct conf_token *token, const char *workspace, struct err *err);
/* The one workspace the token is bound to, or NULL. */
const char *auth_only_workspace(const struct conf_token *token);

#endif
