/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the tar format. Input comes from outside and is judged byte by byte: checksum, octal fields, record lengths.
 * Any thread; no state, no memory. Must never read beyond the block or the record, nor take an entry for another kind.
 */
#include "localfs_ustar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Offsets and widths of the header's fields. */
#define NAME 0u, 100u
#define MODE 100u, 8u
#define UID 108u, 8u
#define GID 116u, 8u
#define SIZE 124u, 12u
#define MTIME 136u, 12u
#define CHECKSUM_AT 148u
#define CHECKSUM_LEN 8u
#define TYPE_AT 156u
#define MAGIC_AT 257u
#define PREFIX 345u, 155u
#define SIZE_FIELD_MAX UINT64_C(077777777777) /* of the time, too */

static int octal(const unsigned char *block, size_t at, size_t len, uint64_t *ret_value)
{
	const unsigned char *c = block + at, *end = c + len;
	uint64_t value = 0;

	while (c < end && *c == ' ')
		c++;
	for (; c < end && *c >= '0' && *c <= '7'; c++)
		value = value * 8 + (uint64_t)(*c - '0'); /* at most 12 digits */
	for (; c < end; c++)
		if (*c != ' ' && *c != '\0')
			return -EBADMSG;
	*ret_value = value;
	return 0;
}

static size_t field_len(const unsigned char *block, size_t at, size_t len)
{
	return strnlen((const char *)block + at, len);
}

static int checksum_ok(const unsigned char *block)
{
	uint64_t want, sum = 0;

	for (size_t i = 0; i < USTAR_BLOCK; i++)
		sum += i >= CHECKSUM_AT && i < CHECKSUM_AT + CHECKSUM_LEN ? ' ' : block[i];
	return octal(block, CHECKSUM_AT, CHECKSUM_LEN, &want) == 0 && want == sum;
}

/* GNU's flavour keeps other things where ustar has the prefix. */
static int parse_path(const unsigned char *block, bool posix, struct ustar_entry *entry)
{
	size_t prefix = posix ? field_len(block, PREFIX) : 0;
	size_t name = field_len(block, NAME);
	int n = snprintf(entry->path, sizeof(entry->path), "%.*s%s%.*s", (int)prefix, (const char *)block + 345,
			 prefix ? "/" : "", (int)name, (const char *)block);

	return n < 0 || (size_t)n >= sizeof(entry->path) ? -ENAMETOOLONG : 0;
}

static bool is_zero(const unsigned char *block)
{
	for (size_t i = 0; i < USTAR_BLOCK; i++)
		if (block[i])
			return false;
	return true;
}

int ustar_parse(const unsigned char block[USTAR_BLOCK], struct ustar_entry *ret_entry)
{
	struct ustar_entry entry;
	uint64_t mode, mtime;
	bool posix = memcmp(block + MAGIC_AT, "ustar\0" "00", 8) == 0;
	int rc;

	if (is_zero(block))
		return 1;
	if (!posix && memcmp(block + MAGIC_AT, "ustar  ", 8) != 0)
		return -EBADMSG;
	if (!checksum_ok(block) || octal(block, MODE, &mode) < 0 || octal(block, SIZE, &entry.size) < 0 ||
	    octal(block, MTIME, &mtime) < 0)
		return -EBADMSG;
	entry.type = block[TYPE_AT] ? (char)block[TYPE_AT] : USTAR_REGULAR;
	if (!strchr("05xg", entry.type))
		return -ENOTSUP;
	rc = parse_path(block, posix, &entry);
	if (rc < 0)
		return rc;
	entry.mode = (uint32_t)(mode & 07777);
	entry.mtime = (int64_t)mtime;
	if (entry.type == USTAR_DIRECTORY && entry.size)
		return -EBADMSG;
	*ret_entry = entry;
	return 0;
}

static int decimal(const char *text, size_t len, uint64_t *ret_value)
{
	uint64_t value = 0;

	if (len == 0 || len > 18)
		return -EBADMSG;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -EBADMSG;
		value = value * 10 + (uint64_t)(text[i] - '0');
	}
	*ret_value = value;
	return 0;
}

static bool key_is(const char *key, size_t len, const char *word)
{
	return len == strlen(word) && memcmp(key, word, len) == 0;
}

