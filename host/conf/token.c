/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of tokens: names, scopes, workspaces and where the secret comes from. Main thread at start. Must never put a
 * secret or a part of one into an error or the log.
 */
#include "conf/internal.h"
#include "core/clock.h"
#include "core/ident.h"
#include "core/log.h"

/* One element of `tokens` as written. */
struct entry {
	const struct conf_source *source;
	const char *where;
	const char *name;
	const char *secret;
	const config_setting_t *scopes;
	const config_setting_t *workspaces;
	const char *not_after;
};

static int refuse(const struct entry *entry, struct err *err, const char *key, const char *why)
{
	return err_set(err, ERR_CONFIG, "%s: tokens.%s: %s", entry->where, key, why);
}

static int take_member(struct entry *entry, const config_setting_t *member, struct err *err)
{
	const char *key = config_setting_name(member);
	const char **text = NULL;
	const config_setting_t **list = NULL;

	if (!strcmp(key, "name"))
		text = &entry->name;
	else if (!strcmp(key, "secret"))
		text = &entry->secret;
	else if (!strcmp(key, "not_after"))
		text = &entry->not_after;
	else if (!strcmp(key, "scopes"))
		list = &entry->scopes;
	else if (!strcmp(key, "workspaces"))
		list = &entry->workspaces;
	else
		return refuse(entry, err, key, "is not a known key");
	if (text && config_setting_type(member) != CONFIG_TYPE_STRING)
		return refuse(entry, err, key, "expected a text in quotes");
	if (list && !config_setting_is_array(member) && !config_setting_is_list(member))
		return refuse(entry, err, key, "expected a list of texts");
	if (text)
		*text = config_setting_get_string(member);
	else
		*list = member;
	return 0;
}

static int parse_scopes(const struct entry *entry, unsigned *ret, struct err *err)
{
	unsigned scopes = 0;

	for (int i = 0; i < config_setting_length(entry->scopes); i++) {
		const char *word = config_setting_get_string_elem(entry->scopes, i);
		unsigned at = 0;

		while (word && at < SCOPE_COUNT && strcmp(word, conf_scope_word(at)))
			at++;
		if (!word)
			return refuse(entry, err, "scopes", "expected a list of texts");
		if (at == SCOPE_COUNT)
			return err_set(err, ERR_CONFIG, "%s: tokens.scopes: \"%.60s\" is not a scope", entry->where,
				       word);
		scopes |= 1u << at;
	}
	*ret = scopes;
	return scopes ? 0 : refuse(entry, err, "scopes", "names no scope");
}

static int parse_workspaces(const struct entry *entry, struct conf_token *token, struct err *err)
{
	int count = entry->workspaces ? config_setting_length(entry->workspaces) : 0;
	bool all = false;

	if (!count)
		return refuse(entry, err, "workspaces", "is required: a list of workspaces, or [\"*\"]");
	token->workspaces = calloc((size_t)count, sizeof(*token->workspaces));
	if (!token->workspaces)
		return err_set(err, ERR_NOMEM, "memory is out");
	for (int i = 0; i < count; i++) {
		const char *word = config_setting_get_string_elem(entry->workspaces, i);

		if (word && !strcmp(word, "*")) {
			all = true;
			continue;
		}
		if (!word || !ident_part_valid(word, strlen(word)))
			return refuse(entry, err, "workspaces", "holds something that is no workspace id");
		token->workspaces[token->workspace_count] = strdup(word);
		if (!token->workspaces[token->workspace_count++])
			return err_set(err, ERR_NOMEM, "memory is out");
	}
	if (all && token->workspace_count)
		return refuse(entry, err, "workspaces", "holds \"*\" beside others");
	if (!all && (token->scopes & SCOPE_ADMIN))
		return refuse(entry, err, "scopes", "\"admin\" reaches all workspaces: it needs workspaces = [\"*\"]");
	if (all) {
		free(token->workspaces);
		token->workspaces = NULL;
	}
	return 0;
}

static int check_entry(const struct entry *entry, struct err *err)
{
	if (!entry->name || !ident_part_valid(entry->name, strlen(entry->name)))
		return refuse(entry, err, "name", "is required: letters, digits, '.', '_', '-'");
	if (!entry->secret)
		return refuse(entry, err, "secret", "is required: \"file:/path\" or \"env:NAME\"");
	if (strncmp(entry->secret, "file:/", 6) && (strncmp(entry->secret, "env:", 4) || !entry->secret[4]))
		return refuse(entry, err, "secret", "expected a source, \"file:/path\" or \"env:NAME\"");
	if (!entry->scopes)
		return refuse(entry, err, "scopes", "is required");
	return 0;
}

