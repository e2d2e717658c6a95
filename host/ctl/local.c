/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config check, config dump, providers check, providers inspect: what is asked of files, without a daemon that runs. Main thread.
 * Plugins are foreign code and are loaded by berthd only, as it loads them itself: it is started as a child for that.
 */
#include <errno.h>
#include <fcntl.h>
#include <libconfig.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conf/conf.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/log.h"
#include "ctl/commands.h"

#define CONF_DEFAULT "/etc/berth/berth.conf"

extern char **environ;

const struct ctl_option local_options[] = {
	{.name = "config", .letter = 'c', .type = CTL_TEXT, .argument = "FILE", .off = offsetof(struct local_options, conf),
	 .doc = "configuration of berthd (default " CONF_DEFAULT ")"},
	{.name = "berthd", .type = CTL_TEXT, .argument = "FILE", .off = offsetof(struct local_options, berthd),
	 .doc = "the berthd to ask (default: the one beside berthctl, else that of PATH)"},
	{0},
};

/* ---- berthd as a child ---- */

struct child {
	struct buf out, err;
	int status; /* exit code; -1 when it did not end by itself */
};

static void child_fini(struct child *child)
{
	buf_fini(&child->out);
	buf_fini(&child->err);
}

static void find_berthd(const struct local_options *o, char *path, size_t size)
{
	ssize_t len = readlink("/proc/self/exe", path, size - 16);
	char *slash;

	path[len < 0 ? 0 : len] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		snprintf(slash + 1, 8, "berthd");
	if (o->berthd)
		snprintf(path, size, "%s", o->berthd);
	else if (!slash || access(path, X_OK))
		snprintf(path, size, "berthd");
}

static void drain(int *fd, struct buf *to)
{
	char piece[8192];
	ssize_t got = read(*fd, piece, sizeof(piece));

	if (got > 0) {
		buf_append(to, piece, (size_t)got);
	} else if (got == 0 || errno != EINTR) {
		close(*fd);
		*fd = -1;
	}
}

static void collect(int out, int err, struct child *child)
{
	while (out >= 0 || err >= 0) {
		struct pollfd fds[] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};

		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		if (fds[0].revents)
			drain(&out, &child->out);
		if (fds[1].revents)
			drain(&err, &child->err);
	}
}

static int spawn(const char *program, const char *const *argv, int out, int err, pid_t *ret_pid)
{
	posix_spawn_file_actions_t actions;
	int rc;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, err, 2);
	rc = posix_spawnp(ret_pid, program, &actions, NULL, (char *const *)(uintptr_t)argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return rc;
}

/* words: after the program's name, NULL ends. 0, or an exit code with the sentence printed. */
static int ask_berthd(const struct local_options *o, const char *const *words, struct child *ret)
{
	char program[4096];
	const char *argv[8] = {program};
	int out[2], err[2], status = 0, rc;
	pid_t pid;

	find_berthd(o, program, sizeof(program));
	for (size_t i = 0; i < 6 && words[i]; i++)
		argv[i + 1] = words[i];
	buf_init(&ret->out, 4 * LIMIT_MIB);
	buf_init(&ret->err, LIMIT_MIB);
	if (pipe2(out, O_CLOEXEC))
		return ctl_fail(CTL_ERROR, "no pipe: %m");
	if (pipe2(err, O_CLOEXEC)) {
		close(out[0]);
		close(out[1]);
		return ctl_fail(CTL_ERROR, "no pipe: %m");
	}
	rc = spawn(program, argv, out[1], err[1], &pid);
	close(out[1]);
	close(err[1]);
	if (rc) {
		close(out[0]);
		close(err[0]);
		return ctl_fail(CTL_USAGE, "%s cannot be started: %s\n  --berthd names the program", program, strerrordesc_np(rc));
	}
	collect(out[0], err[0], ret);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	ret->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	return 0;
}

