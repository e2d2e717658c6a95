/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the reading and comparing of IP addresses. Pure; entered from main and from the loop threads. Must never ask a
 * resolver, nor take part of a text for an address.
 */
#include "conf/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static int parse_host(const char *text, struct address *ret, bool *ret_v4)
{
	*ret_v4 = inet_pton(AF_INET, text, ret->bytes + sizeof(mapped)) == 1;
	if (*ret_v4)
		memcpy(ret->bytes, mapped, sizeof(mapped));
	return *ret_v4 || inet_pton(AF_INET6, text, ret->bytes) == 1 ? 0 : ERR_INVALID_REQUEST;
}

static int parse_bits(const char *text, unsigned most, unsigned *ret)
{
	size_t len = strlen(text);
	unsigned bits = 0;

	if (len == 0 || len > 3 || strspn(text, "0123456789") != len)
		return ERR_INVALID_REQUEST;
	for (; *text; text++)
		bits = bits * 10 + (unsigned)(*text - '0');
	*ret = 128 - most + bits;
	return bits <= most ? 0 : ERR_INVALID_REQUEST;
}

static bool bit_of(const struct address *address, unsigned i)
{
	return address->bytes[i / 8] >> (7 - i % 8) & 1;
}

int address_parse(const char *text, struct address *ret)
{
	struct address out = {.bits = 128};
	char host[64];
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);
	bool v4;

	if (len >= sizeof(host))
		return ERR_INVALID_REQUEST;
	memcpy(host, text, len);
	host[len] = '\0';
	if (parse_host(host, &out, &v4) != 0 || (slash && parse_bits(slash + 1, v4 ? 32 : 128, &out.bits) != 0))
		return ERR_INVALID_REQUEST;
	for (unsigned i = out.bits; i < 128; i++) {
		if (bit_of(&out, i))
			return ERR_INVALID_REQUEST;
	}
	*ret = out;
	return 0;
}

bool address_is_loopback(const struct address *address)
{
	static const uint8_t one[16] = {[15] = 1};

	if (memcmp(address->bytes, mapped, sizeof(mapped)) == 0)
		return address->bytes[12] == 127;
	return memcmp(address->bytes, one, sizeof(one)) == 0;
}

static bool lies_in(const struct address *address, const struct address *network)
{
	for (unsigned i = 0; i < network->bits; i++) {
		if (bit_of(address, i) != bit_of(network, i))
			return false;
	}
	return true;
}

int address_list_parse(const char *text, struct address_list *ret, struct err *err)
{
	char word[80];

	ret->count = 0;
	for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
		size_t len = strcspn(text, " ");

		snprintf(word, sizeof(word), "%.*s", (int)(len < sizeof(word) ? len : sizeof(word) - 1), text);
		if (ret->count == ADDRESS_LIST_MAX)
			return err_set(err, ERR_CONFIG, "more than %d addresses", ADDRESS_LIST_MAX);
		if (address_parse(word, &ret->items[ret->count]) != 0)
			return err_set(err, ERR_CONFIG, "expected IP addresses or networks, got \"%s\"", word);
		ret->count++;
		text += len;
	}
	return 0;
}

bool address_listed(const struct address_list *list, const struct address *address)
{
	for (size_t i = 0; i < list->count; i++) {
		if (lies_in(address, &list->items[i]))
			return true;
	}
	return false;
}
