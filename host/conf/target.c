/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One target as written: its rows, and its `config` group kept as text until the plugin's own table is known. Main
 * thread at start.
 */
#include "conf/internal.h"

struct conf_target *conf_add_target(struct conf *conf, const char *file, struct err *err)
{
	struct conf_target *grown, *target;

	if (conf->target_count == CONF_TARGETS_MAX) {
		err_set(err, ERR_CONFIG, "%s: more than %d targets", file, CONF_TARGETS_MAX);
		return NULL;
	}
	grown = realloc(conf->targets, (conf->target_count + 1) * sizeof(*grown));
	if (!grown) {
		err_set(err, ERR_NOMEM, "memory is out");
		return NULL;
	}
	conf->targets = grown;
	target = &grown[conf->target_count++];
	memset(target, 0, sizeof(*target));
	target->file = strdup(file);
	if (!target->file) {
		err_set(err, ERR_NOMEM, "memory is out");
		return NULL;
	}
	return conf_apply_defaults(conf_target_options, target, err) ? NULL : target;
}

struct settings {
	const struct conf_source *source;
	struct conf_target *target;
};

/* Takes key, value and where, on failure too. */
static int add_pair(struct conf_target *target, char *key, char *value, char *where, enum option_type kind,
		    struct err *err)
{
	struct conf_pair *grown = NULL;

	if (key && value && where)
		grown = realloc(target->settings, (target->setting_count + 1) * sizeof(*grown));
	if (!grown) {
		free(key);
		free(value);
		free(where);
		return err_set(err, ERR_NOMEM, "memory is out");
	}
	target->settings = grown;
	grown[target->setting_count++] = (struct conf_pair){
	    .key = key, .value = value, .where = where, .kind = kind};
	return 0;
}

static enum option_type kind_of(int found)
{
	switch (found) {
	case CONFIG_TYPE_INT:
	case CONFIG_TYPE_INT64:
		return OPTION_INTEGER;
	case CONFIG_TYPE_FLOAT:
		return OPTION_FLOAT;
	case CONFIG_TYPE_BOOL:
		return OPTION_BOOLEAN;
	default:
		return OPTION_STRING;
	}
}

static int read_settings(const struct settings *settings, config_setting_t *group, struct err *err)
{
	char where[CONF_WHERE_MAX];
	int rc = 0;

	for (int i = 0; !rc && i < config_setting_length(group); i++) {
		config_setting_t *member = config_setting_get_elem(group, (unsigned)i);
		const char *key = config_setting_name(member);

		conf_where(settings->source, member, where);
		if (config_setting_is_aggregate(member))
			rc = err_set(err, ERR_CONFIG, "%s: config.%s: expected a single value", where, key);
		else if (settings->target->setting_count == CONF_SETTINGS_MAX)
			rc = err_set(err, ERR_CONFIG, "%s: config: more than %d settings", where, CONF_SETTINGS_MAX);
		else
			rc = add_pair(settings->target, strdup(key), conf_scalar_text(member), strdup(where),
				      kind_of(config_setting_type(member)), err);
		rc = conf_reported(settings->source->report, rc, err);
	}
	return rc;
}

static bool take_config(const char *key, config_setting_t *setting, void *arg, int *ret_rc, struct err *err)
{
	const struct settings *settings = arg;
	char where[CONF_WHERE_MAX];

	if (strcmp(key, "config"))
		return false;
	conf_where(settings->source, setting, where);
	*ret_rc = config_setting_is_group(setting) ? read_settings(settings, setting, err)
						   : err_set(err, ERR_CONFIG, "%s: config: expected a group", where);
	return true;
}

int conf_read_target(const struct conf_source *source, config_setting_t *group, struct conf *conf, struct err *err)
{
	char where[CONF_WHERE_MAX];
	struct settings settings = {.source = source};
	int rc;

	conf_where(source, group, where);
	if (!config_setting_is_group(group))
		return err_set(err, ERR_CONFIG, "%s: targets: expected a list of groups", where);
	settings.target = conf_add_target(conf, config_setting_is_root(group) ? source->path : where, err);
	if (!settings.target)
		return err ? err->code : ERR_CONFIG;
	rc = conf_apply_group(source, conf_target_options, group, settings.target, take_config, &settings, err);
	if (rc)
		return rc;
	return conf_check_required(source->report, conf_target_options, settings.target, settings.target->file, err);
}
