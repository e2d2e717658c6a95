/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what an answer of execute or reattach means for the command. One table, pure, any thread. Never reads doubt as
 * "it did not run", and never an error as an exit.
 */
#include "execution/execution_private.h"

/* fresh: execute, no sign of the command yet. asked: reattach, or execute after a sign. */
static const struct {
	int code;
	enum verdict fresh, asked;
} answers[] = {
	{ERR_DETACHED, VERDICT_DETACHED, VERDICT_DETACHED},
	{ERR_SESSION_GONE, VERDICT_LOST, VERDICT_LOST},
	{ERR_NOT_FOUND, VERDICT_LOST, VERDICT_LOST},
	{ERR_NOT_STARTED, VERDICT_REATTACH, VERDICT_NOT_STARTED},
	{ERR_CONFLICT, VERDICT_REATTACH, VERDICT_REATTACH},
	/* UNAVAILABLE is "transient; nothing happened": the executor does not listen yet, the bulkhead is full, slow
	   down. */
	{ERR_PROVIDER_UNAVAILABLE, VERDICT_AGAIN, VERDICT_REATTACH},
	{ERR_QUEUE_FULL, VERDICT_AGAIN, VERDICT_REATTACH},
	{ERR_RATE_LIMITED, VERDICT_AGAIN, VERDICT_REATTACH},
	{ERR_CAPACITY, VERDICT_AGAIN, VERDICT_REATTACH},
	/* Refused before anything ran. */
	{ERR_INVALID_REQUEST, VERDICT_REFUSED, VERDICT_DOUBT},
	{ERR_PROVIDER, VERDICT_REFUSED, VERDICT_DOUBT},
	{ERR_PROVIDER_AUTH, VERDICT_REFUSED, VERDICT_REATTACH},
	{ERR_QUOTA, VERDICT_REFUSED, VERDICT_REATTACH},
	{ERR_UNSUPPORTED, VERDICT_REFUSED, VERDICT_GIVE_UP},
	{ERR_STORAGE_FULL, VERDICT_REFUSED, VERDICT_DOUBT},
	/* The outcome is not known. */
	{ERR_OUTCOME_UNKNOWN, VERDICT_REATTACH, VERDICT_DOUBT},
	{ERR_INTERNAL, VERDICT_REATTACH, VERDICT_DOUBT},
	{ERR_PROVIDER_TIMEOUT, VERDICT_REATTACH, VERDICT_REATTACH},
	{ERR_CANCELLED, VERDICT_REATTACH, VERDICT_REATTACH},
};

enum verdict verdict_of(int code, uint32_t ending_kind, bool reattach, bool touched)
{
	if (code == 0 && ending_kind == BERTH_ENDING_UNKNOWN)
		return reattach ? VERDICT_DOUBT : VERDICT_REATTACH;
	if (code == 0 && ending_kind == BERTH_ENDING_SESSION_LOST)
		return VERDICT_LOST;
	if (code == 0)
		return ending_kind ? VERDICT_ENDED : VERDICT_REATTACH;
	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		if (answers[i].code != code)
			continue;
		if (reattach || !touched)
			return reattach ? answers[i].asked : answers[i].fresh;
		/* Execute after a sign of the command: whatever it says, the command has to be asked for. */
		return answers[i].fresh == VERDICT_LOST || answers[i].fresh == VERDICT_DETACHED ? answers[i].fresh
												: VERDICT_REATTACH;
	}
	return reattach ? VERDICT_DOUBT : VERDICT_REATTACH;
}
