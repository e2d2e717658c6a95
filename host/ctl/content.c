/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file's bytes over the file routes. Any thread, with a struct ctl of its own. What is sent is checked by the daemon against
 * size and digest before it becomes visible; what comes is counted and digested here.
 */
#include "ctl/content.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/limits.h"

#define CHUNK (64 * LIMIT_KIB)

void ctl_file_path(struct buf *path, const struct ctl *ctl, const char *route, const char *task, const char *key,
		   const char *name)
{
	buf_init(path, 16384);
	buf_printf(path, "/sandbox/%s", route);
	ctl_query(path, "workspace_id", ctl->workspace);
	ctl_query(path, "task_id", task);
	ctl_query(path, key, name);
}

const char *ctl_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void content_temp_name(const char *name, char *ret, size_t size)
{
	static atomic_uint serial;
	const char *base = ctl_base_name(name);

	snprintf(ret, size, "%.*s.berthctl-part-%d-%u", (int)(base - name), name, (int)getpid(),
		 atomic_fetch_add(&serial, 1));
}

/* ---- digest ---- */

static void hex(const unsigned char *digest, char ret[65])
{
	for (size_t i = 0; i < 32; i++)
		snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

static int digest_rest(int fd, EVP_MD_CTX *md, int64_t *ret_size)
{
	char *chunk = malloc(CHUNK);
	ssize_t got = 1;

	*ret_size = 0;
	while (chunk && got && !ctl_stopped()) {
		got = read(fd, chunk, CHUNK);
		if (got < 0 && errno == EINTR) {
			got = 1;
			continue;
		}
		if (got < 0)
			break;
		EVP_DigestUpdate(md, chunk, (size_t)got);
		*ret_size += got;
	}
	free(chunk);
	if (ctl_stopped())
		errno = EINTR;
	return chunk && got == 0 ? 0 : -1;
}

int content_digest(int fd, int64_t *ret_size, char ret_hex[65])
{
	off_t start = lseek(fd, 0, SEEK_CUR);
	EVP_MD_CTX *md = EVP_MD_CTX_new();
	unsigned char digest[EVP_MAX_MD_SIZE];
	int rc = -1;

	if (md && start >= 0 && EVP_DigestInit_ex(md, EVP_sha256(), NULL))
		rc = digest_rest(fd, md, ret_size);
	if (!rc && EVP_DigestFinal_ex(md, digest, NULL))
		hex(digest, ret_hex);
	EVP_MD_CTX_free(md);
	return rc || lseek(fd, start, SEEK_SET) < 0 ? -1 : 0;
}

/* ---- put ---- */

static long from_fd(void *arg, void *buf, size_t cap)
{
	struct content *c = arg;
	ssize_t got;

	do
		got = ctl_stopped() ? 0 : read(c->fd, buf, cap);
	while (got < 0 && errno == EINTR);
	if (ctl_stopped())
		return -1;
	if (got < 0) {
		ctl_fail(CTL_ERROR, "%s: the local file cannot be read: %m", c->name);
		return -1;
	}
	c->moved += got;
	if (c->progress)
		c->progress(c->arg, got);
	return got;
}

int content_put(struct content *c, struct ctl_reply *reply)
{
	struct ctl_upload how = {.source = from_fd, .arg = c, .size = c->size, .silent = c->silent};
	struct buf path;
	char mode[16];
	int rc;

	c->moved = 0;
	ctl_file_path(&path, c->ctl, "file-content", c->task, "path", c->name);
	snprintf(mode, sizeof(mode), "%04o", c->mode);
	ctl_query(&path, "mode", mode);
	ctl_query(&path, "sha256", c->sha256);
	rc = ctl_upload(c->ctl, path.ptr, &how, reply);
	buf_fini(&path);
	return rc;
}

/* ---- get ---- */

struct get {
	struct content *c;
	EVP_MD_CTX *md;
};

static void on_begun(void *arg, const struct ctl_reply *reply)
{
	struct get *get = arg;

	if (get->c->begun)
		get->c->begun(get->c->arg, reply->size);
}

static int to_fd(void *arg, const void *ptr, size_t len)
{
	struct get *get = arg;
	const char *at = ptr;

	EVP_DigestUpdate(get->md, ptr, len);
	get->c->moved += (int64_t)len;
	if (get->c->progress)
		get->c->progress(get->c->arg, (int64_t)len);
	while (len) {
		ssize_t done = write(get->c->fd, at, len);

		if (done < 0 && errno == EINTR && !ctl_stopped())
			continue;
		if (done < 0)
			return ctl_stopped() ? -1 : ctl_fail(CTL_ERROR, "%s: cannot be written here: %m", get->c->name);
		at += done;
		len -= (size_t)done;
	}
	return 0;
}

int content_get(struct content *c, struct ctl_reply *reply)
{
	struct get get = {.c = c, .md = EVP_MD_CTX_new()};
	struct ctl_download how = {.sink = to_fd, .begun = on_begun, .arg = &get, .silent = c->silent};
	unsigned char digest[EVP_MAX_MD_SIZE];
	struct buf path;
	int rc;

	*reply = (struct ctl_reply){0};
	if (!get.md || !EVP_DigestInit_ex(get.md, EVP_sha256(), NULL)) {
		EVP_MD_CTX_free(get.md);
		return ctl_fail(CTL_ERROR, "out of memory");
	}
	c->moved = 0;
	ctl_file_path(&path, c->ctl, "file-content", c->task, "path", c->name);
	ctl_query(&path, "ensure", "false");
	rc = ctl_download(c->ctl, path.ptr, &how, reply);
	buf_fini(&path);
	if (EVP_DigestFinal_ex(get.md, digest, NULL))
		hex(digest, c->digest);
	EVP_MD_CTX_free(get.md);
	c->mode = reply->mode;
	return rc;
}

/* ---- small ones ---- */

static void show_moved(void *arg, int64_t bytes)
{
	ctl_progress_add(arg, bytes);
}

int ctl_send(struct ctl *ctl, const char *task, const char *name, int fd, const char *label, unsigned mode,
	     struct json_object **ret)
{
	struct content c = {.ctl = ctl, .task = task, .name = name, .fd = fd, .mode = mode, .size = -1, .progress = show_moved};
	struct ctl_progress progress;
	struct ctl_reply reply = {0};
	char digest[65];
	struct stat st;
	int rc;

	if (!fstat(fd, &st) && S_ISREG(st.st_mode)) {
		if (content_digest(fd, &c.size, digest))
			return ctl_stopped() ? CTL_ERROR : ctl_fail(CTL_ERROR, "%s: %m", label);
		c.sha256 = digest;
	}
	ctl_progress_begin(&progress, label, c.size);
	progress.on = progress.on && !ctl->json;
	c.arg = &progress;
	ctl_waiting_begin(ctl, task);
	rc = content_put(&c, &reply);
	ctl_waiting_end(ctl);
	ctl_progress_end(&progress);
	if (!rc && reply.status / 100 != 2)
		rc = ctl_explain_file(ctl, &reply, task, name);
	else if (!rc && ctl_number(reply.json, "Size", c.moved) != c.moved)
		rc = ctl_fail(CTL_ERROR, "%s: %lld bytes were sent, %s arrived", name, (long long)c.moved, ctl_text(reply.json, "Size"));
	else if (!rc && ret)
		*ret = json_object_get(reply.json);
	ctl_reply_fini(&reply);
	return rc;
}

struct bytes {
	const char *ptr;
	size_t len;
};

static long from_bytes(void *arg, void *buf, size_t cap)
{
	struct bytes *b = arg;
	size_t len = b->len < cap ? b->len : cap;

	if (len)
		memcpy(buf, b->ptr, len);
	b->ptr += len;
	b->len -= len;
	return (long)len;
}

int ctl_send_bytes(struct ctl *ctl, const char *task, const char *name, const void *ptr, size_t len)
{
	struct bytes bytes = {.ptr = ptr, .len = len};
	struct ctl_upload how = {.source = from_bytes, .arg = &bytes, .size = (int64_t)len};
	struct ctl_reply reply;
	struct buf path;
	int rc;

	ctl_file_path(&path, ctl, "file-content", task, "path", name);
	ctl_query(&path, "mode", "0600");
	ctl_waiting_begin(ctl, task);
	rc = ctl_upload(ctl, path.ptr, &how, &reply);
	ctl_waiting_end(ctl);
	if (!rc && reply.status / 100 != 2)
		rc = ctl_explain_file(ctl, &reply, task, name);
	ctl_reply_fini(&reply);
	buf_fini(&path);
	return rc;
}

int ctl_remove(struct ctl *ctl, const char *task, const char *name, bool recursive)
{
	struct ctl_reply reply;
	struct buf path;
	int rc;

	ctl_file_path(&path, ctl, "files", task, "path", name);
	ctl_query(&path, "recursive", recursive ? "true" : NULL);
	ctl_query(&path, "ensure", "false");
	rc = ctl_call(ctl, "DELETE", path.ptr, NULL, &reply);
	if (!rc && reply.status / 100 != 2)
		rc = ctl_explain_file(ctl, &reply, task, name);
	ctl_reply_fini(&reply);
	buf_fini(&path);
	return rc;
}
