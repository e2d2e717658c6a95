/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what a host with some of the roles has to know of the others: how much is open and how much they run, so that a
 * host that only accepts commands can say when the queue is full, and whether every role has a living host. The fleet's
 * thread enters, and the main thread before it. It only looks; what it knows is as old as its last look.
 */
#include <string.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "execution/execution_private.h"

#define HOSTS_ARENA (4 * LIMIT_MIB)

struct others {
	unsigned roles;
	uint64_t room, open;
};

/* What waits has a message, what was taken has a claim. */
static int size_step(struct txn *txn, void *arg, struct err *err)
{
	struct others *others = arg;
	int64_t waits = 0, taken = 0;
	int rc = txn_stream_size(txn, STREAM_REQUESTS, &waits, err);

	if (rc == 0)
		rc = txn_due_size(txn, STORE_CLAIM, &taken, err);
	others->open = (uint64_t)(waits + taken);
	return rc;
}

static int look_at_hosts(struct executions *e, struct others *ret, struct err *err)
{
	struct arena *arena = arena_new(HOSTS_ARENA);
	struct session_host *hosts;
	size_t count;
	int rc = arena ? session_hosts(e->config.sessions, arena, &hosts, &count, err)
		       : err_set(err, ERR_NOMEM, "no memory to look at the other hosts");

	for (size_t i = 0; rc == 0 && i < count; i++) {
		ret->roles |= hosts[i].roles;
		if (hosts[i].roles & ROLE_RUNNER && hosts[i].commands > 0)
			ret->room += (uint64_t)hosts[i].commands;
	}
	arena_free(arena);
	return rc;
}

/* Hosts come one after the other: a role counts as missing only when nobody had it for the time of one heartbeat. */
static void note_role(struct executions *e, unsigned at, bool there)
{
	int64_t now_ns = clock_boot_ns();
	char word[CONF_ROLES_MAX];
	bool told = e->role_told & 1u << at;

	if (there) {
		if (told)
			log_info("a role has a host again", KS("role", conf_roles_text(1u << at, word)));
		e->role_told &= ~(1u << at);
		e->role_gone_ns[at] = 0;
		return;
	}
	if (e->role_gone_ns[at] == 0)
		e->role_gone_ns[at] = now_ns;
	if (told || now_ns - e->role_gone_ns[at] < e->config.conf->operation_ttl_ms * CLOCK_NS_PER_MS)
		return;
	log_warn("no living host has a role: what it does is left undone", KS("role", conf_roles_text(1u << at, word)));
	e->role_told |= 1u << at;
}

void elsewhere_look(struct executions *e)
{
	struct others others = {.roles = e->roles};
	struct err err = {0};
	int rc;

	if (e->roles == ROLE_ALL)
		return;
	rc = look_at_hosts(e, &others, &err);
	if (rc == 0 && !runs_commands(e))
		rc = store_view(e->config.store, size_step, &others, &err);
	if (rc) {
		if (rc != ERR_STORE) /* an outage is told by the store */
			log_warn("the other hosts could not be looked at", KS("error", err.msg));
		return;
	}
	for (unsigned i = 0; i < ROLE_COUNT; i++)
		note_role(e, i, others.roles & 1u << i);
	lock_take(&e->lock);
	e->open_elsewhere = others.open;
	e->room_elsewhere = others.room;
	e->accepted_since = 0;
	lock_drop(&e->lock);
}
