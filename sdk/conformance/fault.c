/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for net_exchange and log_emit by the linker's --wrap. Entered by every thread that talks HTTP or logs; an
 * exchange's callbacks stay on its thread. The lock is never held over an exchange or a callback. Must return what the
 * real one returns in the same misfortune, and must never make an exchange twice.
 */
#include "fault.h"

#include <stdatomic.h>
#include <string.h>
#include <strings.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/secret.h"
#include "core/thread.h"
#include "net/net.h"
#include "plugin/call.h"
#include "plugin/loader.h"
#include "plugin/target.h"

#define SECRETS_MAX 8
#define WORD_MAX 512
#define WORD_LEAST 8 /* a shorter one is found by chance */
#define SIZES_MAX 64

static struct {
	struct lock lock; /* LOCK_LEAF: everything but the secrets, which are constant between open and close */
	struct fault fault;
	unsigned seen, strikes;
	int64_t struck_ns, next_ns;
	uint64_t sizes[SIZES_MAX];
	uint64_t exchanges;
	bool trapped;
	char evidence[200];
	char secrets[SECRETS_MAX][WORD_MAX];
	_Atomic size_t secret_count;
} state;

int32_t __real_net_exchange(struct net *net, const struct net_caller *caller, const struct berth_http_request *request,
			    struct berth_http_response *ret_response, struct net_failure *ret_failure);
int32_t __wrap_net_exchange(struct net *net, const struct net_caller *caller, const struct berth_http_request *request,
			    struct berth_http_response *ret_response, struct net_failure *ret_failure);
void __real_log_emit(enum log_level level, const char *msg, const struct log_field *fields);
void __wrap_log_emit(enum log_level level, const char *msg, const struct log_field *fields);

/* ---- secrets ---- */

void fault_open(struct target *target)
{
	const struct berth_option *const *options = target->plugin->desc.options;
	struct berth_target *theirs = (struct berth_target *)(void *)target;

	lock_init(&state.lock, LOCK_LEAF);
	for (size_t i = 0; options && options[i] && state.secret_count < SECRETS_MAX; i++) {
		char *to = state.secrets[state.secret_count];
		size_t len = 0;

		if (options[i]->secret &&
		    hostapi_table.secret(theirs, options[i]->key, to, WORD_MAX - 1, &len) == BERTH_OK &&
		    len >= WORD_LEAST) {
			to[len] = '\0';
			state.secret_count++;
		}
	}
}

void fault_close(void)
{
	secret_wipe(state.secrets, sizeof(state.secrets));
	state.secret_count = 0;
}

size_t fault_secrets(void)
{
	return state.secret_count;
}

const char *fault_secret(size_t i)
{
	return state.secrets[i];
}

static bool holds_secret(const char *ptr, size_t len)
{
	for (size_t i = 0; i < state.secret_count; i++)
		if (ptr && len && memmem(ptr, len, state.secrets[i], strlen(state.secrets[i])))
			return true;
	return false;
}

static void note_evidence(const char *what)
{
	lock_take(&state.lock);
	if (!*state.evidence)
		snprintf(state.evidence, sizeof(state.evidence), "%s", what);
	lock_drop(&state.lock);
}

bool fault_tells(const char *text, const char *where)
{
	char words[160];
	bool tells = holds_secret(text, strlen(text));

	if (tells) {
		snprintf(words, sizeof(words), "the value of a secret option stands in %s", where);
		note_evidence(words);
	}
	return tells;
}

const char *fault_evidence(void)
{
	return state.evidence;
}

/* Of all levels, also those that are not written. */
void __wrap_log_emit(enum log_level level, const char *msg, const struct log_field *fields)
{
	bool tells = holds_secret(msg, strlen(msg));

	for (const struct log_field *field = fields; field && field->key; field++)
		if (field->str)
			tells = tells ||
				holds_secret(field->str, field->len == SIZE_MAX ? strlen(field->str) : field->len);
	if (tells)
		note_evidence("the value of a secret option stands in a log line");
	__real_log_emit(level, msg, fields);
}

/* ---- what is to happen ---- */

void fault_arm(const struct fault *fault)
{
	lock_take(&state.lock);
	state.fault = *fault;
	state.seen = state.strikes = 0;
	state.struck_ns = state.next_ns = 0;
	state.trapped = false;
	memset(state.sizes, 0, sizeof(state.sizes));
	lock_drop(&state.lock);
}

