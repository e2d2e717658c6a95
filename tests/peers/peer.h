/* SPDX-License-Identifier: Apache-2.0 */
/* Runs hostile_http.py for a C test: a folder with certificates and the peer beside it. */
#ifndef PEERS_PEER_H
#define PEERS_PEER_H

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct peer {
	char dir[64];
	pid_t pid;
	int in; /* its standard input; closing it ends it */
	unsigned plain, tls, wrong, mtls;
};

static inline int peer_run(const char *const *argv)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		execvp(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

static inline pid_t peer_spawn(const char *dir, int *ret_in, int *ret_out)
{
	int in[2], out[2];
	pid_t pid;

	if (pipe(in) || pipe(out))
		return -1;
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		for (int fd = 3; fd < 256; fd++)
			close(fd);
		execlp("python3", "python3", BERTH_TEST_SOURCE_DIR "/tests/peers/hostile_http.py", dir, (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	*ret_in = in[1];
	*ret_out = out[0];
	return pid;
}

static inline unsigned peer_port(const char *line, const char *name)
{
	const char *at = strstr(line, name);

	return at ? (unsigned)strtoul(at + strlen(name), NULL, 10) : 0;
}

/* 0 once it listens. */
static inline int peer_start(struct peer *peer, int with_tls)
{
	char line[256] = "";
	FILE *file;
	int out;

	memset(peer, 0, sizeof(*peer));
	snprintf(peer->dir, sizeof(peer->dir), "/tmp/berth-peer-XXXXXX");
	if (!mkdtemp(peer->dir))
		return -1;
	if (with_tls && peer_run((const char *const[]){"sh", BERTH_TEST_SOURCE_DIR "/tests/peers/make_certs.sh",
						       peer->dir, NULL}))
		return -1;
	peer->pid = peer_spawn(peer->dir, &peer->in, &out);
	file = peer->pid > 0 ? fdopen(out, "r") : NULL;
	if (!file || !fgets(line, sizeof(line), file))
		return -1;
	fclose(file);
	peer->plain = peer_port(line, "plain=");
	peer->tls = peer_port(line, "tls=");
	peer->wrong = peer_port(line, "wrong=");
	peer->mtls = peer_port(line, "mtls=");
	return peer->plain ? 0 : -1;
}

static inline int peer_stop(struct peer *peer)
{
	close(peer->in);
	kill(peer->pid, SIGKILL);
	waitpid(peer->pid, NULL, 0);
	return peer_run((const char *const[]){"rm", "-rf", peer->dir, NULL});
}

/* A file of the folder; free it. */
static inline char *peer_file(const struct peer *peer, const char *name)
{
	char path[128];
	char *text = calloc(1, 65536);
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", peer->dir, name);
	file = fopen(path, "r");
	if (text && file)
		text[fread(text, 1, 65535, file)] = '\0';
	if (file)
		fclose(file);
	return text;
}

#endif
