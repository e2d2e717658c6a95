/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells the sandbox's own addresses from others by the kernel's word: what can be bound is local. A comparison with the
 * connection's other end would not do: a command picks any pair of the addresses that it has. Any worker; no state.
 * Must never take an inner address for an outer one; when it cannot tell, it says inside.
 */
#include "inside.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* IPv4 by way of IPv6 is IPv4. */
static void plain_of(const struct sockaddr_storage *address, struct sockaddr_storage *ret_plain)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
	struct sockaddr_in four = {.sin_family = AF_INET};

	*ret_plain = *address;
	if (address->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
		return;
	memcpy(&four.sin_addr, &six->sin6_addr.s6_addr[12], sizeof(four.sin_addr));
	memset(ret_plain, 0, sizeof(*ret_plain));
	memcpy(ret_plain, &four, sizeof(four));
}

static const void *host_of(const struct sockaddr *address, size_t *ret_len)
{
	*ret_len = address->sa_family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr);
	if (address->sa_family == AF_INET6)
		return &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
	return &((const struct sockaddr_in *)(const void *)address)->sin_addr;
}

static bool loopback(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

static bool bindable(const struct sockaddr_storage *address)
{
	struct sockaddr_storage any_port = *address;
	int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1;
	bool no;

	if (fd < 0)
		return true;
	/* Of no use here, and the sandbox may have used them up. */
	(void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	if (address->ss_family == AF_INET6)
		((struct sockaddr_in6 *)&any_port)->sin6_port = 0;
	else
		((struct sockaddr_in *)&any_port)->sin_port = 0;
	no = bind(fd, (struct sockaddr *)&any_port,
		  address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)) < 0 &&
	     errno == EADDRNOTAVAIL;
	close(fd);
	return !no;
}

/* net.ipv4.ip_nonlocal_bind and the other one: then reserved addresses that nobody has can be bound as well. */
static bool all_bindable(int family)
{
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(UINT32_C(0xf0000001))};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr.s6_addr = {1, [15] = 1}};
	struct sockaddr_storage nobody = {0};

	if (family == AF_INET6)
		memcpy(&nobody, &six, sizeof(six));
	else
		memcpy(&nobody, &four, sizeof(four));
	return bindable(&nobody);
}

static bool on_interface(const struct sockaddr_storage *address)
{
	struct ifaddrs *all = NULL;
	size_t len;
	const void *host = host_of((const struct sockaddr *)address, &len);
	bool found = false;

	if (getifaddrs(&all) < 0)
		return true;
	for (const struct ifaddrs *one = all; one && !found; one = one->ifa_next)
		found = one->ifa_addr && one->ifa_addr->sa_family == address->ss_family &&
			memcmp(host, host_of(one->ifa_addr, &len), len) == 0;
	freeifaddrs(all);
	return found;
}

bool inside_has(const struct sockaddr_storage *address)
{
	struct sockaddr_storage plain;

	plain_of(address, &plain);
	if (loopback(&plain))
		return true;
	return bindable(&plain) && (!all_bindable(plain.ss_family) || on_interface(&plain));
}
