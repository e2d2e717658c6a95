/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berthd: argv, signals, the order of start and stop. Runs on the main thread, the only one that takes signals. Must
 * hold no logic of its own; every error exit prints one sentence, "berthd: <place>: <why>".
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/api.h"
#include "blob/blob.h"
#include "conf/conf.h"
#include "core/clock.h"
#include "core/failpoint.h"
#include "core/ident.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/log_batch.h"
#include "core/secret.h"
#include "core/watch.h"
#include "execution/execution.h"
#include "execution/shared.h"
#include "plugin/crash.h"
#include "plugin/describe.h"
#include "plugin/loader.h"
#include "plugin/target.h"
#include "plugin/trial.h"
#include "session/session.h"
#include "store/store.h"

#define CONF_DEFAULT "/etc/berth/berth.conf"
#define EXIT_USAGE 2
#define EXIT_IN_USE 75		  /* sysexits.h: EX_TEMPFAIL; another process has it, a later start may get it */
#define EXIT_CONFIG 78		  /* sysexits.h: EX_CONFIG */
#define TRY_MS 5000		  /* what a target has to say whether it takes its configuration */
#define STUCK_MS 5000		  /* what a stop grants a layer that is stuck, and all of them past stop_grace */
#define STUCK_LEAST_MS 500	  /* the same, when the layers before have used it up */
/* Counted in /proc/self/fd with 60 commands at once: a silent one holds its provider's connection (host/net; two with the
 * mock provider, a FIFO and what wakes a cancel), and one more for each of its streams past the 32 KiB that are kept in
 * memory. The start asks for what each one needs. A stream that grows while none is left waits for one. */
#define DESCRIPTORS_PER_COMMAND 1
#define DESCRIPTORS_OTHER 256 /* store, loops, plugins, log: 32 with the mock provider, before there are commands */

struct host {
	struct conf *conf;
	const struct conf *read_last; /* by a reload, and in the api's keeping; NULL: there was none */
	struct store *store;
	struct seal *seal;
	struct blob_store *blobs;
	struct registry *registry;
	struct watch *watch;
	struct sessions *sessions;
	struct executions *executions;
	struct api *api;
	bool sessions_run, executions_run;
	int64_t stop_by_ns;
	bool dev;
	char id[IDENT_ID_MAX + 1];
	char probe[PATH_MAX]; /* this program */
	struct conf one;      /* of -t: the configuration with the targets to open, and another state_dir */
};

static int exit_of(const struct err *err)
{
	if (err->code == ERR_CONFIG)
		return EXIT_CONFIG;
	return err->code == ERR_IN_USE ? EXIT_IN_USE : 1;
}

static int fail(const char *place, const struct err *err)
{
	/* A configuration error names its file and line itself. */
	fprintf(stderr, "berthd: %s: %s\n", place, err->msg);
	return exit_of(err);
}

/* ---- start ---- */

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

static int check_limits(struct host *host, struct err *err)
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

static int find_probe(char ret[PATH_MAX], struct err *err)
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