/* What it said at last, without its name in front: "configuration: …", or what a log line's writer said. */
static void last_words(const struct child *child, struct buf *ret)
{
	const char *text = child->err.ptr ? child->err.ptr : "", *line = text;
	size_t len = strlen(text);

	while (len && text[len - 1] == '\n')
		len--;
	for (const char *c = text; c < text + len; c++)
		if (*c == '\n' && !strncmp(c + 1, "berthd: ", 8))
			line = c + 1;
	if (!strncmp(line, "berthd: ", 8))
		line += 8;
	for (; line < text + len; line++)
		buf_append(ret, (unsigned char)*line < 0x20 ? " " : line, 1);
	if (!ret->len)
		buf_printf(ret, "berthd ended with %d and said nothing", child->status);
}

static const char *conf_file(const struct local_options *o)
{
	return o->conf ? o->conf : CONF_DEFAULT;
}

static int refuse(const struct local_options *o, const char *why)
{
	ctl_fail(CTL_REFUSED, "%s", why);
	if (!o->conf && strstr(why, "cannot be opened"))
		fputs("  -c FILE names another one\n", stderr);
	return CTL_REFUSED;
}

static void say_refusal(const char *sentence, void *arg)
{
	refuse(arg, sentence);
}

/* 0 or CTL_REFUSED, with everything printed. What berthd warns of is for config check to say. */
static int load(const struct local_options *o, struct conf **ret)
{
	struct err err = {0};
	int rc;

	log_init(LOG_ERROR, LOG_LOGFMT);
	rc = conf_load_telling(conf_file(o), false, say_refusal, (void *)(uintptr_t)o, ret, &err);
	if (rc == ERR_NOMEM)
		refuse(o, err.msg);
	return rc ? CTL_REFUSED : 0;
}

/* ---- config ---- */

static void print_verdict(const char *file, struct json_object *refusals)
{
	struct json_object *json = json_object_new_object();
	size_t count = json_object_array_length(refusals);

	json_object_object_add(json, "file", json_object_new_string(file));
	json_object_object_add(json, "ok", json_object_new_boolean(!count));
	json_object_object_add(json, "why", json_object_new_string(count ? ctl_text(json_object_array_get_idx(refusals, 0), "") : ""));
	json_object_object_add(json, "refusals", json_object_get(refusals));
	ctl_json(json);
	json_object_put(json);
}

/* Every sentence of berthd's own; the last words of one that said none, as when a plugin crashed. */
static struct json_object *refusals_of(const struct child *child)
{
	struct json_object *list = json_object_new_array();
	const char *line = child->err.ptr ? child->err.ptr : "";
	struct buf text;

	for (; child->status && *line; line += strcspn(line, "\n"), line += *line == '\n') {
		if (strncmp(line, "berthd: ", 8) != 0)
			continue;
		buf_init(&text, LIMIT_MIB);
		for (const char *c = line + 8; *c && *c != '\n'; c++)
			buf_append(&text, (unsigned char)*c < 0x20 ? " " : c, 1);
		json_object_array_add(list, json_object_new_string(text.ptr ? text.ptr : ""));
		buf_fini(&text);
	}
	if (child->status && !json_object_array_length(list)) {
		buf_init(&text, LIMIT_MIB);
		last_words(child, &text);
		json_object_array_add(list, json_object_new_string(text.ptr ? text.ptr : ""));
		buf_fini(&text);
	}
	return list;
}

static int refuse_all(const struct local_options *o, struct json_object *refusals)
{
	for (size_t i = 0; i < json_object_array_length(refusals); i++)
		refuse(o, ctl_text(json_object_array_get_idx(refusals, i), ""));
	return json_object_array_length(refusals) ? CTL_REFUSED : 0;
}

/* berthd logs what it does not like but takes. */
static void print_warnings(const struct child *child)
{
	const char *line = child->err.ptr ? child->err.ptr : "";

	while (*line) {
		size_t len = strcspn(line, "\n");
		const char *message = memmem(line, len, " level=warn msg=", 16);
		struct buf text;

		buf_init(&text, LIMIT_MIB);
		for (const char *c = message ? message + 16 : line + len; c < line + len; c++)
			buf_append(&text, (unsigned char)*c < 0x20 ? "?" : c, 1);
		if (text.len)
			fprintf(stderr, "warning: %s\n", text.ptr);
		buf_fini(&text);
		line += len + (line[len] == '\n');
	}
}

