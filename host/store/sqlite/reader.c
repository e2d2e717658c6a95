/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: read-only steps in the caller's thread, each on a connection of a small pool and on one snapshot of the
 * database. Connections are made on demand up to a limit; past it a view waits for one. Nothing here ever writes.
 */
#include <assert.h>

#include "core/clock.h"
#include "store/sqlite/sqlite.h"

static int take_reader(struct sqlite_store *store, struct conn **ret, struct err *err)
{
	struct conn *conn;
	int rc;

	lock_take(&store->reader_lock);
	while (store->readers == NULL && store->readers_open == store->readers_max)
		cond_wait_until(&store->wake_reader, &store->reader_lock, INT64_MAX);
	conn = store->readers;
	if (conn != NULL)
		store->readers = conn->next;
	else
		store->readers_open++;
	lock_drop(&store->reader_lock);
	if (conn != NULL) {
		*ret = conn;
		return 0;
	}
	rc = conn_open(store->path, store->name, CONN_READER, ret, err);
	if (rc == 0) {
		(*ret)->store = store;
		return 0;
	}
	lock_take(&store->reader_lock);
	store->readers_open--;
	cond_wake_one(&store->wake_reader);
	lock_drop(&store->reader_lock);
	return rc;
}

static void give_reader(struct sqlite_store *store, struct conn *conn)
{
	lock_take(&store->reader_lock);
	conn->next = store->readers;
	store->readers = conn;
	cond_wake_one(&store->wake_reader);
	lock_drop(&store->reader_lock);
}

int reader_view(struct store *base, store_step step, void *arg, struct err *err)
{
	struct sqlite_store *store = sqlite_of(base);
	struct err ignored;
	struct conn *conn;
	struct txn txn;
	int rc;

	if (err == NULL)
		err = &ignored;
	rc = take_reader(store, &conn, err);
	if (rc != 0)
		return rc;
	rc = conn_run_plain(conn, STMT_PLAIN_BEGIN_READ, err);
	if (rc == 0) {
		txn_init(&txn, &sqlite_ops, conn, conn->arena, store_clock_now(&store->clock, clock_boot_ns()), true);
		rc = txn_end(&txn, step(&txn, arg, err), err);
		arena_reset(conn->arena);
	}
	if (!sqlite3_get_autocommit(conn->db))
		conn_run_plain(conn, STMT_PLAIN_ROLLBACK, &(struct err){0});
	give_reader(store, conn);
	return rc;
}

void reader_close_all(struct sqlite_store *store)
{
	struct conn *conn;

	while ((conn = store->readers) != NULL) {
		store->readers = conn->next;
		store->readers_open--;
		conn_close(conn);
	}
	assert(store->readers_open == 0);
}
