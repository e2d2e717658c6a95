/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing: whose file is it, is it whole, is it free; then the threads. Entered by the thread that starts
 * and stops the daemon. It must never write to a file before it is known to be this deployment's, and never make a new
 * database where an old one may have been.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/ident.h"
#include "core/log.h"
#include "store/sqlite/sqlite.h"

#define READERS_DEFAULT 4
#define MARK_SLACK_MS 2000 /* the stored mark is at most this much older than what was committed after it */
#define FILE_MAGIC "SQLite format 3"

static int sqlite_now(struct store *base, int64_t *ret_ms, struct err *err)
{
	(void)err;
	*ret_ms = store_clock_now(&sqlite_of(base)->clock, clock_boot_ns());
	return 0;
}

static void sqlite_close(struct store *base);

const struct store_ops sqlite_ops = {
	.name = "sqlite",
	.exclusive = true,
	.update = writer_update,
	.view = reader_view,
	.now = sqlite_now,
	.healthy = writer_healthy,
	.close = sqlite_close,
	.get = read_get,
	.scan_due = read_scan_due,
	.scan = read_scan,
	.read_stream = read_stream,
	.find_trim = read_find_trim,
	.stream_size = read_stream_size,
	.due_size = read_due_size,
	.count_get = read_count,
	.next = read_next,
};

/* ---- the path ---- */

/* The one true name of the file, so that two spellings of it meet at the same lock. */
static int resolve(const char *path, char **ret, struct err *err)
{
	char *dir = strdup(path), *file = strdup(path), *real = NULL;
	int rc = 0;

	*ret = realpath(path, NULL);
	if (*ret != NULL || dir == NULL || file == NULL)
		goto out;
	real = errno == ENOENT ? realpath(dirname(dir), NULL) : NULL;
	if (real == NULL || asprintf(ret, "%s/%s", strcmp(real, "/") == 0 ? "" : real, basename(file)) < 0) {
		*ret = NULL;
		rc = err_set(err, ERR_CONFIG, "the state database %s cannot be there: %s", path, strerror(errno));
	}
out:
	if (rc == 0 && *ret == NULL)
		rc = err_set(err, ERR_NOMEM, "no memory for a path");
	free(real);
	free(dir);
	free(file);
	return rc;
}

/* stat of path + suffix; false when there is no such file. */
static bool stat_beside(const char *path, const char *suffix, struct stat *ret)
{
	char *file = NULL;
	bool found;

	if (asprintf(&file, "%s%s", path, suffix) < 0)
		return false;
	found = lstat(file, ret) == 0;
	free(file);
	return found;
}

static int check_magic(const char *path, const char *name, struct err *err)
{
	char head[sizeof(FILE_MAGIC)] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return err_set(err, ERR_CONFIG, "%s cannot be read: %s", name, strerror(errno));
	len = pread(fd, head, sizeof(head), 0);
	close(fd);
	if (len == (ssize_t)sizeof(head) && memcmp(head, FILE_MAGIC, sizeof(head)) == 0)
		return 0;
	return err_set(err, ERR_CONFIG, "%s is not a Berth database; it is left as it is", name);
}

struct file_facts {
	bool exists;
	bool unclean; /* a log was left behind */
	int64_t size;
};

static int check_file(const char *path, const char *name, struct file_facts *ret, struct err *err)
{
	struct stat file, log;
	bool has_log = stat_beside(path, "-wal", &log) && log.st_size > 0;

	*ret = (struct file_facts){.exists = stat_beside(path, "", &file), .unclean = has_log};
	if (!ret->exists) {
		if (!has_log)
			return 0;
		return err_set(err, ERR_CONFIG,
			       "%s is missing but its log %s-wal is there: restore the database or remove the log",
			       name, name);
	}
	ret->size = file.st_size;
	if (!S_ISREG(file.st_mode))
		return err_set(err, ERR_CONFIG, "%s is not a regular file", name);
	if (file.st_size == 0)
		return err_set(err, ERR_CONFIG, "%s is empty: restore it, or remove it to begin with a new store",
			       name);
	if ((file.st_mode & 0222) == 0 || access(path, W_OK) != 0)
		return err_set(err, ERR_CONFIG, "%s is read-only", name);
	return check_magic(path, name, err);
}