static int start_registry(struct host *host, struct err *err)
{
	int r = find_probe(host->probe, err);

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

/* The order of start; stop_host goes back the same way. */
static const struct {
	const char *place;
	int (*start)(struct host *host, struct err *err);
} steps[] = {
	{"log", start_log},
	{"failpoints", start_failpoints},
	{"limits", check_limits},
	{"state", make_state_dir},
	{"store", start_store},
	{"state key", start_seal},
	{"objects", start_blobs},
	{"shared", check_shared},
	{"providers", start_registry},
	{"watch", start_watch},
	{"sessions", make_sessions},
	{"executions", make_executions},
	{"sessions", start_sessions},
	{"executions", start_executions},
	{"log", start_log_batch},
	{"http", start_api},
	{"port", write_port},
};

/* ---- stop ---- */

static int64_t layer_deadline(const struct host *host)
{
	int64_t until = clock_after_ms(STUCK_MS), least = clock_after_ms(STUCK_LEAST_MS);

	if (until > host->stop_by_ns)
		until = host->stop_by_ns;
	return until > least ? until : least;
}

/* A plugin that did not come back may still read its options, a thread anything. */
static struct conf *left_behind;

static void free_host(struct host *host)
{
	bool back;

	api_free(host->api);
	/* A worker that is not back from its plugin, or a thread that waits for a store that went away, goes on with what is below. */
	if (!executions_free(host->executions) || !sessions_free(host->sessions)) {
		left_behind = host->conf;
		return;
	}
	back = !host->registry || registry_close(host->registry, layer_deadline(host));
	watch_free(host->watch);
	if (host->blobs)
		blob_close(host->blobs);
	seal_free(host->seal);
	if (host->store)
		store_close(host->store);
	if (back)
		conf_free(host->conf);
	else
		left_behind = host->conf;
}

/* False: something is stuck; it was named in the log, and nothing may be freed under it. */
static bool stop_host(struct host *host)
{
	host->stop_by_ns = clock_after_ms(host->conf->stop_grace_ms + STUCK_MS);
	if (host->api)
		api_refuse(host->api);
	if (host->executions_run)
		executions_stop(host->executions, host->stop_by_ns);
	if (host->api && !api_stop(host->api, layer_deadline(host)))
		return false;
	if (host->sessions_run)
		sessions_stop(host->sessions, layer_deadline(host));
	log_batch_stop();
	return true;
}

/* ---- signals ---- */

static void exit_at_once(int number)
{
	(void)number;
	_exit(1);
}

/* The handler has nothing to do until a stop unblocks its signals. It is there from the beginning, as a disposition that changes later
 * is taken for a plugin's doing, and put back. */
static void block_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
	sigprocmask(SIG_BLOCK, set, NULL);

	struct sigaction ignore = {.sa_handler = SIG_IGN}, leave = {.sa_handler = exit_at_once};

	sigaction(SIGPIPE, &ignore, NULL);
	sigaction(SIGTERM, &leave, NULL);
	sigaction(SIGINT, &leave, NULL);
}

/* From here on a second signal ends the process. */
static void unblock_to_exit(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* systemd's notification protocol: one datagram. Without the variable nobody asked. */
static void notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = path ? strlen(path) : 0;

	if (len == 0 || len >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = '\0';

	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);

	if (fd < 0)
		return;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, size) < 0)
		log_warn("cannot notify the service manager", KS("why", strerror(errno)));
	close(fd);
}

/* ---- reload ---- */

static void log_applied(const char *key, bool live, void *arg)
{
	(void)arg;
	if (live)
		log_info("reload: option applied", KS("key", key));
}

static void log_pending(const char *key, bool live, void *arg)
{
	(void)arg;
	if (!live)
		log_warn("reload: option changed, it needs a restart", KS("key", key));
}

static void log_refusal(const char *sentence, void *arg)
{
	size_t *count = arg;

	++*count;
	log_error("reload: refused", KS("why", sentence));
}

/* What is running stays as it is unless the whole of the new configuration is good. */
static void reload(struct host *host)
{
	struct conf *conf = NULL;
	struct err err = {0};
	size_t refusals = 0;
	bool json;

	if (host->dev) {
		log_warn("reload: not with --dev, whose token is of this run only");
		return;
	}
	if (conf_load_telling(host->conf->file, false, log_refusal, &refusals, &conf, &err) != 0) {
		if (refusals == 0)
			log_refusal(err.msg, &refusals);
		log_error("reload: the configuration is refused, the former one stays", KI("refusals", refusals));
		return;
	}
	/* Each against what is in effect: the last one read, and what the process was started with. */
	conf_diff(host->read_last ? host->read_last : host->conf, conf, log_applied, NULL);
	conf_diff(host->conf, conf, log_pending, NULL);
	json = strcmp(host->conf->log_format, "json") == 0;

	enum log_level level = (enum log_level)log_level_parse(conf->log_level);
	size_t tokens = conf->token_count;

	if (api_reload(host->api, conf, &err) != 0) {
		log_error("reload: failed, the former configuration stays", KS("why", err.msg));
		conf_free(conf);
		return;
	}
	host->read_last = conf;
	log_info("reload: done", KI("tokens", tokens));
	log_init(level, json ? LOG_JSON : LOG_LOGFMT);
}

