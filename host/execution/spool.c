/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the bytes of open commands. One writer per output, readers from any thread; a lock per output guards what both
 * see, and file writes happen outside it (bytes past `size` belong to the writer). Never lets a limit or a slow reader
 * hold up a command, never loses what the provider can give again for want of room, and never gives a reader a byte
 * that may change.
 */
#include "execution/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/ident.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/thread.h"

#define FIRST_BYTES 512u

struct spool {
	char *dir;
	int64_t max_bytes;
	struct watch *watch;
	_Atomic int64_t used;
};

struct stream {
	/* The writer's alone. */
	uint64_t limit, seen, dropped;
	size_t room; /* of mem */
	EVP_MD_CTX *digest;
	const char *cut_by;
	/* Changed by the writer under the lock. */
	uint64_t size;
	char *mem; /* NULL once the bytes are in the file */
	int fd;
	char *path;
	bool hungry; /* a reader found nothing */
};

struct spool_output {
	struct spool *spool;
	char id[IDENT_ID_MAX + 1];
	_Atomic unsigned refs;
	struct lock lock;
	bool final;
	struct stream streams[2];
};

int spool_new(const char *dir, int64_t max_bytes, struct watch *watch, struct spool **ret, struct err *err)
{
	struct spool *spool = calloc(1, sizeof(*spool));

	if (spool)
		spool->dir = strdup(dir);
	if (!spool || !spool->dir) {
		free(spool);
		return err_set(err, ERR_NOMEM, "no memory for the spool");
	}
	spool->max_bytes = max_bytes;
	spool->watch = watch;
	*ret = spool;
	return 0;
}

void spool_free(struct spool *spool)
{
	if (!spool)
		return;
	free(spool->dir);
	free(spool);
}

int64_t spool_used(const struct spool *spool)
{
	return atomic_load(&spool->used);
}

struct spool_output *spool_output_new(struct spool *spool, const char *id)
{
	struct spool_output *out = calloc(1, sizeof(*out));

	if (!out)
		return NULL;
	out->spool = spool;
	snprintf(out->id, sizeof(out->id), "%s", id);
	atomic_init(&out->refs, 1);
	lock_init(&out->lock, LOCK_SPOOL);
	for (unsigned i = 0; i < 2; i++) {
		out->streams[i].fd = -1;
		out->streams[i].limit = UINT64_MAX;
	}
	return out;
}

struct spool_output *spool_output_ref(struct spool_output *out)
{
	atomic_fetch_add(&out->refs, 1);
	return out;
}

static void stream_fini(struct spool *spool, struct stream *s)
{
	atomic_fetch_sub(&spool->used, (int64_t)s->size);
	EVP_MD_CTX_free(s->digest);
	free(s->mem);
	if (s->fd >= 0)
		close(s->fd);
	if (s->path)
		unlink(s->path);
	free(s->path);
}

void spool_output_unref(struct spool_output *out)
{
	if (!out || atomic_fetch_sub(&out->refs, 1) != 1)
		return;
	for (unsigned i = 0; i < 2; i++)
		stream_fini(out->spool, &out->streams[i]);
	lock_fini(&out->lock);
	free(out);
}

static struct stream *stream_of(struct spool_output *out, unsigned stream)
{
	return &out->streams[stream == 2];
}

void spool_limit(struct spool_output *out, unsigned stream, int64_t max_bytes)
{
	stream_of(out, stream)->limit = (uint64_t)max_bytes;
}

/* Takes up to want bytes of what all commands may use. */
static size_t take_budget(struct spool *spool, size_t want)
{
	int64_t used = atomic_load(&spool->used);

	for (;;) {
		int64_t left = spool->max_bytes - used;
		size_t take = left <= 0 ? 0 : (uint64_t)left < want ? (size_t)left : want;

		if (atomic_compare_exchange_weak(&spool->used, &used, used + (int64_t)take))
			return take;
	}
}

