/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What berth-executor costs over bare posix_spawn of the same command: /bin/sh on a script, its output read from a
 * pipe, its end waited for. Two commands: one that only prints a line, the shortest there is, and one that looks
 * through a few files as agents do. Both sides take turns, call by call, so that what else the machine does hits both.
 * Not a test: "executor_bench PROGRAM [folder [seconds]]" runs each command with one client and with several and prints
 * a line of JSON for each; files are on the folder (/dev/shm).
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"

#define UID "bench-uid"
#define CLIENTS 4
#define SAMPLES_MAX 200000

static uint8_t secret_key[crypto_sign_SECRETKEYBYTES];
static char instance[33], folder[256], script[300];
static uint16_t port;
static pid_t server;
static int64_t until_ns;

static const struct command {
	const char *name;
	const char *text;
} commands[] = {
	{"echo", "echo hello\n"},
	{"look",
	 "for f in /etc/passwd /etc/group /etc/services; do grep -c root $f; sort $f | tail -n 1; done >/dev/null\n"
	 "ls -l /usr/bin | wc -l >/dev/null\necho hello\n"},
};
static const struct command *command;

struct client {
	pthread_t thread;
	int number;
	int fd;
	double ours[SAMPLES_MAX], bare[SAMPLES_MAX];
	size_t count;
};

static void die(const char *what)
{
	perror(what);
	if (server > 0)
		kill(server, SIGKILL);
	exit(1);
}

static int64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void hex_sha256(char out[65], const void *ptr, size_t len)
{
	uint8_t digest[32];

	crypto_hash_sha256(digest, ptr, len);
	sodium_bin2hex(out, 65, digest, sizeof(digest));
}

static size_t add_frame(uint8_t *at, char type, const char *payload)
{
	size_t len = strlen(payload);

	frame_header_write(at, type, len);
	memcpy(at + FRAME_HEADER, payload, len);
	return FRAME_HEADER + len;
}

