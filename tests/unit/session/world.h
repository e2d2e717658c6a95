/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host's lower half for the component tests: the real SQLite store, the real mock provider, sessions on top, in a directory of
 * its own. The provider's sessions and the database outlive world_down and a killed child, so a test can start anew on them.
 */
#ifndef TEST_SESSION_WORLD_H
#define TEST_SESSION_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf.h"
#include "core/clock.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "core/thread.h"
#include "plugin/call.h"
#include "session/session.h"
#include "session/sweep.h"

#define WAIT_MS 30000 /* every wait is for a condition; this only ends a test that hangs */

struct world {
	char dir[64];
	char paths[4][160]; /* database, provider's root, fault file, key */
	struct conf conf;
	struct conf_target targets[2];
	struct conf_pair settings[6];
	struct store *store;
	struct registry *registry;
	struct watch *watch;
	struct seal *seal;
	struct sessions *s;
	struct session_hooks hooks;
	unsigned starts;
	char host[32];
	int64_t plant_ready_ms; /* wall clock: what is planted is ready from then on */
};

static inline void world_conf(struct world *w)
{
	static char mock[] = "mock", one[] = "one", none[] = "", deployment[] = "test", where[] = "test";
	static char keys[][16] = {"root", "fault_file", "create_settle", "ready_delay", "supervise"};
	static char zero[] = "0s", plugins[] = BERTH_TEST_PLUGIN_DIR, supervise[] = BERTH_TEST_BIN_DIR "/berth-supervise";
	char *values[] = {w->paths[1], w->paths[2], zero, zero, supervise};

	w->conf = (struct conf){
		.deployment = deployment, .state_dir = w->dir, .plugin_dir = plugins, .helper_dir = w->dir,
		.lease_active_ms = 7200000, .lease_idle_ms = 900000, .gc_interval_ms = 100, .operation_ttl_ms = 20000,
		.claim_ttl_ms = 20000, .owner_ttl_ms = 20000, .session_max_age_ms = 86400000, .scheduling_ms = 20000,
		.starting_ms = 20000, .begin_wait_ms = 30000, .teardown_wait_ms = 30000, .task_concurrency = 64,
		.task_retention_ms = 86400000, .targets = w->targets, .target_count = 1,
	};
	for (size_t i = 0; i < 5; i++)
		w->settings[i] = (struct conf_pair){.key = keys[i], .value = values[i], .where = where};
	w->targets[0] = (struct conf_target){
		.file = where, .provider = mock, .name = one, .region = none, .required = true, .max_operations = 256,
		.isolation = none, .image = none, .settings = w->settings, .setting_count = 5,
	};
}

