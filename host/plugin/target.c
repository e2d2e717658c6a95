/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One target: its private folder, open and close of its instance, health, metrics. open and close run on a thread of
 * their own so that one which hangs costs its target and not the start; they are serial per target. Readers may be any
 * thread.
 */
#include "plugin/target.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "plugin/crash.h"
#include "plugin/private.h"

#define CLOSE_LEAST_MS 1000
#define SETTLE_MOST_MS (INT64_C(366) * 24 * 3600 * 1000) /* added to times of a row, which must not overflow */

struct target *target_new(const struct conf_target *conf)
{
	struct target *target = calloc(1, sizeof(*target));
	struct target_state *ts = calloc(1, sizeof(*ts));

	if (!target || !ts) {
		free(target);
		free(ts);
		return NULL;
	}
	target->magic = TARGET_MAGIC;
	target->conf = conf;
	target->state = ts;
	lock_init(&ts->lock, LOCK_TARGET);
	cond_init(&ts->cond);
	return target;
}

void target_free(struct target *target)
{
	if (!target)
		return;
	pool_free(target->state->apart); /* joins what still leaves a call */
	settings_free(target->state);
	cond_fini(&target->state->cond);
	lock_fini(&target->state->lock);
	free(target->state->metrics);
	free(target->state->data_dir);
	free(target->state);
	target->magic = 0;
	free(target);
}

void target_refuse(struct target *target, const char *why)
{
	struct target_state *ts = target->state;

	lock_take(&ts->lock);
	ts->refused = true;
	snprintf(ts->why, sizeof(ts->why), "%s", why);
	lock_drop(&ts->lock);
}

static unsigned stuck_limit(const struct target *target)
{
	int64_t quarter = target->conf->max_operations / 4;

	return quarter > 2 ? (unsigned)quarter : 2;
}

void target_judge_locked(struct target *target)
{
	struct target_state *ts = target->state;
	bool degraded = ts->stuck >= stuck_limit(target);

	if (atomic_exchange(&ts->degraded, degraded) == degraded)
		return;
	if (degraded)
		log_error("a target is degraded: too many calls are stuck", KS("plugin", target->conf->provider),
			  KS("target", target->conf->name), KI("stuck", ts->stuck));
	else
		log_info("a target is no longer degraded", KS("plugin", target->conf->provider),
			 KS("target", target->conf->name), KI("stuck", ts->stuck));
}

bool target_is_stuck(const struct target *target)
{
	return atomic_load(&target->state->degraded);
}

void target_health(const struct target *target, struct target_health *ret)
{
	struct target_state *ts = target->state;

	memset(ret, 0, sizeof(*ret));
	lock_take(&ts->lock);
	ret->running = ts->running;
	ret->stuck = ts->stuck;
	ret->calls = ts->calls;
	ret->failures = ts->failures;
	if (ts->refused) {
		ret->degraded = true;
		snprintf(ret->why, sizeof(ret->why), "%s", ts->why);
	} else if (atomic_load(&ts->degraded)) {
		ret->degraded = true;
		snprintf(ret->why, sizeof(ret->why), "%u calls are stuck past their deadlines in plugin %s", ts->stuck,
			 target->conf->provider);
	}
	lock_drop(&ts->lock);
}

uint64_t target_changes(const struct target *target)
{
	return atomic_load(&target->state->changes);
}

static void read_metric(const struct berth_metric *desc, struct metric_state *metric, struct target_metric *ret)
{
	uint64_t bits = atomic_load_explicit(&metric->sum_bits, memory_order_relaxed), total = 0;

	*ret = (struct target_metric){
	    .name = desc->name,
	    .unit = desc->unit,
	    .doc = desc->doc,
	    .histogram = desc->type == BERTH_METRIC_HISTOGRAM,
	    .count = atomic_load_explicit(&metric->count, memory_order_relaxed),
	};
	memcpy(&ret->sum, &bits, sizeof(ret->sum));
	for (size_t i = 0; i < TARGET_BUCKETS; i++) {
		total += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
		ret->buckets[i] = total;
	}
}

void target_metrics(const struct target *target, void (*fn)(const struct target_metric *metric, void *arg), void *arg)
{
	for (size_t i = 0; target->plugin && i < target->plugin->metric_count; i++) {
		struct target_metric metric;

		read_metric(target->plugin->desc.metrics[i], &target->state->metrics[i], &metric);
		fn(&metric, arg);
	}
}

static int make_dir(const char *path, struct err *err)
{
	struct stat st;

	if (mkdir(path, 0700) && errno != EEXIST)
		return err_set(err, ERR_CONFIG, "%s: cannot be made: %s", path, strerror(errno));
	if (lstat(path, &st) || !S_ISDIR(st.st_mode))
		return err_set(err, ERR_CONFIG, "%s: expected a folder, got another kind of file", path);
	if (st.st_uid != geteuid() || (st.st_mode & 077))
		return err_set(err, ERR_CONFIG, "%s: expected a folder of uid %u with mode 0700, got uid %u, mode %04o",
			       path, (unsigned)geteuid(), (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777));
	return 0;
}

