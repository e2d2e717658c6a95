/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a file to values in a struct, driven by an option table: reading, the place of a setting, types, unknown keys.
 * Main thread at start. Knows no option by name.
 */
#include "conf/internal.h"

#include <errno.h>
#include <libgen.h>

#include "core/near.h"

#define KEY_MAX 256

int conf_source_open(struct conf_source *source, const char *path, struct err *err)
{
	char *copy = NULL;
	int rc = ERR_NOMEM;

	memset(source, 0, sizeof(*source));
	config_init(&source->config);
	source->path = strdup(path);
	copy = strdup(path);
	source->dir = copy ? strdup(dirname(copy)) : NULL;
	free(copy);
	if (!source->path || !source->dir) {
		err_set(err, rc, "memory is out");
		goto out;
	}
	rc = conf_scan(path, source->dir, err);
	if (rc)
		goto out;
	config_set_include_dir(&source->config, source->dir);
	if (!config_read_file(&source->config, path)) {
		const char *file = config_error_file(&source->config);

		rc = err_set(err, ERR_CONFIG, "%s:%d: %s", file ? file : path, config_error_line(&source->config),
			     config_error_text(&source->config));
	}
out:
	if (rc)
		conf_source_close(source);
	return rc;
}

void conf_source_close(struct conf_source *source)
{
	config_destroy(&source->config);
	free(source->path);
	free(source->dir);
	memset(source, 0, sizeof(*source));
}

/* libconfig names an included file as the @include does, relative to the folder. */
void conf_where(const struct conf_source *source, const config_setting_t *setting, char ret[CONF_WHERE_MAX])
{
	const char *file = config_setting_source_file(setting);
	unsigned line = config_setting_source_line(setting);

	if (!file || !strcmp(file, source->path))
		snprintf(ret, CONF_WHERE_MAX, "%s:%u", source->path, line);
	else if (file[0] == '/')
		snprintf(ret, CONF_WHERE_MAX, "%s:%u", file, line);
	else
		snprintf(ret, CONF_WHERE_MAX, "%s/%s:%u", source->dir, file, line);
}

char *conf_scalar_text(const config_setting_t *setting)
{
	char text[64];

	switch (config_setting_type(setting)) {
	case CONFIG_TYPE_INT:
		snprintf(text, sizeof(text), "%d", config_setting_get_int(setting));
		return strdup(text);
	case CONFIG_TYPE_INT64:
		snprintf(text, sizeof(text), "%lld", config_setting_get_int64(setting));
		return strdup(text);
	case CONFIG_TYPE_FLOAT:
		snprintf(text, sizeof(text), "%.17g", config_setting_get_float(setting));
		return strdup(text);
	case CONFIG_TYPE_BOOL:
		return strdup(config_setting_get_bool(setting) ? "true" : "false");
	case CONFIG_TYPE_STRING:
		return strdup(config_setting_get_string(setting));
	default:
		return NULL;
	}
}

static bool type_fits(enum option_type type, int found)
{
	switch (type) {
	case OPTION_INTEGER:
		return found == CONFIG_TYPE_INT || found == CONFIG_TYPE_INT64;
	case OPTION_BOOLEAN:
		return found == CONFIG_TYPE_BOOL;
	case OPTION_FLOAT:
		return found == CONFIG_TYPE_INT || found == CONFIG_TYPE_INT64 || found == CONFIG_TYPE_FLOAT;
	default:
		return found == CONFIG_TYPE_STRING;
	}
}

static const char *found_word(int found)
{
	static const char *const words[] = {
	    [CONFIG_TYPE_GROUP] = "a group",  [CONFIG_TYPE_INT] = "an integer", [CONFIG_TYPE_INT64] = "an integer",
	    [CONFIG_TYPE_FLOAT] = "a number", [CONFIG_TYPE_STRING] = "a text",  [CONFIG_TYPE_BOOL] = "true or false",
	    [CONFIG_TYPE_ARRAY] = "an array", [CONFIG_TYPE_LIST] = "a list",
	};

	return found > 0 && (size_t)found < sizeof(words) / sizeof(*words) ? words[found] : "nothing";
}

