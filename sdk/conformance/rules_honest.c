/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the descriptor's honesty, and of what repetition leaves behind in the host's process. */
#include "rules.h"

#include <malloc.h>

#define BATCHES 10
#define LEAK_BYTES 1024

void rule_check(struct check *check)
{
	struct err err = {0};

	MUST(check, !call_check(check_call(check), &err), "check of this target " OK_RC(err));
}

/* One operation of each capability, on something that need not be there. */
static int try_capability(struct check *check, struct session *session, uint64_t capability, struct err *err)
{
	struct call *call = check_call(check);
	const struct berth_resume resume = {
		.struct_size = sizeof(resume), .attempt = 1, .execution_id = str("never"), .handle = str("")};
	const struct berth_str path = str("never");

	switch (capability) {
	case BERTH_CAP_REATTACH:
		return call_reattach(call, &session->abi, &resume, err);
	case BERTH_CAP_SIGNAL:
		return call_signal(call, &session->abi, check_execution(check, "never", 1), BERTH_SIGNAL_TERM, err);
	case BERTH_CAP_BULK:
		return call_export(call, &session->abi, &path, 1, err);
	case BERTH_CAP_CHANGES:
		return call_mark(call, &session->abi, err);
	case BERTH_CAP_RENEW:
		return call_renew(call, &session->abi, clock_wall_ms() + 60000, err);
	case BERTH_CAP_ASSIGN_TAGS:
		return call_assign(call, &session->abi, session->workspace, session->task, err);
	default:
		return 0;
	}
}

static const struct {
	uint64_t capability;
	const char *word;
} tried[] = {
	{BERTH_CAP_REATTACH, "REATTACH"}, {BERTH_CAP_SIGNAL, "SIGNAL"}, {BERTH_CAP_BULK, "BULK"},
	{BERTH_CAP_CHANGES, "CHANGES"},	  {BERTH_CAP_RENEW, "RENEW"},	{BERTH_CAP_ASSIGN_TAGS, "ASSIGN_TAGS"},
};

void rule_declared(struct check *check)
{
	struct session *session = session_make(check, NULL);

	for (size_t i = 0; session && i < sizeof(tried) / sizeof(*tried); i++) {
		struct err err = {0};

		if (check->kit->capabilities & tried[i].capability)
			MUST(check, try_capability(check, session, tried[i].capability, &err) != ERR_UNSUPPORTED,
			     "the capability %s is declared, and its operation answers UNSUPPORTED", tried[i].word);
	}
}

/* As a host would that mistook the target: the plugin itself has to refuse. */
void rule_undeclared(struct check *check)
{
	struct session *session = session_make(check, NULL);
	uint64_t declared = check->kit->capabilities;

	for (size_t i = 0; session && i < sizeof(tried) / sizeof(*tried); i++) {
		struct err err = {0};
		int rc;

		if (declared & tried[i].capability)
			continue;
		check->kit->target->capabilities = declared | tried[i].capability;
		rc = try_capability(check, session, tried[i].capability, &err);
		check->kit->target->capabilities = declared;
		MUST(check, rc == ERR_UNSUPPORTED, "the capability %s is not declared, and its operation answers %s",
		     tried[i].word, kit_code(rc));
	}
}

void rule_isolation(struct check *check)
{
	struct session *session = session_plan(check, NULL);
	struct berth_spec spec = session_spec(session);
	uint32_t strongest = check->kit->target->isolation;

	MUST(check, strongest != BERTH_ISOLATION_UNSET, "the target does not say which isolation it gives");
	spec.isolation = strongest;
	MUST(check, !session_provision(check, session, &spec) && !session_await(check, session),
	     "a session with the target's own isolation " OK_RC(session->err));
	MUST(check, session->isolation >= strongest, "the target gives isolation %u, and its session has %u", strongest,
	     session->isolation);
}

void rule_isolation_stronger(struct check *check)
{
	struct session *session = session_plan(check, NULL);
	struct berth_spec spec = session_spec(session);

	if (check->kit->target->isolation >= BERTH_ISOLATION_MICROVM) {
		check_skip(check, "no isolation is stronger than the target's");
		return;
	}
	spec.isolation = check->kit->target->isolation + 1;
	session_provision(check, session, &spec);
	MUST(check, is_invalid(session->rc) && !strcmp(session->err.reason, "isolation"),
	     "a stronger isolation than the target's " OK_RC(session->err));
	MUST(check, session->created == 0, "an isolation was refused after the session had been created");
}

void rule_process(struct check *check)
{
	struct guard now = check->kit->guard;
	char changed[128];

	MUST(check, !guard_restore(&now, changed, sizeof(changed)), "the plugin changed the process: %s", changed);
}

