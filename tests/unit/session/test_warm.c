/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warm entries and sessions that were found at the provider: the pure judgements, then the whole on the real store and the mock
 * provider: O2, L4, L6 (pool of one), a lost store, and a host killed at every step of a pool.
 */
#include "world.h"

#include <signal.h>
#include <sys/wait.h>

#include "session/warm.h"

static struct world w;

/* ---- pure ---- */

static void an_old_or_unfit_entry_is_not_given_out(void **state)
{
	struct warm_entry entry = {.state = WARM_READY, .pool_key = "k", .made_ms = 1000, .expires_ms = 101000};

	(void)state;
	assert_false(warm_is_old(&entry, 50999));
	assert_true(warm_is_old(&entry, 51000));
	assert_true(warm_fits(&entry, "k", 2000, 1000, 98000));
	assert_false(warm_fits(&entry, "k", 2000, 1000, 98001));
	assert_false(warm_fits(&entry, "other", 2000, 1000, 1));
	assert_false(warm_fits(&entry, "k", 51000, 1000, 1));
	entry.expires_ms = 0;
	assert_true(warm_fits(&entry, "k", INT64_MAX / 2, 1000, INT64_MAX / 4));
	entry.state = WARM_RESERVED;
	assert_false(warm_fits(&entry, "k", 2000, 1000, 1));
	assert_true(warm_counts(WARM_MAKING) && warm_counts(WARM_READY) && warm_counts(WARM_RELEASING));
	assert_false(warm_counts(WARM_RESERVED) || warm_counts(WARM_ABSENT));
}

#define MS CLOCK_NS_PER_MS

static void a_pool_gives_way_to_a_crowd_and_not_for_ever(void **state)
{
	struct warm_pool pool = {.making = 2};
	int64_t crowd = 5000 * MS, again = 0;

	(void)state;
	/* Long ago: as many as may be made at once. */
	assert_int_equal(warm_pace(&pool, crowd, crowd + 100 * MS, &again), WARM_MAKING_MAX - 2);
	assert_int_equal(pool.put_off_ns, 0);
	/* Now: later, and asked again when the crowd may be gone. */
	assert_int_equal(warm_pace(&pool, crowd, crowd, &again), 0);
	assert_int_equal(again, crowd + 100 * MS);
	assert_int_equal(warm_pace(&pool, crowd + 1950 * MS, crowd + 1950 * MS, &again), 0);
	assert_int_equal(again, crowd + 2000 * MS);
	/* It stays: the pool has waited for long enough, until it is full once. */
	assert_int_equal(warm_pace(&pool, crowd + 2000 * MS, crowd + 2000 * MS, &again), WARM_MAKING_MAX / 4 - 2);
	pool.put_off_ns = 0;
	assert_int_equal(warm_pace(&pool, crowd + 2050 * MS, crowd + 2050 * MS, &again), 0);
	/* What else holds it up needs no clock of its own. */
	pool = (struct warm_pool){.making = WARM_MAKING_MAX};
	assert_int_equal(warm_pace(&pool, crowd, crowd + 9000 * MS, &again), 0);
	assert_true(again == INT64_MAX);
	pool = (struct warm_pool){.fails = 1, .next_ns = crowd + 9000 * MS};
	assert_int_equal(warm_pace(&pool, crowd, crowd + 8000 * MS, &again), 0);
	assert_int_equal(warm_pace(&pool, crowd, crowd + 9000 * MS, &again), 1);
}

static void a_pool_makes_fewer_at_once_while_a_crowd_stays(void **state)
{
	struct warm_pool pool = {.put_off_ns = 1};
	int64_t now = 5000 * MS, again = 0;

	(void)state;
	/* Each time half, down to a few: never none. */
	for (size_t most = WARM_MAKING_MAX / 2; most >= 2; most /= 2, now += 100 * MS) {
		assert_int_equal(warm_pace(&pool, now, now, &again), most);
		assert_int_equal(warm_pace(&pool, now + 99 * MS, now + 99 * MS, &again), most);
	}
	assert_int_equal(warm_pace(&pool, now, now + 50 * MS, &again), 2);
	warm_pace_made(&pool, warm_pace_is_crowd(now, now + 50 * MS));
	assert_int_equal(warm_pace(&pool, now, now + 100 * MS, &again), 2);
	/* It is gone: one more for each that was made, up to what is allowed. */
	for (size_t most = 3; most < WARM_MAKING_MAX + 5; most++) {
		warm_pace_made(&pool, warm_pace_is_crowd(now, now + 100 * MS));
		assert_int_equal(warm_pace(&pool, now, now + 100 * MS, &again), most < WARM_MAKING_MAX ? most : WARM_MAKING_MAX);
	}
}