int sync_parent(const char *path, struct err *err)
{
	char *copy = strdup(path);
	int fd = copy != NULL ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int rc = 0;

	if (fd < 0 || fsync(fd) != 0)
		rc = err_set(err, ERR_STORE, "the folder of the state database cannot be synced: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	free(copy);
	return rc;
}

/* ---- making a new one ---- */

static int fill_new(const char *file, const char *name, const struct store_config *config, struct err *err)
{
	char id[IDENT_ID_MAX + 1], boot_id[37];
	struct store_clock clock = {0};
	struct conn *conn = NULL;
	int rc = conn_open(file, name, CONN_CREATE, &conn, err);

	if (rc != 0)
		return rc;
	clock_boot_id(boot_id);
	store_clock_start(&clock, clock_wall_ms(), clock_boot_ns(), boot_id);
	ident_random(id, "", 32);
	rc = schema_create(conn, id, config->deployment, &clock, err);
	conn_close(conn);
	return rc;
}

/* Made under another name and renamed when whole: a crash in between leaves no half-made database. */
static int create(const char *path, const char *name, const struct store_config *config, struct err *err)
{
	char *file = NULL, *journal = NULL;
	int rc = 0, fd = -1;

	if (asprintf(&file, "%s.new", path) < 0 || asprintf(&journal, "%s.new-journal", path) < 0) {
		rc = err_set(err, ERR_NOMEM, "no memory for a path");
		goto out;
	}
	unlink(file);
	unlink(journal);
	fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		rc = err_set(err, ERR_CONFIG, "%s cannot be made: %s", name, strerror(errno));
		goto out;
	}
	close(fd);
	rc = fill_new(file, name, config, err);
	if (rc == 0 && rename(file, path) != 0)
		rc = err_set(err, ERR_STORE, "%s cannot be made: %s", name, strerror(errno));
	if (rc == 0)
		rc = sync_parent(path, err);
	else
		unlink(file);
out:
	free(file);
	free(journal);
	return rc;
}

/* ---- an existing one ---- */

static int quick_check(struct conn *conn, struct err *err)
{
	sqlite3_stmt *stmt = NULL;
	int code = sqlite3_prepare_v2(conn->db, "PRAGMA quick_check(1)", -1, &stmt, NULL);
	const unsigned char *text;
	bool whole;

	if (code == SQLITE_OK)
		code = sqlite3_step(stmt);
	text = code == SQLITE_ROW ? sqlite3_column_text(stmt, 0) : NULL;
	whole = text != NULL && strcmp((const char *)text, "ok") == 0;
	sqlite3_finalize(stmt);
	if (whole)
		return 0;
	return conn_error(conn, code == SQLITE_ROW ? SQLITE_CORRUPT : code, err);
}

/* On a read-only connection: a file that is refused stays as it was. */
static int inspect(struct sqlite_store *store, const struct store_config *config, const struct file_facts *facts,
		   int *ret_schema, struct err *err)
{
	struct conn *conn = NULL;
	int rc = conn_open(store->path, store->name, CONN_READER, &conn, err);

	if (rc == 0)
		rc = schema_check(conn, config->deployment, ret_schema, store->base.id, err);
	if (rc == 0 && facts->unclean && facts->size < QUICK_CHECK_BYTES)
		rc = quick_check(conn, err);
	conn_close(conn);
	return rc;
}

/* Written before the first step, so that a start under another boot is remembered; it also proves that the file
 * takes writes. */
static int save_clock(struct sqlite_store *store, struct err *err)
{
	struct conn *conn = store->writer_conn;
	int rc = conn_run_plain(conn, STMT_PLAIN_BEGIN_WRITE, err);

	if (rc == 0)
		rc = schema_save_clock(conn, &store->clock, err);
	if (rc == 0)
		rc = conn_run_plain(conn, STMT_PLAIN_COMMIT, err);
	return rc;
}

static int start_clock(struct sqlite_store *store, struct err *err)
{
	char boot_id[37];
	int rc = schema_load_clock(store->writer_conn, &store->clock, err);

	if (rc != 0)
		return rc;
	clock_boot_id(boot_id);
	if (strcmp(boot_id, store->clock.boot_id) != 0)
		store->clock.time_ms += MARK_SLACK_MS;
	if (store_clock_start(&store->clock, clock_wall_ms(), clock_boot_ns(), boot_id))
		log_info("the machine was started anew since the state database was last open");
	return save_clock(store, err);
}

