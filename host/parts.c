/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon consists of: how each part is made of the configuration and of those before it, the order of start, and
 * the way back. The main thread only. Must not say anything but through the log: errors are its caller's to print.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "blob/blob.h"
#include "core/clock.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "core/log_batch.h"
#include "core/secret.h"
#include "core/watch.h"
#include "daemon.h"
#include "execution/execution.h"
#include "execution/shared.h"
#include "plugin/loader.h"
#include "plugin/target.h"
#include "session/session.h"
#include "store/store.h"

#define TRY_MS 5000	     /* what a target has to say whether it takes its configuration */
#define STUCK_MS 5000	     /* what a stop grants a layer that is stuck, and all of them past stop_grace */
#define STUCK_LEAST_MS 500   /* the same, when the layers before have used it up */
#define OVERDUE_MS 10000     /* past all that: a layer waits for what cannot be interrupted */
/* Counted in /proc/self/fd with 60 commands at once: a silent one holds its provider's connection (host/net; two with the
 * mock provider, a FIFO and what wakes a cancel), and one more for each of its streams past the 32 KiB that are kept in
 * memory. The start asks for what each one needs. A stream that grows while none is left waits for one. */
#define DESCRIPTORS_PER_COMMAND 1
#define DESCRIPTORS_OTHER 256 /* store, loops, plugins, log: 32 with the mock provider, before there are commands */

static const char *path_or(const char *path, const char *dir, const char *name, char ret[PATH_MAX])
{
	if (path && *path)
		snprintf(ret, PATH_MAX, "%s", path);
	else
		snprintf(ret, PATH_MAX, "%s/%s", dir, name);
	return ret;
}

static int start_log(struct host *host, struct err *err)
{
	bool json = strcmp(host->conf->log_format, "json") == 0;

	(void)err;
	log_init((enum log_level)log_level_parse(host->conf->log_level), json ? LOG_JSON : LOG_LOGFMT);
	return 0;
}

static int start_log_batch(struct host *host, struct err *err)
{
	(void)host;
	return log_batch_start(err);
}

static int start_failpoints(struct host *host, struct err *err)
{
	(void)host;
	return failpoint_init(err);
}

int parts_limits(struct host *host, struct err *err)
{
	const struct conf *conf = host->conf;
	uint64_t need = (uint64_t)conf->http_connections +
			(uint64_t)conf->runner_concurrency * DESCRIPTORS_PER_COMMAND + DESCRIPTORS_OTHER;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return err_set(err, ERR_IO, "cannot read the limit of descriptors: %s", strerror(errno));
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < need)
		return err_set(
			err, ERR_CONFIG,
			"http.connections = %lld and runner.concurrency = %lld need %llu descriptors, %llu are allowed "
			"(RLIMIT_NOFILE)",
			(long long)conf->http_connections, (long long)conf->runner_concurrency,
			(unsigned long long)need, (unsigned long long)limit.rlim_cur);
	return 0;
}

static int make_state_dir(struct host *host, struct err *err)
{
	const char *dir = host->conf->state_dir;

	if (mkdir(dir, 0700) != 0 && errno != EEXIST)
		return err_set(err, ERR_CONFIG, "cannot make state_dir %s: %s", dir, strerror(errno));
	if (access(dir, R_OK | W_OK | X_OK) != 0)
		return err_set(err, ERR_CONFIG, "cannot use state_dir %s: %s", dir, strerror(errno));
	return 0;
}

static int open_sqlite(struct host *host, struct err *err)
{
	char path[PATH_MAX];
	struct store_config config = {
		.path = path_or(host->conf->store_path, host->conf->state_dir, "berth.db", path),
		.deployment = host->conf->deployment,
		.host_id = host->id,
	};

	return store_open_sqlite(&config, &host->store, err);
}