static int wait_for_stop(struct host *host, const sigset_t *set)
{
	int number = 0;

	do {
		if (sigwait(set, &number) == 0 && number == SIGHUP)
			reload(host);
	} while (number != SIGTERM && number != SIGINT);
	return number;
}

/* ---- argv ---- */

struct options {
	const char *conf;
	const char *target; /* of -t: this one only */
	bool test;
	bool dev;
};

static int serve(struct host *host, const sigset_t *set)
{
	struct err err = {0};

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (steps[i].start(host, &err) != 0) {
			int code = fail(steps[i].place, &err);

			if (stop_host(host))
				free_host(host);
			return code;
		}
	}
	log_info("ready", KS("version", BERTH_VERSION), KS("address", host->conf->listen),
		 KI("port", api_port(host->api)), KI("targets", host->registry->target_count));
	notify("READY=1");
	log_info("stopping", KS("signal", wait_for_stop(host, set) == SIGTERM ? "TERM" : "INT"));
	unblock_to_exit();
	notify("STOPPING=1");
	if (!stop_host(host)) {
		log_batch_rescue();
		fprintf(stderr, "berthd: stop: a thread is stuck\n");
		_exit(1);
	}
	free_host(host);
	log_info("stopped");
	return 0;
}

/* From here on the configuration has this target only, and its refusal is an error. */
static int take_target(struct host *host, const char *name, struct err *err)
{
	struct conf *conf = host->conf;

	for (size_t i = 0; i < conf->target_count; i++) {
		if (strcmp(conf->targets[i].name, name) != 0)
			continue;
		conf->targets[i].required = true;
		host->one = *conf;
		host->one.targets = &conf->targets[i];
		host->one.target_count = 1;
		return 0;
	}
	return err_set(err, ERR_CONFIG, "there is no target \"%.60s\"", name);
}

/* The targets' private folders are made in one on loan, so that a check needs no right to the state and leaves nothing. */
static int lend_folder(struct host *host, struct trial *trial, struct err *err)
{
	int r = trial_begin(trial, err);

	if (r != 0)
		return r;
	if (!host->one.targets)
		host->one = *host->conf;
	host->one.state_dir = trial->dir;
	return 0;
}

/* One refusal hides no other: where there is one, each target is opened by itself, in a process of its own. */
static int test_providers(struct host *host, const char *target, struct trial *trial)
{
	struct err err = {0};

	if (lend_folder(host, trial, &err) != 0)
		return fail("check", &err);
	if (start_registry(host, &err) == 0)
		return 0;
	if (!target && host->conf->target_count > 1 && trial_apart(host->conf, host->probe) > 0)
		return exit_of(&err); /* they have said why */
	return fail("providers", &err);
}

static int test_http(struct host *host, struct err *err)
{
	return api_check(host->conf, err);
}

static int test_state(struct host *host, struct err *err)
{
	return trial_look(host->conf, err);
}

/* Everything a start would check, short of opening the store and the port; of one target, what is its own. */
static int test_conf(struct host *host, const char *target)
{
	static const struct {
		const char *place;
		int (*test)(struct host *host, struct err *err);
	} tests[] = {{"limits", check_limits}, {"state", test_state}, {"http", test_http}};
	struct trial trial = {.fd = -1};
	struct err err = {0};
	struct buf dump;
	int code = 0, providers;

	if (target && take_target(host, target, &err) != 0)
		code = fail("targets", &err);
	for (size_t i = 0; !target && i < sizeof(tests) / sizeof(tests[0]); i++) {
		int failed = tests[i].test(host, &err) != 0 ? fail(tests[i].place, &err) : 0;

		code = code ? code : failed;
	}
	providers = code && target ? 0 : test_providers(host, target, &trial);
	code = code ? code : providers;
	if (code == 0) {
		buf_init(&dump, LIMIT_MIB);
		conf_dump(host->conf, true, &dump);
		fwrite(dump.ptr, 1, dump.len, stdout);
		buf_fini(&dump);
	}
	free_host(host);
	trial_end(&trial);
	return code;
}