static int make_data_dir(struct target *target, const struct conf *conf, struct err *err)
{
	char path[4096];
	int rc;

	if (snprintf(path, sizeof(path), "%s/targets/%s", conf->state_dir, target->conf->name) >= (int)sizeof(path))
		return err_set(err, ERR_CONFIG, "state_dir: the path is too long");
	*strrchr(path, '/') = '\0';
	rc = make_dir(path, err);
	if (rc)
		return rc;
	path[strlen(path)] = '/';
	rc = make_dir(path, err);
	if (rc)
		return rc;
	target->state->data_dir = strdup(path);
	return target->state->data_dir ? 0 : err_set(err, ERR_NOMEM, "memory is out");
}

/* Leaked, with all it points to, when the thread does not come back. */
struct job {
	struct target *target;
	const struct plugin *plugin;
	struct call *call;
	struct berth_open_args args;
	struct berth_instance_info info;
	void *inst;
	int32_t code;
};

static void *open_main(void *arg)
{
	struct job *job = arg;

	job->call->thread = pthread_self();
	job->call->op = &op_table[OP_OPEN];
	crash_enter(job->plugin->name, "open", job->target->conf->name);
	job->code = job->plugin->ops.open(&job->args, (struct berth_call *)(void *)job->call, &job->inst, &job->info);
	crash_leave();
	return NULL;
}

static void *close_main(void *arg)
{
	struct job *job = arg;

	crash_enter(job->plugin->name, "close", job->target->conf->name);
	job->plugin->ops.close(job->inst);
	crash_leave();
	return NULL;
}

static struct berth_str str(const char *text)
{
	return (struct berth_str){.ptr = text, .len = strlen(text)};
}

static struct job *make_job(struct target *target, struct plugin *plugin, const struct conf *conf, int64_t limit_ms)
{
	struct job *job = calloc(1, sizeof(*job));
	const struct target_state *ts = target->state;

	if (!job)
		return NULL;
	job->target = target;
	job->plugin = plugin;
	job->call = call_new(target, clock_after_ms(limit_ms), NULL);
	job->info.struct_size = sizeof(job->info);
	job->info.capabilities = plugin->desc.capabilities;
	job->args = (struct berth_open_args){
	    .struct_size = sizeof(job->args),
	    .target = (struct berth_target *)(void *)target,
	    .name = str(target->conf->name),
	    .deployment = str(conf->deployment),
	    .region = str(target->conf->region),
	    .data_dir = str(ts->data_dir),
	    .helper_dir = str(conf->helper_dir),
	    .options = ts->options,
	    .option_count = ts->option_count,
	};
	if (!job->call) {
		free(job);
		return NULL;
	}
	return job;
}

static void free_job(struct job *job)
{
	job->call->op = NULL;
	call_free(job->call);
	free(job);
}

static const struct {
	uint32_t level;
	const char *word;
} isolations[] = {
	{BERTH_ISOLATION_UNSET, ""},
	{BERTH_ISOLATION_NONE, "none"},
	{BERTH_ISOLATION_CONTAINER, "container"},
	{BERTH_ISOLATION_GVISOR, "gvisor"},
	{BERTH_ISOLATION_MICROVM, "microvm"},
};

const char *isolation_word(uint32_t level)
{
	for (size_t i = 0; i < sizeof(isolations) / sizeof(isolations[0]); i++) {
		if (isolations[i].level == level)
			return isolations[i].word;
	}
	return NULL;
}

uint32_t isolation_level(const char *word)
{
	for (size_t i = 0; i < sizeof(isolations) / sizeof(isolations[0]); i++) {
		if (strcmp(isolations[i].word, word) == 0)
			return isolations[i].level;
	}
	return BERTH_ISOLATION_UNSET;
}

static int take_info(struct target *target, const struct plugin *plugin, const struct berth_instance_info *info,
		     struct err *err)
{
	uint64_t capabilities = info->capabilities & BERTH_CAP_ALL; /* of a later minor: not known here */
	uint32_t wanted = isolation_level(target->conf->isolation);

