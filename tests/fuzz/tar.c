/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: an archive put into a sandbox's files. First byte 'f': headers get right checksums first, as any tar
 * program writes them; the second byte says how many bytes a read brings. Nothing may arrive outside of the root, and
 * nothing of an archive that was refused inside it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <berth/localfs.h>

#include "../../sdk/lib/localfs_ustar.h"
#include "fuzz.h"

struct berth_call {
	const uint8_t *ptr;
	size_t len, chunk;
	int fails;
	int32_t code;
	char reason[BERTH_REASON_MAX + 1];
};

static void host_log(struct berth_target *target, struct berth_call *call, uint32_t level, const struct berth_str *text,
		     const struct berth_pair *pairs, size_t count)
{
	(void)target, (void)call, (void)level, (void)text, (void)pairs, (void)count;
}

static void host_info(struct berth_call *call, struct berth_call_info *ret_info)
{
	(void)call;
	ret_info->deadline_ns = INT64_MAX;
}

static int32_t host_fail(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable,
			 int64_t retry_after_ms, const char *text)
{
	(void)retryable, (void)retry_after_ms;
	FUZZ_CHECK(strlen(reason) <= BERTH_REASON_MAX && *text);
	snprintf(call->reason, sizeof(call->reason), "%s", reason);
	call->fails++;
	call->code = code;
	return code;
}

static int32_t host_read(struct berth_call *call, void *buf, size_t cap, size_t *ret_len)
{
	size_t n = call->chunk && call->chunk < cap ? call->chunk : cap;

	n = n < call->len ? n : call->len;
	memcpy(buf, call->len ? call->ptr : (const uint8_t *)"", n);
	call->ptr += n;
	call->len -= n;
	*ret_len = n;
	return BERTH_OK;
}

static uint32_t host_cancel_state(struct berth_call *call)
{
	(void)call;
	return 0;
}

static int32_t host_cancel_fd(struct berth_call *call)
{
	(void)call;
	return -1;
}

static void host_random(void *buf, size_t len)
{
	FUZZ_CHECK(getrandom(buf, len, 0) == (ssize_t)len);
}

static const struct berth_host host = {
	.struct_size = sizeof(host),
	.log = host_log,
	.info = host_info,
	.fail = host_fail,
	.source_read = host_read,
	.cancel_state = host_cancel_state,
	.cancel_fd = host_cancel_fd,
	.random = host_random,
};

static int root = -1, outside = -1;

static void prepare(void)
{
	int dir = fuzz_folder_fd();

	if (root < 0) {
		FUZZ_CHECK(mkdirat(dir, "root", 0700) == 0 && mkdirat(dir, "outside", 0700) == 0);
		root = openat(dir, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		outside = openat(dir, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		FUZZ_CHECK(root >= 0 && outside >= 0);
	}
	fuzz_empty(root);
	FUZZ_CHECK(symlinkat("../outside", root, "l") == 0 && symlinkat("d", root, "m") == 0);
}

static size_t count_entries(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
	size_t count = 0;

	FUZZ_CHECK(stream != NULL);
	while (readdir(stream))
		count++;
	closedir(stream);
	return count - 2;
}

/* As any tar program would have written them: else hardly one header in a million gets past its checksum. */
static void mend_sums(uint8_t *data, size_t size)
{
	for (size_t at = 0; at + USTAR_BLOCK <= size; at += USTAR_BLOCK) {
		uint8_t *block = data + at;
		unsigned sum = 0;

		if (memcmp(block + 257, "ustar", 5) != 0)
			continue;
		memset(block + 148, ' ', 8);
		for (size_t i = 0; i < USTAR_BLOCK; i++)
			sum += block[i];
		snprintf((char *)block + 148, 8, "%06o", sum);
	}
}

/* The header codec by itself: what was read can be written and read again. */
static void check_header(const uint8_t *data)
{
	struct ustar_entry entry, again;
	unsigned char block[USTAR_BLOCK];

	if (ustar_parse(data, &entry) != 0)
		return;
	FUZZ_PLANTED(entry.path, strlen(entry.path));
	if (ustar_needs_pax(&entry) || entry.type == USTAR_PAX || entry.type == USTAR_PAX_GLOBAL || !entry.path[0])
		return;
	ustar_format(&entry, block);
	FUZZ_CHECK(ustar_parse(block, &again) == 0);
	FUZZ_CHECK(again.size == entry.size && again.mode == entry.mode);
	FUZZ_CHECK(again.mtime == (entry.mtime > 077777777777 ? 077777777777 : entry.mtime)); /* what eleven digits hold */
	FUZZ_CHECK(again.type == entry.type && strncmp(again.path, entry.path, strlen(entry.path)) == 0);
}

static void import(struct berth_call *call)
{
	const struct berth_localfs fs = {.struct_size = sizeof(fs), .root_fd = root, .uid = -1, .gid = -1};
	const struct berth_str path = {".", 1};
	int32_t code = berth_localfs_import(&host, call, &fs, &path);

	FUZZ_CHECK(code == BERTH_OK ? !call->fails : call->fails == 1 && call->code == code);
	FUZZ_CHECK(count_entries(outside) == 0);
	if (strncmp(call->reason, "tar_", 4) == 0)
		FUZZ_CHECK(count_entries(root) == 2);
	if (code == BERTH_OK)
		FUZZ_CHECK(call->len == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	bool mend = fuzz_byte(&in) == 'f';
	size_t chunk = (size_t)fuzz_byte(&in) * 37;
	uint8_t *archive = (uint8_t *)fuzz_copy(in.ptr, in.len);
	struct berth_call call = {.ptr = archive, .len = in.len, .chunk = chunk};

	prepare();
	if (mend)
		mend_sums(archive, in.len);
	if (in.len >= USTAR_BLOCK)
		check_header(archive);
	import(&call);
	free(archive);
	return 0;
}