static void print_dev_token(const struct conf *conf)
{
	for (size_t i = 0; i < conf->token_count; i++) {
		size_t len = 0;
		const void *secret = secret_ptr(conf->tokens[i].secret, &len);

		if (strcmp(conf->tokens[i].name, "dev") == 0) {
			printf("berthd: token of this run: %.*s\n", (int)len, (const char *)secret);
			fflush(stdout);
		}
	}
}

static void print_refusal(const char *sentence, void *arg)
{
	*(bool *)arg = true;
	fprintf(stderr, "berthd: configuration: %s\n", sentence);
}

static int run(const struct options *options)
{
	struct host host = {.dev = options->dev};
	struct err err = {0};
	sigset_t set;
	bool told = false;

	block_signals(&set);
	crash_install();
	if (conf_load_telling(options->conf, options->dev, print_refusal, &told, &host.conf, &err) != 0)
		return told ? EXIT_CONFIG : fail("configuration", &err);
	if (options->test)
		return test_conf(&host, options->target);
	if (options->dev)
		print_dev_token(host.conf);
	return serve(&host, &set);
}

static const char usage[] = "usage: berthd [-c FILE] [-t [--target NAME]] [--dev]\n"
			    "       berthd --describe PLUGIN | --version | --help\n"
			    "  -c, --config FILE  configuration file (default " CONF_DEFAULT ")\n"
			    "  -t, --test         check everything, print the effective configuration, exit\n"
			    "      --target NAME  with -t: check this target only\n"
			    "      --describe PLUGIN  load the file as a start would, print what it says of itself\n"
			    "      --dev          make a token for this run and print it (loopback only)\n";

static int probe(int argc, char **argv)
{
	char *end = NULL;
	long fd = argc == 5 ? strtol(argv[2], &end, 10) : -1;

	if (fd < 0 || fd > INT_MAX || !end || *end) {
		fputs("berthd: --probe: needs a descriptor, a path and a name\n", stderr);
		return EXIT_USAGE;
	}
	return loader_probe_main((int)fd, argv[3], argv[4]);
}

static int describe(const char *file)
{
	char probe_path[PATH_MAX];
	struct err err = {0};
	struct buf out;
	int code = 0;

	crash_install();
	buf_init(&out, LIMIT_MIB);
	if (find_probe(probe_path, &err) != 0 || plugin_describe(file, probe_path, &out, &err) != 0)
		code = fail("providers", &err);
	else
		fwrite(out.ptr, 1, out.len, stdout);
	buf_fini(&out);
	return code;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'}, {"test", no_argument, NULL, 't'},
		{"dev", no_argument, NULL, 'd'},	  {"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, 'h'},	  {"target", required_argument, NULL, 'T'},
		{"describe", required_argument, NULL, 'D'}, {0},
	};
	struct options options = {.conf = CONF_DEFAULT};
	int c;

	if (argc > 1 && strcmp(argv[1], "--probe") == 0)
		return probe(argc, argv);
	opterr = 0; /* in our own words below */
	while ((c = getopt_long(argc, argv, "c:th", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			options.conf = optarg;
			break;
		case 't':
			options.test = true;
			break;
		case 'd':
			options.dev = true;
			break;
		case 'T':
			options.target = optarg;
			break;
		case 'D':
			return describe(optarg);
		case 'V':
			puts("berthd " BERTH_VERSION);
			return 0;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fprintf(stderr, "berthd: %s: not an option, or its value is missing\n%s", argv[optind - 1],
				usage);
			return EXIT_USAGE;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "berthd: %s: not an option\n%s", argv[optind], usage);
		return EXIT_USAGE;
	}
	if (options.target && !options.test) {
		fprintf(stderr, "berthd: --target goes with -t\n%s", usage);
		return EXIT_USAGE;
	}
	return run(&options);
}