static int open_redis(struct host *host, struct err *err)
{
	const struct conf *conf = host->conf;
	size_t len;
	struct store_redis_config config = {
		.url = conf->redis_login_url ? secret_ptr(conf->redis_login_url, &len) : conf->redis_url,
		.user = conf->redis_user,
		.password = conf->redis_secret,
		.deployment = conf->deployment,
		.host_id = host->id,
		.prefix = conf->redis_prefix,
		.request_stream = conf->redis_request_stream,
		.event_stream = conf->redis_event_stream,
		.dead_stream = conf->redis_dead_stream,
		.group = conf->redis_group,
		.connections = (unsigned)conf->redis_connections,
		.min_acks = (unsigned)conf->redis_min_acks,
		.ack_wait_ms = conf->redis_ack_wait_ms,
		.hold_ms = 2 * conf->operation_ttl_ms,
		.is_volatile = conf->store_volatile,
	};

	return store_open_redis(&config, &host->store, err);
}

static int start_store(struct host *host, struct err *err)
{
	char name[32] = "host";
	char prefix[sizeof(name) + 1];

	gethostname(name, sizeof(name) - 1); /* cut to what leaves room for the random part */
	snprintf(prefix, sizeof(prefix), "%s-", name);
	ident_random(host->id, prefix, 12);
	return strcmp(host->conf->store_type, "redis") == 0 ? open_redis(host, err) : open_sqlite(host, err);
}

static bool see_row(const struct store_row *row, void *arg)
{
	(void)row;
	*(bool *)arg = true;
	return false;
}

static int look_for_tasks(struct txn *txn, void *arg, struct err *err)
{
	*(bool *)arg = false;
	return txn_scan(txn, STORE_TASK, NULL, "", false, 1, see_row, arg, err);
}

static int start_seal(struct host *host, struct err *err)
{
	char path[PATH_MAX];
	const char *old = host->conf->state_key_old;
	bool tasks = true;
	int r = store_view(host->store, look_for_tasks, &tasks, err);

	/* A new key beside rows sealed with another one would make them unreadable: then the old key has to be
	 * brought back. */
	if (r == 0)
		r = seal_open_file(path_or(host->conf->state_key, host->conf->state_dir, "state.key", path),
				   old && *old ? old : NULL, !tasks, &host->seal, err);
	return r;
}

static int start_blobs(struct host *host, struct err *err)
{
	char path[PATH_MAX];

	return blob_open_dir(path_or(host->conf->blob_path, host->conf->state_dir, "objects", path),
			     store_id(host->store), &host->blobs, err);
}

int parts_program(char ret[PATH_MAX], struct err *err)
{
	ssize_t len = readlink("/proc/self/exe", ret, PATH_MAX - 1);

	if (len < 0)
		return err_set(err, ERR_IO, "cannot find this program for the probe: %s", strerror(errno));
	ret[len] = '\0';
	return 0;
}

static int check_shared(struct host *host, struct err *err)
{
	return shared_check(host->store, host->seal, host->blobs, err);
}

int parts_providers(struct host *host, struct err *err)
{
	int r = parts_program(host->probe, err);

	if (r == 0)
		r = registry_open(host->one.targets ? &host->one : host->conf, host->probe, &host->registry, err);
	return r ? r : registry_try(host->registry, TRY_MS, err);
}

