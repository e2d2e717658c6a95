/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target's `config` group against the option table of its plugin: every key known, every value of its type, defaults
 * filled in. Main thread at start; constant afterwards. Secrets stay where they are: only their source is kept.
 */
#include "plugin/private.h"

static const uint32_t abi_types[] = {
    [OPTION_STRING] = BERTH_OPTION_STRING,   [OPTION_INTEGER] = BERTH_OPTION_INTEGER,
    [OPTION_BOOLEAN] = BERTH_OPTION_BOOLEAN, [OPTION_DURATION] = BERTH_OPTION_DURATION,
    [OPTION_SIZE] = BERTH_OPTION_SIZE,       [OPTION_FLOAT] = BERTH_OPTION_FLOAT,
};

static const struct conf_pair *find_pair(const struct conf_target *conf, const char *key)
{
	for (size_t i = 0; i < conf->setting_count; i++)
		if (!strcmp(conf->settings[i].key, key))
			return &conf->settings[i];
	return NULL;
}

static int refuse_unknown(const struct conf_pair *pair, const struct plugin *plugin, struct err *err)
{
	const char *near = option_near(plugin->options, pair->key);

	return err_set(err, ERR_CONFIG, "%s: config.%s: is not an option of provider %s%s%s%s", pair->where, pair->key,
		       plugin->name, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int check_known(const struct target *target, const struct plugin *plugin, struct err *err)
{
	for (size_t i = 0; i < target->conf->setting_count; i++) {
		const struct conf_pair *pair = &target->conf->settings[i];
		const struct option_row *row = plugin->options;

		while (row->key && strcmp(row->key, pair->key))
			row++;
		if (!row->key)
			return refuse_unknown(pair, plugin, err);
	}
	return 0;
}

static int check_secret(const char *source, const char *where, const char *key, struct err *err)
{
	struct secret *secret = NULL;
	int rc = secret_load(source, &secret, err);

	if (rc)
		return err_prefix(err, "%s: config.%s", where, key);
	if (!secret)
		return err_set(err, ERR_CONFIG, "%s: config.%s: its source holds nothing", where, key);
	secret_free(secret);
	return 0;
}

static int build_value(const struct target *target, const struct option_row *row, struct berth_option_value *ret,
		       char **ret_string, struct err *err)
{
	const struct conf_pair *pair = find_pair(target->conf, row->key);
	const char *text = pair ? pair->value : row->default_text;
	const char *where = pair ? pair->where : target->conf->file;
	struct option_value value = {0};
	int rc;

	*ret = (struct berth_option_value){.struct_size = sizeof(*ret), .type = abi_types[row->type], .key = row->key};
	if (!text && (row->flags & OPTION_REQUIRED))
		return err_set(err, ERR_CONFIG, "%s: config.%s: is required by provider %s", where, row->key,
			       target->conf->provider);
	if (!text)
		return 0;
	rc = pair ? option_check_kind(row, pair->kind, where, err) : 0;
	if (!rc)
		rc = option_parse(row, text, where, &value, err);
	if (rc)
		return rc;
	*ret_string = value.string;
	ret->is_set = 1;
	ret->integer = value.integer;
	ret->number = value.number;
	if (row->flags & OPTION_SECRET)
		return check_secret(value.string, where, row->key, err);
	if (value.string)
		ret->string = (struct berth_str){.ptr = value.string, .len = strlen(value.string)};
	return 0;
}

int settings_build(struct target *target, const struct plugin *plugin, struct err *err)
{
	struct target_state *ts = target->state;
	size_t count = 0;
	int rc = check_known(target, plugin, err);

	if (rc)
		return rc;
	while (plugin->options[count].key)
		count++;
	ts->values = calloc(count + 1, sizeof(*ts->values));
	ts->options = calloc(count + 1, sizeof(*ts->options));
	ts->strings = calloc(count + 1, sizeof(*ts->strings));
	if (!ts->values || !ts->options || !ts->strings)
		return err_set(err, ERR_NOMEM, "memory is out");
	ts->option_count = count;
	for (size_t i = 0; !rc && i < count; i++) {
		ts->options[i] = &ts->values[i];
		rc = build_value(target, &plugin->options[i], &ts->values[i], &ts->strings[i], err);
	}
	return rc;
}

void settings_free(struct target_state *ts)
{
	for (size_t i = 0; ts->strings && i < ts->option_count; i++)
		free(ts->strings[i]);
	free(ts->strings);
	free(ts->options);
	free(ts->values);
	ts->strings = NULL;
	ts->values = NULL;
	ts->options = NULL;
	ts->option_count = 0;
}

const char *settings_secret_source(const struct target *target, const char *option)
{
	const struct target_state *ts = target->state;
	const struct option_row *rows = target->plugin ? target->plugin->options : NULL;

	for (size_t i = 0; rows && i < ts->option_count; i++)
		if ((rows[i].flags & OPTION_SECRET) && !strcmp(rows[i].key, option))
			return ts->strings[i];
	return NULL;
}
