/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a provider's name to a running plugin: file checks, probe, mapping, init; and the child's side of the probe.
 * Main thread only. Never unmaps what was mapped, and never closes the descriptor it was mapped from.
 */
#include "plugin/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "plugin/call.h"
#include "plugin/crash.h"
#include "plugin/elf.h"
#include "plugin/guard.h"
#include "plugin/probe.h"

static int refuse(const char *path, struct err *err, const char *expected, const char *got)
{
	return err_set(err, ERR_CONFIG, "plugin %s: expected %s, got %s", path, expected, got);
}

static bool is_name(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len < sizeof(((struct plugin *)0)->name) &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static int resolve(const char *dir, const char *name, char **ret_path, struct err *err)
{
	char path[4096];

	if (!is_name(name))
		return err_set(err, ERR_CONFIG, "provider \"%.60s\": expected a name of [a-z0-9-]", name);
	if (snprintf(path, sizeof(path), "%s/%s.so", dir, name) >= (int)sizeof(path))
		return err_set(err, ERR_CONFIG, "provider \"%s\": the plugin folder's path is too long", name);
	*ret_path = realpath(path, NULL);
	if (*ret_path)
		return 0;
	if (errno == ELOOP)
		return refuse(path, err, "a file", "a loop of symbolic links");
	if (errno == ENOENT)
		return err_set(err, ERR_CONFIG,
			       "plugin %s: expected the file of provider \"%s\", got no such file; plugin_dir names the "
			       "folder",
			       path, name);
	return err_set(err, ERR_CONFIG, "plugin %s: cannot be found: %s", path, strerror(errno));
}

/* Whoever may write the file or its folder decides what this process runs. */
static int check_owner(const char *path, const char *what, const struct stat *st, struct err *err)
{
	if (st->st_uid != 0 && st->st_uid != geteuid())
		return err_set(err, ERR_CONFIG, "plugin %s: expected %s owned by root or uid %u, got uid %u", path,
			       what, (unsigned)geteuid(), (unsigned)st->st_uid);
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return err_set(err, ERR_CONFIG, "plugin %s: expected %s that only its owner may write, got mode %04o",
			       path, what, (unsigned)(st->st_mode & 07777));
	return 0;
}

static int check_folder(const char *path, struct err *err)
{
	char *copy = strdup(path);
	struct stat st;
	int rc;

	if (!copy)
		return err_set(err, ERR_NOMEM, "memory is out");
	if (stat(dirname(copy), &st))
		rc = err_set(err, ERR_CONFIG, "plugin %s: its folder cannot be read: %s", path, strerror(errno));
	else
		rc = check_owner(path, "a folder", &st, err);
	free(copy);
	return rc;
}

static int open_file(const char *path, int *ret_fd, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	int rc;

	if (fd < 0)
		return err_set(err, ERR_CONFIG, "plugin %s: cannot be read: %s", path, strerror(errno));
	if (fstat(fd, &st))
		rc = err_set(err, ERR_CONFIG, "plugin %s: cannot be read: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		rc = refuse(path, err, "a regular file", S_ISDIR(st.st_mode) ? "a folder" : "another kind of file");
	else
		rc = check_owner(path, "a file", &st, err);
	if (!rc)
		rc = check_folder(path, err);
	if (!rc)
		rc = elf_check(fd, path, err);
	if (rc)
		close(fd);
	else
		*ret_fd = fd;
	return rc;
}

/* The linker calls the file by the descriptor; people know it by its path. */
static int refuse_mapping(const char *by_fd, const char *path, const char *why, struct err *err)
{
	size_t len = strlen(by_fd);

	if (why && !strncmp(why, by_fd, len) && !strncmp(why + len, ": ", 2))
		why += len + 2;
	return err_set(err, ERR_CONFIG, "plugin %s: cannot be loaded: %s", path, why ? why : "unknown reason");
}

/* In the child and in the parent: maps the file behind fd, calls its entry, checks the descriptor. ret is zeroed by the
 * caller. */
static int probe_map(int fd, const char *path, const char *name, void (*step)(void), struct plugin *ret, struct err *err)
{
	const struct berth_provider *(*entry)(void);
	char by_fd[40];
	void *symbol;

	snprintf(by_fd, sizeof(by_fd), "/proc/self/fd/%d", fd);
	step();
	ret->handle = dlopen(by_fd, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!ret->handle)
		return refuse_mapping(by_fd, path, dlerror(), err);
	symbol = dlsym(ret->handle, BERTH_PROVIDER_ENTRY);
	if (!symbol)
		return refuse(path, err, "the symbol " BERTH_PROVIDER_ENTRY, "none");
	memcpy(&entry, &symbol, sizeof(entry));
	step();
	return loader_validate(entry(), path, name, ret, err);
}

static void no_step(void)
{
}

static int run_init(struct plugin *plugin, const struct berth_host *host, struct err *err)
{
	struct guard guard;
	char changed[128];
	int32_t code;

	crash_enter(plugin->name, "init", NULL);
	guard_take(&guard);
	code = plugin->desc.init(host);
	crash_leave();
	plugin->initialized = code == BERTH_OK;
	if (guard_restore(&guard, changed, sizeof(changed)))
		log_warn("a plugin changed the process in init; it was put back", KS("plugin", plugin->name),
			 KS("changed", changed));
	guard_drop(&guard);
	if (code != BERTH_OK)
		return err_set(err, ERR_CONFIG, "plugin %s: expected OK from init, got code %d (%s)", plugin->path, code,
			       call_code_word(code));
	return 0;
}

static void keep_file_open(struct plugin *plugin, int fd)
{
	if (plugin->handle)
		plugin->fd = fd;
	else
		close(fd);
}

int loader_load(const char *dir, const char *name, const char *probe, const struct berth_host *host,
		struct plugin **ret, struct err *err)
{
	struct plugin *plugin = calloc(1, sizeof(*plugin));
	int fd = -1, rc;

	if (!plugin)
		return err_set(err, ERR_NOMEM, "memory is out");
	plugin->fd = -1;
	if ((rc = resolve(dir, name, &plugin->path, err)) || (rc = open_file(plugin->path, &fd, err)))
		goto out;
	if (probe)
		rc = probe_run(probe, fd, plugin->path, name, PROBE_LIMIT_MS, err);
	if (!rc)
		rc = probe_map(fd, plugin->path, name, no_step, plugin, err);
	keep_file_open(plugin, fd);
	if (rc)
		goto out;
	log_info("plugin loaded", KS("plugin", plugin->name), KS("version", plugin->desc.version),
		 KS("build", plugin->desc.build_id), KS("path", plugin->path), KI("abi_minor", plugin->desc.abi_minor));
	crash_learn(plugin->handle, plugin->name);
	rc = run_init(plugin, host, err);
	if (rc)
		goto out;
	*ret = plugin;
	plugin = NULL;
out:
	loader_free(plugin);
	return rc;
}

void loader_fini(struct plugin *plugin)
{
	if (!plugin->initialized)
		return;
	crash_enter(plugin->name, "fini", NULL);
	if (plugin->desc.fini)
		plugin->desc.fini();
	crash_leave();
	plugin->initialized = false;
}

void loader_free(struct plugin *plugin)
{
	if (!plugin)
		return;
	free(plugin->options);
	free(plugin->path);
	free(plugin);
}

/* The child's own standard output; what the plugin prints goes to standard error. */
static int probe_out = 1;

static void probe_step(void)
{
	(void)!write(probe_out, "\x01", 1);
}

static void probe_say(const char *line)
{
	(void)!write(probe_out, line, strlen(line));
	(void)!write(probe_out, "\n", 1);
}

int loader_probe_main(int fd, const char *path, const char *name)
{
	const struct rlimit no_core = {0, 0};
	struct plugin plugin = {.fd = fd};
	struct err err = {0};
	char line[320], real[4096];

	probe_out = fcntl(1, F_DUPFD_CLOEXEC, 10);
	dup2(2, 1);
	setrlimit(RLIMIT_CORE, &no_core);
	log_init(LOG_ERROR, LOG_LOGFMT); /* the parent says it all again when it runs init itself */
	snprintf(real, sizeof(real), "%s", path);
	plugin.path = real;
	if (probe_map(fd, path, name, probe_step, &plugin, &err)) {
		probe_say(err.msg);
		return 1;
	}
	probe_step();
	if (run_init(&plugin, &hostapi_table, &err)) {
		probe_say(err.msg);
		return 1;
	}
	probe_step();
	loader_fini(&plugin);
	probe_step();
	snprintf(line, sizeof(line), "ok %s %s", plugin.name, plugin.desc.version);
	free(plugin.options);
	probe_say(line);
	return 0;
}
