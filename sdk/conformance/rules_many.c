/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule of operations that take as long as the files are many: each hears its deadline, and a STOP that another
 * thread gives. A right plugin must not fail it on a slow machine: one that was told to stop and is slow to do so has
 * seconds, one that did all of the work nevertheless is judged sooner, and both only when they do it every time.
 */
#include "rules.h"

#define ENTRIES 20000
/* Fewer: what has been taken of an archive is written and cleared away by then, and a slow machine needs long for it.
 */
#define ARCHIVE_ENTRIES 2000
#define LIMIT_MS 50
/* A plugin without a descriptor for cancels looks four times a second. */
#define DONE_LATE_MS 500
#define LATE_MS 2000
#define ROUNDS 3

struct scene {
	struct check *check;
	struct session *session;
	struct buf *tar;
};

/* One call, from its begin to the end of what tells it to stop. */
struct attempt {
	struct call *call;
	int64_t told_ns; /* the deadline, or when it was cancelled; 0 = not yet */
	size_t at;	 /* of the archive */
	const struct buf *tar;
	struct lock lock; /* LOCK_LEAF: told_ns, over */
	struct cond cond;
	bool over;
};

struct work {
	const char *word;
	uint64_t capability;
	unsigned folders, stress_folders; /* of ENTRIES files each */
	bool spends;			  /* what it worked on is not there any more */
	int (*fn)(const struct scene *scene, struct call *call, const char *path, struct err *err);
};

static int do_list(const struct scene *scene, struct call *call, const char *path, struct err *err)
{
	return call_file_list(call, &scene->session->abi, path, BERTH_LIST_RECURSIVE, err);
}

static int do_remove(const struct scene *scene, struct call *call, const char *path, struct err *err)
{
	return call_file_remove(call, &scene->session->abi, path, BERTH_REMOVE_RECURSIVE, err);
}

static int do_import(const struct scene *scene, struct call *call, const char *path, struct err *err)
{
	return call_import(call, &scene->session->abi, path, err);
}

/* BERTH_RESULTS_MAX is the most that one list may hold. */
static const struct work works[] = {
	{"file_list", 0, 1, 4, false, do_list},
	{"file_remove", 0, 1, 15, true, do_remove},
	{"import_tar", BERTH_CAP_BULK, 0, 0, true, do_import},
};

static int give(void *arg, void *buf, size_t cap, size_t *ret_len)
{
	struct attempt *attempt = arg;
	size_t left = attempt->tar->len - attempt->at;

	*ret_len = left < cap ? left : cap;
	if (*ret_len)
		memcpy(buf, attempt->tar->ptr + attempt->at, *ret_len);
	attempt->at += *ret_len;
	return 0;
}

/* The plugins of tests know the trees by this name. */
static const char *make_tree(const struct scene *scene, unsigned folders)
{
	struct check *check = scene->check;
	const char *dir = check_printf(check, "many-%s", file_dir(check));
	struct run *run = run_plan(check, scene->session,
				   check_printf(check,
						"mkdir %s && cd %s && for d in $(seq 1 %u); do mkdir f$d && (cd f$d && "
						"touch $(seq 1 %d)) || exit 1; done",
						dir, dir, folders, ENTRIES));

	run->command.timeout_ms = kit_ms(check->kit, 240000);
	run->limit_ms = kit_ms(check->kit, 300000);
	run_do(run);
	if (run_exited(run, 0))
		return dir;
	/* Memory or disk of the session are the target's affair. */
	check_skip(check, "the session does not hold %u files: making them ended with %s", folders * ENTRIES,
		   run_ending_word(run));
	return NULL;
}

static void *stop_soon(void *arg)
{
	struct attempt *attempt = arg;
	int64_t at_ns = clock_after_ms(LIMIT_MS);

	lock_take(&attempt->lock);
	while (!attempt->over && cond_wait_until(&attempt->cond, &attempt->lock, at_ns))
		;
	if (!attempt->over)
		attempt->told_ns = clock_boot_ns();
	lock_drop(&attempt->lock);
	if (attempt->told_ns)
		call_cancel(attempt->call, BERTH_CANCEL_STOP);
	return NULL;
}