int ctl_config_check(struct ctl *ctl, const struct ctl_args *args)
{
	const struct local_options *o = args->options;
	const char *words[] = {"-t", "-c", conf_file(o), NULL};
	struct json_object *refusals = NULL;
	struct child child;
	int rc = ask_berthd(o, words, &child);

	if (!rc) {
		refusals = refusals_of(&child);
		print_warnings(&child);
		if (ctl->json)
			print_verdict(conf_file(o), refusals);
		rc = refuse_all(o, refusals);
	}
	if (!rc && !ctl->json)
		printf("%s: ok\n", conf_file(o));
	json_object_put(refusals);
	child_fini(&child);
	return rc;
}

static struct json_object *to_json(const config_setting_t *setting)
{
	struct json_object *json;

	switch (config_setting_type(setting)) {
	case CONFIG_TYPE_INT:
	case CONFIG_TYPE_INT64:
		return json_object_new_int64(config_setting_get_int64(setting));
	case CONFIG_TYPE_FLOAT:
		return json_object_new_double(config_setting_get_float(setting));
	case CONFIG_TYPE_BOOL:
		return json_object_new_boolean(config_setting_get_bool(setting));
	case CONFIG_TYPE_STRING:
		return json_object_new_string(config_setting_get_string(setting));
	case CONFIG_TYPE_GROUP:
		json = json_object_new_object();
		for (unsigned i = 0; i < (unsigned)config_setting_length(setting); i++) {
			const config_setting_t *one = config_setting_get_elem(setting, i);

			json_object_object_add(json, config_setting_name(one), to_json(one));
		}
		return json;
	default:
		json = json_object_new_array();
		for (unsigned i = 0; i < (unsigned)config_setting_length(setting); i++)
			json_object_array_add(json, to_json(config_setting_get_elem(setting, i)));
		return json;
	}
}

static int dump_json(const char *text)
{
	struct json_object *json;
	config_t config;
	int rc = 0;

	config_init(&config);
	if (config_read_string(&config, text)) {
		json = to_json(config_root_setting(&config));
		ctl_json(json);
		json_object_put(json);
	} else {
		rc = ctl_fail(CTL_ERROR, "line %d of the dump: %s", config_error_line(&config), config_error_text(&config));
	}
	config_destroy(&config);
	return rc;
}

int ctl_config_dump(struct ctl *ctl, const struct ctl_args *args)
{
	struct conf *conf = NULL;
	struct buf text;
	int rc = load(args->options, &conf);

	if (rc)
		return rc;
	buf_init(&text, 4 * LIMIT_MIB);
	conf_dump(conf, !ctl->json, &text);
	if (text.error)
		rc = ctl_fail(CTL_ERROR, "the configuration is too large to print");
	else if (ctl->json)
		rc = dump_json(text.ptr);
	else
		fwrite(text.ptr, 1, text.len, stdout);
	buf_fini(&text);
	conf_free(conf);
	return rc;
}

/* ---- providers check ---- */

static int check_target(const struct local_options *o, const struct conf_target *target, struct json_object *items, bool *ret_ok)
{
	const char *words[] = {"-t", "--target", target->name, "-c", conf_file(o), NULL};
	struct json_object *item = json_object_new_object();
	struct child child;
	struct buf why;
	int rc = ask_berthd(o, words, &child);

	buf_init(&why, LIMIT_MIB);
	buf_puts(&why, "");
	if (!rc && child.status)
		last_words(&child, &why);
	*ret_ok = !rc && !child.status;
	json_object_object_add(item, "target", json_object_new_string(target->name));
	json_object_object_add(item, "provider", json_object_new_string(target->provider));
	json_object_object_add(item, "result", json_object_new_string(*ret_ok ? "ok" : "refused"));
	json_object_object_add(item, "required", json_object_new_boolean(target->required));
	json_object_object_add(item, "why", json_object_new_string(why.ptr));
	json_object_array_add(items, item);
	buf_fini(&why);
	child_fini(&child);
	return rc;
}

