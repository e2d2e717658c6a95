/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves the write-ahead log into the database, on a thread and a connection of its own, so that the writer never waits
 * for it: passively each time the log has grown by 4 MiB. A writer that never rests would keep the log growing for
 * ever; past 64 MiB it is paused between two groups for one more pass, after which the log starts anew.
 */
#include "core/log.h"
#include "store/sqlite/sqlite.h"

/* After a commit, on the writer's thread. The log starts anew when it has been moved wholly: then so does the count. */
void checkpoint_grown(struct sqlite_store *store)
{
	if (store->wal_bytes < store->wal_asked)
		store->wal_asked = 0;
	if (store->wal_bytes < store->wal_asked + WAL_CHECKPOINT_BYTES)
		return;
	store->wal_asked = store->wal_bytes;
	lock_take(&store->lock);
	store->checkpoint_asked = true;
	cond_wake_one(&store->wake_checkpoint);
	lock_drop(&store->lock);
}

/* The size of the log goes to ret_bytes. */
static bool pass(struct sqlite_store *store, size_t *ret_bytes)
{
	int pages = 0, moved = 0;
	int code = sqlite3_wal_checkpoint_v2(store->checkpoint_conn->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages,
					     &moved);
	struct err err;

	*ret_bytes = pages > 0 ? (size_t)pages * store->page_size : 0;
	if (code == SQLITE_OK || (code & 0xff) == SQLITE_BUSY) {
		store->checkpoint_failing = false;
		return true;
	}
	conn_error(store->checkpoint_conn, code, &err);
	if (!store->checkpoint_failing)
		log_warn("the write-ahead log cannot be moved into the database", KS("error", err.msg));
	store->checkpoint_failing = true;
	return false;
}

static void run(struct sqlite_store *store)
{
	size_t bytes;

	if (!pass(store, &bytes) || bytes < WAL_PAUSE_BYTES)
		return;
	writer_pause(store);
	pass(store, &bytes);
	writer_resume(store);
}

static void *checkpoint_main(void *arg)
{
	struct sqlite_store *store = arg;

	lock_take(&store->lock);
	while (!store->checkpoint_stop) {
		if (!store->checkpoint_asked) {
			cond_wait_until(&store->wake_checkpoint, &store->lock, INT64_MAX);
			continue;
		}
		store->checkpoint_asked = false;
		lock_drop(&store->lock);
		run(store);
		lock_take(&store->lock);
	}
	lock_drop(&store->lock);
	return NULL;
}

int checkpoint_start(struct sqlite_store *store, struct err *err)
{
	int rc = conn_open(store->path, store->name, CONN_CHECKPOINT, &store->checkpoint_conn, err);

	if (rc != 0)
		return rc;
	if (thread_start(&store->checkpointer, "store-ckpt", checkpoint_main, store) != 0)
		return err_set(err, ERR_NOMEM, "cannot start the state database's checkpoints");
	store->checkpoint_runs = true;
	return 0;
}

void checkpoint_stop(struct sqlite_store *store)
{
	if (!store->checkpoint_runs)
		return;
	lock_take(&store->lock);
	store->checkpoint_stop = true;
	cond_wake_all(&store->wake_checkpoint);
	lock_drop(&store->lock);
	pthread_join(store->checkpointer, NULL);
}

/* At close, with nobody else on the database: it is one file afterwards. A failure leaves the log, which the next
 * open reads. */
void checkpoint_truncate(struct conn *conn)
{
	sqlite3_wal_checkpoint_v2(conn->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}