static size_t count_rows(const struct option_row *rows)
{
	size_t count = 0;

	while (rows[count].key)
		count++;
	return count;
}

/* The array is the first member of every struct that a table of the host describes. */
static char **origins_of(const void *base)
{
	char **origins;

	memcpy(&origins, base, sizeof(origins));
	return origins;
}

int conf_note(const struct option_row *rows, const char *key, const char *where, void *base, struct err *err)
{
	char **origins = origins_of(base);
	char *copy = strdup(where);

	if (!origins) {
		origins = calloc(count_rows(rows) + 1, sizeof(*origins));
		memcpy(base, &origins, sizeof(origins));
	}
	if (!origins || !copy) {
		free(copy);
		return err_set(err, ERR_NOMEM, "memory is out");
	}
	for (size_t i = 0; rows[i].key; i++) {
		if (strcmp(rows[i].key, key))
			continue;
		free(origins[i]);
		origins[i] = copy;
		return 0;
	}
	free(copy);
	return 0;
}

void conf_free_origins(const struct option_row *rows, void *base)
{
	char **origins = origins_of(base);

	for (size_t i = 0; origins && rows[i].key; i++)
		free(origins[i]);
	free(origins);
}

const char *conf_origin(const struct option_row *rows, const char *key, const void *base)
{
	char **origins = origins_of(base);

	for (size_t i = 0; origins && rows[i].key; i++)
		if (!strcmp(rows[i].key, key))
			return origins[i];
	return NULL;
}

const char *conf_at(const struct conf *conf, const char *key)
{
	const char *origin = conf_origin(conf_options, key, conf);

	return origin ? origin : conf->file;
}

const char *conf_target_at(const struct conf_target *target, const char *key)
{
	const char *origin = conf_origin(conf_target_options, key, target);

	return origin ? origin : target->file;
}

int conf_store(const struct option_row *rows, const struct option_row *row, const char *text, const char *where,
	       void *base, struct err *err)
{
	struct option_value value;
	char *field = (char *)base + row->off;
	int rc = option_parse(row, text, where, &value, err);

	if (rc)
		return rc;
	switch (row->type) {
	case OPTION_STRING:
	case OPTION_WORD:
		free(*(char **)(void *)field);
		memcpy(field, &value.string, sizeof(value.string));
		break;
	case OPTION_BOOLEAN:
		*(bool *)field = value.integer != 0;
		break;
	case OPTION_FLOAT:
		memcpy(field, &value.number, sizeof(value.number));
		break;
	default:
		memcpy(field, &value.integer, sizeof(value.integer));
		break;
	}
	return rows ? conf_note(rows, row->key, where, base, err) : 0;
}

int conf_apply_defaults(const struct option_row *rows, void *base, struct err *err)
{
	int rc = 0;

	for (const struct option_row *row = rows; !rc && row->key; row++)
		if (row->default_text)
			rc = conf_store(NULL, row, row->default_text, "default", base, err);
	return rc;
}

static const struct option_row *find_row(const struct option_row *rows, const char *key)
{
	for (const struct option_row *row = rows; row->key; row++)
		if (!strcmp(row->key, key))
			return row;
	return NULL;
}

static bool is_group_of(const struct option_row *rows, const char *key)
{
	size_t len = strlen(key);

	for (const struct option_row *row = rows; row->key; row++)
		if (!strncmp(row->key, key, len) && row->key[len] == '.')
			return true;
	return false;
}

struct apply {
	const struct conf_source *source;
	const struct option_row *rows;
	void *base;
	conf_other_fn *other;
	void *arg;
	struct err *err;
};

