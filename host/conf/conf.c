/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading the configuration: defaults, the main file, the files of providers.d beside it in the order of their names,
 * the environment, then the checks. Main thread at start; the result is constant.
 */
#include "conf/conf.h"

#include <dirent.h>
#include <errno.h>

#include "conf/internal.h"
#include "core/log.h"

#define PATH_LEN_MAX 4096
#define NO_TARGET "no target is configured" /* what a file of one that cannot be read must not be followed by */

struct load {
	struct conf_source *source;
	struct conf *conf;
};

static int read_targets(const struct load *load, config_setting_t *list, struct err *err)
{
	char where[CONF_WHERE_MAX];
	int rc = 0;

	conf_where(load->source, list, where);
	if (!config_setting_is_list(list))
		return err_set(err, ERR_CONFIG, "%s: targets: expected a list of groups", where);
	for (int i = 0; !rc && i < config_setting_length(list); i++)
		rc = conf_reported(
			load->source->report,
			conf_read_target(load->source, config_setting_get_elem(list, (unsigned)i), load->conf, err),
			err);
	return rc;
}

static bool take_list(const char *key, config_setting_t *setting, void *arg, int *ret_rc, struct err *err)
{
	const struct load *load = arg;

	if (!strcmp(key, "tokens"))
		*ret_rc = conf_read_tokens(load->source, setting, load->conf, err);
	else if (!strcmp(key, "targets"))
		*ret_rc = read_targets(load, setting, err);
	else
		return false;
	return true;
}

static int read_main(struct conf *conf, struct err *err)
{
	struct conf_source source;
	struct load load = {.source = &source, .conf = conf};
	int rc = conf_source_open(&source, conf->file, err);

	if (rc)
		return rc;
	source.report = conf->report;
	rc = conf_apply_group(&source, conf_options, config_root_setting(&source.config), conf, take_list, &load, err);
	conf_source_close(&source);
	return rc;
}

static int read_provider_file(struct conf *conf, const char *path, struct err *err)
{
	struct conf_source source;
	int rc = conf_source_open(&source, path, err);

	if (rc)
		return rc;
	source.report = conf->report;
	rc = conf_read_target(&source, config_root_setting(&source.config), conf, err);
	conf_source_close(&source);
	return rc;
}

static int is_conf_file(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > 5 && !strcmp(entry->d_name + len - 5, ".conf");
}

/* By bytes, not by the locale's order. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_providers(struct conf *conf, struct err *err)
{
	char dir[PATH_LEN_MAX], path[PATH_LEN_MAX + 256];
	const char *slash = strrchr(conf->file, '/');
	struct dirent **entries = NULL;
	int count, rc = 0;

	if (snprintf(dir, sizeof(dir), "%.*sproviders.d", slash ? (int)(slash - conf->file + 1) : 0, conf->file) >=
	    (int)sizeof(dir))
		return err_set(err, ERR_CONFIG, "%.80s…: the path is too long", conf->file);
	count = scandir(dir, &entries, is_conf_file, by_name);
	if (count < 0)
		return errno == ENOENT ? 0 : err_set(err, ERR_CONFIG, "%s: cannot be read: %s", dir, strerror(errno));
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, entries[i]->d_name);
		if (!rc)
			rc = conf_reported_key(conf->report, read_provider_file(conf, path, err), conf->file, NO_TARGET,
					       err);
		free(entries[i]);
	}
	free(entries);
	return rc;
}

static int add_dev_token(struct conf *conf, struct err *err)
{
	static const char hex[] = "0123456789abcdef";
	unsigned char random[32];
	char text[2 * sizeof(random)];
	struct secret *secret;

	secret_random(random, sizeof(random));
	for (size_t i = 0; i < sizeof(random); i++) {
		text[2 * i] = hex[random[i] >> 4];
		text[2 * i + 1] = hex[random[i] & 15];
	}
	secret = secret_new(text, sizeof(text));
	secret_wipe(random, sizeof(random));
	secret_wipe(text, sizeof(text));
	if (!secret)
		return err_set(err, ERR_NOMEM, "memory is out");
	return conf_add_token(conf, "dev", "--dev", secret, (1u << SCOPE_COUNT) - 1, err);
}

/* Without its main file nothing else of it has a meaning. */
static int read_all(struct conf *conf, bool dev, struct err *err)
{
	int rc = conf_apply_defaults(conf_options, conf, err);

	if (!rc)
		rc = read_main(conf, err);
	if (!rc)
		rc = conf_reported(conf->report, read_providers(conf, err), err);
	if (!rc)
		rc = conf_apply_environment(conf, err);
	return rc ? rc : conf_check(conf, dev, err);
}