static void only_what_no_row_names_is_claimed(void **state)
{
	const struct binding_session session = {.ref = "r", .sealed_state = "", .boot_id = "", .root = "", .isolation = ""};
	const struct binding_found found = {.fence = 50, .incarnation = 51, .target = "one", .region = "", .intent = "t",
					    .session = &session};
	struct arena *arena = arena_new(1 << 20);
	struct ident ident = {"ws", "task"};
	struct binding b;

	(void)state;
	assert_int_equal(binding_decode(arena, &ident, NULL, 0, &b, NULL), 0);
	assert_true(binding_claim_orphan(arena, &b, 1000, &found, NULL));
	assert_int_equal(b.state, BINDING_RELEASING);
	assert_int_equal(b.fence, 50);
	assert_false(binding_claim_orphan(arena, &b, 1000, &found, NULL));

	b.ref = "other";
	assert_false(binding_claim_orphan(arena, &b, 1000, &found, NULL)); /* its token */
	b.intent = "u";
	assert_false(binding_claim_orphan(arena, &b, 1000, &found, NULL)); /* on the move */
	b.state = BINDING_LIVE;
	b.target = "two";
	assert_false(binding_claim_orphan(arena, &b, 1000, &found, NULL));
	b.target = "one";
	b.superseded = (const char *[]){"t"};
	b.superseded_count = 1;
	assert_true(binding_claim_orphan(arena, &b, 1000, &found, NULL));
	assert_int_equal(b.state, BINDING_LIVE);
	assert_int_equal(b.stray_count, 1);
	assert_string_equal(b.strays[0].ref, "r");
	assert_string_equal(b.ref, "other");
	arena_free(arena);
}

/* ---- the whole ---- */

/* One target's numbers agree, and its pool holds so many. */
static bool is_full(const char *text, size_t count)
{
	const char *at = strstr(text, "\"provider_sessions\":");
	size_t sessions = 0, bindings = 0, warm = 0;

	return at &&
	       sscanf(at, "\"provider_sessions\":%zu,\"bindings\":%zu,\"warm\":%zu", &sessions, &bindings, &warm) == 3 &&
	       warm == count && sessions == bindings + warm;
}

static bool count_one(const struct store_row *row, void *arg)
{
	(void)row;
	(*(size_t *)arg)++;
	return true;
}

static int count_ready(struct txn *txn, void *arg, struct err *err)
{
	*(size_t *)arg = 0;
	return txn_scan(txn, STORE_WARM, "one/ready", "", false, SIZE_MAX, count_one, arg, err);
}

static bool filled(size_t count)
{
	int64_t deadline = clock_after_ms(WAIT_MS);
	bool full = false;

	while (!full && clock_left_ms(deadline) > 0) {
		struct err err = {0};
		struct buf buf;
		size_t ready = 0;
		bool ok = false;

		buf_init(&buf, 1 << 20);
		full = store_view(w.store, count_ready, &ready, &err) == 0 && ready == count &&
		       session_verify(w.s, clock_after_ms(WAIT_MS), &buf, &ok, &err) == 0 && ok && is_full(buf.ptr, count);
		buf_fini(&buf);
	}
	return full;
}

static void use(const char *task)
{
	struct session_hold *hold;
	struct err err = {0};

	assert_int_equal(world_acquire(&w, task, "op_1", &hold, &err), 0);
	world_release(&w, hold);
}

static void tear_down(const char *task)
{
	struct ident ident = world_ident(task);
	struct err err = {0};
	bool gone;

	assert_int_equal(session_teardown(w.s, &ident, true, clock_after_ms(WAIT_MS), &gone, &err), 0);
	assert_true(gone);
}

static void l6_a_used_session_never_returns_to_a_pool_of_one(void **state)
{
	char first[64], second[64];

	(void)state;
	w.targets[0].warm = 1;
	world_up(&w);
	assert_true(filled(1));
	assert_int_equal(world_sessions(&w, first), 1);
	use("a");
	assert_true(filled(1));
	assert_int_equal(world_sessions(&w, NULL), 2);
	tear_down("a");
	assert_int_equal(world_sessions(&w, second), 1);
	assert_string_not_equal(first, second);
	use("b");
	assert_true(filled(1));
	assert_int_equal(world_counter(&w, "created"), 3);
	assert_int_equal(world_counter(&w, "assign"), 2);
}