/* Everything a call may leave behind: on this thread, so that its memory comes from the main arena. */
static void cycle(struct check *check, struct session *session)
{
	const struct kit_options *opt = check->kit->opt;
	struct check inner;
	struct err err = {0};

	check_init(&inner, check->kit, check->rule);
	call_find(check_call(&inner), session->workspace, session->task, &err);
	call_inspect(check_call(&inner), &session->abi, &err);
	call_list(check_call(&inner), NULL, &err);
	call_check(check_call(&inner), &err);
	for (size_t i = 0; i < sizeof(tried) / sizeof(*tried); i++)
		if ((check->kit->capabilities & tried[i].capability) && tried[i].capability != BERTH_CAP_CHANGES)
			try_capability(&inner, session, tried[i].capability, &err);
	if (!(opt->without & NEED_COMMANDS)) {
		struct run *run = run_plan(&inner, session, "echo x; exit 3");

		run_do(run);
		if (check->kit->capabilities & BERTH_CAP_REATTACH)
			call_forget(check_call(&inner), &session->abi, check_execution(&inner, run->id, run->command.attempt), &err);
	}
	if (!(opt->without & NEED_FILES)) {
		file_put(&inner, session, "leak/file", 0644, "x", 1, &err);
		file_get(&inner, session, "leak/file", 0, BERTH_SIZE_UNKNOWN, check_buf(&inner), &err);
		file_get(&inner, session, "leak/none", 0, BERTH_SIZE_UNKNOWN, check_buf(&inner), &err);
		call_file_list(check_call(&inner), &session->abi, "leak", 0, &err);
		call_file_stat(check_call(&inner), &session->abi, "leak/file", &err);
		call_file_move(check_call(&inner), &session->abi, "leak/file", "leak/moved", &err);
		call_file_remove(check_call(&inner), &session->abi, "leak", BERTH_REMOVE_RECURSIVE, &err);
	}
	check_fini(&inner);
}

static void live_and_die(struct check *check)
{
	struct check inner;

	check_init(&inner, check->kit, check->rule);
	session_make(&inner, NULL);
	check_fini(&inner);
}

static void repeat(struct check *check, struct session *session, int times)
{
	for (int i = 0; i < times; i++) {
		cycle(check, session);
		live_and_die(check);
	}
}

#define SETTLE_MS 10000

/* Each session may have had a peer of its own, whose idle connections the host's client keeps for a few seconds: what goes away
 * by itself is no leak. */
static int settled_fds(const struct check *check, int most)
{
	const struct timespec tick = {.tv_nsec = 20000000};
	int64_t until_ns = clock_after_ms(kit_ms(check->kit, SETTLE_MS));
	int count;

	while ((count = kit_count_fds()) > most && clock_boot_ns() < until_ns)
		nanosleep(&tick, NULL);
	return count;
}

void rule_leak_descriptors(struct check *check)
{
	struct session *session = session_make(check, NULL);
	int times = check->kit->opt->stress ? 500 : 10, before, after;

	if (!session)
		return;
	repeat(check, session, 2);
	before = kit_count_fds();
	repeat(check, session, times);
	after = settled_fds(check, before + times / 2 - 1);
	/* A pool that grows once is no leak; one descriptor for each repetition is. */
	MUST(check, after - before < times / 2, "%d repetitions left %d descriptors open", times, after - before);
}

void rule_leak_threads(struct check *check)
{
	struct session *session = session_make(check, NULL);
	int times = check->kit->opt->stress ? 200 : 8, before, after;

	if (!session)
		return;
	repeat(check, session, 2);
	before = kit_count_threads();
	repeat(check, session, times);
	after = kit_count_threads();
	MUST(check, after - before < times / 2, "%d repetitions left %d threads", times, after - before);
}

/* Of the sanitizers' allocators, where they are linked. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* Large pieces that the C library has mapped by themselves are counted apart. */
static int64_t memory_used(void)
{
	struct mallinfo2 info;

	if (__sanitizer_get_current_allocated_bytes)
		return (int64_t)__sanitizer_get_current_allocated_bytes() + (int64_t)hostapi_allocated();
	info = mallinfo2();
	return (int64_t)info.uordblks + (int64_t)info.hblkhd + (int64_t)hostapi_allocated();
}

void rule_leak_memory(struct check *check)
{
	struct session *session = session_make(check, NULL);
	int times = check->kit->opt->stress ? 200 : 10;
	int64_t least = INT64_MAX;
	int idle;

	if (!session)
		return;
	repeat(check, session, 3);
	idle = kit_count_fds();
	/* What grows now and then is a cache, or the noise of connections that come and go; a leak grows every time. */
	for (int batch = 0; batch < BATCHES && least >= LEAK_BYTES; batch++) {
		int64_t before = memory_used();

		repeat(check, session, times);
		settled_fds(check, idle);
		if (memory_used() - before < least)
			least = memory_used() - before;
	}
	MUST(check, least < LEAK_BYTES, "each batch of %d repetitions left at least %lld bytes allocated", times,
	     (long long)least);
}
