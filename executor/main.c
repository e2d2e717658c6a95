/* SPDX-License-Identifier: Apache-2.0 */
/*
 * berth-executor: argv, signals, and the duties of a first process. The main thread serves no request; its children are
 * the launcher and the orphans that came to it, and it alone waits for those. Called as berth-supervise, the program is
 * that.
 */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include "../sdk/lib/supervised_files.h"
#include "drain.h"
#include "install.h"
#include "options.h"
#include "server.h"

#define SWEEP_MS 5000
#define DRAIN_LOOK_MS 20
/* A tree that outlives its KILL this long is stuck in the kernel. */
#define DRAIN_MAX_NS INT64_C(120000000000)
/* How long those who follow may take to fetch the last ending. */
#define FAREWELL_NS INT64_C(2000000000)
/* Commands are the kernel's choice when memory runs out, not this program. */
#define OOM_STEP 100

extern char **environ;

#ifdef EXECUTOR_SUPERVISES
int supervise_main(int argc, char **argv);

static void prefer_for_oom(void)
{
	char text[16];
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n > 0) {
		long score;
		int len;

		text[n] = '\0';
		score = strtol(text, NULL, 10) + OOM_STEP;
		len = snprintf(text, sizeof(text), "%ld", score > 1000 ? 1000 : score);
		/* A wish: without it the command runs all the same. */
		if (pwrite(fd, text, (size_t)len, 0) < 0)
			len = 0;
	}
	if (fd >= 0)
		close(fd);
}

static int supervise(int argc, char **argv)
{
	if (argc > 1 && (strcmp(argv[1], "run") == 0 || strcmp(argv[1], "attend") == 0))
		prefer_for_oom();
	return supervise_main(argc, argv);
}
#endif

static const char usage[] =
	"usage: berth-executor serve [--listen ADDRESS:PORT] [--root DIR] [--state DIR] [--keys FILE] [--pod-uid UID]\n"
	"                            [--uid N] [--gid N] [--max-operations N] [--helper PROGRAM]\n"
	"       berth-executor install DIR\n"
	"       berth-executor version\n"
	"Each flag can be given as BERTH_EXECUTOR_<NAME>; keys as BERTH_EXECUTOR_KEYS=id:base64,…; the uid as "
	"BERTH_POD_UID.\n";

static int fail(const char *text)
{
	fprintf(stderr, "berth-executor: %s\n", text);
	return 1;
}

/* Only children of this thread: helpers belong to the workers that wait for them. */
static void reap(struct launcher *launcher)
{
	int status;
	pid_t pid;

	do {
		pid = waitpid(-1, &status, WNOHANG | __WNOTHREAD);
		if (pid > 0)
			launcher_reaped(launcher, pid);
	} while (pid > 0 || (pid < 0 && errno == EINTR));
}

static int open_signals(void)
{
	sigset_t set;

	/* Blocked before there are threads, so in all of them; supervisors reset it. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGPIPE);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -1;
	sigdelset(&set, SIGPIPE);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Returns how often it was asked to end. */
static unsigned take_signals(struct executor *executor, int fd, int timeout_ms)
{
	struct pollfd poller = {.fd = fd, .events = POLLIN};
	struct signalfd_siginfo info;
	unsigned asked = 0;

	if (poll(&poller, 1, timeout_ms) <= 0)
		return 0;
	while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
		asked += info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
	reap(&executor->launcher);
	return asked;
}

static void drain(struct executor *executor, int signals)
{
	int64_t until = sup_now_ns() + DRAIN_MAX_NS, farewell = INT64_MAX;
	bool at_once = false;

	atomic_store(&executor->draining, true);
	while (sup_now_ns() < until && sup_now_ns() < farewell) {
		if (drain_commands(executor->state.run_fd, at_once) > 0)
			farewell = INT64_MAX;
		else if (atomic_load(&executor->operations) == 0)
			break;
		else if (farewell == INT64_MAX)
			farewell = sup_now_ns() + FAREWELL_NS;
		/* Who asks twice does not want to wait for graces. */
		at_once |= take_signals(executor, signals, DRAIN_LOOK_MS) > 0;
	}
}

static int serve(int argc, char **argv)
{
	static struct executor executor;
	struct server *server = NULL;
	struct options options;
	char text[512];
	int signals;

	if (options_parse(argc, argv, &options, text, sizeof(text)) < 0) {
		fail(text);
		return 2;
	}
	/* Two heaps for all threads, and freed memory goes back: this program idles most of its life. */
	mallopt(M_ARENA_MAX, 2);
	/* Tokens must not be read out of this process by a command of the same user. */
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signals = open_signals();
	if (signals < 0)
		return fail("no signals can be taken");
	if (executor_init(&executor, &options, environ, text, sizeof(text)) < 0 ||
	    server_start(&executor, &server, text, sizeof(text)) < 0)
		return fail(text);
	launcher_keep(&executor.launcher);
	server_address(server, text, sizeof(text));
	printf("listening on %s\n", text);
	fflush(stdout);
	while (take_signals(&executor, signals, SWEEP_MS) == 0) {
		launcher_keep(&executor.launcher);
		server_sweep(server);
	}
	drain(&executor, signals);
	return 0;
}

int main(int argc, char **argv)
{
	char text[512];

#ifdef EXECUTOR_SUPERVISES
	if (argc > 0 && strcmp(argv[0], "berth-supervise") == 0)
		return supervise(argc, argv);
#endif
	if (argc < 2 || strcmp(argv[1], "serve") == 0)
		return serve(argc < 2 ? 0 : argc - 2, argv + 2);
	if (strcmp(argv[1], "install") == 0 && argc == 3)
		return install_self(argv[2], text, sizeof(text)) < 0 ? fail(text) : 0;
	if (strcmp(argv[1], "version") == 0 && argc == 2) {
		printf("berth-executor %s, protocol %d\n", BERTH_VERSION, EXECUTOR_PROTOCOL);
		return 0;
	}
	fputs(usage, stderr);
	return 2;
}
