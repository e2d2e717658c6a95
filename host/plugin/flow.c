/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes and live notices of a running call: output, input, started, gaps, progress. On the call's own thread, inside
 * the plugin's operation; the receiver may block, which is the back-pressure.
 */
#include "plugin/private.h"

#include <assert.h>


static int32_t refused(struct berth_call *abi)
{
	struct call *call = call_of(abi);

	if (call && call_is_gone(call))
		return BERTH_CANCELLED;
	return call && call->sink_code ? call_code_of(call->sink_code) : BERTH_INTERNAL;
}

/* After a callback. */
static int32_t pass_on(struct call *call, int rc)
{
	call_sink_leave(call);
	if (!rc)
		return BERTH_OK;
	call->sink_code = rc;
	return call_code_of(rc);
}

void flow_progress(struct berth_call *abi, uint32_t phase, const char *text)
{
	struct call *call = call_enter(abi, SAY_PROGRESS);
	struct berth_str words = {.ptr = text, .len = text ? strnlen(text, BERTH_TEXT_MAX + 1) : 0};

	if (!call)
		return;
	if (!phase_is_known(phase))
		call_violate(call, "passed progress with phase %u", phase);
	else if (call_text_fits(call, "a progress text", words, BERTH_TEXT_MAX, false) && call->sink.progress &&
		 !call_is_late(call) && call_sink_enter(call)) {
		call->sink.progress(call->sink.arg, phase, text ? text : "");
		call_sink_leave(call);
	}
}

int32_t flow_started(struct berth_call *abi, const struct berth_str *handle)
{
	struct call *call = call_enter(abi, SAY_STARTED);

	if (!call)
		return refused(abi);
	if (!handle || !call_text_fits(call, "a handle", *handle, BERTH_HANDLE_MAX, false)) {
		call_violate(call, "passed NULL for a handle");
		return BERTH_INTERNAL;
	}
	if (!call->sink.started)
		return BERTH_OK;
	if (!call_sink_enter_in_time(call))
		return refused(abi);
	return pass_on(call, call->sink.started(call->sink.arg, handle->ptr, handle->len));
}

int32_t flow_gap(struct berth_call *abi, uint32_t stream, uint64_t from, uint64_t to)
{
	struct call *call = call_enter(abi, SAY_GAP);

	if (!call)
		return refused(abi);
	if ((stream != BERTH_STREAM_STDOUT && stream != BERTH_STREAM_STDERR) || from >= to) {
		call_violate(call, "passed a gap of stream %u from %llu to %llu", stream, (unsigned long long)from,
			     (unsigned long long)to);
		return BERTH_INTERNAL;
	}
	if (!call->sink.gap)
		return BERTH_OK;
	if (!call_sink_enter_in_time(call))
		return refused(abi);
	return pass_on(call, call->sink.gap(call->sink.arg, stream, from, to));
}

int32_t flow_write(struct berth_call *abi, uint32_t stream, const void *ptr, size_t len)
{
	struct call *call = call_enter(abi, stream == BERTH_STREAM_DATA ? SAY_DATA : SAY_OUTPUT);

	if (!call)
		return refused(abi);
	if (stream > BERTH_STREAM_STDERR || (len && !ptr) || len > SIZE_MAX / 2) {
		call_violate(call, "wrote %zu bytes to stream %u", len, stream);
		return BERTH_INTERNAL;
	}
	if (!len || !call->sink.write)
		return BERTH_OK;
	if (!call_sink_enter_in_time(call))
		return refused(abi);
	return pass_on(call, call->sink.write(call->sink.arg, stream, ptr, len));
}

int32_t flow_read(struct berth_call *abi, void *buf, size_t cap, size_t *ret_len)
{
	struct call *call = call_enter(abi, SAY_SOURCE);
	size_t len = 0;
	int32_t code;

	if (ret_len)
		*ret_len = 0;
	if (!call)
		return refused(abi);
	if (!ret_len || !buf || !cap) {
		call_violate(call, "read into no buffer");
		return BERTH_INTERNAL;
	}
	if (!call->sink.read)
		return BERTH_OK;
	if (!call_sink_enter_in_time(call))
		return refused(abi);
	code = pass_on(call, call->sink.read(call->sink.arg, buf, cap, &len));
	assert(len <= cap);
	if (code == BERTH_OK)
		*ret_len = len;
	return code;
}
