/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host around the rules: one target from its file, opened through the host's registry, and closed again. Main
 * thread. Must never touch a session of another deployment than its own.
 */
#include "kit.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <libgen.h>
#include <limits.h>
#include <unistd.h>

#include "core/ident.h"
#include "fault.h"
#include "plugin/loader.h"


static int count_entries(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int count = 0;

	if (!dir)
		return -1;
	while ((entry = readdir(dir)))
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

int kit_count_fds(void)
{
	return count_entries("/proc/self/fd") - 1; /* that of the folder itself */
}

int kit_count_threads(void)
{
	return count_entries("/proc/self/task");
}

int64_t kit_ms(const struct kit *kit, int64_t ms)
{
	return ms * kit->opt->patience;
}

/* The host's names are its own: an INVALID is a "provider" error there. Who reads a report knows types.h. */
static const struct code_name {
	int err;
	const char *name;
} code_names[] = {
	{ERR_OK, "OK"},
	{ERR_PROVIDER, "INVALID"},
	{ERR_NOT_FOUND, "NOT_FOUND"},
	{ERR_NOT_STARTED, "NOT_STARTED"},
	{ERR_CONFLICT, "CONFLICT"},
	{ERR_CAPACITY, "CAPACITY"},
	{ERR_QUOTA, "QUOTA"},
	{ERR_RATE_LIMITED, "RATE_LIMITED"},
	{ERR_PROVIDER_AUTH, "UNAUTHENTICATED or FORBIDDEN"},
	{ERR_PROVIDER_UNAVAILABLE, "UNAVAILABLE"},
	{ERR_PROVIDER_TIMEOUT, "TIMEOUT"},
	{ERR_CANCELLED, "CANCELLED"},
	{ERR_DETACHED, "CANCELLED"},
	{ERR_SESSION_GONE, "SESSION_LOST"},
	{ERR_UNSUPPORTED, "UNSUPPORTED"},
	{ERR_OUTCOME_UNKNOWN, "UNKNOWN"},
	{ERR_STORAGE_FULL, "STORAGE_FULL"},
	{ERR_INTERNAL, "INTERNAL"},
};

const char *kit_code(int err_code)
{
	for (size_t i = 0; i < sizeof(code_names) / sizeof(*code_names); i++)
		if (code_names[i].err == err_code)
			return code_names[i].name;
	return err_name(err_code); /* the host's own, such as what a sink of the kit refused */
}

static void set(char **field, const char *text)
{
	free(*field);
	*field = strdup(text);
	if (!*field)
		abort();
}

/* The folder and the stem of plugin.so, as the loader wants them. */
static int split_plugin(const struct kit *kit, char dir[PATH_MAX], char name[64], struct err *err)
{
	char path[PATH_MAX], *base;
	size_t len;

	if (snprintf(path, sizeof(path), "%s", kit->opt->plugin) >= (int)sizeof(path) || !realpath(path, dir))
		return err_set(err, ERR_CONFIG, "plugin %s: cannot be found: %s", kit->opt->plugin, strerror(errno));
	base = strrchr(dir, '/');
	*base++ = '\0';
	len = strlen(base);
	if (len < 4 || len > 66 || strcmp(base + len - 3, ".so"))
		return err_set(err, ERR_CONFIG, "plugin %s: expected a file <name>.so", kit->opt->plugin);
	snprintf(name, 64, "%.*s", (int)(len - 3), base);
	return 0;
}

static int make_state_dir(struct kit *kit, struct err *err)
{
	const char *base = getenv("TMPDIR");

	if (kit->opt->state) {
		snprintf(kit->state_dir, sizeof(kit->state_dir), "%s", kit->opt->state);
		return 0;
	}
	snprintf(kit->state_dir, sizeof(kit->state_dir), "%.200s/berth-conformance-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(kit->state_dir))
		return err_set(err, ERR_CONFIG, "%s: cannot be made: %s", kit->state_dir, strerror(errno));
	kit->own_state_dir = true;
	return 0;
}

static bool has_supervise(const char *dir)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/berth-supervise", dir) < (int)sizeof(path) && !access(path, X_OK);
}

/* Beside this program, as a build has it, or where an installation does. Looked for before anything is made: without it
 * every rule with a command fails in a way that looks like the plugin's fault. */
static int find_helpers(struct kit *kit, struct err *err)
{
	char self[PATH_MAX] = "", installed[PATH_MAX + 32];
	const char *dir = kit->opt->helpers;

	if (!dir) {
		if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
			return err_set(err, ERR_CONFIG, "/proc/self/exe: cannot be read: %s", strerror(errno));
		dir = dirname(self);
		snprintf(installed, sizeof(installed), "%s/../lib/berth/helpers", dir);
		if (!has_supervise(dir) && has_supervise(installed))
			dir = installed;
	}
	if (!has_supervise(dir) && !(kit->opt->without & NEED_COMMANDS))
		return err_set(err, ERR_CONFIG,
			       "%s has no berth-supervise, which plugins run commands with: build it "
			       "(target berth-supervise), or say where it is with --helpers",
			       dir);
	set(&kit->conf->helper_dir, dir);
	return 0;
}

static int load(struct kit *kit, struct err *err)
{
	char dir[PATH_MAX], name[64];
	int rc;

	if ((rc = split_plugin(kit, dir, name, err)) || (rc = conf_load_target(kit->opt->config, &kit->conf, err)))
		return rc;
	if (strcmp(kit->conf->targets[0].provider, name))
		return err_set(err, ERR_CONFIG, "%s: expected provider \"%s\" as the plugin's file, got \"%.60s\"",
			       kit->opt->config, name, kit->conf->targets[0].provider);
	set(&kit->conf->deployment, kit->opt->deployment);
	set(&kit->conf->state_dir, kit->state_dir);
	set(&kit->conf->plugin_dir, dir);
	kit->conf->targets[0].required = true;
	return find_helpers(kit, err);
}

static void *do_nothing(void *arg)
{
	return arg;
}

/* The first thread of a process may bring helpers of the C library or of a sanitizer; they are no plugin's. */
static void start_helpers(void)
{
	pthread_t thread;

	if (!thread_start(&thread, "first", do_nothing, NULL))
		pthread_join(thread, NULL);
}

int kit_open(struct kit *kit, const struct kit_options *opt, struct err *err)
{
	int rc;

	kit->opt = opt;
	kit->guard.cwd = -1;
	ident_random(kit->tag, "", 12);
	if ((rc = make_state_dir(kit, err)) || (rc = load(kit, err)))
		return rc;
	guard_take(&kit->guard);
	start_helpers();
	kit->fds = kit_count_fds();
	kit->threads = kit_count_threads();
	rc = registry_open(kit->conf, "/proc/self/exe", &kit->registry, err);
	if (rc)
		return rc;
	kit->target = kit->registry->targets[0];
	kit->desc = kit->target->plugin->desc;
	kit->capabilities = kit->target->capabilities;
	fault_open(kit->target);
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void note_error(int rc, const struct err *of, int *first, struct err *err)
{
	if (!rc || *first)
		return;
	*first = rc;
	*err = *of;
}

/* Releases what one page holds, also after one that could not be. */
static int release_listed(struct kit *kit, const struct call *call, size_t *alive, struct err *err)
{
	size_t count;
	const struct berth_session_info *infos = call_sessions(call, &count);
	int first = 0;

	for (size_t i = 0; i < count; i++) {
		struct session *session = calloc(1, sizeof(*session));
		struct err failed = {0};

		if (!session)
			abort();
		session_take(session, &infos[i]);
		*alive += !phase_is_over(infos[i].phase);
		note_error(session_release(kit, session, &failed), &failed, &first, err);
		free(session);
	}
	return first;
}

/* All pages: one may be empty and have a cursor, where a provider pages what belongs to others, too. */
static int sweep_pass(struct kit *kit, size_t *ret_alive, struct err *err)
{
	const char *cursor = NULL;
	struct call *call = NULL;
	struct cursors cursors = {.count = 0};
	int first = 0, rc;

	*ret_alive = 0;
	do {
		struct call *before = call;
		struct err failed = {0};

		call = call_new(kit->target, clock_after_ms(kit_ms(kit, 60000)), NULL);
		if (!call)
			abort();
		rc = call_list(call, cursor, &failed);
		call_free(before);
		note_error(rc, &failed, &first, err);
		cursor = rc ? NULL : call_cursor(call);
		if (!rc)
			note_error(release_listed(kit, call, ret_alive, &failed), &failed, &first, err);
		rc = cursors_take(&cursors, cursor, &failed);
		note_error(rc, &failed, &first, err);
	} while (cursor && !rc);
	call_free(call);
	return first;
}

/* Again until nothing lives: pages may shift while their sessions go, and a released one may be seen for a while. */
int kit_sweep(struct kit *kit, struct err *err)
{
	int64_t until = clock_after_ms(kit_ms(kit, 1000 * kit->opt->gone_s));
	struct timespec pause = {.tv_nsec = 50000000};
	size_t alive = 1;
	int rc = 0;

	for (unsigned pass = 0; !rc && alive && (pass < 2 || clock_boot_ns() < until); pass++) {
		if (pass)
			nanosleep(&pause, NULL);
		pause.tv_nsec = pause.tv_nsec < 400000000 ? 2 * pause.tv_nsec : pause.tv_nsec;
		rc = sweep_pass(kit, &alive, err);
	}
	kit->swept = !rc;
	if (!rc && alive)
		fprintf(stderr, "berth-conformance: %zu sessions of the deployment %s are listed after their release\n",
			alive, kit->opt->deployment);
	return rc;
}

/* A target that could not be swept at the start is not tried again. */
static void sweep_at_end(struct kit *kit)
{
	struct err err = {0};

	if (kit->swept && kit_sweep(kit, &err))
		fprintf(stderr, "berth-conformance: what is left of the deployment %s cannot be released: %s\n",
			kit->opt->deployment, err.msg);
}

bool kit_close(struct kit *kit)
{
	bool closed = !kit->stuck;

	if (kit->target && closed) {
		session_drop_shared(kit);
		sweep_at_end(kit);
	}
	if (closed)
		registry_close(kit->registry, clock_after_ms(30000));
	kit->registry = NULL;
	kit->target = NULL;
	fault_close();
	if (kit->own_state_dir && closed)
		nftw(kit->state_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return closed;
}
