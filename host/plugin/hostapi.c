/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The services of the host's table that take no results: log, fail, cancel, secrets, metrics, memory. Any thread of a
 * plugin; nothing here blocks for long. Must not trust a length, an index or a word that a plugin passes.
 */
#include "plugin/private.h"

#include <errno.h>
#include <stddef.h>
#include <sys/eventfd.h>

#include "core/ident.h"
#include "core/log.h"

#define LOG_PAIRS_MAX 16
#define LOG_KEY_MAX 32
#define LOG_VALUE_MAX 1024

const double target_bucket_bounds[TARGET_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 600};

static struct target *target_of(struct berth_target *abi)
{
	struct target *target = (struct target *)(void *)abi;

	return target && target->magic == TARGET_MAGIC ? target : NULL;
}

static size_t cut(struct berth_str text, size_t max)
{
	return !text.ptr ? 0 : text.len < max ? text.len : max;
}

static void log_key(char ret[LOG_KEY_MAX + 1], struct berth_str name)
{
	size_t len = cut(name, LOG_KEY_MAX);

	for (size_t i = 0; i < len; i++) {
		char c = name.ptr[i];

		ret[i] = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_';
	}
	ret[len] = '\0';
}

static void host_log(struct berth_target *abi_target, struct berth_call *abi_call, uint32_t level,
		     const struct berth_str *text, const struct berth_pair *pairs, size_t count)
{
	static const enum log_level levels[] = {LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR};
	struct log_field fields[LOG_PAIRS_MAX + 4] = {0};
	char keys[LOG_PAIRS_MAX][LOG_KEY_MAX + 1], msg[LOG_VALUE_MAX + 1];
	const struct call *call = call_of(abi_call);
	const struct target *target = call ? call->target : target_of(abi_target);
	size_t at = 0;

	snprintf(msg, sizeof(msg), "%.*s", text ? (int)cut(*text, LOG_VALUE_MAX) : 0,
		 text && text->ptr ? text->ptr : "");
	fields[at++] = KS("plugin", target ? target->conf->provider : "unknown");
	if (target)
		fields[at++] = KS("target", target->conf->name);
	for (size_t i = 0; pairs && i < count && i < LOG_PAIRS_MAX; i++) {
		log_key(keys[i], pairs[i].name);
		fields[at++] = KB(keys[i], pairs[i].value.ptr, cut(pairs[i].value, LOG_VALUE_MAX));
	}
	if (count > LOG_PAIRS_MAX)
		fields[at++] = KI("pairs_left_out", count - LOG_PAIRS_MAX);
	log_emit(levels[level < 4 ? level : 3], msg, fields);
}

static void host_info(struct berth_call *abi, struct berth_call_info *ret_info)
{
	const struct call *call = call_of(abi);
	struct berth_call_info info = {.struct_size = sizeof(info)};
	uint32_t theirs = ret_info ? ret_info->struct_size : 0;

	if (!call || theirs < 2 * sizeof(uint32_t))
		return;
	info.deadline_ns = call->deadline_ns;
	info.request_id = (struct berth_str){.ptr = call->request_id, .len = strlen(call->request_id)};
	info.traceparent = (struct berth_str){.ptr = call->traceparent, .len = strlen(call->traceparent)};
	info.struct_size = theirs;
	memcpy(ret_info, &info, theirs < sizeof(info) ? theirs : sizeof(info));
}

/* Keeps whole UTF-8 sequences, and no control bytes: it goes to logs and to callers' records. */
static void keep_words(char *ret, size_t size, const char *text)
{
	size_t len = text ? strnlen(text, size - 1) : 0;

	memcpy(ret, text ? text : "", len);
	while (len && !ident_utf8_valid(ret, len))
		len--;
	ret[len] = '\0';
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)ret[i] < 0x20 || ret[i] == 0x7f)
			ret[i] = ' ';
}

static int32_t host_fail(struct berth_call *abi, int32_t code, const char *reason, uint32_t retryable,
			 int64_t retry_after_ms, const char *text)
{
	struct call *call = call_of(abi);
	size_t len = reason ? strnlen(reason, BERTH_REASON_MAX + 1) : 0;

	if (!call)
		return code;
	if (!call->op || !pthread_equal(call->thread, pthread_self()))
		call_violate(call, "used a call outside its operation or thread");
	else if (len > BERTH_REASON_MAX || (len && strspn(reason, "abcdefghijklmnopqrstuvwxyz0123456789_") != len))
		call_violate(call, "failed with a reason that is no word of at most %u bytes", BERTH_REASON_MAX);
	else if (retry_after_ms < 0)
		call_violate(call, "failed with a negative retry time");
	else {
		call->fail_code = code;
		call->fail_retryable = retryable;
		call->fail_retry_after_ms = retry_after_ms;
		snprintf(call->fail_reason, sizeof(call->fail_reason), "%s", reason ? reason : "");
		keep_words(call->fail_text, sizeof(call->fail_text), text);
	}
	return code;
}

static uint32_t host_cancel_state(struct berth_call *abi)
{
	struct call *call = call_of(abi);
	uint32_t state = call ? atomic_load(&call->cancel) : BERTH_CANCEL_NONE;

	if (call && pthread_equal(call->thread, pthread_self()))
		call->told = state;
	return state;
}