static int apply_row(const struct apply *apply, const struct option_row *row, const config_setting_t *setting)
{
	char where[CONF_WHERE_MAX];
	int found = config_setting_type(setting);
	char *text;
	int rc;

	conf_where(apply->source, setting, where);
	if (!type_fits(row->type, found))
		return err_set(apply->err, ERR_CONFIG, "%s: %s: expected %s, got %s", where, row->key,
			       option_expected(row->type), found_word(found));
	text = conf_scalar_text(setting);
	if (!text)
		return err_set(apply->err, ERR_NOMEM, "memory is out");
	rc = conf_store(apply->rows, row, text, where, apply->base, apply->err);
	free(text);
	return rc;
}

static int apply_members(const struct apply *apply, config_setting_t *group, const char *prefix);

/* "leas" of "leas : { … }": what it is a slip of is a group. */
static bool near_group(const struct option_row *rows, const char *key, char ret[KEY_MAX])
{
	for (const struct option_row *row = rows; row->key; row++) {
		snprintf(ret, KEY_MAX, "%.*s", (int)strcspn(row->key, "."), row->key);
		if (row->key[strlen(ret)] && near_distance(key, ret) <= NEAR_SLIPS - (strlen(key) <= 2 * NEAR_SLIPS))
			return true;
	}
	return false;
}

static int refuse_unknown(const struct apply *apply, const char *key, const char *where)
{
	const char *near = option_near(apply->rows, key);
	char group[KEY_MAX];

	if (!near && near_group(apply->rows, key, group))
		near = group;
	return err_set(apply->err, ERR_CONFIG, "%s: %s: is not a known key%s%s%s", where, key,
		       near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int apply_setting(const struct apply *apply, config_setting_t *setting, const char *key)
{
	const struct option_row *row = find_row(apply->rows, key);
	char where[CONF_WHERE_MAX];
	int rc = 0;

	if (row)
		return apply_row(apply, row, setting);
	if (is_group_of(apply->rows, key) && config_setting_is_group(setting))
		return apply_members(apply, setting, key);
	if (apply->other && apply->other(key, setting, apply->arg, &rc, apply->err))
		return rc;
	conf_where(apply->source, setting, where);
	if (is_group_of(apply->rows, key))
		return err_set(apply->err, ERR_CONFIG, "%s: %s: expected a group, got %s", where, key,
			       found_word(config_setting_type(setting)));
	return refuse_unknown(apply, key, where);
}

static int apply_members(const struct apply *apply, config_setting_t *group, const char *prefix)
{
	char key[KEY_MAX];
	int rc = 0;

	for (int i = 0; !rc && i < config_setting_length(group); i++) {
		config_setting_t *setting = config_setting_get_elem(group, (unsigned)i);

		snprintf(key, sizeof(key), "%s%s%s", prefix, *prefix ? "." : "", config_setting_name(setting));
		rc = conf_reported_key(apply->source->report, apply_setting(apply, setting, key), apply->source->path, key,
				       apply->err);
	}
	return rc;
}

int conf_apply_group(const struct conf_source *source, const struct option_row *rows, config_setting_t *group,
		     void *base, conf_other_fn *other, void *arg, struct err *err)
{
	const struct apply apply = {
	    .source = source,
	    .rows = rows,
	    .base = base,
	    .other = other,
	    .arg = arg,
	    .err = err,
	};

	return apply_members(&apply, group, "");
}

int conf_check_required(struct conf_report *report, const struct option_row *rows, const void *base, const char *where,
			struct err *err)
{
	int rc = 0;

	for (const struct option_row *row = rows; !rc && row->key; row++) {
		char *text;

		if (!(row->flags & OPTION_REQUIRED))
			continue;
		memcpy(&text, (const char *)base + row->off, sizeof(text));
		if (!text || !*text) {
			const char *origin = conf_origin(rows, row->key, base);

			rc = err_set(err, ERR_CONFIG, "%s: %s: is required", origin ? origin : where, row->key);
			rc = conf_reported_check(report, rc, err);
		}
	}
	return rc;
}
