/* SPDX-License-Identifier: Apache-2.0 */
/* Starts, kills and asks redis-server. Runs in the test's thread. */
#include "redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/clock.h"

#define START_MS 30000
#define LOOK_NS (5 * 1000 * 1000)
#define CLOCK_FILE "clock"

void redis_server_breathe(void)
{
	nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
}

void redis_server_set_clock(struct redis_server *server, const char *offset)
{
	char path[TEMPDIR_PATH], next[TEMPDIR_PATH];
	FILE *file;

	tempdir_path(&server->dir, CLOCK_FILE, path);
	tempdir_path(&server->dir, CLOCK_FILE ".new", next);
	file = fopen(next, "we");
	assert_non_null(file);
	fprintf(file, "%s\n", offset);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(rename(next, path), 0);
}

static void fake_time(const struct redis_server *server)
{
	char path[TEMPDIR_PATH];

	tempdir_path(&server->dir, CLOCK_FILE, path);
	setenv("LD_PRELOAD", server->clock_shim, 1);
	setenv("BERTH_FAKECLOCK", path, 1);
}

static void child(const struct redis_server *server)
{
	char port[16];
	const char *args[REDIS_SERVER_WORDS + 24] = {
		"redis-server",
		"--port",
		port,
		"--unixsocket",
		server->socket,
		"--dir",
		server->dir.root,
		"--appendonly",
		"yes",
		"--maxmemory-policy",
		"noeviction",
		"--save",
		"",
		"--bind",
		"127.0.0.1",
	};
	size_t at = 15, i;
	int log;

	snprintf(port, sizeof(port), "%d", server->port);
	for (i = 0; server->words[i] != NULL; i++)
		args[at++] = server->words[i];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (server->clock_shim != NULL)
		fake_time(server);
	if (chdir(server->dir.root) != 0)
		_exit(126);
	log = open("redis.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	execvp(args[0], (char *const *)(uintptr_t)args);
	_exit(127);
}

void redis_server_launch(struct redis_server *server)
{
	assert_int_equal(server->pid, 0);
	server->pid = fork();
	assert_true(server->pid >= 0);
	if (server->pid == 0)
		child(server);
}

static bool answers(const struct redis_server *server)
{
	redisContext *ctx = redisConnectUnix(server->socket);
	redisReply *reply = NULL;
	bool good;

	if (ctx != NULL && ctx->err == 0)
		reply = redisCommand(ctx, "PING");
	good = reply != NULL && (reply->type == REDIS_REPLY_STATUS || strncmp(reply->str, "NOAUTH", 6) == 0);
	freeReplyObject(reply);
	if (ctx != NULL)
		redisFree(ctx);
	return good;
}

void redis_server_again(struct redis_server *server)
{
	int64_t until = clock_after_ms(START_MS);
	int status;

	if (server->pid == 0)
		redis_server_launch(server);
	while (!answers(server)) {
		if (waitpid(server->pid, &status, WNOHANG) != 0)
			fail_msg("redis-server ended, see %s/redis.log (is it installed?)", server->dir.root);
		if (clock_boot_ns() > until)
			fail_msg("redis-server does not answer, see %s/redis.log", server->dir.root);
		redis_server_breathe();
	}
}

static void start(struct redis_server *server, const char *const *words)
{
	size_t i;

	for (i = 0; words != NULL && words[i] != NULL; i++) {
		assert_true(i + 1 < REDIS_SERVER_WORDS);
		server->words[i] = words[i];
	}
	tempdir_make(&server->dir);
	tempdir_path(&server->dir, "redis.sock", server->socket);
	snprintf(server->url, sizeof(server->url), "unix://%s", server->socket);
	if (server->clock_shim != NULL)
		redis_server_set_clock(server, "+0");
	redis_server_again(server);
}

void redis_server_start(struct redis_server *server, const char *const *words)
{
	*server = (struct redis_server){0};
	start(server, words);
}

void redis_server_start_faked(struct redis_server *server, const char *clock_shim)
{
	*server = (struct redis_server){.clock_shim = clock_shim};
	start(server, NULL);
}

int redis_server_free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	close(fd);
	return ntohs(at.sin_port);
}

void redis_server_start_tcp(struct redis_server *server, const char *const *words)
{
	*server = (struct redis_server){.port = redis_server_free_port()};
	start(server, words);
	snprintf(server->url, sizeof(server->url), "redis://127.0.0.1:%d", server->port);
}

void redis_server_kill(struct redis_server *server)
{
	int status;

	if (server->pid == 0)
		return;
	kill(server->pid, SIGKILL);
	waitpid(server->pid, &status, 0);
	server->pid = 0;
	unlink(server->socket);
}

void redis_server_stop(struct redis_server *server)
{
	redis_server_kill(server);
	tempdir_remove(&server->dir);
}

char *redis_server_try(struct redis_server *server, const char *command)
{
	redisContext *ctx = redisConnectUnix(server->socket);
	redisReply *reply = NULL;
	char *text = NULL;

	assert_non_null(ctx);
	if (ctx->err == 0)
		reply = redisCommand(ctx, command);
	if (reply == NULL) {
		redisFree(ctx);
		return NULL;
	}
	if (reply->type == REDIS_REPLY_INTEGER)
		assert_true(asprintf(&text, "%lld", reply->integer) > 0);
	else if (reply->type == REDIS_REPLY_ARRAY)
		assert_true(asprintf(&text, "%zu", reply->elements) > 0);
	else
		text = strdup(reply->str != NULL ? reply->str : "");
	assert_non_null(text);
	freeReplyObject(reply);
	redisFree(ctx);
	return text;
}

char *redis_server_ask(struct redis_server *server, const char *command)
{
	char *text = redis_server_try(server, command);

	if (text == NULL)
		fail_msg("%s: no answer", command);
	return text;
}

void redis_server_must(struct redis_server *server, const char *command, const char *answer)
{
	char *text = redis_server_ask(server, command);

	if (strcmp(text, answer) != 0)
		fail_msg("%s: %s", command, text);
	free(text);
}

int redis_server_open(struct redis_server *server, const char *prefix, struct store **ret, struct err *err)
{
	char requests[64], events[64], dead[64];
	struct store_redis_config config = {
		.url = server->url,
		.deployment = "test",
		.host_id = "host-1",
		.prefix = prefix,
		.request_stream = requests,
		.event_stream = events,
		.dead_stream = dead,
	};

	snprintf(requests, sizeof(requests), "%s.requests", prefix);
	snprintf(events, sizeof(events), "%s.events", prefix);
	snprintf(dead, sizeof(dead), "%s.dead", prefix);
	return store_open_redis(&config, ret, err);
}