static int take_record(struct ustar_pax *pax, const char *key, size_t key_len, const char *value, size_t len)
{
	if (key_is(key, key_len, "path")) {
		if (len > BERTH_PATH_MAX)
			return -ENAMETOOLONG;
		if (memchr(value, '\0', len))
			return -EBADMSG;
		memcpy(pax->path, value, len);
		pax->path[len] = '\0';
		pax->has_path = len > 0; /* an empty value takes it back */
	} else if (key_is(key, key_len, "size")) {
		pax->has_size = len > 0;
		return len ? decimal(value, len, &pax->size) : 0;
	} else if (key_len >= 11 && memcmp(key, "GNU.sparse.", 11) == 0) {
		return -ENOTSUP;
	}
	return 0;
}

/* "<length> <key>=<value>\n", the length counting all of it. */
int ustar_pax_parse(const char *data, size_t len, struct ustar_pax *pax)
{
	while (len > 0) {
		const char *space = memchr(data, ' ', len < 8 ? len : 8);
		const char *key, *equals;
		uint64_t size;
		int rc;

		if (!space || decimal(data, (size_t)(space - data), &size) < 0 || size > len)
			return -EBADMSG;
		if (size < (size_t)(space - data) + 3 || data[size - 1] != '\n')
			return -EBADMSG;
		key = space + 1;
		equals = memchr(key, '=', (size_t)(data + size - 1 - key));
		if (!equals || equals == key)
			return -EBADMSG;
		rc = take_record(pax, key, (size_t)(equals - key), equals + 1, (size_t)(data + size - equals - 2));
		if (rc < 0)
			return rc;
		data += size;
		len -= size;
	}
	return 0;
}

static size_t stored_len(const struct ustar_entry *entry)
{
	return strlen(entry->path) + (entry->type == USTAR_DIRECTORY);
}

bool ustar_needs_pax(const struct ustar_entry *entry)
{
	for (const char *c = entry->path; *c; c++)
		if ((unsigned char)*c >= 0x80)
			return true;
	return stored_len(entry) > 100 || entry->size > SIZE_FIELD_MAX;
}

/* The length counts its own digits. */
static size_t record(char *buf, size_t cap, const char *key, const char *value, const char *end)
{
	size_t body = strlen(key) + strlen(value) + strlen(end) + 3;
	size_t total = body + 1;
	char digits[24];

	while (total != body + (size_t)snprintf(digits, sizeof(digits), "%zu", total))
		total = body + strlen(digits);
	snprintf(buf, cap, "%zu %s=%s%s\n", total, key, value, end);
	return total;
}

size_t ustar_pax_format(const struct ustar_entry *entry, char *buf, size_t cap)
{
	char size[24];
	size_t len = record(buf, cap, "path", entry->path, entry->type == USTAR_DIRECTORY ? "/" : "");

	if (entry->size > SIZE_FIELD_MAX) {
		snprintf(size, sizeof(size), "%llu", (unsigned long long)entry->size);
		len += record(buf + len, cap - len, "size", size, "");
	}
	return len;
}

/* A time that the field cannot hold (before 1970, after 2242) becomes the next one that it can. */
static uint64_t stored_time(int64_t mtime)
{
	if (mtime < 0)
		return 0;
	return (uint64_t)mtime > SIZE_FIELD_MAX ? SIZE_FIELD_MAX : (uint64_t)mtime;
}

static void put_octal(unsigned char *block, size_t at, size_t len, uint64_t value)
{
	for (size_t i = len - 1; i > 0; i--, value >>= 3)
		block[at + i - 1] = (unsigned char)('0' + (value & 7));
}

void ustar_format(const struct ustar_entry *entry, unsigned char ret_block[USTAR_BLOCK])
{
	size_t len = strlen(entry->path);
	uint64_t sum = 0;

	memset(ret_block, 0, USTAR_BLOCK);
	memcpy(ret_block, entry->path, len > 100 ? 100 : len);
	if (entry->type == USTAR_DIRECTORY && len < 100)
		ret_block[len] = '/';
	put_octal(ret_block, MODE, entry->mode & 07777);
	put_octal(ret_block, UID, 0);
	put_octal(ret_block, GID, 0);
	put_octal(ret_block, SIZE, entry->size > SIZE_FIELD_MAX ? 0 : entry->size);
	put_octal(ret_block, MTIME, stored_time(entry->mtime));
	ret_block[TYPE_AT] = (unsigned char)entry->type;
	memcpy(ret_block + MAGIC_AT, "ustar\0" "00", 8);
	memset(ret_block + CHECKSUM_AT, ' ', CHECKSUM_LEN);
	for (size_t i = 0; i < USTAR_BLOCK; i++)
		sum += ret_block[i];
	put_octal(ret_block, CHECKSUM_AT, CHECKSUM_LEN - 1, sum);
	ret_block[CHECKSUM_AT + CHECKSUM_LEN - 2] = '\0';
}
