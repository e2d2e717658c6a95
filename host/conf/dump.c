/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The effective configuration in the file's own syntax: fed back, it gives itself. Secrets are not in it: a token's
 * reads "(secret)". Any thread; reads only.
 */
#include "conf/internal.h"

#include <strings.h>

#include "core/clock.h"

void conf_value(const struct option_row *row, const void *base, struct option_value *ret)
{
	const char *field = (const char *)base + row->off;

	memset(ret, 0, sizeof(*ret));
	ret->set = true;
	switch (row->type) {
	case OPTION_STRING:
	case OPTION_WORD:
		memcpy(&ret->string, field, sizeof(ret->string));
		break;
	case OPTION_BOOLEAN:
		ret->integer = *(const bool *)field;
		break;
	case OPTION_FLOAT:
		memcpy(&ret->number, field, sizeof(ret->number));
		break;
	default:
		memcpy(&ret->integer, field, sizeof(ret->integer));
		break;
	}
}

static void dump_origin(const char *origin, struct buf *buf)
{
	buf_puts(buf, " # ");
	for (const char *at = origin ? origin : "default"; *at; at++)
		buf_append(buf, (unsigned char)*at < 0x20 ? "?" : at, 1); /* a name of a file may hold a line's end */
}

/* Rows of one group stand together in the table; tables go one group deep. */
static void dump_rows(const struct option_row *rows, const void *base, const char *indent, bool origins,
		      struct buf *buf)
{
	const char *group = "";
	size_t group_len = 0;

	for (const struct option_row *row = rows; row->key; row++) {
		const char *dot = strchr(row->key, '.');
		size_t len = dot ? (size_t)(dot - row->key) : 0;
		struct option_value value;

		if (len != group_len || strncmp(group, row->key, len)) {
			if (group_len)
				buf_printf(buf, "%s};\n", indent);
			if (len)
				buf_printf(buf, "%s%.*s : {\n", indent, (int)len, row->key);
			group = row->key;
			group_len = len;
		}
		conf_value(row, base, &value);
		buf_printf(buf, "%s%s%s = ", indent, len ? "\t" : "", row->key + (len ? len + 1 : 0));
		option_format(row, &value, buf);
		buf_puts(buf, ";");
		if (origins)
			dump_origin(conf_origin(rows, row->key, base), buf);
		buf_puts(buf, "\n");
	}
	if (group_len)
		buf_printf(buf, "%s};\n", indent);
}

static void dump_text(const char *text, struct buf *buf)
{
	static const struct option_row row = {.key = "", .type = OPTION_STRING};
	char *copy = strdup(text);
	struct option_value value = {.set = true, .string = copy};

	if (!copy)
		buf->error = ERR_NOMEM;
	else
		option_format(&row, &value, buf);
	free(copy);
}

/* The plugin's table tells what is secret, and it is not known here: what looks like one by its key and is no source
 * may be one that an operator wrote down by mistake. */
static bool may_be_secret(const struct conf_pair *pair)
{
	static const char *const parts[] = {"secret", "key", "token", "pass", "credential", "auth"};

	if (!strncmp(pair->value, "file:", 5) || !strncmp(pair->value, "env:", 4))
		return false;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		if (strcasestr(pair->key, parts[i]))
			return true;
	return false;
}

/* Unquoted what was, in a form that libconfig reads as the same. */
static void dump_plain(const struct conf_pair *pair, struct buf *buf)
{
	buf_puts(buf, pair->value);
	if (pair->kind == OPTION_INTEGER && strlen(pair->value) > 9)
		buf_puts(buf, "L");
	if (pair->kind == OPTION_FLOAT && !strpbrk(pair->value, ".e"))
		buf_puts(buf, ".0");
}

static void dump_setting(const struct conf_pair *pair, bool origins, struct buf *buf)
{
	buf_printf(buf, "\t\t%s = ", pair->key);
	if (may_be_secret(pair))
		buf_puts(buf, "\"(secret)\"");
	else if (pair->kind == OPTION_STRING)
		dump_text(pair->value, buf);
	else
		dump_plain(pair, buf);
	buf_puts(buf, ";");
	if (origins)
		dump_origin(pair->where, buf);
	buf_puts(buf, "\n");
}

static void dump_target(const struct conf_target *target, bool origins, struct buf *buf)
{
	buf_puts(buf, "{\n");
	dump_rows(conf_target_options, target, "\t", origins, buf);
	if (target->setting_count) {
		buf_puts(buf, "\tconfig : {\n");
		for (size_t i = 0; i < target->setting_count; i++)
			dump_setting(&target->settings[i], origins, buf);
		buf_puts(buf, "\t};\n");
	}
	buf_puts(buf, "}");
}

static void dump_token(const struct conf_token *token, struct buf *buf)
{
	const char *comma = "";
	char until[32];

	buf_printf(buf, "{\n\tname = \"%s\";\n\tsecret = \"(secret)\";\n\tscopes = [", token->name);
	for (unsigned i = 0; i < SCOPE_COUNT; i++) {
		if (!(token->scopes & (1u << i)))
			continue;
		buf_printf(buf, "%s\"%s\"", comma, conf_scope_word(i));
		comma = ", ";
	}
	buf_puts(buf, "];\n\tworkspaces = [");
	for (size_t i = 0; i < token->workspace_count; i++)
		buf_printf(buf, "%s\"%s\"", i ? ", " : "", token->workspaces[i]);
	buf_printf(buf, "%s];\n", token->workspaces ? "" : "\"*\"");
	if (token->not_after_ms) {
		clock_format(token->not_after_ms, until);
		buf_printf(buf, "\tnot_after = \"%s\";\n", until);
	}
	buf_puts(buf, "}");
}

void conf_dump(const struct conf *conf, bool origins, struct buf *buf)
{
	dump_rows(conf_options, conf, "", origins, buf);
	if (conf->token_count) {
		buf_puts(buf, "tokens = (");
		for (size_t i = 0; i < conf->token_count; i++) {
			buf_puts(buf, i ? ", " : " ");
			dump_token(&conf->tokens[i], buf);
		}
		buf_puts(buf, " );\n");
	}
	buf_puts(buf, "targets = (");
	for (size_t i = 0; i < conf->target_count; i++) {
		buf_puts(buf, i ? ", " : " ");
		dump_target(&conf->targets[i], origins, buf);
	}
	buf_puts(buf, " );\n");
}