void fault_disarm(void)
{
	lock_take(&state.lock);
	state.fault.kind = FAULT_NONE;
	lock_drop(&state.lock);
}

unsigned fault_seen(void)
{
	unsigned seen;

	lock_take(&state.lock);
	seen = state.seen;
	lock_drop(&state.lock);
	return seen;
}

bool fault_struck(void)
{
	bool struck;

	lock_take(&state.lock);
	struck = state.strikes;
	lock_drop(&state.lock);
	return struck;
}

bool fault_trapped(void)
{
	bool trapped;

	lock_take(&state.lock);
	trapped = state.trapped;
	lock_drop(&state.lock);
	return trapped;
}

uint64_t fault_body(unsigned at)
{
	uint64_t size;

	lock_take(&state.lock);
	size = at && at <= SIZES_MAX ? state.sizes[at - 1] : 0;
	lock_drop(&state.lock);
	return size;
}

int64_t fault_gap_ms(void)
{
	int64_t gap;

	lock_take(&state.lock);
	gap = state.next_ns ? (state.next_ns - state.struck_ns) / CLOCK_NS_PER_MS : -1;
	lock_drop(&state.lock);
	return gap;
}

uint64_t fault_exchanges(void)
{
	uint64_t count;

	lock_take(&state.lock);
	count = state.exchanges;
	lock_drop(&state.lock);
	return count;
}

/* The fault of this exchange, and its number. */
static struct fault take_fault(unsigned *ret_at)
{
	struct fault fault;

	lock_take(&state.lock);
	state.exchanges++;
	*ret_at = ++state.seen;
	if (state.strikes && !state.next_ns)
		state.next_ns = clock_boot_ns();
	fault = state.fault;
	if (fault.kind == FAULT_NONE || (fault.at && fault.at != *ret_at))
		fault.kind = FAULT_NONE;
	else if (!state.strikes++)
		state.struck_ns = clock_boot_ns();
	lock_drop(&state.lock);
	return fault;
}

/* ---- one exchange ---- */

struct swapped {
	const struct berth_http_request *theirs;
	struct fault fault;
	unsigned at;
	uint64_t passed, came;
	bool broke;	 /* here, not by the peer */
	int32_t refused; /* what a callback of the plugin returned */
	uint32_t status;
};

