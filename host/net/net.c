/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the service: its limit of descriptors, its loops, and the way of each exchange through the other files. Any
 * thread. Counts what it reserves rather than what is open, so that a limit is an answer and never EMFILE.
 */
#include "net/net.h"

#include <assert.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/log.h"
#include "net/private.h"

#define LIMIT_LEAST 64

static uint64_t own_limit(const struct net_config *config)
{
	struct rlimit limit;

	if (config->descriptors)
		return config->descriptors;
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_cur > config->reserved + LIMIT_LEAST ? limit.rlim_cur - config->reserved : LIMIT_LEAST;
}

static unsigned own_loops(unsigned wanted)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);

	if (!wanted)
		wanted = processors > 2 ? (unsigned)processors : 2;
	return wanted < NET_LOOPS_MAX ? wanted : NET_LOOPS_MAX;
}

int net_new(const struct net_config *config, struct net **ret, struct err *err)
{
	struct net *net = calloc(1, sizeof(*net));

	if (!net)
		return err_set(err, ERR_NOMEM, "memory is out");
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		free(net);
		return err_set(err, ERR_INTERNAL, "libcurl cannot be set up");
	}
	lock_init(&net->lock, LOCK_STREAM);
	lock_init(&net->pool.lock, LOCK_LEAF);
	net->limit = own_limit(config);
	/* Asked once: libcurl asks each of its own libraries for its version, whatever is wanted. */
	net->has_cainfo = curl_version_info(CURLVERSION_NOW)->cainfo != NULL;
	net->loop_most = own_loops(config->loops);
	net->direct_most = config->direct;
	*ret = net;
	return 0;
}

void net_free(struct net *net)
{
	if (!net)
		return;
	for (unsigned i = 0; i < atomic_load(&net->loop_count); i++)
		loop_free(net->loops[i]);
	pool_clear(net);
	assert(atomic_load(&net->used) == 0);
	lock_fini(&net->pool.lock);
	lock_fini(&net->lock);
	curl_global_cleanup();
	free(net);
}

static bool reserve_once(struct net *net, unsigned count)
{
	uint64_t used = atomic_load(&net->used);

	while (used + count <= net->limit)
		if (atomic_compare_exchange_weak(&net->used, &used, used + count))
			return true;
	return false;
}

bool net_reserve(struct net *net, unsigned count)
{
	while (!reserve_once(net, count))
		if (!pool_evict(net))
			return false;
	return true;
}

void net_unreserve(struct net *net, unsigned count)
{
	uint64_t before = atomic_fetch_sub(&net->used, count);

	assert(before >= count);
}

static struct loop *start_loop(struct net *net)
{
	unsigned count;
	struct loop *loop = NULL;

	lock_take(&net->lock);
	count = atomic_load(&net->loop_count);
	if (count < net->loop_most && (loop = loop_new(net, count)) != NULL) {
		net->loops[count] = loop;
		atomic_store(&net->loop_count, count + 1);
	}
	lock_drop(&net->lock);
	return loop;
}

static struct loop *first_loop(struct net *net)
{
	if (!atomic_load(&net->loop_count) && !start_loop(net) && !atomic_load(&net->loop_count))
		return NULL;
	return net->loops[0];
}

struct loop *net_loop_least(struct net *net)
{
	struct loop *least = first_loop(net);
	unsigned count = atomic_load(&net->loop_count);

	for (unsigned i = 1; i < count; i++)
		if (loop_active(net->loops[i]) < loop_active(least))
			least = net->loops[i];
	/* Few exchanges stay together, where they find each other's connections. */
	if (least && loop_active(least) >= NET_LOOP_IDLE && count < net->loop_most) {
		struct loop *more = start_loop(net);

		least = more ? more : least;
	}
	return least;
}

static void set_limits(struct exchange *ex)
{
	const struct berth_http_request *request = ex->request;
	int64_t total = request->total_timeout_ms ? clock_after_ms(request->total_timeout_ms) : INT64_MAX;
	bool is_long = request->flags & BERTH_HTTP_LONG;

	ex->deadline_ns = ex->caller->deadline_ns;
	ex->late = CUT_DEADLINE;
	if (total < ex->deadline_ns) {
		ex->deadline_ns = total;
		ex->late = CUT_TOTAL;
	}
	ex->idle_ns = (request->idle_timeout_ms ? request->idle_timeout_ms : NET_IDLE_DEFAULT_MS) * CLOCK_NS_PER_MS;
	if (is_long && !request->idle_timeout_ms)
		ex->idle_ns = INT64_MAX;
	ex->body_max = request->response_max ? request->response_max : NET_RESPONSE_DEFAULT;
}

/* A command that ends soon would wait longer for the two hand-overs than for its executor. One that does not keeps its
 * place: libcurl cannot move a transfer. */
static int32_t run_long(struct exchange *ex)
{
	struct net *net = ex->net;
	bool direct = atomic_fetch_add(&net->direct, 1) < net->direct_most;
	int32_t code;

	if (direct)
		code = short_exchange(ex);
	atomic_fetch_sub(&net->direct, 1);
	return direct ? code : long_exchange(ex);
}

static int32_t run(struct exchange *ex)
{
	enum cut due;
	int64_t next;
	int32_t code = request_build(ex);

	if (code)
		return code;
	set_limits(ex);
	if (ex->deadline_ns == INT64_MAX)
		return outcome_invalid(ex, "neither a deadline nor a total limit");
	atomic_store(&ex->moved_ns, clock_boot_ns());
	due = exchange_due(ex, &next);
	if (!due && !first_loop(ex->net))
		due = CUT_DESCRIPTORS;
	if (due) {
		ex->cut = due;
		return outcome_of(ex, CURLE_OK);
	}
	return ex->request->flags & BERTH_HTTP_LONG ? run_long(ex) : short_exchange(ex);
}

int32_t net_exchange(struct net *net, const struct net_caller *caller, const struct berth_http_request *request,
		     struct berth_http_response *ret_response, struct net_failure *ret_failure)
{
	struct exchange ex = {.net = net, .caller = caller, .request = request, .failure = ret_failure};
	int64_t begin = clock_boot_ns();
	int32_t code;

	memset(ret_failure, 0, sizeof(*ret_failure));
	buf_init(&ex.head, NET_HEADERS_MAX);
	code = run(&ex);
	*ret_response = (struct berth_http_response){
		.struct_size = sizeof(*ret_response),
		.status = ex.status,
		.sent = ex.sent,
		.retry_after_ms = ex.retry_after_ms,
	};
	if (code)
		log_debug("an exchange failed", KS("owner", caller->owner), KS("method", ex.method),
			  KS("reason", ret_failure->reason), KS("why", ret_failure->text), KI("status", ex.status),
			  KI("ms", (clock_boot_ns() - begin) / CLOCK_NS_PER_MS));
	buf_fini(&ex.head);
	request_fini(&ex);
	return code;
}

void net_usage(struct net *net, struct net_usage *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->descriptors = atomic_load(&net->used);
	ret->limit = net->limit;
	lock_take(&net->pool.lock);
	ret->idle = net->pool.count;
	lock_drop(&net->pool.lock);
	for (unsigned i = 0; i < atomic_load(&net->loop_count); i++)
		ret->long_running += loop_active(net->loops[i]);
}
