/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemons of a store say of themselves in their own rows: which roles they have and how much they run. Written
 * by the keeper with each heartbeat, read by the API and by hosts that only accept commands. Any thread. A row only
 * tells: whether its host lives is judged by its due time.
 */
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "session/session_private.h"

#define VERSION_MAX 32

struct host_row {
	const char *roles, *version;
	int64_t commands;
};

static const struct json_field fields[] = {
	{"roles", JSON_STR, 0, offsetof(struct host_row, roles)},
	{"version", JSON_STR, 0, offsetof(struct host_row, version)},
	{"commands", JSON_I64, 0, offsetof(struct host_row, commands)},
	{0},
};

/* Words of this program only: nothing is to be escaped. */
size_t host_doc(const struct sessions *s, char ret[HOST_DOC_MAX])
{
	char roles[CONF_ROLES_MAX];
	unsigned commands = s->roles & ROLE_RUNNER ? atomic_load(&s->commands) : 0;

	return (size_t)snprintf(ret, HOST_DOC_MAX, "{\"roles\":\"%s\",\"version\":\"%.*s\",\"commands\":%u}",
				conf_roles_text(s->roles, roles), VERSION_MAX, BERTH_VERSION, commands);
}

void session_set_capacity(struct sessions *s, unsigned commands)
{
	atomic_store(&s->commands, commands);
}

struct read {
	struct sessions *s;
	struct arena *arena;
	struct session_host *hosts;
	size_t count, room;
	int64_t now_ms;
};

static bool make_room(struct read *read)
{
	size_t room = read->room ? read->room * 2 : 16;
	struct session_host *more;

	if (read->count < read->room)
		return true;
	more = arena_alloc(read->arena, room * sizeof(*more));
	if (!more)
		return false;
	if (read->count)
		memcpy(more, read->hosts, read->count * sizeof(*more));
	read->hosts = more;
	read->room = room;
	return true;
}

/* A row that cannot be read is one of a host of another version: it is there, and says nothing of itself. */
static bool read_one(const struct store_row *row, void *arg)
{
	struct read *read = arg;
	struct host_row doc;
	struct session_host host = {.roles = ROLE_ALL, .version = ""};

	if (strcmp(row->key, read->s->config.host_id) == 0 || row->due_ms <= read->now_ms)
		return true;
	if (json_decode_text(read->arena, fields, row->doc, row->doc_len, &doc, sizeof(doc), NULL) == 0) {
		host.roles = doc.roles ? conf_roles_of(doc.roles) : ROLE_ALL;
		host.version = doc.version ? doc.version : "";
		host.commands = doc.commands;
	}
	host.id = arena_strdup(read->arena, row->key);
	if (!host.id || !make_room(read))
		return false;
	read->hosts[read->count++] = host;
	return true;
}

static int read_step(struct txn *txn, void *arg, struct err *err)
{
	struct read *read = arg;

	read->count = 0;
	read->now_ms = txn_now(txn);
	return txn_scan(txn, STORE_HOST, NULL, "", false, SIZE_MAX, read_one, read, err);
}

int session_hosts(struct sessions *s, struct arena *arena, struct session_host **ret, size_t *ret_count,
		  struct err *err)
{
	struct read read = {.s = s, .arena = arena};
	int r = s->exclusive ? 0 : store_view(s->config.store, read_step, &read, err);

	if (r)
		return r;
	*ret = read.hosts;
	*ret_count = read.count;
	return 0;
}