static bool is_safe(const struct berth_http_request *request)
{
	static const char *const words[] = {"GET", "HEAD", "OPTIONS"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (request->method.len == strlen(words[i]) &&
		    !memcmp(request->method.ptr, words[i], request->method.len))
			return true;
	return false;
}

/* The failure that net/ would report; what is not known is UNKNOWN. */
static int32_t lost(const struct berth_http_request *request, struct berth_http_response *response,
		    struct net_failure *failure, int32_t code, const char *reason, const char *text)
{
	if (response->sent && !is_safe(request))
		code = BERTH_UNKNOWN;
	*failure = (struct net_failure){.reason = reason, .retryable = code != BERTH_UNKNOWN};
	snprintf(failure->text, sizeof(failure->text), "%s (of the conformance kit)", text);
	return code;
}

static int32_t pass_refusal(struct swapped *swapped, struct net_failure *failure, int32_t code)
{
	swapped->refused = code;
	*failure = (struct net_failure){.reason = "callback"};
	snprintf(failure->text, sizeof(failure->text), "ended by its receiver");
	return code;
}

static int32_t swap_read(void *ctx, void *buf, size_t cap, size_t *ret_len)
{
	struct swapped *swapped = ctx;

	return swapped->refused = swapped->theirs->read(swapped->theirs->ctx, buf, cap, ret_len);
}

/* Whether the plugin gets the real head. */
static bool keeps_head(enum fault_kind kind)
{
	return kind == FAULT_NONE || kind == FAULT_CUT || kind == FAULT_SHORT || kind == FAULT_GARBAGE;
}

static int32_t swap_head(void *ctx, uint32_t status, const struct berth_pair *headers, size_t count)
{
	struct swapped *swapped = ctx;

	swapped->status = status;
	if (swapped->fault.kind == FAULT_LOSE) {
		swapped->broke = true;
		return BERTH_INTERNAL;
	}
	if (!keeps_head(swapped->fault.kind) || !swapped->theirs->head)
		return BERTH_OK;
	return swapped->refused = swapped->theirs->head(swapped->theirs->ctx, status, headers, count);
}

static int32_t swap_write(void *ctx, const void *ptr, size_t len)
{
	struct swapped *swapped = ctx;
	enum fault_kind kind = swapped->fault.kind;
	bool cuts = kind == FAULT_CUT || kind == FAULT_SHORT;
	uint64_t left = cuts ? swapped->fault.bytes - swapped->passed : len;

	swapped->came += len;
	if (kind != FAULT_NONE && !cuts)
		return BERTH_OK;
	if (swapped->theirs->write && left)
		swapped->refused = swapped->theirs->write(swapped->theirs->ctx, ptr, left < len ? (size_t)left : len);
	swapped->passed += left < len ? left : len;
	if (!swapped->refused && cuts && left <= len)
		swapped->broke = true;
	return swapped->refused ? swapped->refused : swapped->broke ? BERTH_INTERNAL : BERTH_OK;
}

/* An answer of the kit's own. */
static int32_t give_answer(struct swapped *swapped, struct berth_http_response *response, struct net_failure *failure)
{
	const struct berth_http_request *theirs = swapped->theirs;
	const struct fault *fault = &swapped->fault;
	char seconds[24];
	struct berth_pair headers[3] = {{{"Content-Type", 12}, {"text/html", 9}}};
	size_t count = 1, len = fault->body ? strlen(fault->body) : 0;
	int32_t rc = BERTH_OK;

	if (fault->location)
		headers[count++] = (struct berth_pair){{"Location", 8}, {fault->location, strlen(fault->location)}};
	if (fault->retry_after_ms) {
		int n = snprintf(seconds, sizeof(seconds), "%lld", (long long)fault->retry_after_ms / 1000);

		headers[count++] = (struct berth_pair){{"Retry-After", 11}, {seconds, (size_t)n}};
	}
	response->status = fault->status;
	response->sent = 1;
	response->retry_after_ms = fault->retry_after_ms;
	if (theirs->head)
		rc = theirs->head(theirs->ctx, fault->status, headers, count);
	if (!rc && len && theirs->write)
		rc = theirs->write(theirs->ctx, fault->body, len);
	return rc ? pass_refusal(swapped, failure, rc) : BERTH_OK;
}

struct delay {
	struct lock lock; /* LOCK_STREAM, as that of a real long exchange */
	struct cond cond;
	bool woken;
};

static void wake_delay(void *arg)
{
	struct delay *delay = arg;

	lock_take(&delay->lock);
	delay->woken = true;
	cond_wake_one(&delay->cond);
	lock_drop(&delay->lock);
}

/* Until the call's deadline, the exchange's own limit, or a cancel. */
static int32_t wait_delay(const struct net_caller *caller, struct swapped *swapped,
			  struct berth_http_response *response, struct net_failure *failure)
{
	int64_t total_ms = swapped->theirs->total_timeout_ms, until = caller->deadline_ns;
	struct delay delay = {.woken = false};
	struct net_waker waker = {.fn = wake_delay, .arg = &delay};

	if (total_ms && clock_after_ms(total_ms) < until)
		until = clock_after_ms(total_ms);
	lock_init(&delay.lock, LOCK_STREAM);
	cond_init(&delay.cond);
	if (caller->listen)
		caller->listen(caller->arg, &waker);
	lock_take(&delay.lock);
	while (!delay.woken && clock_boot_ns() < until && !(caller->cancelled && caller->cancelled(caller->arg)))
		cond_wait_until(&delay.cond, &delay.lock, until);
	lock_drop(&delay.lock);
	if (caller->unlisten)
		caller->unlisten(caller->arg, &waker);
	cond_fini(&delay.cond);
	lock_fini(&delay.lock);
	response->status = 0;
	if (caller->cancelled && caller->cancelled(caller->arg)) {
		*failure = (struct net_failure){.reason = "cancelled", .text = "cancelled"};
		return BERTH_CANCELLED;
	}
	return lost(swapped->theirs, response, failure, BERTH_TIMEOUT, "deadline",
		    "the answer came after the deadline");
}

/* The exchange was made, or as much of it as the fault lets happen. */
static int32_t judge(const struct net_caller *caller, struct swapped *swapped, int32_t rc,
		     struct berth_http_response *response, struct net_failure *failure)
{
	if (swapped->refused)
		return rc;
	if (swapped->broke && swapped->fault.kind == FAULT_SHORT) {
		*failure = (struct net_failure){.reason = ""};
		return BERTH_OK;
	}
	if (rc && !swapped->broke)
		return rc; /* its own misfortune came first */
	switch (swapped->fault.kind) {
	case FAULT_LOSE:
	case FAULT_LOSE_LATE:
		response->status = 0;
		response->retry_after_ms = 0;
		return lost(swapped->theirs, response, failure, BERTH_UNAVAILABLE, "cut",
			    "the connection broke before the answer");
	case FAULT_CUT:
		if (!swapped->broke)
			return rc; /* shorter than the cut */
		return lost(swapped->theirs, response, failure, BERTH_UNAVAILABLE, "cut",
			    "the connection broke within the answer");
	case FAULT_DELAY:
		return wait_delay(caller, swapped, response, failure);
	case FAULT_GARBAGE:
		rc = swapped->theirs->write ? swapped->theirs->write(swapped->theirs->ctx, swapped->fault.body,
								     strlen(swapped->fault.body))
					    : BERTH_OK;
		return rc ? pass_refusal(swapped, failure, rc) : BERTH_OK;
	case FAULT_AFTER:
		return give_answer(swapped, response, failure);
	default:
		return rc;
	}
}

static bool to_trap(const struct berth_http_request *request)
{
	return request->url.len >= strlen(FAULT_TRAP) && !strncasecmp(request->url.ptr, FAULT_TRAP, strlen(FAULT_TRAP));
}

static bool header_tells(const struct berth_http_request *request)
{
	for (size_t i = 0; i < request->header_count; i++)
		if (holds_secret(request->headers[i].value.ptr, request->headers[i].value.len))
			return true;
	return false;
}

static void inspect_request(const struct berth_http_request *request)
{
	bool in_url = holds_secret(request->url.ptr, request->url.len), in_header = header_tells(request);

	if (in_url)
		note_evidence("the value of a secret option stands in a URL");
	if (in_header)
		note_evidence("the value of a secret option stands in a header that is not marked secret");
	if (!to_trap(request) || !(in_url || in_header || request->secret_header_count))
		return;
	note_evidence("a redirect was followed with credentials");
	lock_take(&state.lock);
	state.trapped = true;
	lock_drop(&state.lock);
}

static int32_t make(struct net *net, const struct net_caller *caller, struct swapped *swapped,
		    struct berth_http_response *ret_response, struct net_failure *ret_failure)
{
	struct berth_http_request request = *swapped->theirs;
	int32_t rc;

	request.ctx = swapped;
	request.read = request.read ? swap_read : NULL;
	request.head = swap_head;
	request.write = swap_write;
	rc = __real_net_exchange(net, caller, &request, ret_response, ret_failure);
	lock_take(&state.lock);
	if (swapped->at <= SIZES_MAX)
		state.sizes[swapped->at - 1] = swapped->came;
	lock_drop(&state.lock);
	return judge(caller, swapped, rc, ret_response, ret_failure);
}

int32_t __wrap_net_exchange(struct net *net, const struct net_caller *caller, const struct berth_http_request *request,
			    struct berth_http_response *ret_response, struct net_failure *ret_failure)
{
	struct swapped swapped = {.theirs = request};

	inspect_request(request);
	swapped.fault = take_fault(&swapped.at);
	memset(ret_failure, 0, sizeof(*ret_failure));
	if (to_trap(request))
		swapped.fault = (struct fault){.kind = FAULT_ANSWER, .status = 200, .body = "{}"};
	if (swapped.fault.kind == FAULT_ANSWER)
		return give_answer(&swapped, ret_response, ret_failure);
	if (swapped.fault.kind == FAULT_REFUSE)
		return lost(request, ret_response, ret_failure, BERTH_UNAVAILABLE, "connect", "no connection");
	return make(net, caller, &swapped, ret_response, ret_failure);
}