/* What the tokens hold must be told apart: the first that matched would else decide the scopes. */
static int check_unique(const struct conf *conf, const char *name, const char *where, const struct secret *secret,
			struct err *err)
{
	size_t len;
	const void *ptr = secret_ptr(secret, &len);

	for (size_t i = 0; i < conf->token_count; i++) {
		if (!strcmp(conf->tokens[i].name, name))
			return err_set(err, ERR_CONFIG, "%s: tokens.name: \"%s\" is used twice", where, name);
		if (secret_equal(conf->tokens[i].secret, ptr, len))
			return err_set(err, ERR_CONFIG, "%s: tokens.secret: \"%s\" and \"%s\" have the same secret",
				       where, conf->tokens[i].name, name);
	}
	return 0;
}

static void free_workspaces(struct conf_token *token)
{
	for (size_t i = 0; i < token->workspace_count; i++)
		free(token->workspaces[i]);
	free(token->workspaces);
}

/* Takes all that *token holds, on failure too. */
static int add_token(struct conf *conf, const char *where, struct conf_token *token, struct err *err)
{
	struct conf_token *grown = NULL;
	int rc;

	if (!token->name) {
		rc = err_set(err, ERR_NOMEM, "memory is out");
		goto out;
	}
	rc = secret_check(token->secret, token->name, err);
	if (rc) {
		err_prefix(err, "%s", where);
		goto out;
	}
	rc = check_unique(conf, token->name, where, token->secret, err);
	if (rc)
		goto out;
	rc = ERR_CONFIG;
	if (conf->token_count == CONF_TOKENS_MAX) {
		err_set(err, rc, "%s: tokens: more than %d", where, CONF_TOKENS_MAX);
		goto out;
	}
	grown = realloc(conf->tokens, (conf->token_count + 1) * sizeof(*grown));
	if (!grown) {
		rc = err_set(err, ERR_NOMEM, "memory is out");
		goto out;
	}
	conf->tokens = grown;
	conf->tokens[conf->token_count++] = *token;
	return 0;
out:
	free_workspaces(token);
	secret_free(token->secret);
	free(token->name);
	return rc;
}

int conf_add_token(struct conf *conf, const char *name, const char *where, struct secret *secret, unsigned scopes,
		   struct err *err)
{
	struct conf_token token = {.name = strdup(name), .secret = secret, .scopes = scopes};

	return add_token(conf, where, &token, err);
}

static int read_entry(const struct conf_source *source, config_setting_t *group, struct conf *conf, struct err *err)
{
	char where[CONF_WHERE_MAX];
	struct conf_token token = {0};
	struct entry entry = {.source = source, .where = where};
	int rc = 0;

	conf_where(source, group, where);
	if (!config_setting_is_group(group))
		return err_set(err, ERR_CONFIG, "%s: tokens: expected a list of groups", where);
	for (int i = 0; !rc && i < config_setting_length(group); i++)
		rc = take_member(&entry, config_setting_get_elem(group, (unsigned)i), err);
	if (rc || (rc = check_entry(&entry, err)) || (rc = parse_scopes(&entry, &token.scopes, err)))
		return rc;
	if (entry.not_after && clock_parse(entry.not_after, &token.not_after_ms))
		return refuse(&entry, err, "not_after", "expected a time such as \"2027-01-01T00:00:00Z\"");
	if (token.not_after_ms && token.not_after_ms <= clock_wall_ms())
		log_warn("a token has ended: requests with it are refused", KS("token", entry.name),
			 KS("not_after", entry.not_after), KS("at", where));
	rc = secret_load(entry.secret, &token.secret, err);
	if (rc)
		return err_prefix(err, "%s: tokens.secret of \"%s\"", where, entry.name);
	if (!token.secret) {
		log_warn("a token has no secret and is left out", KS("token", entry.name), KS("at", where));
		return 0;
	}
	rc = parse_workspaces(&entry, &token, err);
	if (rc) {
		free_workspaces(&token);
		secret_free(token.secret);
		return rc;
	}
	token.name = strdup(entry.name);
	return add_token(conf, where, &token, err);
}

int conf_read_tokens(const struct conf_source *source, config_setting_t *list, struct conf *conf, struct err *err)
{
	char where[CONF_WHERE_MAX];
	int rc = 0;

	conf_where(source, list, where);
	if (!config_setting_is_list(list))
		return err_set(err, ERR_CONFIG, "%s: tokens: expected a list of groups", where);
	for (int i = 0; !rc && i < config_setting_length(list); i++)
		rc = conf_reported(source->report, read_entry(source, config_setting_get_elem(list, (unsigned)i), conf, err),
				   err);
	return rc;
}
