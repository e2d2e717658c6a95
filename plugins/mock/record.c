/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing of a session's own files. The session file is text, one key=value a line, in one fixed order, so
 * that tests can read it with a shell. Any thread; writers of one session are kept apart by the caller. Must never
 * leave a file half written under its name.
 */
#include "record.h"

#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_MAGIC "berth-mock-session 1\n"
#define RECORD_MAX 2048

static const struct field {
	const char *key;
	size_t offset;
	size_t size; /* of a text; 0 = int64_t */
} fields[] = {
#define TEXT(name) {#name, offsetof(struct session, name), sizeof(((struct session *)0)->name)}
#define NUMBER(name) {#name, offsetof(struct session, name), 0}
    TEXT(ref),          TEXT(deployment),   TEXT(workspace),  TEXT(task),      TEXT(intent),       TEXT(boot),
    NUMBER(created_ms), NUMBER(expires_ms), NUMBER(ready_ms), NUMBER(deaf_ms), NUMBER(visible_ms),
#undef TEXT
#undef NUMBER
};
#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

static int write_all(int fd, const char *ptr, size_t len)
{
	while (len) {
		ssize_t done = write(fd, ptr, len);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		ptr += done;
		len -= (size_t)done;
	}
	return 0;
}

static int replace_file(int dir_fd, const char *name, const char *ptr, size_t len, bool sync)
{
	char temporary[64];
	int fd, rc;

	snprintf(temporary, sizeof(temporary), "%s.new", name);
	fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = write_all(fd, ptr, len);
	if (!rc && sync && fdatasync(fd))
		rc = -errno;
	close(fd);
	if (!rc && renameat(dir_fd, temporary, dir_fd, name))
		rc = -errno;
	return rc;
}

int record_write(int dir_fd, const struct session *s, bool sync)
{
	char text[RECORD_MAX];
	size_t len = (size_t)snprintf(text, sizeof(text), "%s", RECORD_MAGIC);

	for (size_t i = 0; i < FIELD_COUNT; i++) {
		const char *at = (const char *)s + fields[i].offset;
		int64_t number;

		if (fields[i].size) {
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s=%s\n", fields[i].key, at);
		} else {
			memcpy(&number, at, sizeof(number));
			len +=
			    (size_t)snprintf(text + len, sizeof(text) - len, "%s=%" PRId64 "\n", fields[i].key, number);
		}
		if (len >= sizeof(text))
			return -EOVERFLOW;
	}
	return replace_file(dir_fd, "session", text, len, sync);
}

/* One line "key=value" of the field; returns what follows, or NULL. */
static const char *parse_field(const char *text, const struct field *field, struct session *s)
{
	size_t key_len = strlen(field->key), len;
	char *at = (char *)s + field->offset;
	char *end;
	int64_t number;

	if (strncmp(text, field->key, key_len) || text[key_len] != '=')
		return NULL;
	text += key_len + 1;
	len = strcspn(text, "\n");
	if (text[len] != '\n')
		return NULL;
	if (field->size)
		return text_copy(at, field->size, (struct berth_str){text, len}) ? text + len + 1 : NULL;
	errno = 0;
	number = strtoll(text, &end, 10);
	if (errno || end != text + len || !len)
		return NULL;
	memcpy(at, &number, sizeof(number));
	return end + 1;
}

static int read_small(int dir_fd, const char *name, char *buf, size_t cap)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return -errno;
	do {
		len = read(fd, buf, cap - 1);
	} while (len < 0 && errno == EINTR);
	if (len < 0)
		len = -errno;
	close(fd);
	if (len >= 0)
		buf[len] = '\0';
	return (int)len;
}

int record_read(int dir_fd, struct session *ret)
{
	struct session s = {0};
	char text[RECORD_MAX];
	const char *at = text + strlen(RECORD_MAGIC);
	int len = read_small(dir_fd, "session", text, sizeof(text));

	if (len < 0)
		return len;
	if (strncmp(text, RECORD_MAGIC, strlen(RECORD_MAGIC)))
		return -EBADMSG;
	for (size_t i = 0; at && i < FIELD_COUNT; i++)
		at = parse_field(at, &fields[i], &s);
	if (!at || *at)
		return -EBADMSG;
	*ret = s;
	return 0;
}

static char *put(char *at, struct berth_str text, char end)
{
	if (text.len)
		memcpy(at, text.ptr, text.len);
	at[text.len] = end;
	return at + text.len + 1;
}

int record_write_env(int dir_fd, const struct berth_pair *env, size_t count)
{
	size_t len = 0;
	char *text, *at;
	int rc;

	for (size_t i = 0; i < count; i++)
		len += env[i].name.len + env[i].value.len + 2;
	at = text = malloc(len + 1);
	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		at = put(at, env[i].name, '=');
		at = put(at, env[i].value, '\0');
	}
	rc = replace_file(dir_fd, "env", text, len, true);
	free(text);
	return rc;
}

static int read_rest(int fd, char *buf, size_t size, size_t *ret_len)
{
	size_t len = 0;

	while (len < size) {
		ssize_t got = read(fd, buf + len, size - len);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got)
			break;
		len += (size_t)got;
	}
	*ret_len = len;
	return 0;
}

int record_read_env(int dir_fd, char **ret, size_t *ret_len)
{
	int fd = openat(dir_fd, "env", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char *text = NULL;
	struct stat st;
	size_t len = 0;
	int rc = 0;

	if (fd < 0 && errno != ENOENT)
		return -errno;
	if (fd >= 0) {
		rc = fstat(fd, &st) ? -errno : 0;
		if (!rc && !(text = malloc((size_t)st.st_size + 1)))
			rc = -ENOMEM;
		if (!rc)
			rc = read_rest(fd, text, (size_t)st.st_size, &len);
		close(fd);
	}
	if (rc) {
		free(text);
		return rc;
	}
	*ret = text;
	*ret_len = len;
	return 0;
}