static int start_watch(struct host *host, struct err *err)
{
	host->watch = watch_new();
	return host->watch ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

static int make_sessions(struct host *host, struct err *err)
{
	struct sessions_config config = {
		.conf = host->conf,
		.store = host->store,
		.registry = host->registry,
		.watch = host->watch,
		.seal = host->seal,
		.host_id = host->id,
	};

	return sessions_new(&config, &host->sessions, err);
}

static int make_executions(struct host *host, struct err *err)
{
	struct executions_config config = {
		.conf = host->conf,
		.store = host->store,
		.blobs = host->blobs,
		.sessions = host->sessions,
		.watch = host->watch,
		.host_id = host->id,
		.seal = host->seal,
	};

	return executions_new(&config, &host->executions, err);
}

static int start_sessions(struct host *host, struct err *err)
{
	host->sessions_run = true;
	return sessions_start(host->sessions, err);
}

static int start_executions(struct host *host, struct err *err)
{
	host->executions_run = true;
	return executions_start(host->executions, err);
}

static int start_api(struct host *host, struct err *err)
{
	struct api_config config = {
		.conf = host->conf,
		.store = host->store,
		.blobs = host->blobs,
		.registry = host->registry,
		.sessions = host->sessions,
		.executions = host->executions,
		.watch = host->watch,
		.host_id = host->id,
	};

	return api_start(&config, &host->api, err);
}

/* Whoever started us with port 0 reads it here; renamed into place, so that it is never half written. */
static int write_port(struct host *host, struct err *err)
{
	char path[PATH_MAX];
	char new_path[PATH_MAX + 8];
	FILE *file;

	snprintf(new_path, sizeof(new_path), "%s.new", path_or(NULL, host->conf->state_dir, "port", path));
	file = fopen(new_path, "we");
	if (!file || fprintf(file, "%u\n", api_port(host->api)) < 0 || fclose(file) != 0 || rename(new_path, path) != 0)
		return err_set(err, ERR_IO, "cannot write %s: %s", path, strerror(errno));
	return 0;
}

/* The order of start; parts_stop and parts_free go back the same way. */
static const struct {
	const char *place;
	int (*start)(struct host *host, struct err *err);
} parts[] = {
	{"log", start_log},
	{"failpoints", start_failpoints},
	{"limits", parts_limits},
	{"state", make_state_dir},
	{"store", start_store},
	{"state key", start_seal},
	{"objects", start_blobs},
	{"shared", check_shared},
	{"providers", parts_providers},
	{"watch", start_watch},
	{"sessions", make_sessions},
	{"executions", make_executions},
	{"sessions", start_sessions},
	{"executions", start_executions},
	{"log", start_log_batch},
	{"http", start_api},
	{"port", write_port},
};

int parts_start(struct host *host, const char **ret_place, struct err *err)
{
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		int r = parts[i].start(host, err);

		if (r != 0) {
			*ret_place = parts[i].place;
			return r;
		}
	}
	return 0;
}

static int64_t layer_deadline(const struct host *host)
{
	int64_t until = clock_after_ms(STUCK_MS), least = clock_after_ms(STUCK_LEAST_MS);

	if (until > host->stop_by_ns)
		until = host->stop_by_ns;
	return until > least ? until : least;
}

/* A plugin that did not come back may still read its options, a thread anything. */
static struct conf *left_behind;

void parts_free(struct host *host)
{
	bool back;

	overdue_at("providers");
	api_free(host->api);
	/* A worker that is not back from its plugin, or a thread that waits for a store that went away, goes on with what is below. */
	if (!executions_free(host->executions) || !sessions_free(host->sessions)) {
		left_behind = host->conf;
		overdue_end();
		return;
	}
	back = !host->registry || registry_close(host->registry, layer_deadline(host));
	watch_free(host->watch);
	overdue_at("objects");
	if (host->blobs)
		blob_close(host->blobs);
	overdue_end(); /* a large database may take its time */
	seal_free(host->seal);
	if (host->store)
		store_close(host->store);
	if (back)
		conf_free(host->conf);
	else
		left_behind = host->conf;
}

bool parts_stop(struct host *host)
{
	host->stop_by_ns = clock_after_ms(host->conf->stop_grace_ms + STUCK_MS);
	overdue_begin(host->stop_by_ns + OVERDUE_MS * CLOCK_NS_PER_MS);
	overdue_at("executions");
	if (host->api)
		api_refuse(host->api);
	if (host->executions_run)
		executions_stop(host->executions, host->stop_by_ns);
	overdue_at("http");
	if (host->api && !api_stop(host->api, layer_deadline(host)))
		return false;
	overdue_at("sessions");
	if (host->sessions_run)
		sessions_stop(host->sessions, layer_deadline(host));
	log_batch_stop();
	return true;
}
