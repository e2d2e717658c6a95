/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what every fuzz target needs: slicing the input, a folder for those that read files, the planted defect. One
 * thread. Must never leave the folder behind when the process ends by itself.
 */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"

static char folder[PATH_MAX];
static int folder_fd = -1;

void fuzz_fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
	abort();
}

uint8_t fuzz_byte(struct fuzz_input *in)
{
	if (!in->len)
		return 0;
	in->len--;
	return *in->ptr++;
}

uint64_t fuzz_number(struct fuzz_input *in, size_t bytes)
{
	uint64_t number = 0;

	for (size_t i = 0; i < bytes; i++)
		number = number << 8 | fuzz_byte(in);
	return number;
}

char *fuzz_copy(const void *ptr, size_t len)
{
	char *copy = malloc(len + 1);

	FUZZ_CHECK(copy != NULL);
	if (len)
		memcpy(copy, ptr, len);
	copy[len] = '\0';
	return copy;
}

char *fuzz_text(struct fuzz_input *in, const char *end, size_t *ret_len)
{
	size_t end_len = strlen(end);
	const uint8_t *found = in->len ? memmem(in->ptr, in->len, end, end_len) : NULL;
	size_t len = found ? (size_t)(found - in->ptr) : in->len;
	char *copy = fuzz_copy(in->ptr, len);

	in->ptr += found ? len + end_len : len;
	in->len -= found ? len + end_len : len;
	if (ret_len)
		*ret_len = len;
	return copy;
}

static void remove_entry(int dir, const char *name)
{
	int fd;

	if (unlinkat(dir, name, 0) == 0)
		return;
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && fchmodat(dir, name, 0700, 0) == 0)
		fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	FUZZ_CHECK(fd >= 0);
	fchmod(fd, 0700);
	fuzz_empty(fd);
	close(fd);
	FUZZ_CHECK(unlinkat(dir, name, AT_REMOVEDIR) == 0);
}

void fuzz_empty(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	FUZZ_CHECK(stream != NULL);
	while ((entry = readdir(stream)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			remove_entry(dir, entry->d_name);
	closedir(stream);
}

static void drop_folder(void)
{
	fuzz_empty(folder_fd);
	close(folder_fd);
	rmdir(folder);
}

const char *fuzz_folder(void)
{
	const char *base = getenv("TMPDIR");

	if (folder_fd >= 0)
		return folder;
	if (!base || !*base)
		base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(folder, sizeof(folder), "%s/berth-fuzz-XXXXXX", base);
	FUZZ_CHECK(mkdtemp(folder) != NULL);
	folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	FUZZ_CHECK(folder_fd >= 0);
	atexit(drop_folder);
	return folder;
}

int fuzz_folder_fd(void)
{
	fuzz_folder();
	return folder_fd;
}

void fuzz_write_file(int dir, const char *name, const void *ptr, size_t len)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	FUZZ_CHECK(fd >= 0);
	for (const char *at = ptr; len > 0;) {
		ssize_t n = write(fd, at, len);

		FUZZ_CHECK(n > 0);
		at += n;
		len -= (size_t)n;
	}
	close(fd);
}

void fuzz_quiet(void)
{
	log_init(LOG_ERROR + 1, LOG_LOGFMT);
}

#ifdef FUZZ_PLANT
void fuzz_planted_copy(const char *ptr, size_t len)
{
	char *copy = malloc((len + 15) / 16 * 16); /* the defect: no place for the NUL when nothing was rounded up */
	volatile char kept;

	if (copy && len > 0) {
		memcpy(copy, ptr, len);
		copy[len] = '\0';
		kept = copy[len / 2];
		(void)kept;
	}
	free(copy);
}
#endif