static void pretend_crowd(int by)
{
	lock_take(&w.s->lock);
	w.s->provisioning += (size_t)by;
	lock_drop(&w.s->lock);
}

/* The crowd never goes: what was put off is made all the same. */
static void a_pool_is_filled_beside_a_crowd_too(void **state)
{
	int64_t begin;

	(void)state;
	w.targets[0].warm = 1;
	world_up(&w);
	assert_true(filled(1));
	pretend_crowd(100);
	begin = clock_boot_ns();
	use("a");
	assert_true(filled(1));
	assert_true(clock_boot_ns() - begin >= 2000 * MS);
	assert_int_equal(world_sessions(&w, NULL), 2);
	pretend_crowd(-100);
	use("b");
	assert_true(filled(1));
}

static void an_adoption_gives_the_reservation_back(void **state)
{
	(void)state;
	w.targets[0].warm = 1;
	world_up(&w);
	assert_true(filled(1));
	world_plant(&w, "found", "mock-00000000000000aa", "someone", 0);
	use("found");
	assert_true(world_says(&w, "found", "\"state\":\"live\""));
	/* Its slot may have been filled meanwhile; then one of the two is let go. */
	assert_true(filled(1));
	assert_int_equal(world_counter(&w, "assign"), 0);
	assert_int_equal(world_sessions(&w, NULL), 2);
}

static void nothing_but_orphans_is_swept_and_only_after_recover(void **state)
{
	struct err err = {0};
	int64_t lists;

	(void)state;
	w.conf.scheduling_ms = w.conf.starting_ms = 500; /* what is planted was made five seconds ago */
	w.targets[0].warm = 1;
	world_up(&w);
	assert_true(filled(1));
	use("mine");
	assert_true(filled(1));
	world_plant(&w, "nobody", "mock-00000000000000aa", "someone", 0);
	world_plant(&w, "mine", "mock-00000000000000bb", "someone", 0);
	lists = world_counter(&w, "list");
	for (int64_t end = clock_after_ms(WAIT_MS); world_counter(&w, "list") < lists + 10 && clock_left_ms(end) > 0;)
		session_kick_gc(w.s);
	assert_int_equal(world_sessions(&w, NULL), 4);
	assert_int_equal(session_recover(w.s, &err), 0);
	assert_true(world_until(&w, "nobody", "\"state\":\"gone\""));
	assert_true(filled(1));
	assert_int_equal(world_sessions(&w, NULL), 2);
	assert_true(world_says(&w, "mine", "\"state\":\"live\""));
}

struct damage {
	const char *key;
	bool whole; /* not to be read at all; else its fence is one that this store never gave */
};

static int damage_step(struct txn *txn, void *arg, struct err *err)
{
	const struct damage *damage = arg;
	struct store_row row;
	char doc[4096];
	char *fence, *rest;
	int r = txn_get(txn, STORE_TASK, damage->key, &row, err);

	if (r || !row.doc || row.doc_len + 32 > sizeof(doc))
		return ERR_NOT_FOUND;
	memcpy(doc, row.doc, row.doc_len);
	doc[row.doc_len] = '\0';
	fence = strstr(doc, "\"fence\":");
	if (!fence)
		return ERR_NOT_FOUND;
	rest = strdup(fence + 8 + strspn(fence + 8, "0123456789"));
	snprintf(fence + 8, sizeof(doc) - (size_t)(fence + 8 - doc), "9000000000000000000%s", rest);
	free(rest);
	row.doc = doc;
	row.doc_len = damage->whole ? 5 : strlen(doc);
	return txn_put(txn, STORE_TASK, &row, err);
}

static void a_damaged_row_stops_the_sweep_of_its_own_task_only(void **state)
{
	struct err err = {0};

	(void)state;
	w.conf.scheduling_ms = w.conf.starting_ms = 500;
	world_up(&w);
	use("beyond");
	use("unreadable");
	tear_down("beyond");
	tear_down("unreadable");
	assert_int_equal(store_update(w.store, damage_step, &(struct damage){"ws/beyond", false}, &err), 0);
	assert_int_equal(store_update(w.store, damage_step, &(struct damage){"ws/unreadable", true}, &err), 0);
	world_plant(&w, "beyond", "mock-00000000000000aa", "someone", 0);
	world_plant(&w, "unreadable", "mock-00000000000000bb", "someone", 0);
	world_plant(&w, "nobody", "mock-00000000000000cc", "someone", 0);
	assert_int_equal(session_recover(w.s, &err), 0);
	assert_true(world_until(&w, "nobody", "\"state\":\"gone\""));
	assert_int_equal(world_sessions(&w, NULL), 2);
}