static inline void world_make(struct world *w)
{
	memset(w, 0, sizeof(*w));
	snprintf(w->dir, sizeof(w->dir), "/tmp/berth-session-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	snprintf(w->paths[0], sizeof(w->paths[0]), "%s/berth.db", w->dir);
	snprintf(w->paths[1], sizeof(w->paths[1]), "%s/root", w->dir);
	snprintf(w->paths[2], sizeof(w->paths[2]), "%s/faults", w->dir);
	snprintf(w->paths[3], sizeof(w->paths[3]), "%s/state.key", w->dir);
	assert_int_equal(mkdir(w->paths[1], 0700), 0);
	log_init(getenv("TEST_LOG") ? LOG_DEBUG : LOG_ERROR + 1, LOG_LOGFMT);
	world_conf(w);
}

#define WORLD_CHECK(call)                                                                                           \
	do {                                                                                                        \
		if ((call) != 0) {                                                                                  \
			fprintf(stderr, "%s: %s\n", #call, err.msg);                                                \
			abort();                                                                                    \
		}                                                                                                   \
	} while (0)

/* A process starts, with a host id of its own. Also used in children, hence no assertions of cmocka. */
static inline void world_up(struct world *w)
{
	struct err err = {0};

	snprintf(w->host, sizeof(w->host), "host-%u-%d", ++w->starts, (int)getpid());
	struct store_config store = {.path = w->paths[0], .deployment = "test", .host_id = w->host, .readers = 2};

	WORLD_CHECK(store_open_sqlite(&store, &w->store, &err));
	WORLD_CHECK(registry_open(&w->conf, NULL, &w->registry, &err));
	WORLD_CHECK(seal_open_file(w->paths[3], NULL, true, &w->seal, &err));
	w->watch = watch_new();
	assert(w->watch);
	struct sessions_config config = {.conf = &w->conf, .store = w->store, .registry = w->registry, .watch = w->watch,
					 .seal = w->seal, .host_id = w->host};
	WORLD_CHECK(sessions_new(&config, &w->s, &err));
	sessions_hook(w->s, &w->hooks);
	WORLD_CHECK(sessions_start(w->s, &err));
}

static inline void world_down(struct world *w, int64_t grace_ms)
{
	sessions_stop(w->s, clock_after_ms(grace_ms));
	sessions_free(w->s);
	registry_close(w->registry, clock_after_ms(5000));
	watch_free(w->watch);
	seal_free(w->seal);
	store_close(w->store);
	w->s = NULL;
}

static inline int world_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void world_end(struct world *w)
{
	nftw(w->dir, world_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* The fixtures of a test whose initial state is the world: made; made and up; down, if it is up, and removed. */
static inline int world_setup_made(void **state)
{
	world_make(*state);
	return 0;
}

static inline int world_setup(void **state)
{
	world_make(*state);
	world_up(*state);
	return 0;
}

static inline int world_teardown(void **state)
{
	struct world *w = *state;

	if (w->s)
		world_down(w, 5000);
	world_end(w);
	return 0;
}

/* ---- the provider's side ---- */

static inline void world_faults(struct world *w, const char *rules)
{
	char tmp[180];
	FILE *file;

	snprintf(tmp, sizeof(tmp), "%s.tmp", w->paths[2]);
	file = fopen(tmp, "w");
	assert(file);
	fputs(rules, file);
	fclose(file);
	assert(rename(tmp, w->paths[2]) == 0);
}

/* In a child, and for the first time before world_up: lines as failpoint.h says, in the place of those before. Threads read
 * the file at each hit. */
static inline void world_failpoint(struct world *w, const char *lines)
{
	static bool known;
	char path[180], new_path[188];
	struct err err = {0};
	FILE *file;

	snprintf(path, sizeof(path), "%s/failpoints", w->dir);
	snprintf(new_path, sizeof(new_path), "%s.new", path);
	file = fopen(new_path, "w");
	assert(file);
	fputs(lines, file);
	fclose(file);
	assert(rename(new_path, path) == 0);
	if (known)
		return;
	known = true;
	setenv("BERTH_FAILPOINTS", path, 1);
	WORLD_CHECK(failpoint_init(&err));
}

static inline long world_counter(struct world *w, const char *name)
{
	char path[180], line[64];
	FILE *file;
	long value = 0;

	snprintf(path, sizeof(path), "%s/counters", w->paths[1]);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ')
			value = strtol(line + strlen(name), NULL, 10);
	}
	if (file)
		fclose(file);
	return value;
}

/* Sessions that exist at the provider; the ref of one of them into ret_ref. */
static inline size_t world_sessions(struct world *w, char ret_ref[64])
{
	char path[180];
	struct dirent *entry;
	size_t count = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/sessions", w->paths[1]);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		count++;
		if (ret_ref)
			snprintf(ret_ref, 64, "%.63s", entry->d_name);
	}
	if (dir)
		closedir(dir);
	return count;
}

/* A new store adopts what it finds at first; a test's session that comes into the middle of that would be taken by it. */
static inline void world_settle(struct world *w)
{
	struct target *one = registry_find(w->registry, "one");
	struct sweep_state state = {.pending = true};
	struct err err = {0};

	for (int64_t end = clock_after_ms(WAIT_MS); one && state.pending; poll(NULL, 0, 5)) {
		WORLD_CHECK(sweep_look(w->s, one, &state, &err));
		assert(clock_left_ms(end) > 0);
	}
}

/* A session that somebody else made, to be seen from visible_ms from now on. */
static inline void world_plant(struct world *w, const char *task, const char *ref, const char *intent, int64_t visible_ms)
{
	char path[256], boot[37];
	FILE *file;

	world_settle(w);
	snprintf(path, sizeof(path), "%s/by-task/ws", w->paths[1]);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/by-task/ws/%s", w->paths[1], task);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/by-task/ws/%s/%s", w->paths[1], task, ref);
	file = fopen(path, "w");
	assert(file);
	fclose(file);
	snprintf(path, sizeof(path), "%s/sessions/%s", w->paths[1], ref);
	assert(mkdir(path, 0700) == 0);
	for (size_t i = 0; i < 4; i++) {
		static const char *const names[] = {"work", "home", "tmp", "run"};

		snprintf(path, sizeof(path), "%s/sessions/%s/%s", w->paths[1], ref, names[i]);
		mkdir(path, 0700);
	}
	snprintf(path, sizeof(path), "%s/sessions/%s/session.tmp", w->paths[1], ref);
	file = fopen(path, "w");
	assert(file);
	clock_boot_id(boot);
	fprintf(file, "berth-mock-session 1\nref=%s\ndeployment=test\nworkspace=ws\ntask=%s\nintent=%s\nboot=%s\ncreated_ms=%lld\nexpires_ms=0\n"
		      "ready_ms=%lld\ndeaf_ms=0\nvisible_ms=%lld\n",
		ref, task, intent, boot, (long long)clock_wall_ms() - 5000, (long long)w->plant_ready_ms,
		(long long)(clock_wall_ms() + visible_ms));
	fclose(file);
	char to[256];

	snprintf(to, sizeof(to), "%s/sessions/%s/session", w->paths[1], ref);
	assert(rename(path, to) == 0);
}

static inline void world_vanish(struct world *w, const char *ref)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/sessions/%s", w->paths[1], ref);
	assert(nftw(path, world_remove, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

/* ---- the host's side ---- */

static inline struct session_begin world_begin(const char *task, const char *op_id)
{
	struct session_begin begin = {.op_id = op_id, .op_kind = "file", .lasts_ms = 1000};

	snprintf(begin.ident.workspace, sizeof(begin.ident.workspace), "ws");
	snprintf(begin.ident.task, sizeof(begin.ident.task), "%s", task);
	return begin;
}

static inline int world_acquire(struct world *w, const char *task, const char *op_id, struct session_hold **ret,
				struct err *err)
{
	struct session_begin begin = world_begin(task, op_id);
	int r = session_acquire(w->s, &begin, clock_after_ms(WAIT_MS), ret, err);

	session_begin_fini(&begin);
	return r;
}

static inline void world_release(struct world *w, struct session_hold *hold)
{
	const struct session_end end = {.proven = true};

	session_release(w->s, hold, &end);
}

static inline struct ident world_ident(const char *task)
{
	return world_begin(task, "x").ident;
}

/* The task as JSON, "" when it is not known; the caller frees. */
static inline char *world_describe(struct world *w, const char *task)
{
	struct ident ident = world_ident(task);
	struct err err = {0};
	struct buf buf;

	buf_init(&buf, 1 << 20);
	if (session_describe(w->s, &ident, &buf, &err))
		buf_clear(&buf);
	buf_puts(&buf, "");
	return buf.len ? buf_take(&buf) : (buf_fini(&buf), strdup(""));
}

static inline bool world_says(struct world *w, const char *task, const char *part)
{
	char *text = world_describe(w, task);
	bool found = strstr(text, part) != NULL;

	free(text);
	return found;
}

struct world_wait {
	struct world *w;
	const char *task, *part;
};

static inline bool world_waited(void *arg)
{
	const struct world_wait *wait = arg;

	return world_says(wait->w, wait->task, wait->part);
}

/* Waits until the task's description contains part. Changes that notify nobody are found by looking again. */
static inline bool world_until(struct world *w, const char *task, const char *part)
{
	struct world_wait wait = {w, task, part};
	char key[300];
	int64_t deadline = clock_after_ms(WAIT_MS);

	snprintf(key, sizeof(key), "task:ws/%s", task);
	while (clock_left_ms(deadline) > 0) {
		if (watch_block(w->watch, key, world_waited, &wait, clock_after_ms(20)))
			return true;
	}
	return false;
}

/* Every target's list agrees with the rows; waits until what is on its way has settled. */
static inline bool world_agrees(struct world *w)
{
	int64_t deadline = clock_after_ms(WAIT_MS);
	bool ok = false;

	while (!ok && clock_left_ms(deadline) > 0) {
		struct err err = {0};
		struct buf buf;

		buf_init(&buf, 1 << 20);
		if (session_verify(w->s, clock_after_ms(WAIT_MS), &buf, &ok, &err))
			ok = false;
		buf_fini(&buf);
	}
	return ok;
}

#endif