	if (capabilities & ~plugin->desc.capabilities)
		return err_set(err, ERR_CONFIG, "target %s: expected capabilities within %#llx, got %#llx from open",
			       target->conf->name, (unsigned long long)plugin->desc.capabilities,
			       (unsigned long long)capabilities);
	if (info->create_settle_ms < 0 || !isolation_word(info->isolation) || info->reserved || info->reserved2)
		return err_set(err, ERR_CONFIG,
			       "target %s: got settle time %lld, isolation %u and reserved %u, %u from open",
			       target->conf->name, (long long)info->create_settle_ms, info->isolation, info->reserved,
			       info->reserved2);
	if (info->create_settle_ms > SETTLE_MOST_MS)
		return err_set(err, ERR_CONFIG, "target %s: expected a settle time of at most a year, got %lld ms from open",
			       target->conf->name, (long long)info->create_settle_ms);
	if (info->isolation < wanted)
		return err_set(err, ERR_CONFIG, "target %s: expected isolation %s, its provider gives %s",
			       target->conf->name, isolation_word(wanted),
			       info->isolation ? isolation_word(info->isolation) : "none it names");
	if ((capabilities & BERTH_CAP_NATIVE_POOL) && target->conf->warm)
		return err_set(err, ERR_CONFIG,
			       "target %s: expected warm 0, its provider keeps warm sessions itself, got %lld",
			       target->conf->name, (long long)target->conf->warm);
	/* Warm sessions are of no use where it cannot be told whose they became. */
	if (!(capabilities & BERTH_CAP_ASSIGN_TAGS) && target->conf->warm)
		return err_set(err, ERR_CONFIG,
			       "target %s: expected warm 0, its provider cannot assign warm sessions, got %lld",
			       target->conf->name, (long long)target->conf->warm);
	target->capabilities = capabilities;
	target->create_settle_ms = info->create_settle_ms;
	target->isolation = info->isolation;
	target->isolation_wanted = wanted;
	return 0;
}

/* Runs fn(job) on a thread; false when it did not come back, and then nothing of it may be touched again. */
static bool run_job(struct job *job, const char *what, void *(*fn)(void *), int64_t deadline_ns)
{
	struct guard guard;
	char name[16], changed[128];
	pthread_t thread;
	bool back;

	snprintf(name, sizeof(name), "%s:%.9s", what, job->target->conf->name);
	guard_take(&guard);
	if (thread_start(&thread, name, fn, job)) {
		fn(job);
		back = true;
	} else {
		back = thread_join_until(thread, deadline_ns);
	}
	if (guard_restore(&guard, changed, sizeof(changed)))
		log_warn("a plugin changed the process; it was put back", KS("plugin", job->plugin->name),
			 KS("target", job->target->conf->name), KS("operation", what), KS("changed", changed));
	guard_drop(&guard);
	return back;
}

static int open_instance(struct target *target, struct plugin *plugin, const struct conf *conf, int64_t limit_ms,
			 struct err *err)
{
	struct job *job = make_job(target, plugin, conf, limit_ms);
	int rc;

	if (!job)
		return err_set(err, ERR_NOMEM, "memory is out");
	target->plugin = plugin; /* the secret service asks for its table */
	if (!run_job(job, "open", open_main, job->call->deadline_ns)) {
		target->plugin = NULL;
		target->state->lost = true;
		return err_set(err, ERR_PROVIDER_TIMEOUT,
			       "target %s: open of plugin %s did not come back within %lld ms", target->conf->name,
			       plugin->name, (long long)limit_ms);
	}
	rc = call_judge(job->call, job->code, err);
	if (!rc) {
		target->inst = job->inst;
		target->state->opened = true;
		rc = take_info(target, plugin, &job->info, err);
	}
	free_job(job);
	if (rc && target->state->opened)
		target_close(target, clock_after_ms(limit_ms));
	if (rc)
		target->plugin = NULL;
	return rc;
}

int target_open(struct target *target, struct plugin *plugin, const struct conf *conf, int64_t limit_ms,
		struct err *err)
{
	struct target_state *ts = target->state;
	int rc = settings_build(target, plugin, err);

	if (rc || (rc = make_data_dir(target, conf, err)))
		return rc;
	ts->metrics = calloc(plugin->metric_count + 1, sizeof(*ts->metrics));
	ts->apart = pool_new("call", (unsigned)target->conf->max_operations, (unsigned)target->conf->max_operations);
	if (!ts->metrics || !ts->apart)
		return err_set(err, ERR_NOMEM, "memory is out");
	return open_instance(target, plugin, conf, limit_ms, err);
}

bool target_close(struct target *target, int64_t deadline_ns)
{
	struct job *job = calloc(1, sizeof(*job));
	int64_t least = clock_after_ms(CLOSE_LEAST_MS);
	bool back;

	if (!job)
		return false;
	job->target = target;
	job->plugin = target->plugin;
	job->inst = target->inst;
	http_end(target->state);
	back = run_job(job, "close", close_main, deadline_ns > least ? deadline_ns : least);
	target->state->lost = !back;
	if (!back)
		return false;
	free(job);
	target->state->opened = false;
	return true;
}
