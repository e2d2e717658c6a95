/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that change what the host gets to see: dropped, cut, flooded, holed or malformed answers. The library's
 * functions are given shim_host instead of the host's own table, so that they need not know. A call runs on one thread,
 * which is why the running call is found in a thread-local; nothing here is shared. Without a fault every service is
 * passed through.
 */
#include "shim.h"

#include "opcall.h"
#include "session.h"
#include "text.h"

#include <errno.h>

struct berth_host shim_host;

static const struct berth_host *real;
static _Thread_local struct opcall *current;

void shim_enter(struct opcall *oc)
{
	current = oc;
}

void shim_leave(void)
{
	current = NULL;
}

static bool bent(unsigned what)
{
	return current && effect_has(&current->fx, what);
}

static bool silent(void)
{
	return bent(FX_LOST_REPLY) || (current && current->flow.cut);
}

static bool garbage(uint32_t what)
{
	return current && (current->fx.garbage & what);
}

/* Longer than any limit of the ABI. */
#define TOO_LONG 300
static struct berth_str too_long(void)
{
	static const char text[TOO_LONG + 1] =
	    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";

	return (struct berth_str){text, TOO_LONG};
}

static struct berth_str with_nul(void)
{
	return (struct berth_str){"mock-\0nul", 9};
}

static struct berth_session_info bend_session(const struct berth_session_info *info)
{
	struct berth_session_info bad = *info;

	if (bent(FX_ISOLATION))
		bad.isolation = current->fx.isolation;
	if (garbage(GARBAGE_REF))
		bad.ref = too_long();
	if (garbage(GARBAGE_NUL))
		bad.ref = with_nul();
	if (garbage(GARBAGE_REASON))
		bad.dead_reason = too_long();
	if (garbage(GARBAGE_KIND))
		bad.phase = 99;
	return bad;
}

static int32_t shim_emit_session(struct berth_call *call, const struct berth_session_info *info)
{
	struct berth_session_info bad = bend_session(info);
	int32_t rc = BERTH_OK;

	if (silent() || garbage(GARBAGE_NONE))
		return BERTH_OK;
	if (garbage(GARBAGE_TWICE))
		rc = real->emit_session(call, &bad);
	return rc ? rc : real->emit_session(call, &bad);
}

static int32_t shim_created(struct berth_call *call, const struct berth_session_info *info)
{
	struct berth_session_info bad = bend_session(info);
	int32_t rc = BERTH_OK;

	if (silent() || garbage(GARBAGE_NONE))
		return BERTH_OK;
	if (garbage(GARBAGE_TWICE))
		rc = real->created(call, &bad);
	return rc ? rc : real->created(call, &bad);
}

static int32_t shim_emit_cursor(struct berth_call *call, const struct berth_str *cursor)
{
	return silent() ? BERTH_OK : real->emit_cursor(call, cursor);
}

static int32_t shim_emit_file(struct berth_call *call, const struct berth_file_info *info)
{
	return silent() ? BERTH_OK : real->emit_file(call, info);
}

static int32_t shim_emit_change(struct berth_call *call, const struct berth_change *change)
{
	return silent() ? BERTH_OK : real->emit_change(call, change);
}

static int32_t shim_emit_token(struct berth_call *call, const struct berth_str *token)
{
	return silent() ? BERTH_OK : real->emit_token(call, token);
}

static int32_t shim_emit_expiry(struct berth_call *call, int64_t effective_ms)
{
	return silent() ? BERTH_OK : real->emit_expiry(call, effective_ms);
}

/* What is left of the output once the gap was taken out: at most up to the byte where the stream is cut. */
static int32_t pass_on(struct berth_call *call, uint32_t stream, const char *ptr, size_t len)
{
	struct flow *flow = &current->flow;
	int32_t rc;

	if (bent(FX_CUT) && len > current->fx.cut - flow->passed) {
		len = (size_t)(current->fx.cut - flow->passed);
		flow->cut = true;
	}
	rc = len ? real->sink_write(call, stream, ptr, len) : BERTH_OK;
	flow->passed += len;
	return rc ? rc : flow->cut ? BERTH_UNAVAILABLE : BERTH_OK;
}

/* Reports what the gap swallowed so far and has not been reported. */
static int32_t report_gap(struct berth_call *call)
{
	struct flow *flow = &current->flow;
	uint64_t from = flow->gap_shown > current->fx.gap[0] ? flow->gap_shown : current->fx.gap[0];
	uint64_t to = flow->stdout_at < current->fx.gap[1] ? flow->stdout_at : current->fx.gap[1];

	if (!flow->in_gap)
		return BERTH_OK;
	flow->in_gap = false;
	flow->gap_shown = to;
	return real->gap(call, BERTH_STREAM_STDOUT, from, to);
}

/* How many of the next bytes of stdout lie on the same side of the gap; *ret_lost = inside. */
static size_t until_edge(const struct opcall *oc, size_t len, bool *ret_lost)
{
	uint64_t at = oc->flow.stdout_at, from = oc->fx.gap[0], to = oc->fx.gap[1];
	uint64_t edge = at < from ? from : at < to ? to : UINT64_MAX;

	*ret_lost = at >= from && at < to;
	return edge - at < len ? (size_t)(edge - at) : len;
}

