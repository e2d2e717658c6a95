/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operation's end means: the one table from a plugin's codes to the host's errors, and the rules about what
 * must have been said. The calling thread, after the plugin returned.
 */
#include "plugin/private.h"

#include "../../sdk/lib/codes.h"

/* The host's error for each code. */
enum {
	ERR_OF_OK = 0,
	ERR_OF_INVALID = ERR_PROVIDER,
	ERR_OF_NOT_FOUND = ERR_NOT_FOUND,
	ERR_OF_NOT_STARTED = ERR_NOT_STARTED,
	ERR_OF_CONFLICT = ERR_CONFLICT,
	ERR_OF_CAPACITY = ERR_CAPACITY,
	ERR_OF_QUOTA = ERR_QUOTA,
	ERR_OF_RATE_LIMITED = ERR_RATE_LIMITED,
	ERR_OF_UNAUTHENTICATED = ERR_PROVIDER_AUTH,
	ERR_OF_FORBIDDEN = ERR_PROVIDER_AUTH,
	ERR_OF_UNAVAILABLE = ERR_PROVIDER_UNAVAILABLE,
	ERR_OF_TIMEOUT = ERR_PROVIDER_TIMEOUT,
	ERR_OF_CANCELLED = ERR_CANCELLED,
	ERR_OF_SESSION_LOST = ERR_SESSION_GONE,
	ERR_OF_UNSUPPORTED = ERR_UNSUPPORTED,
	ERR_OF_UNKNOWN = ERR_OUTCOME_UNKNOWN,
	ERR_OF_STORAGE_FULL = ERR_STORAGE_FULL,
	ERR_OF_INTERNAL = ERR_INTERNAL,
};

static const struct code_row {
	int err;
	const char *word; /* also the reason when the plugin gave none; internal to it is not internal to the host */
} codes[] = {
#define ROW(name, word, status) \
	[BERTH_##name] = {ERR_OF_##name, BERTH_##name == BERTH_INTERNAL ? "plugin_internal" : word},
	CODES(ROW)
#undef ROW
};

static const char *const say_words[] = {
    "a session", "a cursor", "an ending", "a file", "a change", "a token", "an expiry",
    "created",   "progress", "started",   "a gap",  "output",   "data",    "source",
};

const char *call_code_word(int32_t code)
{
	return code < 0 || code > BERTH_CODE_MAX ? "not a code of the contract" : codes[code].word;
}

int32_t call_code_of(int err_code)
{
	switch (err_code) {
	case 0:
		return BERTH_OK;
	case ERR_INVALID_REQUEST:
	case ERR_PAYLOAD_TOO_LARGE:
	case ERR_REQUEST_TIMEOUT:
		return BERTH_INVALID;
	case ERR_CANCELLED:
	case ERR_DETACHED:
	case ERR_SHUTTING_DOWN:
		return BERTH_CANCELLED;
	case ERR_PROVIDER_TIMEOUT:
		return BERTH_TIMEOUT;
	default:
		return BERTH_INTERNAL;
	}
}

/* An operation that says OK has said what it owes. */
static void check_said(struct call *call, int32_t code)
{
	const struct op *op = call->op;

	for (unsigned bit = 0; bit < sizeof(say_words) / sizeof(*say_words); bit++) {
		if (!(op->once & (1u << bit)))
			continue;
		if (code == BERTH_OK && call->counts[bit] != 1)
			call_violate(call, "returned OK and emitted %s %u times instead of once", say_words[bit],
				     call->counts[bit]);
	}
	if (code != BERTH_OK && (op->once & SAY_ENDING) && call->ending.kind)
		call_violate(call, "emitted an ending and returned code %d (%s) instead of OK", code,
			     call_code_word(code));
}

static void check_code(struct call *call, int32_t code)
{
	const struct op *op = call->op;

	if (code < 0 || code > BERTH_CODE_MAX)
		call_violate(call, "returned the unknown code %d", code);
	else if (!(op->codes & (1u << code)))
		call_violate(call, "returned the code %s, which makes no sense here", codes[code].word);
	else if (code == BERTH_CANCELLED && !atomic_load(&call->cancel))
		call_violate(call, "returned the code cancelled and was not cancelled");
	else
		check_said(call, code);
}

static int report(struct call *call, int32_t code, struct err *err)
{
	const struct target *target = call->target;
	bool told = call->fail_code == code;
	const char *text = told && call->fail_text[0] ? call->fail_text : codes[code].word;
	int mapped = codes[code].err;

	if (code == BERTH_CANCELLED && atomic_load(&call->cancel) == BERTH_CANCEL_DETACH)
		mapped = ERR_DETACHED;
	err_set(err, mapped, "target %s: %s: %s", target->conf->name, call->op->name, text);
	if (!err)
		return mapped;
	err_reason(err, told && call->fail_reason[0] ? call->fail_reason : codes[code].word);
	if (told) {
		err->retryable = err->retryable || call->fail_retryable;
		err->retry_after_ms = call->fail_retry_after_ms;
	}
	return mapped;
}

int call_judge(struct call *call, int32_t code, struct err *err)
{
	/* What the host itself refused wins: the plugin was told to give up and may have called that anything. */
	if (!call->sink_code)
		check_code(call, code);
	if (atomic_load(&call->violated)) {
		char rule[sizeof(call->violation)];

		lock_take(&call->lock);
		snprintf(rule, sizeof(rule), "%s", call->violation);
		lock_drop(&call->lock);
		err_set(err, ERR_INTERNAL, "target %s: plugin %s broke a rule in %s: %s", call->target->conf->name,
			call->target->conf->provider, call->op->name, rule);
		err_reason(err, "plugin_violation");
		return ERR_INTERNAL;
	}
	if (call->sink_code == ERR_PROVIDER_TIMEOUT && call_is_late(call))
		return call_late(call->target, "it ended", err);
	if (call->sink_code)
		return err_set(err, call->sink_code, "target %s: %s: ended by its receiver", call->target->conf->name,
			       call->op->name);
	return code == BERTH_OK ? 0 : report(call, code, err);
}
