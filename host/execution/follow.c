/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what a follower of one execution reads: its events from the store's stream, and how far its outputs are. Request
 * threads enter. Never changes anything.
 */
#include <stdlib.h>
#include <string.h>

#include "execution/execution_private.h"

struct next_event {
	const char *id;
	uint64_t after;
	uint64_t seq;
	char *doc;
	bool no_memory;
};

static bool take_event(const struct stream_entry *entry, void *arg)
{
	struct next_event *next = arg;

	next->seq = entry->seq;
	next->doc = strndup(entry->doc, entry->doc_len);
	next->no_memory = !next->doc;
	return false;
}

static int next_step(struct txn *txn, void *arg, struct err *err)
{
	struct next_event *next = arg;

	free(next->doc);
	next->doc = NULL;
	return txn_read_subject(txn, STREAM_EVENTS, next->id, next->after, 1, take_event, next, err);
}

int execution_next_event(struct executions *e, const char *id, uint64_t after, uint64_t *ret_seq, char **ret_doc,
			 struct err *err)
{
	struct next_event next = {.id = id, .after = after};
	int rc = store_view(e->config.store, next_step, &next, err);

	if (rc == 0 && next.no_memory)
		rc = err_set(err, ERR_NOMEM, "no memory for an event");
	if (rc) {
		free(next.doc);
		return rc;
	}
	*ret_seq = next.seq;
	*ret_doc = next.doc;
	return 0;
}

int execution_offsets(struct executions *e, const char *id, uint64_t ret_bytes[2], bool *ret_final, struct err *err)
{
	bool final[2] = {false, false};
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < 2; i++)
		rc = output_reach(e, id, i + 1, &ret_bytes[i], &final[i], err);
	*ret_final = final[0] && final[1];
	return rc;
}
