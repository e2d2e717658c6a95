/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A short exchange: libcurl runs in the calling thread on a pooled handle, and the callbacks are called from within it. A
 * cancel wakes the thread through the handle's multi.
 */
#include "net/private.h"

static bool obey(struct exchange *ex, int32_t code)
{
	if (code == BERTH_OK)
		return true;
	ex->code = code;
	exchange_cut(ex, CUT_CALLBACK);
	return false;
}

static bool head_direct(struct exchange *ex)
{
	return obey(ex, exchange_deliver_head(ex));
}

static size_t write_direct(struct exchange *ex, const char *ptr, size_t len)
{
	return obey(ex, exchange_deliver(ex, ptr, len)) ? len : 0;
}

static size_t read_direct(struct exchange *ex, char *buf, size_t cap)
{
	size_t len;

	return obey(ex, exchange_fetch(ex, buf, cap, &len)) ? len : CURL_READFUNC_ABORT;
}

static const struct way direct = {.head = head_direct, .write = write_direct, .read = read_direct};

static void wake(void *arg)
{
	curl_multi_wakeup(arg);
}

static int wait_ms(int64_t next_ns)
{
	int64_t ms = clock_left_ms(next_ns) + 1;

	return next_ns == INT64_MAX || ms > 3600000 ? 3600000 : (int)ms;
}

/* Until it ends by itself or is due. */
static CURLcode drive(struct exchange *ex, CURLM *multi)
{
	CURLMcode rc = curl_multi_add_handle(multi, ex->easy);
	CURLcode result = CURLE_OUT_OF_MEMORY;
	int running = 1, left;
	int64_t next;
	CURLMsg *msg;

	while (!rc && running) {
		enum cut cut;

		rc = curl_multi_perform(multi, &running);
		if (rc || !running)
			break;
		cut = exchange_due(ex, &next);
		if (cut) {
			exchange_cut(ex, cut);
			break;
		}
		rc = curl_multi_poll(multi, NULL, 0, wait_ms(next), NULL);
	}
	while ((msg = curl_multi_info_read(multi, &left)) != NULL)
		if (msg->msg == CURLMSG_DONE && msg->easy_handle == ex->easy)
			result = msg->data.result;
	return result;
}

int32_t short_exchange(struct exchange *ex)
{
	const struct net_caller *caller = ex->caller;
	struct handle *handle = pool_take(ex->net, ex->key);
	struct net_waker waker = {.fn = wake};
	CURLcode result;
	int32_t code;
	bool again;

	if (!handle) {
		exchange_cut(ex, CUT_DESCRIPTORS);
		return outcome_of(ex, CURLE_OK);
	}
	ex->way = &direct;
	ex->easy = handle->easy;
	waker.arg = handle->multi;
	exchange_prepare(ex);
	if (caller->listen)
		caller->listen(caller->arg, &waker);
	do {
		result = drive(ex, handle->multi);
		/* It may stand in the middle of the transfer; its connection is then closed. */
		curl_multi_remove_handle(handle->multi, ex->easy);
		again = exchange_again(ex, result);
	} while (again);
	if (caller->unlisten)
		caller->unlisten(caller->arg, &waker);
	code = outcome_of(ex, result);
	pool_give(ex->net, handle);
	return code;
}