static int32_t write_holed(struct berth_call *call, const char *ptr, size_t len)
{
	struct flow *flow = &current->flow;
	int32_t rc = BERTH_OK;

	while (len && !rc) {
		bool lost;
		size_t part = until_edge(current, len, &lost);

		if (lost) {
			if (!flow->in_gap)
				flow->gap_shown = flow->stdout_at;
			flow->in_gap = true;
		} else {
			rc = report_gap(call);
			if (!rc)
				rc = pass_on(call, BERTH_STREAM_STDOUT, ptr, part);
		}
		flow->stdout_at += part;
		ptr += part;
		len -= part;
	}
	return rc;
}

static int32_t shim_sink_write(struct berth_call *call, uint32_t stream, const void *ptr, size_t len)
{
	if (!current || !current->fx.set)
		return real->sink_write(call, stream, ptr, len);
	if (current->flow.cut)
		return BERTH_UNAVAILABLE;
	if (bent(FX_LOST_REPLY))
		return BERTH_OK;
	if (stream == BERTH_STREAM_STDOUT && bent(FX_GAP))
		return write_holed(call, ptr, len);
	return pass_on(call, stream, ptr, len);
}

static int32_t flood(struct berth_call *call)
{
	static const char line[] = "flood flood flood flood flood flood flood flood flood flood flo\n";
	uint64_t left = current->fx.flood;
	int32_t rc = BERTH_OK;

	while (left && !rc) {
		size_t part = left < sizeof(line) - 1 ? (size_t)left : sizeof(line) - 1;

		rc = pass_on(call, BERTH_STREAM_STDOUT, line, part);
		left -= part;
	}
	return rc;
}

static struct berth_ending bend_ending(const struct berth_ending *ending)
{
	struct berth_ending bad = *ending;

	if (bent(FX_QUIESCENT))
		bad.quiescent = current->fx.quiescent;
	if (bent(FX_ENDING))
		bad.kind = current->fx.ending;
	if (garbage(GARBAGE_KIND))
		bad.kind = 99;
	if (garbage(GARBAGE_REASON))
		bad.reason = too_long();
	if (garbage(GARBAGE_NUL))
		bad.reason = with_nul();
	return bad;
}

/* Killed with its session, or failed because its files (the script first of all) went from under it. */
static bool may_be_loss(const struct berth_ending *ending)
{
	switch (ending->kind) {
	case BERTH_ENDING_SIGNAL:
	case BERTH_ENDING_CANCELLED:
	case BERTH_ENDING_UNKNOWN:
		return true;
	case BERTH_ENDING_EXIT:
		return ending->exit_code != 0;
	default:
		return false;
	}
}

/* A command whose session went ends so, whatever its supervisor wrote last. */
static struct berth_ending judge(struct berth_call *call, const struct berth_ending *ending)
{
	struct berth_ending judged = *ending;
	struct session s;

	if (!current || current->m->null || !may_be_loss(ending))
		return judged;
	if (ending->kind == BERTH_ENDING_CANCELLED && real->cancel_state(call) != BERTH_CANCEL_NONE)
		return judged;
	if (store_load(&current->m->store, current->ref, &s) == -ENOENT) {
		judged.kind = BERTH_ENDING_SESSION_LOST;
		judged.exit_code = 0;
		judged.reason = text_str("deleted");
	}
	return judged;
}

static int32_t shim_emit_ending(struct berth_call *call, const struct berth_ending *ending)
{
	struct berth_ending judged = judge(call, ending), bad = bend_ending(&judged);
	int32_t rc = BERTH_OK;

	if (!current || !current->fx.set)
		return real->emit_ending(call, &judged);
	if (!silent() && bent(FX_GAP))
		rc = report_gap(call);
	if (!rc && !silent() && bent(FX_FLOOD))
		rc = flood(call);
	/* A stream that is cut right after its last byte loses the ending. */
	if (bent(FX_CUT) && current->flow.passed >= current->fx.cut)
		current->flow.cut = true;
	if (rc || silent() || garbage(GARBAGE_NONE))
		return rc;
	if (garbage(GARBAGE_TWICE))
		rc = real->emit_ending(call, &bad);
	return rc ? rc : real->emit_ending(call, &bad);
}

void shim_init(const struct berth_host *host)
{
	size_t size = host->struct_size < sizeof(shim_host) ? host->struct_size : sizeof(shim_host);

	real = host;
	memcpy(&shim_host, host, size);
	shim_host.struct_size = (uint32_t)size;
	shim_host.emit_session = shim_emit_session;
	shim_host.emit_cursor = shim_emit_cursor;
	shim_host.emit_ending = shim_emit_ending;
	shim_host.emit_file = shim_emit_file;
	shim_host.emit_change = shim_emit_change;
	shim_host.emit_token = shim_emit_token;
	shim_host.emit_expiry = shim_emit_expiry;
	shim_host.created = shim_created;
	shim_host.sink_write = shim_sink_write;
}
