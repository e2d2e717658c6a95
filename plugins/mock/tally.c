/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and the log of calls. The counters are decimal text in a mapped file: a row's last eight digits are one
 * aligned word and the four before them half a word, each changed by compare-and-swap, so that threads and processes
 * count without a lock and a reader sees a whole number (but for the instant of a carry every hundred million). Any
 * thread may enter; must never wait for another.
 */
#include "tally.h"

#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROW_SIZE 32
#define NAME_SIZE 11
#define HIGH_AT 12 /* four digits, then eight */
#define LOW_AT 16
#define FILE_SIZE ((size_t)TALLY_COUNT * ROW_SIZE)

static const char *row_name(unsigned row)
{
	static const char *const more[] = {"created", "removed", "started", "faults"};

	return row < OP_COUNT ? op_table[row].name : more[row - OP_COUNT];
}

static void format_rows(char *ret)
{
	char row[ROW_SIZE + 1];

	for (unsigned i = 0; i < TALLY_COUNT; i++) {
		snprintf(row, sizeof(row), "%-*s %012d       \n", NAME_SIZE, row_name(i), 0);
		memcpy(ret + (size_t)i * ROW_SIZE, row, ROW_SIZE);
	}
}

/* Made aside and linked, so that no process maps a file that is not complete. */
static int create_counters(int root_fd)
{
	char rows[FILE_SIZE], temporary[64];
	int rc = 0;
	int fd;

	format_rows(rows);
	snprintf(temporary, sizeof(temporary), "counters.%ld.%lx", (long)getpid(), (unsigned long)(uintptr_t)rows);
	fd = openat(root_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (write(fd, rows, sizeof(rows)) != (ssize_t)sizeof(rows))
		rc = -EIO;
	if (!rc && linkat(root_fd, temporary, root_fd, "counters", 0) && errno != EEXIST)
		rc = -errno;
	close(fd);
	unlinkat(root_fd, temporary, 0);
	return rc;
}

static bool rows_match(const char *map)
{
	char rows[FILE_SIZE];

	format_rows(rows);
	for (unsigned i = 0; i < TALLY_COUNT; i++)
		if (memcmp(map + (size_t)i * ROW_SIZE, rows + (size_t)i * ROW_SIZE, NAME_SIZE + 1))
			return false;
	return true;
}

static int map_counters(struct tally *tally, int root_fd)
{
	struct stat st;
	void *map;
	int rc = 0;
	int fd = openat(root_fd, "counters", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		rc = -errno;
	else if ((size_t)st.st_size != FILE_SIZE)
		rc = -EBADMSG;
	map = rc ? MAP_FAILED : mmap(NULL, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!rc && map == MAP_FAILED)
		rc = -errno;
	close(fd);
	if (rc)
		return rc;
	tally->map = map;
	return rows_match(map) ? 0 : -EBADMSG;
}

int tally_open(struct tally *tally, int root_fd, int with_log)
{
	int rc;

	tally->map = NULL;
	tally->log_fd = -1;
	rc = map_counters(tally, root_fd);
	if (rc == -ENOENT) {
		rc = create_counters(root_fd);
		if (!rc)
			rc = map_counters(tally, root_fd);
	}
	if (rc || !with_log)
		return rc;
	tally->log_fd = openat(root_fd, "calls.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	return tally->log_fd < 0 ? -errno : 0;
}

void tally_close(struct tally *tally)
{
	if (tally->map)
		munmap(tally->map, FILE_SIZE);
	if (tally->log_fd >= 0)
		close(tally->log_fd);
}

/* Adds one to decimal digits; true when they all were nine and are zero now. */
static bool digits_add(char *digits, size_t count)
{
	for (size_t i = count; i-- > 0;) {
		if (digits[i] != '9') {
			digits[i]++;
			return false;
		}
		digits[i] = '0';
	}
	return true;
}

static bool count_low(char *at)
{
	uint64_t *word = (uint64_t *)(void *)at;
	uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED), new;
	char digits[8];
	bool carry;

	do {
		memcpy(digits, &old, sizeof(digits));
		carry = digits_add(digits, sizeof(digits));
		memcpy(&new, digits, sizeof(new));
	} while (!__atomic_compare_exchange_n(word, &old, new, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return carry;
}

static void count_high(char *at)
{
	uint32_t *word = (uint32_t *)(void *)at;
	uint32_t old = __atomic_load_n(word, __ATOMIC_RELAXED), new;
	char digits[4];

	do {
		memcpy(digits, &old, sizeof(digits));
		digits_add(digits, sizeof(digits));
		memcpy(&new, digits, sizeof(new));
	} while (!__atomic_compare_exchange_n(word, &old, new, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

void tally_count(struct tally *tally, unsigned row)
{
	char *at = tally->map + (size_t)row * ROW_SIZE;

	if (count_low(at + LOW_AT))
		count_high(at + HIGH_AT);
}

static const char *or_dash(const char *text)
{
	return text && *text ? text : "-";
}

void tally_log(struct tally *tally, const struct tally_line *line)
{
	char text[1024];
	int len;

	if (tally->log_fd < 0)
		return;
	len = snprintf(text, sizeof(text), "%" PRId64 " %s %s %s/%s %s %s\n", text_now_ms(), op_table[line->op].name,
		       or_dash(line->ref), or_dash(line->workspace), or_dash(line->task), op_code_name(line->code),
		       or_dash(line->note));
	/* One write, so that lines of several processes do not mix. A full disk loses lines of a test's log, no more.
	 */
	if (write(tally->log_fd, text, (size_t)len) < 0)
		return;
}
