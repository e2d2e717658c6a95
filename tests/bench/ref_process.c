/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands as processes have to be measured against: posix_spawn of `sh -c true` with a pipe for each output, both
 * read to their ends, and wait. "ref_process CLIENTS SECONDS" prints processes per second.
 */
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ref.h"

static struct ref_load load;
static char words[][8] = {"sh", "-c", "true"};
static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
static char *const arguments[] = {words[0], words[1], words[2], NULL};
static char *const environment[] = {path, NULL};

static pid_t spawn(const int out[2], const int err[2])
{
	posix_spawn_file_actions_t actions;
	pid_t pid;

	if (posix_spawn_file_actions_init(&actions) != 0 ||
	    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) != 0 ||
	    posix_spawn_file_actions_adddup2(&actions, out[1], 1) != 0 ||
	    posix_spawn_file_actions_adddup2(&actions, err[1], 2) != 0 ||
	    posix_spawn(&pid, "/bin/sh", &actions, NULL, arguments, environment) != 0)
		ref_die("cannot start sh");
	posix_spawn_file_actions_destroy(&actions);
	return pid;
}

static void drain(int out, int err)
{
	struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
	char buf[4096];
	int open = 2;

	while (open > 0) {
		if (poll(fds, 2, -1) < 0)
			ref_die("poll failed");
		for (int i = 0; i < 2; i++) {
			if (fds[i].fd < 0 || fds[i].revents == 0 || read(fds[i].fd, buf, sizeof(buf)) > 0)
				continue;
			fds[i].fd = -1;
			open--;
		}
	}
}

static void *client_main(void *arg)
{
	int out[2], err[2], status;

	while (!atomic_load(&load.stop)) {
		if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
			ref_die("cannot make a pipe");

		pid_t pid = spawn(out, err);

		close(out[1]);
		close(err[1]);
		drain(out[0], err[0]);
		if (waitpid(pid, &status, 0) != pid || status != 0)
			ref_die("sh failed");
		close(out[0]);
		close(err[0]);
		atomic_fetch_add(&load.done, 1);
	}
	return arg;
}

int main(int argc, char **argv)
{
	static const char usage[] = "usage: ref_process CLIENTS SECONDS";

	if (argc != 3)
		ref_die(usage);
	ref_measure(&load, ref_number(argv[1], usage), ref_number(argv[2], usage), client_main);
	return 0;
}