static int open_writer(struct sqlite_store *store, int schema, const struct migration *steps, size_t count,
		       struct err *err)
{
	int page_size = 0;
	int rc = conn_open(store->path, store->name, CONN_WRITER, &store->writer_conn, err);

	if (rc != 0)
		return rc;
	store->writer_conn->store = store;
	rc = conn_set_wal(store->writer_conn, err);
	if (rc == 0)
		rc = schema_migrate(store->writer_conn, store->path, schema, steps, count, err);
	if (rc == 0)
		rc = start_clock(store, err);
	if (rc == 0)
		rc = conn_read_int(store->writer_conn, "PRAGMA page_size", &page_size, err);
	store->page_size = (size_t)page_size;
	return rc;
}

/* ---- the store ---- */

static struct sqlite_store *store_new(const struct store_config *config)
{
	struct sqlite_store *store = calloc(1, sizeof(*store));

	if (store == NULL)
		return NULL;
	store->base.magic = STORE_MAGIC;
	store->base.ops = &sqlite_ops;
	store->lock_fd = -1;
	store->queue_end = &store->queue;
	store->readers_max = config->readers > 0 ? config->readers : READERS_DEFAULT;
	lock_init(&store->lock, LOCK_STORE);
	lock_init(&store->reader_lock, LOCK_STORE);
	cond_init(&store->wake_writer);
	cond_init(&store->wake_pauser);
	cond_init(&store->wake_checkpoint);
	cond_init(&store->wake_reader);
	return store;
}

/* Threads first, the writer after the checkpointer that may pause it; the lock is the last thing to go. */
static void sqlite_close(struct store *base)
{
	struct sqlite_store *store = sqlite_of(base);

	checkpoint_stop(store);
	writer_stop(store);
	reader_close_all(store);
	if (store->writer_runs)
		checkpoint_truncate(store->writer_conn);
	conn_close(store->checkpoint_conn);
	conn_close(store->writer_conn);
	lockfile_drop(store->lock_fd);
	cond_fini(&store->wake_reader);
	cond_fini(&store->wake_checkpoint);
	cond_fini(&store->wake_pauser);
	cond_fini(&store->wake_writer);
	lock_fini(&store->reader_lock);
	lock_fini(&store->lock);
	free(store->path);
	free(store->name);
	store->base.magic = 0;
	free(store);
}

static int open_file(struct sqlite_store *store, const struct store_config *config, const struct migration *steps,
		     size_t count, struct err *err)
{
	struct file_facts facts;
	int schema = 0;
	int rc = check_file(store->path, store->name, &facts, err);

	if (rc == 0 && !facts.exists) {
		store->base.is_new = true;
		rc = create(store->path, store->name, config, err);
	}
	if (rc == 0)
		rc = inspect(store, config, &facts, &schema, err);
	if (rc == 0)
		rc = open_writer(store, schema, steps, count, err);
	return rc;
}

int sqlite_open_with(const struct store_config *config, const struct migration *steps, size_t count, struct store **ret,
		     struct err *err)
{
	struct sqlite_store *store;
	int rc;

	if (config->path == NULL || config->path[0] == '\0' || config->deployment == NULL ||
	    config->deployment[0] == '\0')
		return err_set(err, ERR_CONFIG, "the state database needs a path and a deployment");
	store = store_new(config);
	if (store == NULL)
		return err_set(err, ERR_NOMEM, "no memory for the store");
	rc = resolve(config->path, &store->path, err);
	if (rc != 0)
		goto out;
	store->name = strdup(strrchr(store->path, '/') + 1);
	if (store->name == NULL) {
		rc = err_set(err, ERR_NOMEM, "no memory for the store");
		goto out;
	}
	rc = lockfile_take(store->path, store->name, &store->lock_fd, err);
	if (rc == 0)
		rc = open_file(store, config, steps, count, err);
	if (rc == 0)
		rc = writer_start(store, err);
	if (rc == 0)
		rc = checkpoint_start(store, err);
out:
	if (rc != 0)
		sqlite_close(&store->base);
	else
		*ret = &store->base;
	return rc;
}

int store_open_sqlite(const struct store_config *config, struct store **ret, struct err *err)
{
	return sqlite_open_with(config, migrations, MIGRATIONS, ret, err);
}