int ctl_providers_check(struct ctl *ctl, const struct ctl_args *args)
{
	static const struct ctl_column columns[] = {
		{"TARGET", "target", false, CTL_PLAIN}, {"PROVIDER", "provider", false, CTL_PLAIN},
		{"RESULT", "result", false, CTL_PLAIN}, {"WHY", "why", true, CTL_PLAIN},
		{0},
	};
	const struct local_options *o = args->options;
	struct json_object *items = json_object_new_array();
	struct conf *conf = NULL;
	size_t refused = 0;
	int rc = load(o, &conf);

	for (size_t i = 0; !rc && i < conf->target_count; i++) {
		bool ok;

		rc = check_target(o, &conf->targets[i], items, &ok);
		refused += !ok;
	}
	if (!rc && ctl->json)
		ctl_json_items(items);
	else if (!rc)
		ctl_table(items, columns);
	if (!rc && refused)
		rc = ctl_fail(CTL_REFUSED, "%zu of %zu targets are refused", refused, conf->target_count);
	json_object_put(items);
	if (conf)
		conf_free(conf);
	return rc;
}

/* ---- providers inspect ---- */

static void print_descriptor(struct json_object *json)
{
	static const struct ctl_column rows[] = {
		{"name", "name", false, CTL_PLAIN},	  {"version", "version", false, CTL_PLAIN},
		{"build", "build_id", false, CTL_PLAIN},  {"abi", "abi", false, CTL_PLAIN},
		{"path", "path", false, CTL_PLAIN},	  {"capabilities", "capabilities", false, CTL_LIST},
		{"operations", "operations", false, CTL_LIST}, {0},
	};
	static const struct ctl_column options[] = {
		{"OPTION", "key", false, CTL_PLAIN},   {"TYPE", "type", false, CTL_PLAIN},
		{"DEFAULT", "default", true, CTL_PLAIN}, {"REQUIRED", "required", false, CTL_PLAIN},
		{"SECRET", "secret", false, CTL_PLAIN}, {"MEANING", "doc", true, CTL_PLAIN},
		{0},
	};
	static const struct ctl_column metrics[] = {
		{"METRIC", "name", false, CTL_PLAIN}, {"TYPE", "type", false, CTL_PLAIN}, {"UNIT", "unit", false, CTL_PLAIN},
		{"MEANING", "doc", true, CTL_PLAIN},  {0},
	};
	struct json_object *list;

	ctl_rows(json, rows);
	list = ctl_at(json, "options");
	if (list && json_object_array_length(list)) {
		putchar('\n');
		ctl_table(list, options);
	}
	list = ctl_at(json, "metrics");
	if (list && json_object_array_length(list)) {
		putchar('\n');
		ctl_table(list, metrics);
	}
}

/* A path is a path; a bare name is the file of that provider in the configured folder. */
static int plugin_path(const struct local_options *o, const char *word, char *path, size_t size)
{
	struct conf *conf = NULL;

	snprintf(path, size, "%s", word);
	if (strchr(word, '/') || !access(word, F_OK))
		return 0;
	if (load(o, &conf)) {
		fprintf(stderr, "  a path such as ./%s.so needs no configuration\n", word);
		return CTL_REFUSED;
	}
	snprintf(path, size, "%s/%s%s", conf->plugin_dir, word, strstr(word, ".so") ? "" : ".so");
	conf_free(conf);
	return 0;
}

int ctl_providers_inspect(struct ctl *ctl, const struct ctl_args *args)
{
	const struct local_options *o = args->options;
	char path[4096];
	const char *words[] = {"--describe", path, NULL};
	struct json_object *json = NULL;
	struct child child;
	struct err err = {0};
	struct buf why;
	int rc = plugin_path(o, args->words[0], path, sizeof(path));

	if (rc)
		return rc;
	rc = ask_berthd(o, words, &child);
	buf_init(&why, LIMIT_MIB);
	if (!rc && child.status) {
		last_words(&child, &why);
		rc = ctl_fail(CTL_REFUSED, "%s", why.ptr);
	} else if (!rc && json_parse(child.out.ptr ? child.out.ptr : "", child.out.len, &json, &err)) {
		rc = ctl_fail(CTL_ERROR, "%s: what berthd says of it cannot be read: %s", path, err.msg);
	} else if (!rc && ctl->json) {
		ctl_json(json);
	} else if (!rc) {
		print_descriptor(json);
	}
	json_object_put(json);
	buf_fini(&why);
	child_fini(&child);
	return rc;
}