/* Nobody can tell whether its task still has what was reserved for it. */
static void a_damaged_row_keeps_its_reservation_and_stops_no_sweep(void **state)
{
	struct err err = {0};

	(void)state;
	w.conf.scheduling_ms = w.conf.starting_ms = 500;
	w.targets[0].warm = 1;
	world_up(&w);
	assert_true(filled(1));
	use("unreadable");
	assert_true(filled(1));
	assert_int_equal(store_update(w.store, damage_step, &(struct damage){"ws/unreadable", true}, &err), 0);
	world_down(&w, 5000);
	world_up(&w);
	world_plant(&w, "nobody", "mock-00000000000000aa", "someone", 0);
	assert_int_equal(session_recover(w.s, &err), 0);
	assert_true(world_until(&w, "nobody", "\"state\":\"gone\""));
	assert_int_equal(world_sessions(&w, NULL), 2);
}

static void lose_store(void)
{
	static const char *const ends[] = {"", "-wal", "-shm"};

	world_down(&w, 5000);
	for (size_t i = 0; i < 3; i++) {
		char path[200];

		snprintf(path, sizeof(path), "%s%s", w.paths[0], ends[i]);
		unlink(path);
	}
}

static void q2_a_lost_store_adopts_what_is_there(void **state)
{
	(void)state;
	world_up(&w);
	use("t1");
	use("t2");
	lose_store();
	world_up(&w);
	assert_true(world_until(&w, "t1", "\"stage\":\"idle\""));
	assert_true(world_until(&w, "t2", "\"stage\":\"idle\""));
	use("t1");
	assert_true(world_agrees(&w));
	assert_int_equal(world_counter(&w, "created"), 2);
	assert_int_equal(world_counter(&w, "removed"), 0);
}

/* With the store went the knowledge whether they were given to a task. */
static void q2_warm_sessions_of_a_lost_store_are_replaced(void **state)
{
	char before[64], after[64];
	struct err err = {0};

	(void)state;
	w.conf.scheduling_ms = w.conf.starting_ms = 500;
	w.targets[0].warm = 1;
	world_up(&w);
	assert_true(filled(1));
	assert_int_equal(world_sessions(&w, before), 1);
	lose_store();
	world_up(&w);
	assert_int_equal(session_recover(w.s, &err), 0);
	assert_true(filled(1));
	assert_int_equal(world_sessions(&w, after), 1);
	assert_string_not_equal(before, after);
	assert_int_equal(world_counter(&w, "created"), 2);
}

static bool is_there(const char *ref)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/sessions/%s", w.paths[1], ref);
	return access(path, F_OK) == 0;
}

static void wait_vanished(const char *ref)
{
	for (int64_t end = clock_after_ms(WAIT_MS); is_there(ref) && clock_left_ms(end) > 0;)
		poll(NULL, 0, 5);
	assert_false(is_there(ref));
}

static void wait_rounds(long count)
{
	long last = world_counter(&w, "list") + count;

	for (int64_t end = clock_after_ms(WAIT_MS); world_counter(&w, "list") < last && clock_left_ms(end) > 0;)
		poll(NULL, 0, 5);
	assert_true(world_counter(&w, "list") >= last);
}

static void q2_what_cannot_be_asked_stops_the_sweep_of_nothing_else(void **state)
{
	static const char hung[] = "mock-00000000000000aa";
	char nameless[64];
	struct err err = {0};

	(void)state;
	w.conf.scheduling_ms = w.conf.starting_ms = 500;
	w.targets[0].warm = 1;
	world_up(&w);
	assert_true(filled(1));
	assert_int_equal(world_sessions(&w, nameless), 1);
	w.plant_ready_ms = clock_wall_ms() + 20 * WAIT_MS;
	world_plant(&w, "hung", hung, "someone", 0);
	world_faults(&w, "inspect task=ws/hung code=UNAVAILABLE\n");
	lose_store();
	world_up(&w);
	wait_rounds(3);
	assert_int_equal(session_recover(w.s, &err), 0);
	wait_vanished(nameless);
	wait_rounds(3);
	assert_false(world_says(&w, "hung", "state"));
	assert_true(is_there(hung));
	/* It is asked again. */
	world_faults(&w, "");
	assert_true(world_until(&w, "hung", "\"state\":\"gone\""));
	wait_vanished(hung);
	assert_true(filled(1));
}

