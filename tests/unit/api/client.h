/* SPDX-License-Identifier: Apache-2.0 */
/* A raw client on loopback for the tests of this folder: sends bytes as they are, reads one answer at a time. */
#ifndef TEST_API_CLIENT_H
#define TEST_API_CLIENT_H

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define CLIENT_PATIENCE_S 20

struct client {
	int fd;
	char buf[1 << 17];
	size_t have; /* read but not yet taken */
};

struct answer {
	int status; /* 0: the connection ended without one */
	char head[16384];
	char *body;
	size_t len;
	bool complete;
};

static inline bool client_open(struct client *c, unsigned port)
{
	struct sockaddr_in to = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval patience = {.tv_sec = CLIENT_PATIENCE_S};

	c->have = 0;
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return connect(c->fd, (struct sockaddr *)&to, sizeof(to)) == 0;
}

static inline void client_close(struct client *c)
{
	close(c->fd);
	c->fd = -1;
}

static inline bool client_send(struct client *c, const void *ptr, size_t len)
{
	const char *from = ptr;

	while (len) {
		ssize_t n = send(c->fd, from, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		from += n;
		len -= (size_t)n;
	}
	return true;
}

__attribute__((format(printf, 2, 3))) static inline bool client_say(struct client *c, const char *fmt, ...)
{
	char text[20000];
	va_list args;

	va_start(args, fmt);

	int len = vsnprintf(text, sizeof(text), fmt, args);

	va_end(args);
	return client_send(c, text, (size_t)len);
}

static inline bool client_more(struct client *c)
{
	if (c->have == sizeof(c->buf))
		return false;

	ssize_t n = recv(c->fd, c->buf + c->have, sizeof(c->buf) - c->have, 0);

	if (n <= 0)
		return false;
	c->have += (size_t)n;
	return true;
}

static inline void client_drop(struct client *c, size_t len)
{
	memmove(c->buf, c->buf + len, c->have - len);
	c->have -= len;
}

static inline const char *answer_header(const struct answer *a, const char *name, char *out, size_t cap)
{
	size_t name_len = strlen(name);

	out[0] = '\0';
	for (const char *line = strstr(a->head, "\r\n"); line && line[2]; line = strstr(line + 2, "\r\n")) {
		if (strncasecmp(line + 2, name, name_len) == 0 && line[2 + name_len] == ':') {
			const char *value = line + 2 + name_len + 1;

			while (*value == ' ')
				value++;
			snprintf(out, cap, "%.*s", (int)strcspn(value, "\r\n"), value);
			return out;
		}
	}
	return NULL;
}

static inline void answer_take(struct answer *a, struct client *c, size_t len)
{
	a->body = realloc(a->body, a->len + len + 1);
	memcpy(a->body + a->len, c->buf, len);
	a->len += len;
	a->body[a->len] = '\0';
	client_drop(c, len);
}

static inline bool read_bytes(struct answer *a, struct client *c, size_t len)
{
	while (len) {
		if (!c->have && !client_more(c))
			return false;

		size_t piece = c->have < len ? c->have : len;

		answer_take(a, c, piece);
		len -= piece;
	}
	return true;
}

static inline bool read_line(struct client *c, char *line, size_t cap)
{
	char *end;

	while (!(end = memmem(c->buf, c->have, "\r\n", 2))) {
		if (!client_more(c))
			return false;
	}
	snprintf(line, cap, "%.*s", (int)(end - c->buf), c->buf);
	client_drop(c, (size_t)(end - c->buf) + 2);
	return true;
}

static inline bool read_chunks(struct answer *a, struct client *c)
{
	char line[64];

	for (;;) {
		if (!read_line(c, line, sizeof(line)))
			return false;

		size_t len = strtoul(line, NULL, 16);

		if (!read_bytes(a, c, len) || !read_line(c, line, sizeof(line)))
			return false;
		if (len == 0)
			return true;
	}
}

/* `no_body`: the answer to HEAD. False: no head came. */
static inline bool client_answer_of(struct client *c, struct answer *a, bool no_body)
{
	char value[64];
	char *end;

	memset(a, 0, sizeof(*a));
	a->body = calloc(1, 1);
	do {
		while (!(end = memmem(c->buf, c->have, "\r\n\r\n", 4))) {
			if (!client_more(c))
				return false;
		}
		snprintf(a->head, sizeof(a->head), "%.*s", (int)(end - c->buf + 2), c->buf);
		client_drop(c, (size_t)(end - c->buf) + 4);
		sscanf(a->head, "HTTP/1.1 %d", &a->status);
	} while (a->status == 100);
	if (no_body || a->status == 204)
		a->complete = true;
	else if (answer_header(a, "Transfer-Encoding", value, sizeof(value)))
		a->complete = read_chunks(a, c);
	else if (answer_header(a, "Content-Length", value, sizeof(value)))
		a->complete = read_bytes(a, c, strtoul(value, NULL, 10));
	return true;
}

static inline bool client_answer(struct client *c, struct answer *a)
{
	return client_answer_of(c, a, false);
}

static inline void answer_free(struct answer *a)
{
	free(a->body);
	a->body = NULL;
}

/* The server has ended its side and sent nothing more. */
static inline bool client_at_end(struct client *c)
{
	char byte;

	return c->have == 0 && recv(c->fd, &byte, 1, 0) <= 0;
}

#endif
