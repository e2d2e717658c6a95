/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the table from errno to BERTH_ codes for everything that touches local files. Any thread; no state. Must never
 * call "absent" what could merely not be looked at.
 */
#include "localfs_errno.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	int err;
	int32_t code;
	const char *reason;
	uint32_t retryable;
} rows[] = {
	{ENOENT, BERTH_NOT_FOUND, "not_found", 0},
	{ENOTDIR, BERTH_INVALID, "not_directory", 0},
	{EISDIR, BERTH_INVALID, "is_directory", 0},
	{EXDEV, BERTH_INVALID, "path_escapes", 0},
	{ELOOP, BERTH_INVALID, "path_escapes", 0},
	{ENAMETOOLONG, BERTH_INVALID, "path_too_long", 0},
	{EINVAL, BERTH_INVALID, "path_invalid", 0},
	{ENXIO, BERTH_INVALID, "not_regular", 0},
	{ENODEV, BERTH_INVALID, "not_regular", 0},
	{EEXIST, BERTH_CONFLICT, "exists", 0},
	{ENOTEMPTY, BERTH_CONFLICT, "not_empty", 0},
	{EBUSY, BERTH_CONFLICT, "busy", 1},
	{ETXTBSY, BERTH_CONFLICT, "busy", 1},
	{EACCES, BERTH_FORBIDDEN, "access", 0},
	{EPERM, BERTH_FORBIDDEN, "access", 0},
	{EROFS, BERTH_FORBIDDEN, "read_only", 0},
	{ENOSPC, BERTH_STORAGE_FULL, "storage_full", 0},
	{EDQUOT, BERTH_STORAGE_FULL, "storage_full", 0},
	{EFBIG, BERTH_STORAGE_FULL, "file_too_big", 0},
	{EOPNOTSUPP, BERTH_UNSUPPORTED, "cross_device", 0},
	{EAGAIN, BERTH_UNAVAILABLE, "path_unstable", 1},
	{EMFILE, BERTH_UNAVAILABLE, "descriptors", 1},
	{ENFILE, BERTH_UNAVAILABLE, "descriptors", 1},
	{ENOMEM, BERTH_UNAVAILABLE, "memory", 1},
	{ETIMEDOUT, BERTH_UNAVAILABLE, "io", 1},
	{EIO, BERTH_UNAVAILABLE, "io", 1},
};

int32_t localfs_fail_errno(const struct berth_host *host, struct berth_call *call, int err, const char *doing)
{
	char detail[64], text[192];

	if (err < 0)
		err = -err;
	snprintf(text, sizeof(text), "%s: %s", doing, strerror_r(err, detail, sizeof(detail)));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].err == err)
			return host->fail(call, rows[i].code, rows[i].reason, rows[i].retryable, 0, text);
	return host->fail(call, BERTH_INTERNAL, "io", 0, 0, text);
}

int32_t localfs_fail(const struct berth_host *host, struct berth_call *call, int32_t code, const char *reason,
		     const char *text)
{
	return host->fail(call, code, reason, 0, 0, text);
}