static void told_over(struct attempt *attempt, pthread_t thread)
{
	lock_take(&attempt->lock);
	attempt->over = true;
	cond_wake_all(&attempt->cond);
	lock_drop(&attempt->lock);
	pthread_join(thread, NULL);
}

/* How long it went on after it was told; 0 when it was done before. */
static int64_t go_on_ms(const struct scene *scene, const struct work *work, const char *path, bool by_stop, int *ret_rc,
			struct err *err)
{
	struct attempt attempt = {.tar = scene->tar};
	const struct call_sink sink = {.read = give, .arg = &attempt};
	int64_t deadline_ns = clock_after_ms(by_stop ? kit_ms(scene->check->kit, 60000) : LIMIT_MS), end_ns;
	pthread_t thread;

	lock_init(&attempt.lock, LOCK_LEAF);
	cond_init(&attempt.cond);
	attempt.call = call_new(scene->check->kit->target, deadline_ns, &sink);
	if (!attempt.call || (by_stop && thread_start(&thread, "stop", stop_soon, &attempt)))
		abort();
	*ret_rc = work->fn(scene, attempt.call, path, err);
	end_ns = clock_boot_ns();
	if (by_stop)
		told_over(&attempt, thread);
	else
		attempt.told_ns = deadline_ns;
	call_free(attempt.call);
	cond_fini(&attempt.cond);
	lock_fini(&attempt.lock);
	return attempt.told_ns && end_ns > attempt.told_ns ? (end_ns - attempt.told_ns) / CLOCK_NS_PER_MS : 0;
}

/* Every time: the least by which it was late. 0: at least once it was not. */
static int64_t late_ms(const struct scene *scene, const struct work *work, bool by_stop)
{
	struct check *check = scene->check;
	unsigned folders = check->kit->opt->stress ? work->stress_folders : work->folders;
	int64_t least = INT64_MAX;
	const char *path = NULL;

	for (int round = 0; round < ROUNDS && least; round++) {
		struct err err = {0};
		int64_t late;
		int rc;

		if (!path || work->spends)
			path = folders ? make_tree(scene, folders) : check_printf(check, "many-%s", file_dir(check));
		if (!path)
			return 0;
		late = go_on_ms(scene, work, path, by_stop, &rc, &err);
		MUST_OR(check, rc != ERR_INTERNAL, 0, "%s that was told to stop " OK_FMT, work->word, OK_ARGS(err));
		if (late <= kit_ms(check->kit, rc ? LATE_MS : DONE_LATE_MS))
			late = 0;
		least = late < least ? late : least;
	}
	return least;
}

static void fill_archive(struct buf *tar)
{
	char name[16];

	for (int i = 0; i < ARCHIVE_ENTRIES; i++) {
		snprintf(name, sizeof(name), "%d", i);
		file_tar_entry(tar, name, '0', "", 0644, NULL, 0);
	}
	file_tar_end(tar);
}

/* All that is deaf is named, not only the first. The session is its own, since what is left in it would slow others. */
void rule_deadline_files(struct check *check)
{
	struct scene scene = {.check = check, .session = session_make(check, NULL), .tar = check_buf(check)};
	const char *deaf = "";

	if (!scene.session)
		return;
	fill_archive(scene.tar);
	for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++)
		for (int by_stop = 0; by_stop < 2 && check->verdict == PASSED; by_stop++) {
			int64_t late = works[i].capability & ~check->kit->capabilities
					       ? 0
					       : late_ms(&scene, &works[i], by_stop);

			if (late)
				deaf = check_printf(check, "%s%s%s goes on for %lld ms after %s", deaf,
						    *deaf ? ", " : "", works[i].word, (long long)late,
						    by_stop ? "a STOP" : "its deadline");
		}
	MUST(check, !*deaf, "%s", deaf);
}
