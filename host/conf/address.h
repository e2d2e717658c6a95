/* SPDX-License-Identifier: Apache-2.0 */
/* Numeric IP addresses and networks; IPv4 is held as mapped into IPv6, so that one listener's spelling does not matter.
 * Pure. */
#ifndef CONF_ADDRESS_H
#define CONF_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

#define ADDRESS_LIST_MAX 64

struct address {
	uint8_t bytes[16];
	unsigned bits; /* of the network; 128 = one host */
};

struct address_list {
	size_t count;
	struct address items[ADDRESS_LIST_MAX];
};

/* "10.0.0.1", "10.0.0.0/8", "::1", "fd00::/8"; 0 or ERR_INVALID_REQUEST, also for bits set past the network. */
int address_parse(const char *text, struct address *ret);
bool address_is_loopback(const struct address *address);
/* Separated by spaces. ERR_CONFIG names the one that is none. */
int address_list_parse(const char *text, struct address_list *ret, struct err *err);
bool address_listed(const struct address_list *list, const struct address *address);

#endif
