/* SPDX-License-Identifier: Apache-2.0 */
/* File operations of the kit: whole files from and to memory, and archives. Any thread of a rule. */
#include "kit.h"

#define TAR_BLOCK 512

struct sink_state {
	struct buf *out;
	struct source *source;
};

static int take(void *arg, unsigned stream, const void *ptr, size_t len)
{
	struct sink_state *state = arg;

	return stream == BERTH_STREAM_DATA ? buf_append(state->out, ptr, len) : ERR_INTERNAL;
}

static int give(void *arg, void *buf, size_t cap, size_t *ret_len)
{
	struct sink_state *state = arg;
	struct source *source = state->source;
	size_t left = source->len - source->at, most = source->step ? source->step : cap;

	if (source->peek && source->at * 2 >= source->len) {
		void (*peek)(struct source * source) = source->peek;

		source->peek = NULL;
		peek(source);
	}
	most = most < cap ? most : cap;
	*ret_len = left < most ? left : most;
	if (!*ret_len)
		return source->end_rc;
	memcpy(buf, source->ptr + source->at, *ret_len);
	source->at += *ret_len;
	return 0;
}

int file_write(struct check *check, struct session *session, const char *path, unsigned mode, uint64_t size,
	       struct source *source, struct err *err)
{
	struct sink_state state = {.source = source};
	const struct call_sink sink = {.read = give, .arg = &state};
	const struct berth_file_write write = {
		.struct_size = sizeof(write), .mode = mode, .path = str(path), .size = size};

	return call_file_write(check_call_ms(check, kit_ms(check->kit, 60000), &sink), &session->abi, &write, err);
}

int file_put(struct check *check, struct session *session, const char *path, unsigned mode, const void *ptr, size_t len,
	     struct err *err)
{
	struct source source = {.ptr = ptr, .len = len};

	return file_write(check, session, path, mode, len, &source, err);
}

int file_get(struct check *check, struct session *session, const char *path, uint64_t offset, uint64_t length,
	     struct buf *ret, struct err *err)
{
	struct sink_state state = {.out = ret};
	const struct call_sink sink = {.write = take, .arg = &state};

	return call_file_read(check_call_ms(check, kit_ms(check->kit, 60000), &sink), &session->abi, path, offset,
			      length, err);
}

int file_import_from(struct check *check, struct session *session, const char *path, struct source *source,
		     struct err *err)
{
	struct sink_state state = {.source = source};
	const struct call_sink sink = {.read = give, .arg = &state};

	return call_import(check_call_ms(check, kit_ms(check->kit, 60000), &sink), &session->abi, path, err);
}

int file_import(struct check *check, struct session *session, const char *path, const void *ptr, size_t len,
		struct err *err)
{
	struct source source = {.ptr = ptr, .len = len};

	return file_import_from(check, session, path, &source, err);
}

int file_export(struct check *check, struct session *session, const char *const *paths, size_t count, struct buf *ret,
		struct err *err)
{
	struct sink_state state = {.out = ret};
	const struct call_sink sink = {.write = take, .arg = &state};
	struct berth_str *all = check_alloc(check, count * sizeof(*all));

	for (size_t i = 0; i < count; i++)
		all[i] = str(paths[i]);
	return call_export(check_call_ms(check, kit_ms(check->kit, 60000), &sink), &session->abi, all, count, err);
}

/* xorshift: the same bytes every time, so that a failure can be repeated. */
void file_fill(char *ptr, size_t len, uint64_t seed)
{
	uint64_t x = seed * 2654435761u + 88172645463325252u;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		ptr[i] = (char)(x >> 24);
	}
}

const char *file_dir(struct check *check)
{
	return check_printf(check, "d%u", check->kit->serial++);
}

void file_tar_entry(struct buf *tar, const char *name, char type, const char *link, unsigned mode, const void *data,
		    size_t len)
{
	char block[TAR_BLOCK] = {0};
	unsigned sum = 0;

	snprintf(block, 100, "%s", name);
	snprintf(block + 100, 8, "%07o", mode);
	snprintf(block + 108, 8, "%07o", 0u);
	snprintf(block + 116, 8, "%07o", 0u);
	snprintf(block + 124, 12, "%011zo", len);
	snprintf(block + 136, 12, "%011o", 1700000000u);
	memset(block + 148, ' ', 8);
	block[156] = type;
	snprintf(block + 157, 100, "%s", link);
	memcpy(block + 257,
	       "ustar\0"
	       "00",
	       8);
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += (unsigned char)block[i];
	snprintf(block + 148, 8, "%06o", sum);
	buf_append(tar, block, TAR_BLOCK);
	if (len)
		buf_append(tar, data, len);
	memset(block, 0, sizeof(block));
	buf_append(tar, block, (TAR_BLOCK - len % TAR_BLOCK) % TAR_BLOCK);
}

void file_tar_end(struct buf *tar)
{
	static const char zeros[2 * TAR_BLOCK];

	buf_append(tar, zeros, sizeof(zeros));
}