static size_t make_token(char *out, size_t cap, const uint8_t *body, size_t head_len, size_t body_len, const char *id)
{
	static const char prefix[] = "berth-executor-token-v1\n";
	char message[2048], head[65], whole[65], nonce[33], claims[1500];
	uint8_t bytes[16], signature[64];
	size_t len;

	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2hex(nonce, sizeof(nonce), bytes, sizeof(bytes));
	hex_sha256(head, body, head_len);
	hex_sha256(whole, body, body_len);
	len = (size_t)snprintf(claims, sizeof(claims),
			       "b\n" UID "\n%s\nbench\nbench\nPOST\n/v1/execute\n%s\n%s\n%s\n1\n%lld\n%s\n", instance,
			       head, whole, id, (long long)(now_ns(CLOCK_REALTIME) / 1000000 + 60000), nonce);
	snprintf(message, sizeof(message), "%s%s", prefix, claims);
	crypto_sign_detached(signature, NULL, (const uint8_t *)message, strlen(message), secret_key);
	sodium_bin2base64(out, cap, (const uint8_t *)claims, len, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	len = strlen(out);
	out[len++] = '.';
	sodium_bin2base64(out + len, cap - len, signature, sizeof(signature), sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	return strlen(out);
}

static size_t make_request(char *out, size_t cap, const char *id)
{
	uint8_t body[1024];
	char args[300], token[4096];
	size_t head_len, len;
	int n;

	snprintf(args, sizeof(args),
		 "{\"execution_id\":\"%s\",\"attempt\":1,\"cwd\":\".\",\"timeout_ms\":60000,\"stdout_max\":1000000,"
		 "\"stderr_max\":1000000}",
		 id);
	head_len = len = add_frame(body, 'A', args);
	len += add_frame(body + len, 'C', command->text);
	len += add_frame(body + len, 'Z', "");
	make_token(token, sizeof(token), body, head_len, len, id);
	n = snprintf(out, cap, "POST /v1/execute HTTP/1.1\r\nHost: b\r\nBerth-Token: %s\r\nContent-Length: %zu\r\n\r\n",
		     token, len);
	memcpy(out + n, body, len);
	return (size_t)n + len;
}

static int open_connection(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

/* By its length, or up to its last chunk. */
static bool is_whole(const char *text, size_t len)
{
	const char *body = memmem(text, len, "\r\n\r\n", 4);
	const char *size = memmem(text, len, "Content-Length: ", 16);

	if (!body)
		return false;
	if (size && size < body)
		return (size_t)(text + len - body) - 4 >= strtoul(size + 16, NULL, 10);
	return memcmp(text + len - 5, "0\r\n\r\n", 5) == 0;
}

/* It has to tell of exit 0. */
static void read_answer(int fd)
{
	char text[8192];
	size_t len = 0;

	do {
		ssize_t n = recv(fd, text + len, sizeof(text) - 1 - len, 0);

		if (n <= 0)
			die("answer");
		len += (size_t)n;
		text[len] = '\0';
	} while (!is_whole(text, len));
	if (!memmem(text, len, "\"kind\":\"exit\",\"exit_code\":0", 27) || !memmem(text, len, "hello\n", 6)) {
		fprintf(stderr, "%.*s\n", (int)len, text);
		die("not what was asked for");
	}
}

static void run_ours(struct client *client, const char *id)
{
	char request[8192];
	size_t len = make_request(request, sizeof(request), id);

	if (send(client->fd, request, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("send");
	read_answer(client->fd);
}

static void run_bare(void)
{
	char sh[] = "/bin/sh", text[64];
	char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	char *argv[] = {sh, script, NULL}, *env[] = {path, NULL};
	posix_spawn_file_actions_t actions;
	int ends[2], status;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		die("pipe");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	if (posix_spawn(&pid, sh, &actions, NULL, argv, env) != 0)
		die("posix_spawn");
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	while (read(ends[0], text, sizeof(text)) > 0)
		continue;
	close(ends[0]);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		die("wait");
}

static void *client_main(void *arg)
{
	struct client *client = arg;

	for (; now_ns(CLOCK_MONOTONIC) < until_ns && client->count < SAMPLES_MAX; client->count++) {
		int64_t begin = now_ns(CLOCK_MONOTONIC), middle;
		char id[64];

		snprintf(id, sizeof(id), "b_%d_%lld", client->number, (long long)begin);
		run_ours(client, id);
		middle = now_ns(CLOCK_MONOTONIC);
		run_bare();
		client->ours[client->count] = (double)(middle - begin) / 1e6;
		client->bare[client->count] = (double)(now_ns(CLOCK_MONOTONIC) - middle) / 1e6;
	}
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(struct client **clients, int count, bool ours)
{
	static double all[CLIENTS * SAMPLES_MAX];
	size_t n = 0;

	for (int i = 0; i < count; i++)
		for (size_t k = 0; k < clients[i]->count; k++)
			all[n++] = ours ? clients[i]->ours[k] : clients[i]->bare[k];
	qsort(all, n, sizeof(*all), by_value);
	return all[n / 2];
}

static bool measure(int count, int seconds)
{
	struct client *clients[CLIENTS];
	double ours, bare, ratio;

	until_ns = now_ns(CLOCK_MONOTONIC) + seconds * INT64_C(1000000000);
	for (int i = 0; i < count; i++) {
		clients[i] = calloc(1, sizeof(**clients));
		if (!clients[i])
			die("memory");
		clients[i]->number = i;
		clients[i]->fd = open_connection();
	}
	for (int i = 0; i < count; i++)
		if (pthread_create(&clients[i]->thread, NULL, client_main, clients[i]) != 0)
			die("thread");
	for (int i = 0; i < count; i++)
		pthread_join(clients[i]->thread, NULL);
	ours = median(clients, count, true);
	bare = median(clients, count, false);
	ratio = bare / ours;
	printf("{\"bench\": \"executor\", \"metric\": \"%s_p50_%d_client%s\", \"ours\": %.4g, \"reference\": %.4g, "
	       "\"ratio\": %.3g, \"unit\": \"ms\", \"goal\": \"ratio >= 0.7\", \"ok\": %s}\n",
	       command->name, count, count > 1 ? "s" : "", ours, bare, ratio, ratio >= 0.7 ? "true" : "false");
	fflush(stdout);
	for (int i = 0; i < count; i++) {
		close(clients[i]->fd);
		free(clients[i]);
	}
	return ratio >= 0.7;
}

static void start_server(const char *program)
{
	uint8_t public_key[crypto_sign_PUBLICKEYBYTES];
	char keys[128] = "BERTH_EXECUTOR_KEYS=b:", root[300], state[300], line[128] = "";
	int ends[2];
	FILE *out;

	crypto_sign_keypair(public_key, secret_key);
	sodium_bin2base64(keys + strlen(keys), sizeof(keys) - strlen(keys), public_key, sizeof(public_key),
			  sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
	snprintf(root, sizeof(root), "%s/work", folder);
	snprintf(state, sizeof(state), "%s/state", folder);
	if (pipe2(ends, O_CLOEXEC) < 0)
		die("pipe");
	server = fork();
	if (server == 0) {
		char *env[] = {keys, NULL};

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ends[1], 1);
		execle(program, program, "serve", "--listen", "127.0.0.1:0", "--root", root, "--state", state,
		       "--pod-uid", UID, NULL, env);
		_exit(127);
	}
	close(ends[1]);
	out = fdopen(ends[0], "r");
	if (server < 0 || !out || !fgets(line, sizeof(line), out) || !strrchr(line, ':'))
		die("the executor did not start");
	port = (uint16_t)atoi(strrchr(line, ':') + 1);
}

static void learn_instance(void)
{
	static const char ask[] = "GET /v1/health HTTP/1.1\r\nHost: b\r\n\r\n";
	char text[4096];
	int fd = open_connection();
	ssize_t n = send(fd, ask, sizeof(ask) - 1, 0) < 0 ? -1 : recv(fd, text, sizeof(text) - 1, 0);
	const char *at;

	text[n > 0 ? n : 0] = '\0';
	at = strstr(text, "Berth-Instance: ");
	if (!at)
		die("no health");
	snprintf(instance, sizeof(instance), "%.32s", at + 16);
	close(fd);
}

static void write_script(void)
{
	FILE *file;

	snprintf(script, sizeof(script), "%s/script", folder);
	file = fopen(script, "w");
	if (!file || fputs(command->text, file) < 0 || fclose(file) != 0)
		die(script);
}

static void remove_folder(void)
{
	char rm[] = "rm", flags[] = "-rf";
	char *argv[] = {rm, flags, folder, NULL};
	pid_t pid;

	if (posix_spawnp(&pid, rm, NULL, NULL, argv, NULL) == 0)
		waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	int seconds = argc > 3 ? atoi(argv[3]) : 5;
	bool ok = true;

	if (argc < 2 || seconds < 1) {
		fprintf(stderr, "usage: executor_bench PROGRAM [folder [seconds]]\n");
		return 2;
	}
	snprintf(folder, sizeof(folder), "%s/executor-bench-XXXXXX", argc > 2 ? argv[2] : "/dev/shm");
	if (sodium_init() < 0 || !mkdtemp(folder))
		die(folder);
	start_server(argv[1]);
	learn_instance();
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		command = &commands[i];
		write_script();
		ok = measure(1, seconds) && ok;
		ok = measure(CLIENTS, seconds) && ok;
	}
	kill(server, SIGTERM);
	waitpid(server, NULL, 0);
	remove_folder();
	return ok ? 0 : 1;
}
