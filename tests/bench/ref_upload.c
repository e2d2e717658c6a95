/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an upload has to be measured against: receives one PUT on loopback, hashes it with SHA-256 on the way, writes it
 * to a temporary file, renames it, and answers. "ref_upload FILE" prints its port, serves one request, prints the hash.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ref.h"

#define BLOCK (256 * 1024)

static int listen_somewhere(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) != 0 || listen(fd, 1) != 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &len) != 0)
		ref_die("cannot listen");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	return fd;
}

/* The head, then what of the body came with it: *ret_body points at it. */
static size_t read_head(int fd, char *buf, char **ret_body, long long *ret_size)
{
	size_t len = 0;
	char *end = NULL, *length;

	while (end == NULL) {
		ssize_t got = len < BLOCK - 1 ? read(fd, buf + len, BLOCK - 1 - len) : 0;

		if (got <= 0)
			ref_die("no request came");
		len += (size_t)got;
		buf[len] = '\0';
		end = strstr(buf, "\r\n\r\n");
	}
	*ret_body = end + 4;
	length = strcasestr(buf, "\r\nContent-Length:");
	if (length == NULL || length > end)
		ref_die("the request names no Content-Length");
	*ret_size = strtoll(length + strlen("\r\nContent-Length:"), NULL, 10);
	return len - (size_t)(end + 4 - buf);
}

static void write_all(int fd, const char *ptr, size_t len)
{
	while (len > 0) {
		ssize_t put = write(fd, ptr, len);

		if (put <= 0)
			ref_die("cannot write");
		ptr += put;
		len -= (size_t)put;
	}
}

static void receive(int from, int to, EVP_MD_CTX *hash)
{
	static char buf[BLOCK];
	char *body;
	long long size;
	size_t got = read_head(from, buf, &body, &size);

	if (strcasestr(buf, "Expect: 100-continue") != NULL)
		write_all(from, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	for (;;) {
		write_all(to, body, got);
		EVP_DigestUpdate(hash, body, got);
		size -= (long long)got;
		if (size <= 0)
			return;

		ssize_t next = read(from, buf, BLOCK);

		if (next <= 0)
			ref_die("the body was cut");
		body = buf;
		got = (size_t)next;
	}
}

int main(int argc, char **argv)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned digest_len;
	char temporary[4096];

	if (argc != 2)
		ref_die("usage: ref_upload FILE");
	snprintf(temporary, sizeof(temporary), "%s.part", argv[1]);

	int from = accept(listen_somewhere(), NULL, NULL);
	int to = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	EVP_MD_CTX *hash = EVP_MD_CTX_new();

	if (from < 0 || to < 0 || hash == NULL || EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
		ref_die("cannot begin");
	receive(from, to, hash);
	EVP_DigestFinal_ex(hash, digest, &digest_len);
	if (close(to) != 0 || rename(temporary, argv[1]) != 0)
		ref_die("cannot finish the file");
	write_all(from, answer, sizeof(answer) - 1);
	EVP_MD_CTX_free(hash);
	for (unsigned i = 0; i < digest_len; i++)
		printf("%02x", digest[i]);
	printf("\n");
	return 0;
}
