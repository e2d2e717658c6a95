/* SPDX-License-Identifier: Apache-2.0 */
/* POSIX tar, as far as it is used here: ustar headers, pax records for long names and large sizes. Pure functions. */
#ifndef LOCALFS_USTAR_H
#define LOCALFS_USTAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <berth/types.h>

#define USTAR_BLOCK 512u
/* The most that one pax header may hold. */
#define USTAR_PAX_MAX 65536u

#define USTAR_REGULAR '0'
#define USTAR_DIRECTORY '5'
#define USTAR_PAX 'x'
#define USTAR_PAX_GLOBAL 'g'

struct ustar_entry {
	char path[BERTH_PATH_MAX + 1];
	char type;
	uint32_t mode;
	uint64_t size;
	int64_t mtime; /* seconds */
};

/* What a pax header says of the entry that follows. */
struct ustar_pax {
	bool has_path;
	bool has_size;
	uint64_t size;
	char path[BERTH_PATH_MAX + 1];
};

/* 1 = a block of zeros, 0 = entry filled, -EBADMSG = no header, -ENOTSUP = a kind of entry that is refused. */
int ustar_parse(const unsigned char block[USTAR_BLOCK], struct ustar_entry *ret_entry);
/* 0, -EBADMSG, -ENAMETOOLONG or -ENOTSUP (sparse files). Adds to *pax. */
int ustar_pax_parse(const char *data, size_t len, struct ustar_pax *pax);

/* Whether the entry needs a pax header before its own. */
bool ustar_needs_pax(const struct ustar_entry *entry);
/* Records into buf, at least BERTH_PATH_MAX + 128 bytes; returns their length. */
size_t ustar_pax_format(const struct ustar_entry *entry, char *buf, size_t cap);
/* The header block; a path or size that does not fit is cut, for the pax header has it. */
void ustar_format(const struct ustar_entry *entry, unsigned char ret_block[USTAR_BLOCK]);

#endif
