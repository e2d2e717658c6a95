/* SPDX-License-Identifier: Apache-2.0 */
/*
 * httpprov-server: the options, the start and the end. Prints "listening on http://HOST:PORT" and goes on until TERM or
 * INT. Sessions lie in files and live on; timers are this process's own.
 */
#include "server.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct options options = {.runtime = "process",
			  .kill_grace = "2s",
			  .memory_max = "0",
			  .ready_delay = "0",
			  .keepalive_ms = 15000,
			  .threads = 2};

static const char usage[] =
	"usage: httpprov-server --root DIR [option…]\n"
	"  --root DIR          where sessions are kept; made when missing\n"
	"  --host ADDRESS      to listen on (127.0.0.1)\n"
	"  --port N            0 = any free one (0)\n"
	"  --port-file FILE    gets the port once it listens\n"
	"  --token-file FILE   the bearer token that requests must bring\n"
	"  --helpers DIR       where berth-supervise is (beside this program)\n"
	"  --runtime WORD      process, or null: sessions only, and commands that are timers (process)\n"
	"  --kill-grace TIME   between TERM and KILL (2s)\n"
	"  --ready-delay TIME  how long a new session takes (0)\n"
	"  --memory-max SIZE   of a session, by control group (0 = no limit)\n"
	"  --keepalive MS      a silent stream says something after so long (15000)\n"
	"  --threads N         for connections (2)\n";

static const struct option words[] = {
	{"root", required_argument, NULL, 'r'},
	{"host", required_argument, NULL, 'h'},
	{"port", required_argument, NULL, 'p'},
	{"port-file", required_argument, NULL, 'f'},
	{"token-file", required_argument, NULL, 't'},
	{"helpers", required_argument, NULL, 'H'},
	{"runtime", required_argument, NULL, 'R'},
	{"kill-grace", required_argument, NULL, 'g'},
	{"memory-max", required_argument, NULL, 'm'},
	{"ready-delay", required_argument, NULL, 'd'},
	{"keepalive", required_argument, NULL, 'k'},
	{"threads", required_argument, NULL, 'n'},
	{0},
};

struct place {
	const char *host, *port_file, *token_file;
	unsigned port;
};

static bool take_option(int letter, struct place *place)
{
	switch (letter) {
	case 'r':
		options.root = optarg;
		return true;
	case 'h':
		place->host = optarg;
		return true;
	case 'p':
		place->port = (unsigned)strtoul(optarg, NULL, 10);
		return place->port < 65536;
	case 'f':
		place->port_file = optarg;
		return true;
	case 't':
		place->token_file = optarg;
		return true;
	case 'H':
		options.helpers = strdup(optarg);
		return options.helpers;
	case 'R':
		options.runtime = optarg;
		return true;
	case 'g':
		options.kill_grace = optarg;
		return true;
	case 'm':
		options.memory_max = optarg;
		return true;
	case 'd':
		options.ready_delay = optarg;
		return true;
	case 'k':
		options.keepalive_ms = strtol(optarg, NULL, 10);
		return options.keepalive_ms > 0;
	case 'n':
		options.threads = (unsigned)strtoul(optarg, NULL, 10);
		return options.threads > 1 && options.threads <= 64;
	default:
		return false;
	}
}

static bool read_token(const char *path)
{
	char text[512] = "";
	FILE *file = fopen(path, "re");

	if (!file || !fgets(text, sizeof(text), file)) {
		if (file)
			fclose(file);
		return false;
	}
	fclose(file);
	text[strcspn(text, "\r\n")] = '\0';
	options.token = strdup(text);
	return options.token && *text;
}

static bool find_helpers(void)
{
	char path[4096];
	ssize_t len;
	char *slash;

	if (options.helpers)
		return true;
	len = readlink("/proc/self/exe", path, sizeof(path) - 1);
	if (len <= 0)
		return false;
	path[len] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		*slash = '\0';
	options.helpers = strdup(path);
	return options.helpers;
}

/* Written whole: whoever waits for it must not read half of it. */
static bool tell_port(const char *path, unsigned port)
{
	char temporary[4096];
	FILE *file;

	if (!path)
		return true;
	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.new", path) >= sizeof(temporary))
		return false;
	file = fopen(temporary, "we");
	if (!file)
		return false;
	fprintf(file, "%u\n", port);
	return fclose(file) == 0 && rename(temporary, path) == 0;
}

static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

static int refuse(const char *text)
{
	fprintf(stderr, "httpprov-server: %s\n", text);
	return 1;
}

int main(int argc, char **argv)
{
	struct place place = {.host = "127.0.0.1"};
	sigset_t ends;
	unsigned port = 0;
	int letter, number;

	while ((letter = getopt_long(argc, argv, "", words, NULL)) != -1)
		if (!take_option(letter, &place)) {
			fputs(usage, stderr);
			return 2;
		}
	if (optind != argc || !options.root) {
		fputs(usage, stderr);
		return 2;
	}
	if (place.token_file && !read_token(place.token_file))
		return refuse("the token file cannot be read");
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &ends, NULL);
	sigdelset(&ends, SIGPIPE);
	raise_descriptors();
	if (!find_helpers() || !engine_init() || !engine_of("") || !clock_start())
		return refuse("cannot be set up");
	if (!front_start(place.host, place.port, &port) || !tell_port(place.port_file, port))
		return refuse("cannot listen, or the port file cannot be written");
	printf("listening on http://%s:%u\n", place.host, port);
	fflush(stdout);
	sigwait(&ends, &number);
	front_stop();
	clock_stop();
	engine_fini();
	free(options.token);
	free(options.helpers);
	return 0;
}