int conf_load_telling(const char *path, bool dev, conf_refusal_fn *fn, void *arg, struct conf **ret, struct err *err)
{
	struct conf *conf = calloc(1, sizeof(*conf));
	struct err local = {0};
	int rc = ERR_NOMEM;

	if (!err)
		err = &local;
	if (!conf || !(conf->file = strdup(path)) || !(conf->report = conf_report_new(fn, arg))) {
		err_set(err, rc, "memory is out");
		goto out;
	}
	rc = conf_reported(conf->report, read_all(conf, dev, err), err); /* what ended the reading is told last */
	if (rc || (rc = conf_report_end(conf->report, err)) || (dev && (rc = add_dev_token(conf, err))))
		goto out;
	if (!conf->token_count && !conf->control)
		log_warn("no token is configured: every request that needs one is refused", KS("file", path));
	conf_report_free(conf->report);
	conf->report = NULL;
	*ret = conf;
	conf = NULL;
out:
	conf_free(conf);
	return rc;
}

int conf_load(const char *path, bool dev, struct conf **ret, struct err *err)
{
	return conf_load_telling(path, dev, NULL, NULL, ret, err);
}

int conf_load_target(const char *path, struct conf **ret, struct err *err)
{
	struct conf *conf = calloc(1, sizeof(*conf));
	struct err local = {0};
	int rc = ERR_NOMEM;

	if (!err)
		err = &local;
	if (!conf || !(conf->file = strdup(path)))
		err_set(err, rc, "memory is out");
	else if (!(rc = conf_apply_defaults(conf_options, conf, err)) && !(rc = read_provider_file(conf, path, err)))
		rc = conf_check_target(&conf->targets[0], err);
	if (rc)
		conf_free(conf);
	else
		*ret = conf;
	return rc;
}

static void free_rows(const struct option_row *rows, void *base)
{
	for (const struct option_row *row = rows; row->key; row++) {
		char *text;

		if (row->type != OPTION_STRING && row->type != OPTION_WORD)
			continue;
		memcpy(&text, (char *)base + row->off, sizeof(text));
		free(text);
	}
}

static void free_target(struct conf_target *target)
{
	free_rows(conf_target_options, target);
	conf_free_origins(conf_target_options, target);
	free(target->file);
	for (size_t i = 0; i < target->setting_count; i++) {
		free(target->settings[i].key);
		free(target->settings[i].value);
		free(target->settings[i].where);
	}
	free(target->settings);
}

static void free_token(struct conf_token *token)
{
	free(token->name);
	secret_free(token->secret);
	for (size_t i = 0; i < token->workspace_count; i++)
		free(token->workspaces[i]);
	free(token->workspaces);
}

void conf_free(struct conf *conf)
{
	if (!conf)
		return;
	for (size_t i = 0; i < conf->target_count; i++)
		free_target(&conf->targets[i]);
	for (size_t i = 0; i < conf->token_count; i++)
		free_token(&conf->tokens[i]);
	secret_free(conf->control);
	secret_free(conf->redis_secret);
	secret_free(conf->redis_login_url);
	free(conf->targets);
	free(conf->tokens);
	conf_report_free(conf->report);
	free_rows(conf_options, conf);
	conf_free_origins(conf_options, conf);
	free(conf->file);
	free(conf);
}
