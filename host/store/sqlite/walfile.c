/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writer's log, in few writes: SQLite hands over each frame in two pieces, a head of 24 bytes and a page, some 30
 * per execution, all of them one after another in the file. They are gathered here and written at the latest when
 * SQLite syncs the log, which it does before it tells other connections of a commit (synchronous=FULL). Entered by
 * SQLite from the writer's connection only; any other file, and what other connections open, is SQLite's own.
 *
 * A transaction must never be committed without a frame of it: writing and syncing may fail, and SQLite rolls back then.
 * Reading may not fail for what is gathered (a failed read costs one statement and not the transaction). Nobody else
 * may write to the database while it is open here: what a step that was rolled back left is written before the next one.
 */
#include <pthread.h>
#include <string.h>

#include "core/limits.h"
#include "store/sqlite/sqlite.h"

/* 30 frames; a commit of one step has 10 to 15. SQLite's own files take less than 128 KiB at once (seekAndWriteFd in
 * os_unix.c keeps the lower 17 bits of a length). */
#define GATHER_MAX (124 * LIMIT_KIB)

struct wal_file {
	sqlite3_file base; /* first: what SQLite sees */
	sqlite3_file *real;
	sqlite3_int64 at; /* where the gathered bytes belong */
	size_t len;
	char *bytes;
	bool through; /* nothing is gathered: SQLite pads a commit behind its sync on such a device */
};

static sqlite3_vfs *real_vfs, gather_vfs;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct wal_file *wal_of(sqlite3_file *file)
{
	return (struct wal_file *)file;
}

static int flush(struct wal_file *wal)
{
	size_t len = wal->len;

	wal->len = 0;
	return len == 0 ? SQLITE_OK : wal->real->pMethods->xWrite(wal->real, wal->bytes, (int)len, wal->at);
}

static int gather_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 at)
{
	struct wal_file *wal = wal_of(file);
	size_t len = (size_t)count;
	int rc = SQLITE_OK;

	if (at != wal->at + (sqlite3_int64)wal->len || wal->len + len > GATHER_MAX)
		rc = flush(wal);
	if (rc != SQLITE_OK)
		return rc;
	if (wal->through || len > GATHER_MAX)
		return wal->real->pMethods->xWrite(wal->real, bytes, count, at);
	if (wal->len == 0)
		wal->at = at;
	memcpy(wal->bytes + wal->len, bytes, len);
	wal->len += len;
	return SQLITE_OK;
}

static int gather_read(sqlite3_file *file, void *ret, int count, sqlite3_int64 at)
{
	struct wal_file *wal = wal_of(file);
	sqlite3_int64 end = at + count, gathered = wal->at + (sqlite3_int64)wal->len;
	int rc = SQLITE_OK;

	if (at >= wal->at && end <= gathered) {
		memcpy(ret, wal->bytes + (at - wal->at), (size_t)count);
		return SQLITE_OK;
	}
	if (at < gathered && end > wal->at)
		rc = flush(wal);
	return rc != SQLITE_OK ? rc : wal->real->pMethods->xRead(wal->real, ret, count, at);
}

static int gather_truncate(sqlite3_file *file, sqlite3_int64 size)
{
	struct wal_file *wal = wal_of(file);
	int rc = flush(wal);

	return rc != SQLITE_OK ? rc : wal->real->pMethods->xTruncate(wal->real, size);
}

static int gather_sync(sqlite3_file *file, int flags)
{
	struct wal_file *wal = wal_of(file);
	int rc = flush(wal);

	return rc != SQLITE_OK ? rc : wal->real->pMethods->xSync(wal->real, flags);
}

static int gather_size(sqlite3_file *file, sqlite3_int64 *ret)
{
	struct wal_file *wal = wal_of(file);
	int rc = flush(wal);

	return rc != SQLITE_OK ? rc : wal->real->pMethods->xFileSize(wal->real, ret);
}

/* What was not synced was not committed. */
static int gather_close(sqlite3_file *file)
{
	struct wal_file *wal = wal_of(file);

	sqlite3_free(wal->bytes);
	return wal->real->pMethods->xClose(wal->real);
}

static int pass_lock(sqlite3_file *file, int level)
{
	return wal_of(file)->real->pMethods->xLock(wal_of(file)->real, level);
}

static int pass_unlock(sqlite3_file *file, int level)
{
	return wal_of(file)->real->pMethods->xUnlock(wal_of(file)->real, level);
}

static int pass_locked(sqlite3_file *file, int *ret)
{
	return wal_of(file)->real->pMethods->xCheckReservedLock(wal_of(file)->real, ret);
}

static int pass_control(sqlite3_file *file, int op, void *arg)
{
	return wal_of(file)->real->pMethods->xFileControl(wal_of(file)->real, op, arg);
}

static int pass_sector(sqlite3_file *file)
{
	return wal_of(file)->real->pMethods->xSectorSize(wal_of(file)->real);
}

static int pass_device(sqlite3_file *file)
{
	return wal_of(file)->real->pMethods->xDeviceCharacteristics(wal_of(file)->real);
}

static const sqlite3_io_methods methods = {
	.iVersion = 1, /* no shared memory, no mapping: a log has neither */
	.xClose = gather_close,
	.xRead = gather_read,
	.xWrite = gather_write,
	.xTruncate = gather_truncate,
	.xSync = gather_sync,
	.xFileSize = gather_size,
	.xLock = pass_lock,
	.xUnlock = pass_unlock,
	.xCheckReservedLock = pass_locked,
	.xFileControl = pass_control,
	.xSectorSize = pass_sector,
	.xDeviceCharacteristics = pass_device,
};

static int open_log(const char *path, struct wal_file *wal, int flags, int *ret_flags)
{
	int rc;

	*wal = (struct wal_file){.real = (sqlite3_file *)(wal + 1), .bytes = sqlite3_malloc(GATHER_MAX)};
	if (wal->bytes == NULL)
		return SQLITE_NOMEM;
	rc = real_vfs->xOpen(real_vfs, path, wal->real, flags, ret_flags);
	if (rc != SQLITE_OK) {
		sqlite3_free(wal->bytes);
		return rc;
	}
	wal->through = (pass_device(&wal->base) & SQLITE_IOCAP_POWERSAFE_OVERWRITE) == 0;
	wal->base.pMethods = &methods;
	return SQLITE_OK;
}

static int open_file(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *ret_flags)
{
	(void)vfs;
	if ((flags & SQLITE_OPEN_WAL) != 0)
		return open_log(path, wal_of(file), flags, ret_flags);
	return real_vfs->xOpen(real_vfs, path, file, flags, ret_flags);
}

static void make_vfs(void)
{
	real_vfs = sqlite3_vfs_find(NULL);
	if (real_vfs == NULL)
		return;
	gather_vfs = *real_vfs;
	gather_vfs.zName = WALFILE_VFS;
	gather_vfs.pNext = NULL;
	gather_vfs.szOsFile += (int)sizeof(struct wal_file);
	gather_vfs.xOpen = open_file;
	sqlite3_vfs_register(&gather_vfs, 0);
}

void walfile_init(void)
{
	pthread_once(&once, make_vfs);
}
