/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where berthd is and who asks: flags win over the environment, the environment over the file. Main thread. The token is
 * never taken from the command line itself, where every user of the machine could read it, and never printed.
 */
#include "ctl/ctl.h"

#include <libconfig.h>
#include <unistd.h>

#include "core/secret.h"

#define DEFAULT_ADDRESS "http://127.0.0.1:8000"

const struct ctl_setting ctl_environment[] = {
	{"BERTH_ADDRESS", "where berthd listens; default " DEFAULT_ADDRESS},
	{"BERTH_TOKEN", "the bearer token"},
	{"BERTH_WORKSPACE", "workspace of the task; default \"default\""},
	{"BERTH_CA_FILE", "PEM file of the authority that signed an https server; default: the system's"},
	{"BERTH_CTL_CONF", "file of settings; default ~/.config/berth/ctl.conf"},
	{0},
};

const struct ctl_setting ctl_file_keys[] = {
	{"address", "as BERTH_ADDRESS"},
	{"token", "\"file:/path\" of a file with the token that no one else can read"},
	{"workspace", "as BERTH_WORKSPACE"},
	{"ca_file", "as BERTH_CA_FILE"},
	{0},
};

/* What the file says. */
struct file {
	char path[4096];
	config_t config;
	bool there;
};

static void set(char **value, const char *text)
{
	char *copy = text && *text ? strdup(text) : NULL;

	if (copy) {
		free(*value);
		*value = copy;
	}
}

static int check_keys(const struct file *file)
{
	config_setting_t *root = config_root_setting(&file->config);

	for (unsigned i = 0; i < (unsigned)config_setting_length(root); i++) {
		config_setting_t *one = config_setting_get_elem(root, i);
		const struct ctl_setting *key = ctl_file_keys;

		while (key->name && strcmp(key->name, config_setting_name(one)) != 0)
			key++;
		if (!key->name)
			return ctl_fail(CTL_USAGE, "%s:%u: there is no setting '%s'", file->path,
					config_setting_source_line(one), config_setting_name(one));
		if (config_setting_type(one) != CONFIG_TYPE_STRING)
			return ctl_fail(CTL_USAGE, "%s:%u: %s needs a text in quotes", file->path,
					config_setting_source_line(one), key->name);
	}
	return 0;
}

static int read_file(struct file *file)
{
	const char *named = getenv("BERTH_CTL_CONF"), *home = getenv("HOME");
	FILE *stream;

	if (named && *named)
		snprintf(file->path, sizeof(file->path), "%s", named);
	else
		snprintf(file->path, sizeof(file->path), "%s/.config/berth/ctl.conf", home ? home : "");
	if ((!named || !*named) && access(file->path, F_OK))
		return 0;
	stream = fopen(file->path, "re");
	if (!stream)
		return ctl_fail(CTL_USAGE, "%s: %m%s", file->path, named ? " (BERTH_CTL_CONF names it)" : "");
	config_init(&file->config);
	file->there = true;
	named = config_read(&file->config, stream) ? NULL : config_error_text(&file->config);
	fclose(stream);
	if (named)
		return ctl_fail(CTL_USAGE, "%s:%d: %s", file->path, config_error_line(&file->config), named);
	return check_keys(file);
}

static const char *file_text(const struct file *file, const char *key)
{
	const char *text = NULL;

	return file->there && config_lookup_string(&file->config, key, &text) ? text : NULL;
}

static void note_source(struct ctl *ctl, const char *what, const char *name)
{
	size_t len = strlen(what) + strlen(name) + 1;

	ctl->token_from = malloc(len);
	if (ctl->token_from)
		snprintf(ctl->token_from, len, "%s%s", what, name);
}

static int read_token_file(struct ctl *ctl, const char *path, const char *named_by)
{
	char source[4200];
	struct secret *secret = NULL;
	struct err err = {0};
	const void *ptr;
	size_t len;

	snprintf(source, sizeof(source), "file:%s", path);
	if (secret_load(source, &secret, &err) || !secret) {
		secret_free(secret);
		return ctl_fail(CTL_USAGE, "the token cannot be read: %s\n  %s names this file",
				err.msg[0] ? err.msg : "the file is empty", named_by);
	}
	ptr = secret_ptr(secret, &len);
	ctl->token = strndup(ptr, len);
	secret_free(secret);
	note_source(ctl, "the file ", path);
	return 0;
}

static int take_token(struct ctl *ctl, const struct ctl_shared *shared, const struct file *file)
{
	const char *text = getenv("BERTH_TOKEN");

	if (shared->token_file)
		return read_token_file(ctl, shared->token_file, "--token-file");
	if (text && *text) {
		set(&ctl->token, text);
		note_source(ctl, "BERTH_TOKEN", "");
		return 0;
	}
	text = file_text(file, "token");
	if (!text)
		return 0;
	if (strncmp(text, "file:", 5) != 0)
		return ctl_fail(CTL_USAGE, "%s: token must be \"file:<path>\"; the token itself does not stand here", file->path);
	return read_token_file(ctl, text + 5, file->path);
}

static int check(struct ctl *ctl)
{
	if (strncmp(ctl->address, "http://", 7) != 0 && strncmp(ctl->address, "https://", 8) != 0)
		return ctl_fail(CTL_USAGE, "the address '%s' begins with neither http:// nor https://", ctl->address);
	while (ctl->address[strlen(ctl->address) - 1] == '/')
		ctl->address[strlen(ctl->address) - 1] = '\0';
	if (ctl->ca_file && access(ctl->ca_file, R_OK))
		return ctl_fail(CTL_USAGE, "%s: %m", ctl->ca_file);
	for (const char *c = ctl->token; c && *c; c++)
		if (*c <= 0x20 || *c == 0x7f)
			return ctl_fail(CTL_USAGE, "the token of %s holds a blank, a line break or a control byte", ctl->token_from);
	return 0;
}

int ctl_settings(struct ctl *ctl, const struct ctl_shared *shared)
{
	const struct {
		char **value;
		const char *flag, *variable, *key, *otherwise;
	} rows[] = {
		{&ctl->address, shared->address, "BERTH_ADDRESS", "address", DEFAULT_ADDRESS},
		{&ctl->workspace, shared->workspace, "BERTH_WORKSPACE", "workspace", "default"},
		{&ctl->ca_file, shared->ca_file, "BERTH_CA_FILE", "ca_file", NULL},
	};
	struct file file = {0};
	int rc = read_file(&file);

	for (size_t i = 0; !rc && i < sizeof(rows) / sizeof(*rows); i++) {
		set(rows[i].value, rows[i].otherwise);
		set(rows[i].value, file_text(&file, rows[i].key));
		set(rows[i].value, getenv(rows[i].variable));
		set(rows[i].value, rows[i].flag);
	}
	if (!rc)
		rc = take_token(ctl, shared, &file);
	if (file.there)
		config_destroy(&file.config);
	return rc ? rc : check(ctl);
}

void ctl_fini(struct ctl *ctl)
{
	ctl_disconnect(ctl);
	free(ctl->address);
	if (ctl->token)
		secret_wipe(ctl->token, strlen(ctl->token));
	free(ctl->token);
	free(ctl->token_from);
	free(ctl->workspace);
	free(ctl->ca_file);
}
