/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The running call as operations see it: its deadline, its cancel, what is said of its failure. On the call's own
 * thread. A wait here always ends with the call.
 */
#include "kube.h"

#include <poll.h>
#include <string.h>

#define SLICE_NS INT64_C(200000000) /* without a descriptor for cancels */

const struct berth_host *kube_host;

int64_t kube_deadline_ns(struct berth_call *call)
{
	struct berth_call_info info = {.struct_size = sizeof(info)};

	kube_host->info(call, &info);
	return info.deadline_ns;
}

int32_t kube_stopped(struct berth_call *call, struct kerr *err)
{
	if (kube_host->cancel_state(call) != BERTH_CANCEL_NONE)
		return kerr_set(err, BERTH_CANCELLED, "cancelled", "cancelled");
	if (text_boot_ns() >= kube_deadline_ns(call))
		return kerr_set(err, BERTH_TIMEOUT, "deadline", "the call's deadline passed");
	return BERTH_OK;
}

int32_t kube_wait(struct berth_call *call, int64_t until_ns, struct kerr *err)
{
	int64_t deadline_ns = kube_deadline_ns(call);
	struct pollfd fd = {.fd = kube_host->cancel_fd(call), .events = POLLIN};

	if (until_ns > deadline_ns)
		until_ns = deadline_ns;
	for (;;) {
		int32_t rc = kube_stopped(call, err);
		int64_t left = until_ns - text_boot_ns();

		if (rc || left <= 0)
			return rc;
		if (fd.fd < 0 && left > SLICE_NS)
			left = SLICE_NS;
		poll(&fd, fd.fd >= 0, (int)(left / 1000000) + 1);
	}
}

int32_t kube_end(struct berth_call *call, int32_t rc, const struct kerr *err)
{
	if (rc == BERTH_OK || err->told || err->code != rc)
		return rc;
	return kube_host->fail(call, rc, err->reason, err->retryable, err->retry_after_ms, err->text);
}

void kube_log(struct kube *k, struct berth_call *call, uint32_t level, const char *text, const char *name,
	      const char *value)
{
	const struct berth_pair pair = {str_of(name), str_of(value)};
	struct berth_str words = str_of(text);

	kube_host->log(k->target, call, level, &words, &pair, name ? 1 : 0);
}
