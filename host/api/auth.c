/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the judgement of bearer tokens, and the sets of them. Entered from the loop threads and from main. Must never leave its
 * loop over the tokens early, compare a secret by other means than secret_equal, or tell a caller which check failed.
 */
#include "api/auth.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct auth_set *auth_set_new(const struct auth *auth, struct conf *owner)
{
	struct auth_set *set = calloc(1, sizeof(*set));

	if (!set)
		return NULL;
	atomic_init(&set->refs, 1);
	set->auth = *auth;
	set->owner = owner;
	return set;
}

struct auth_set *auth_set_ref(struct auth_set *set)
{
	atomic_fetch_add(&set->refs, 1);
	return set;
}

void auth_set_unref(struct auth_set *set)
{
	if (!set || atomic_fetch_sub(&set->refs, 1) != 1)
		return;
	conf_free(set->owner);
	free(set);
}

/* "Bearer" SP token68; NULL when it is anything else. */
static const char *bearer(const char *header)
{
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/";

	if (!header || strncasecmp(header, "Bearer ", 7) != 0)
		return NULL;

	const char *token = header + 7;

	token += strspn(token, " ");

	size_t len = strspn(token, set);
	size_t pad = strspn(token + len, "=");

	return len > 0 && token[len + pad] == '\0' ? token : NULL;
}

static bool ended(const struct conf_token *token, int64_t now_ms)
{
	return token->not_after_ms && now_ms >= token->not_after_ms;
}

int auth_lacks(unsigned missing, struct err *err)
{
	unsigned at = 0;

	while (at < SCOPE_COUNT - 1 && !(missing & (1u << at)))
		at++;
	return err_set(err, ERR_FORBIDDEN, "the token lacks the scope %s", conf_scope_word(at));
}

int auth_check(const struct auth *auth, const char *header, unsigned scope, int64_t now_ms,
	       const struct conf_token **ret, struct err *err)
{
	const char *given = bearer(header);
	size_t given_len = given ? strlen(given) : 0;
	const struct conf_token *known = NULL;
	const struct conf_token *fits = NULL;
	bool scope_has_token = false;

	for (size_t i = 0; i < auth->token_count; i++) {
		const struct conf_token *token = &auth->tokens[i];
		bool equal = secret_equal(token->secret, given, given_len);
		bool carries = (token->scopes & scope) == scope;

		if (!token->secret || ended(token, now_ms))
			continue;
		scope_has_token |= carries;
		if (equal)
			known = token;
		if (equal && carries)
			fits = token;
	}
	if (!known || !scope_has_token)
		return err_set(err, ERR_UNAUTHORIZED, "a valid bearer token is needed");
	if (!fits)
		return auth_lacks(scope & ~known->scopes, err);
	*ret = fits;
	return 0;
}

bool auth_allows(const struct conf_token *token, const char *workspace)
{
	if (!token)
		return false;
	if (!token->workspaces)
		return true;
	for (size_t i = 0; i < token->workspace_count; i++) {
		if (strcmp(token->workspaces[i], workspace) == 0)
			return true;
	}
	return false;
}

int auth_workspace(const struct conf_token *token, const char *workspace, struct err *err)
{
	if (auth_allows(token, workspace))
		return 0;
	return err_set(err, ERR_SCOPE_MISMATCH, "the token does not reach this workspace");
}

const char *auth_only_workspace(const struct conf_token *token)
{
	return token && token->workspaces && token->workspace_count == 1 ? token->workspaces[0] : NULL;
}
