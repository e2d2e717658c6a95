/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process does of what a deployment needs: the words of `roles` as bits and back, and which of them a
 * configuration may have. Pure; main thread at start, the accessors from any.
 */
#include "conf/internal.h"

static const char *const words[ROLE_COUNT] = {
#define X(name, word) [ROLE_ORDINAL_##name] = word,
	ROLE_TABLE(X)
#undef X
};

#define BLANKS " \t"

/* The bit of the word at `text`, 0 for none; *ret_len is the word's length in any case. */
static unsigned word_at(const char *text, size_t *ret_len)
{
	*ret_len = strcspn(text, BLANKS);
	for (unsigned i = 0; i < ROLE_COUNT; i++) {
		if (strlen(words[i]) == *ret_len && !strncmp(words[i], text, *ret_len))
			return 1u << i;
	}
	return 0;
}

unsigned conf_roles_of(const char *text)
{
	unsigned roles = 0;
	size_t len;

	for (const char *at = text + strspn(text, BLANKS); *at; at += len, at += strspn(at, BLANKS))
		roles |= word_at(at, &len);
	return roles;
}

unsigned conf_roles(const struct conf *conf)
{
	return conf->roles ? conf_roles_of(conf->roles) : ROLE_ALL;
}

const char *conf_roles_text(unsigned roles, char ret[CONF_ROLES_MAX])
{
	size_t len = 0;

	ret[0] = '\0';
	for (unsigned i = 0; i < ROLE_COUNT; i++) {
		if (roles & 1u << i)
			len += (size_t)snprintf(ret + len, CONF_ROLES_MAX - len, "%s%s", len ? " " : "", words[i]);
	}
	return ret;
}

int conf_check_roles(const struct conf *conf, struct err *err)
{
	char all[CONF_ROLES_MAX];
	size_t len;

	conf_roles_text(ROLE_ALL, all);
	for (const char *at = conf->roles + strspn(conf->roles, BLANKS); *at; at += len, at += strspn(at, BLANKS)) {
		if (!word_at(at, &len))
			return err_set(err, ERR_CONFIG, "%s: roles: \"%.*s\" is none; they are %s",
				       conf_at(conf, "roles"),
				       (int)(len < 40 ? len : 40), at, all);
	}
	if (!conf_roles(conf))
		return err_set(err, ERR_CONFIG, "%s: roles: is empty; a process does at least one of %s",
			       conf_at(conf, "roles"),
			       all);
	if (conf_roles(conf) != ROLE_ALL && strcmp(conf->store_type, "redis"))
		return err_set(err, ERR_CONFIG,
			       "%s: roles: \"%.60s\" leaves work to other processes, and a database of SQLite has one "
			       "process only; it needs \"%s\", or store.type = \"redis\"",
			       conf_at(conf, "roles"), conf->roles, all);
	return 0;
}
