/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where Redis is: parses the address. Pure but for memory; entered at start. Must never put a password into a sentence.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/redis/redis.h"

#define PORT_REDIS 6379
#define PORT_SENTINEL 26379
#define TEXT_MAX 1024

static const char forms[] = "redis://[user:password@]host[:port][/db], unix://[user:password@]/path[?db=n] or "
			    "redis+sentinel://[user:password@]host[:port],…/master[/db]";

static int refuse(struct err *err, const char *why)
{
	return err_set(err, ERR_CONFIG, "redis.url: %s; it is %s", why, forms);
}

static int hex_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent-decoding in place; false for a bad or a zero byte. */
static bool decode(char *text)
{
	char *to = text;

	while (*text != '\0') {
		int high, low;

		if (*text != '%') {
			*to++ = *text++;
			continue;
		}
		high = hex_of(text[1]);
		low = high >= 0 ? hex_of(text[2]) : -1;
		if (low < 0 || high + low == 0)
			return false;
		*to++ = (char)(high << 4 | low);
		text += 3;
	}
	*to = '\0';
	return true;
}

static bool parse_number(const char *text, long max, int *ret)
{
	char *end;
	long number;

	errno = 0;
	number = strtol(text, &end, 10);
	if (errno != 0 || end == text || *end != '\0' || *text < '0' || *text > '9' || number > max)
		return false;
	*ret = (int)number;
	return true;
}

/* "user:password@" at the front; *at moves past it. */
static int take_login(char **at, struct redis_url *url, struct err *err)
{
	char *end = memrchr(*at, '@', strcspn(*at, "/")), *colon;
	int rc = 0;

	if (end == NULL)
		return 0;
	*end = '\0';
	colon = strchr(*at, ':');
	if (colon == NULL)
		return refuse(err, "a login is user:password or :password, with %3A, %40 and %2F for : @ and /");
	*colon++ = '\0';
	if (!decode(*at) || !decode(colon) || *colon == '\0')
		return refuse(err, "its user or password is empty or badly encoded");
	if (**at != '\0')
		url->user = strdup(*at);
	url->password = secret_new(colon, strlen(colon));
	if (url->password == NULL || (**at != '\0' && url->user == NULL))
		rc = err_set(err, ERR_NOMEM, "no memory for redis.url");
	secret_wipe(colon, strlen(colon));
	*at = end + 1;
	return rc;
}

/* host, host:port, [v6] or [v6]:port. */
static int parse_address(char *text, int port, struct redis_address *ret, struct err *err)
{
	char *host = text, *colon = strrchr(text, ':');

	if (*text == '[') {
		char *close = strchr(text, ']');

		if (close == NULL || (close[1] != '\0' && close[1] != ':'))
			return refuse(err, "an IPv6 address stands in [ ]");
		*close = '\0';
		host++;
		colon = close[1] == ':' ? close + 1 : NULL;
	} else if (colon != NULL && strchr(text, ':') != colon) {
		return refuse(err, "an IPv6 address stands in [ ]");
	}
	ret->port = port;
	if (colon != NULL) {
		*colon = '\0';
		if (!parse_number(colon + 1, 65535, &ret->port) || ret->port == 0)
			return refuse(err, "a port is a number from 1 to 65535");
	}
	if (*host == '\0')
		return refuse(err, "the host is missing");
	ret->host = strdup(host);
	return ret->host != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for redis.url");
}

static int parse_database(const char *text, struct redis_url *url, struct err *err)
{
	if (text == NULL || *text == '\0' || parse_number(text, 1000000, &url->database))
		return 0;
	return refuse(err, "a database is a number");
}

static int parse_tcp(char *at, struct redis_url *url, struct err *err)
{
	char *slash = strchr(at, '/');
	int rc;

	if (slash != NULL)
		*slash++ = '\0';
	rc = parse_database(slash, url, err);
	return rc != 0 ? rc : parse_address(at, PORT_REDIS, &url->server, err);
}