/* ---- kills ---- */

static void child(const char *failpoint)
{
	struct session_hold *hold;
	struct err err = {0};

	alarm(60);
	world_failpoint(&w, failpoint);
	world_up(&w);
	if (!filled(2))
		_exit(2);
	if (world_acquire(&w, "crash", "op_1", &hold, &err))
		_exit(3);
	world_release(&w, hold);
	_exit(filled(2) ? 0 : 4);
}

static void killed_at_every_step_of_a_pool(void **state)
{
	static const char *const points[] = {"warm.created kill 1",    "warm.created kill 3",    "warm.reserved kill",
					     "assign.before kill",     "assign.after kill",      "store.commit.after kill 4",
					     "store.commit.before kill 6", "store.commit.after kill 9", "store.commit.after kill 12"};

	(void)state;
	/* What the dead process held is freed because it is dead, not because its time is up. */
	w.conf.operation_ttl_ms = w.conf.owner_ttl_ms = w.conf.claim_ttl_ms = 4 * WAIT_MS;
	w.targets[0].warm = 2;
	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		pid_t pid = fork();
		int status = 0;

		if (pid == 0)
			child(points[i]);
		assert_true(pid > 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
		assert_true(WIFSIGNALED(status) || strncmp(points[i], "store.", 6) == 0 || i == 1);
		w.starts++;
		world_up(&w);
		assert_true(filled(2));
		use("crash");
		assert_true(filled(2));
		assert_int_equal(world_sessions(&w, NULL), 3);
		tear_down("crash");
		assert_true(filled(2));
		assert_int_equal(world_sessions(&w, NULL), 2);
		world_down(&w, 5000);
	}
}

static bool is_made(size_t *ret_fails)
{
	const struct warm_pool *pool = &w.s->pools[0];
	size_t ready = 0;
	bool made;

	lock_take(&w.s->lock);
	made = pool->making == 0;
	*ret_fails = (size_t)pool->fails;
	lock_drop(&w.s->lock);
	return store_view(w.s->config.store, count_ready, &ready, NULL) == 0 && ready == 1 && made;
}

/* No answer to a write comes from before the entry is made ready until the job has gone on from there. */
static void made_unheard(void)
{
	size_t ready = 0, fails = 0;

	alarm(60);
	world_failpoint(&w, "");
	world_faults(&w, "await_ready nth=1 delay=2s\n");
	world_up(&w);
	while (world_counter(&w, "await_ready") == 0)
		poll(NULL, 0, 5);
	world_failpoint(&w, "store.commit.after error");
	while (store_view(w.s->config.store, count_ready, &ready, NULL) || ready == 0)
		poll(NULL, 0, 5);
	world_failpoint(&w, "");
	while (!is_made(&fails))
		poll(NULL, 0, 5);
	_exit(fails == 0 ? 0 : 3);
}

static void q1_a_session_that_was_made_ready_unheard_is_no_failure(void **state)
{
	int status = 0;
	pid_t pid;

	(void)state;
	w.targets[0].warm = 1;
	pid = fork();
	if (pid == 0)
		made_unheard();
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
#define TEST(fn) cmocka_unit_test_prestate_setup_teardown(fn, world_setup_made, world_teardown, &w)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_old_or_unfit_entry_is_not_given_out),
		cmocka_unit_test(a_pool_gives_way_to_a_crowd_and_not_for_ever),
		cmocka_unit_test(a_pool_makes_fewer_at_once_while_a_crowd_stays),
		cmocka_unit_test(only_what_no_row_names_is_claimed),
		TEST(l6_a_used_session_never_returns_to_a_pool_of_one),
		TEST(a_pool_is_filled_beside_a_crowd_too),
		TEST(an_adoption_gives_the_reservation_back),
		TEST(nothing_but_orphans_is_swept_and_only_after_recover),
		TEST(a_damaged_row_stops_the_sweep_of_its_own_task_only),
		TEST(a_damaged_row_keeps_its_reservation_and_stops_no_sweep),
		TEST(q2_a_lost_store_adopts_what_is_there),
		TEST(q2_warm_sessions_of_a_lost_store_are_replaced),
		TEST(q2_what_cannot_be_asked_stops_the_sweep_of_nothing_else),
		TEST(killed_at_every_step_of_a_pool),
		TEST(q1_a_session_that_was_made_ready_unheard_is_no_failure),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
