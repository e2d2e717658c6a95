/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what to run: the spec file (one key=value a line) and the environment file (NUL-terminated NAME=VALUE pairs,
 * taken as they are). Called once, before the start is decided. Must never let anything of its own environment through.
 */
#include "sup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Beyond what execve takes on any kernel, so that nothing it would take is refused here. */
#define ENV_FILE_MAX (64u << 20)

static int load_numbers(struct spec *spec, const char *text)
{
	struct {
		const char *key;
		int64_t min, max, value;
	} n[] = {
		{"timeout_ms", 1, INT64_MAX, 0},     {"kill_grace_ms", 0, INT64_MAX, 0},
		{"drain_grace_ms", 0, INT64_MAX, 0}, {"stdout_max", 0, INT64_MAX, 0},
		{"stderr_max", 0, INT64_MAX, 0},     {"keep_descendants", 0, 1, 0},
		{"has_stdin", 0, 1, 0},		     {"uid", -1, INT32_MAX, 0},
		{"gid", -1, INT32_MAX, 0},
	};

	for (size_t i = 0; i < sizeof(n) / sizeof(n[0]); i++)
		if (sup_number_in(text, n[i].key, n[i].min, n[i].max, &n[i].value) < 0)
			return -EINVAL;
	spec->timeout_ms = n[0].value;
	spec->kill_grace_ms = n[1].value;
	spec->drain_grace_ms = n[2].value;
	spec->max[0] = (uint64_t)n[3].value;
	spec->max[1] = (uint64_t)n[4].value;
	spec->keep_descendants = n[5].value != 0;
	spec->has_stdin = n[6].value != 0;
	spec->uid = (int32_t)n[7].value;
	spec->gid = (int32_t)n[8].value;
	return 0;
}

static int read_env(int fd, size_t size, char **ret_bytes)
{
	char *bytes = malloc(size + 1);
	size_t len = 0;

	if (!bytes)
		return -ENOMEM;
	while (len < size) {
		ssize_t n = read(fd, bytes + len, size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			free(bytes);
			return n < 0 ? -errno : -EINVAL;
		}
		len += (size_t)n;
	}
	bytes[size] = '\0';
	*ret_bytes = bytes;
	return 0;
}

/* Takes bytes, which the pairs point into. */
static int split_env(struct spec *spec, char *bytes, size_t size)
{
	size_t count = 0;
	int rc = size && bytes[size - 1] != '\0' ? -EINVAL : 0;

	for (size_t i = 0; i < size; i++)
		count += bytes[i] == '\0';
	if (rc == 0)
		spec->env = calloc(count + 1, sizeof(*spec->env));
	if (rc == 0 && !spec->env)
		rc = -ENOMEM;
	if (rc < 0 || count == 0) {
		free(bytes);
		return rc;
	}
	for (size_t i = 0; i < count; i++) {
		spec->env[i] = bytes;
		bytes += strlen(bytes) + 1;
	}
	return 0;
}

static int load_env(struct spec *spec, int attempt_fd)
{
	struct stat st;
	char *bytes = NULL;
	int fd = openat(attempt_fd, "env", O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	int rc;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		rc = -errno;
	else if (st.st_size > ENV_FILE_MAX)
		rc = -EFBIG;
	else
		rc = read_env(fd, (size_t)st.st_size, &bytes);
	close(fd);
	return rc < 0 ? rc : split_env(spec, bytes, (size_t)st.st_size);
}

int spec_load(struct spec *spec, int attempt_fd)
{
	static char text[SUP_SPEC_MAX];
	int rc = sup_read_file(attempt_fd, "spec", text, sizeof(text));

	if (rc < 0)
		return rc;
	rc = load_numbers(spec, text);
	if (rc < 0)
		return rc;
	if (sup_value(text, "root", spec->root, sizeof(spec->root)) <= 0 ||
	    sup_value(text, "cwd", spec->cwd, sizeof(spec->cwd)) <= 0 ||
	    sup_value(text, "cgroup", spec->cgroup, sizeof(spec->cgroup)) < 0)
		return -EINVAL;
	return load_env(spec, attempt_fd);
}