static int parse_unix(char *at, struct redis_url *url, struct err *err)
{
	char *query = strchr(at, '?');
	int rc = 0;

	if (query != NULL) {
		*query++ = '\0';
		if (strncmp(query, "db=", 3) != 0)
			return refuse(err, "after ? only db=<number> may stand");
		rc = parse_database(query + 3, url, err);
	}
	if (rc == 0 && (!decode(at) || *at != '/'))
		rc = refuse(err, "the path of a socket begins with /");
	if (rc != 0)
		return rc;
	url->server.host = strdup(at);
	return url->server.host != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for redis.url");
}

static int parse_sentinels(char *at, struct redis_url *url, struct err *err)
{
	char *slash = strchr(at, '/'), *name, *save = NULL;
	int rc = 0;

	if (slash == NULL || slash[1] == '\0' || slash[1] == '/')
		return refuse(err, "the name of the master is missing");
	*slash = '\0';
	name = slash + 1;
	slash = strchr(name, '/');
	if (slash != NULL)
		*slash++ = '\0';
	rc = parse_database(slash, url, err);
	for (at = strtok_r(at, ",", &save); rc == 0 && at != NULL; at = strtok_r(NULL, ",", &save)) {
		if (url->sentinel_count == REDIS_SENTINELS_MAX)
			return refuse(err, "there are more than 8 sentinels");
		rc = parse_address(at, PORT_SENTINEL, &url->sentinels[url->sentinel_count++], err);
	}
	if (rc == 0 && url->sentinel_count == 0)
		rc = refuse(err, "the host is missing");
	if (rc != 0)
		return rc;
	url->master = strdup(name);
	return url->master != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for redis.url");
}

static const struct {
	const char *scheme;
	int (*parse)(char *at, struct redis_url *url, struct err *err);
} schemes[] = {
	{"redis://", parse_tcp},
	{"unix://", parse_unix},
	{"redis+sentinel://", parse_sentinels},
};

static int parse(char *text, struct redis_url *url, struct err *err)
{
	size_t i;
	int rc;

	if (strncmp(text, "rediss:", 7) == 0 || strncmp(text, "rediss+", 7) == 0)
		return err_set(
			err, ERR_CONFIG,
			"redis.url: this berthd was built with hiredis %d.%d, which has no TLS, so rediss:// "
			"cannot be used; use a unix socket, or redis:// to a TLS tunnel on this machine (stunnel, "
			"ghostunnel), or a build with a newer hiredis",
			HIREDIS_MAJOR, HIREDIS_MINOR);
	for (i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
		if (strncmp(text, schemes[i].scheme, strlen(schemes[i].scheme)) != 0)
			continue;
		text += strlen(schemes[i].scheme);
		rc = take_login(&text, url, err);
		return rc != 0 ? rc : schemes[i].parse(text, url, err);
	}
	return refuse(err, "its scheme is not known");
}

int redis_url_parse(const char *text, struct redis_url *ret, struct err *err)
{
	char *copy;
	int rc;

	*ret = (struct redis_url){0};
	if (text == NULL || *text == '\0')
		return refuse(err, "it is missing");
	if (strlen(text) > TEXT_MAX)
		return refuse(err, "it is too long");
	copy = strdup(text);
	if (copy == NULL)
		return err_set(err, ERR_NOMEM, "no memory for redis.url");
	rc = parse(copy, ret, err);
	secret_wipe(copy, strlen(text));
	free(copy);
	if (rc != 0)
		redis_url_fini(ret);
	return rc;
}

void redis_url_fini(struct redis_url *url)
{
	size_t i;

	for (i = 0; i < url->sentinel_count; i++)
		free(url->sentinels[i].host);
	free(url->server.host);
	free(url->master);
	free(url->user);
	secret_free(url->password);
	*url = (struct redis_url){0};
}