static int32_t host_cancel_fd(struct berth_call *abi)
{
	struct call *call = call_of(abi);
	int fd;

	if (!call)
		return -1;
	lock_take(&call->lock);
	if (call->cancel_fd < 0)
		call->cancel_fd = eventfd(atomic_load(&call->cancel) ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
	fd = call->cancel_fd;
	lock_drop(&call->lock);
	return fd;
}

static void host_random(void *buf, size_t len)
{
	secret_random(buf, len);
}

static int32_t host_secret(struct berth_target *abi, const char *option, char *buf, size_t cap, size_t *ret_len)
{
	const struct target *target = target_of(abi);
	const char *source = target && option ? settings_secret_source(target, option) : NULL;
	struct secret *secret = NULL;
	struct err err = {0};
	int32_t code = BERTH_OK;
	const void *ptr;
	size_t len;

	if (ret_len)
		*ret_len = 0;
	if (!source)
		return BERTH_NOT_FOUND;
	if (secret_load(source, &secret, &err)) {
		log_error("a secret of a target cannot be read", KS("target", target->conf->name), KS("option", option),
			  KS("error", err.msg));
		return BERTH_UNAVAILABLE;
	}
	if (!secret)
		return BERTH_NOT_FOUND;
	ptr = secret_ptr(secret, &len);
	if (len > cap || !buf || !ret_len)
		code = BERTH_INVALID;
	else {
		memcpy(buf, ptr, len);
		*ret_len = len;
	}
	secret_free(secret);
	return code;
}

static struct metric_state *find_metric(struct berth_target *abi, uint32_t index, uint32_t type)
{
	const struct target *target = target_of(abi);
	struct target_state *ts = target ? target->state : NULL;

	if (!ts || !target->plugin || !ts->metrics)
		return NULL;
	if (index < target->plugin->metric_count && target->plugin->desc.metrics[index]->type == type)
		return &ts->metrics[index];
	if (!atomic_exchange(&ts->bad_metric, true))
		log_error("a plugin broke a rule", KS("plugin", target->conf->provider),
			  KS("target", target->conf->name), KS("rule", "used a metric that its table does not have"),
			  KI("index", index));
	return NULL;
}

static void host_counter(struct berth_target *abi, uint32_t index, uint64_t add)
{
	struct metric_state *metric = find_metric(abi, index, BERTH_METRIC_COUNTER);

	if (metric)
		atomic_fetch_add_explicit(&metric->count, add, memory_order_relaxed);
}

static void host_histogram(struct berth_target *abi, uint32_t index, double value)
{
	struct metric_state *metric = find_metric(abi, index, BERTH_METRIC_HISTOGRAM);
	uint64_t bits, next;
	double sum;

	if (!metric || value != value)
		return;
	for (size_t i = 0; i < TARGET_BUCKETS; i++)
		if (value <= target_bucket_bounds[i]) {
			atomic_fetch_add_explicit(&metric->buckets[i], 1, memory_order_relaxed);
			break;
		}
	bits = atomic_load_explicit(&metric->sum_bits, memory_order_relaxed);
	do {
		memcpy(&sum, &bits, sizeof(sum));
		sum += value;
		memcpy(&next, &sum, sizeof(next));
	} while (!atomic_compare_exchange_weak(&metric->sum_bits, &bits, next));
	atomic_fetch_add_explicit(&metric->count, 1, memory_order_relaxed);
}

static void host_changed(struct berth_target *abi)
{
	struct target *target = target_of(abi);

	if (target)
		atomic_fetch_add(&target->state->changes, 1);
}

/* Plugins' memory is counted as a whole: neither call names a target. */
union block {
	size_t size;
	max_align_t align;
};
static _Atomic uint64_t allocated;

static void *host_alloc(size_t size)
{
	union block *block = size <= SIZE_MAX - sizeof(*block) ? malloc(sizeof(*block) + size) : NULL;

	if (!block)
		return NULL;
	block->size = size;
	atomic_fetch_add(&allocated, size);
	return block + 1;
}

static void host_free(void *ptr)
{
	union block *block = ptr;

	if (!ptr)
		return;
	block--;
	atomic_fetch_sub(&allocated, block->size);
	free(block);
}

uint64_t hostapi_allocated(void)
{
	return atomic_load(&allocated);
}

const struct berth_host hostapi_table = {
    .struct_size = sizeof(struct berth_host),
    .abi_major = BERTH_ABI_MAJOR,
    .abi_minor = BERTH_ABI_MINOR,
    .log = host_log,
    .info = host_info,
    .fail = host_fail,
    .emit_session = emit_session,
    .emit_cursor = emit_cursor,
    .emit_ending = emit_ending,
    .emit_file = emit_file,
    .emit_change = emit_change,
    .emit_token = emit_token,
    .emit_expiry = emit_expiry,
    .created = emit_created,
    .progress = flow_progress,
    .started = flow_started,
    .gap = flow_gap,
    .sink_write = flow_write,
    .source_read = flow_read,
    .cancel_state = host_cancel_state,
    .cancel_fd = host_cancel_fd,
    .http = http_exchange,
    .random = host_random,
    .secret = host_secret,
    .counter = host_counter,
    .histogram = host_histogram,
    .changed = host_changed,
    .alloc = host_alloc,
    .free = host_free,
};