/* How many of len bytes are kept, and what cuts the rest. Once one was dropped, none is kept after it. */
static size_t admit(struct spool *spool, const struct stream *s, size_t len, const char **ret_cut)
{
	uint64_t left = s->limit - s->size;
	size_t want = left < len ? (size_t)left : len;
	size_t take;

	*ret_cut = s->cut_by;
	if (s->cut_by)
		return 0;
	take = take_budget(spool, want);
	*ret_cut = take < want ? "spool_full" : want < len ? "limit" : NULL;
	return take;
}

static bool write_all(int fd, const char *ptr, size_t len, uint64_t offset)
{
	while (len > 0) {
		ssize_t n = pwrite(fd, ptr, len, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		ptr += n;
		len -= (size_t)n;
		offset += (uint64_t)n;
	}
	return true;
}

static bool open_file(struct spool_output *out, struct stream *s, char **ret_path, int *ret_fd)
{
	size_t size = strlen(out->spool->dir) + sizeof(out->id) + 48;
	char suffix[IDENT_ID_MAX + 1];
	char *path = malloc(size);

	if (!path)
		return false;
	ident_random(suffix, "", 16);
	snprintf(path, size, "%s/spool-%s-%d-%s", out->spool->dir, out->id, s == &out->streams[1] ? 2 : 1, suffix);
	*ret_fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (*ret_fd < 0) {
		free(path);
		return false;
	}
	*ret_path = path;
	return true;
}

/* From memory into a file; readers see one or the other. */
static bool move_to_file(struct spool_output *out, struct stream *s)
{
	char *path = NULL;
	char *mem = s->mem;
	int fd = -1;

	if (!open_file(out, s, &path, &fd))
		return false;
	if (!write_all(fd, mem, s->size, 0)) {
		close(fd);
		unlink(path);
		free(path);
		return false;
	}
	lock_take(&out->lock);
	s->fd = fd;
	s->path = path;
	s->mem = NULL;
	lock_drop(&out->lock);
	free(mem);
	return true;
}

static bool grow_memory(struct spool_output *out, struct stream *s, size_t need)
{
	size_t room = s->room ? s->room : FIRST_BYTES;
	char *mem;

	while (room < need)
		room *= 2;
	mem = malloc(room);
	if (!mem)
		return false;
	lock_take(&out->lock);
	if (s->mem)
		memcpy(mem, s->mem, s->size);
	free(s->mem);
	s->mem = mem;
	s->room = room;
	lock_drop(&out->lock);
	return true;
}

/* Puts bytes after `size`, where no reader looks yet. */
static bool store_bytes(struct spool_output *out, struct stream *s, const char *ptr, size_t len)
{
	bool small = s->fd < 0 && s->size + len <= LIMIT_INLINE_OBJECT;

	if (small) {
		if (s->size + len > s->room && !grow_memory(out, s, s->size + len))
			return false;
		memcpy(s->mem + s->size, ptr, len);
		return true;
	}
	if (s->fd < 0 && !move_to_file(out, s))
		return false;
	return write_all(s->fd, ptr, len, s->size);
}

static void digest_bytes(struct stream *s, const void *ptr, size_t len)
{
	if (!s->digest) {
		s->digest = EVP_MD_CTX_new();
		if (!s->digest || !EVP_DigestInit_ex(s->digest, EVP_sha256(), NULL))
			abort(); /* memory is out; a wrong digest must not be stored */
	}
	EVP_DigestUpdate(s->digest, ptr, len);
}

static void publish(struct spool_output *out, struct stream *s, size_t len)
{
	char key[64];
	bool hungry;

	lock_take(&out->lock);
	s->size += len;
	hungry = s->hungry;
	s->hungry = false;
	lock_drop(&out->lock);
	if (!hungry)
		return;
	snprintf(key, sizeof(key), "out:%s", out->id);
	watch_notify(out->spool->watch, key);
}

/* What passes: somebody makes room, or a descriptor is closed. */
static bool is_passing(int error)
{
	return error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE || error == ENOMEM;
}

int spool_write(struct spool_output *out, unsigned stream, const void *ptr, size_t len)
{
	struct stream *s = stream_of(out, stream);
	const char *cut;
	size_t keep = admit(out->spool, s, len, &cut);

	errno = 0;
	if (keep > 0 && !store_bytes(out, s, ptr, keep)) {
		int error = errno ? errno : ENOMEM;

		atomic_fetch_sub(&out->spool->used, (int64_t)keep);
		if (is_passing(error)) {
			errno = error;
			return ERR_STORAGE_FULL;
		}
		log_error("cannot spool output, the rest is dropped", KS("execution", out->id), KI("errno", error));
		cut = "spool_error";
		keep = 0;
	}
	s->cut_by = cut;
	s->seen += len;
	s->dropped += len - keep;
	if (keep > 0) {
		digest_bytes(s, ptr, keep);
		publish(out, s, keep);
	}
	return 0;
}

void spool_give_up(struct spool_output *out, unsigned stream)
{
	struct stream *s = stream_of(out, stream);

	if (!s->cut_by)
		s->cut_by = "spool_error";
}

void spool_gap(struct spool_output *out, unsigned stream, uint64_t from, uint64_t to)
{
	if (to > from)
		stream_of(out, stream)->seen += to - from;
}

uint64_t spool_seen(const struct spool_output *out, unsigned stream)
{
	return out->streams[stream == 2].seen;
}

void spool_finish(struct spool_output *out)
{
	char key[64];

	lock_take(&out->lock);
	out->final = true;
	lock_drop(&out->lock);
	snprintf(key, sizeof(key), "out:%s", out->id);
	watch_notify(out->spool->watch, key);
}

void spool_summary(struct spool_output *out, unsigned stream, struct spool_summary *ret)
{
	struct stream *s = stream_of(out, stream);
	unsigned char digest[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *copy = EVP_MD_CTX_new();
	unsigned len = 0;

	digest_bytes(s, "", 0);
	if (!copy || !EVP_MD_CTX_copy_ex(copy, s->digest) || !EVP_DigestFinal_ex(copy, digest, &len))
		abort();
	EVP_MD_CTX_free(copy);
	*ret = (struct spool_summary){
		.bytes = s->size,
		.dropped = s->dropped,
		.cut_by = s->cut_by,
		.path = s->path,
		.ptr = s->mem,
	};
	for (unsigned i = 0; i < len && i < 32; i++)
		snprintf(ret->sha256 + 2 * i, 3, "%02x", digest[i]);
}

void spool_taken(struct spool_output *out, unsigned stream)
{
	struct stream *s = stream_of(out, stream);

	lock_take(&out->lock);
	free(s->path);
	s->path = NULL;
	lock_drop(&out->lock);
}

static int read_file(int fd, uint64_t offset, void *buf, size_t len, struct err *err)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(err, ERR_IO, "cannot read spooled output: %s",
				       n ? strerror(errno) : "it is short");
		done += (size_t)n;
	}
	return 0;
}

int spool_read(struct spool_output *out, unsigned stream, uint64_t offset, void *buf, size_t cap, size_t *ret_len,
	       bool *ret_end, struct err *err)
{
	struct stream *s = stream_of(out, stream);
	size_t len;
	int fd;

	lock_take(&out->lock);
	len = offset >= s->size ? 0 : s->size - offset < cap ? (size_t)(s->size - offset) : cap;
	fd = s->fd;
	if (fd < 0 && len > 0)
		memcpy(buf, s->mem + offset, len);
	*ret_end = out->final && offset + len >= s->size;
	if (len == 0 && !*ret_end)
		s->hungry = true;
	lock_drop(&out->lock);
	*ret_len = len;
	return fd >= 0 && len > 0 ? read_file(fd, offset, buf, len, err) : 0;
}

uint64_t spool_size(struct spool_output *out, unsigned stream, bool *ret_final)
{
	uint64_t size;

	lock_take(&out->lock);
	size = stream_of(out, stream)->size;
	*ret_final = out->final;
	lock_drop(&out->lock);
	return size;
}
