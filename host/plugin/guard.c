/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects what a plugin must not touch: working directory, umask, locale, signal dispositions, the thread's signal
 * mask. Around init and open on the main thread; in debug builds after every call, on the calling thread, against what
 * was taken at start. Restoring is for the process as a whole.
 */
#include "plugin/guard.h"

#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int guarded[GUARD_SIGNALS] = {
    SIGHUP,  SIGINT,  SIGQUIT, SIGILL,  SIGABRT, SIGFPE,  SIGBUS,
    SIGSEGV, SIGPIPE, SIGALRM, SIGTERM, SIGCHLD, SIGUSR1, SIGUSR2,
};

/* umask(2) can only be read by changing it, which other threads would see. */
static mode_t read_umask(void)
{
	char line[256];
	unsigned value = 0;
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Umask: %o", &value) == 1)
			break;
	if (file)
		fclose(file);
	return (mode_t)value;
}

static void read_cwd(dev_t *ret_dev, ino_t *ret_ino)
{
	struct stat st = {0};

	(void)!stat(".", &st);
	*ret_dev = st.st_dev;
	*ret_ino = st.st_ino;
}

void guard_take(struct guard *guard)
{
	const char *locale = setlocale(LC_ALL, NULL);

	memset(guard, 0, sizeof(*guard));
	guard->cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	read_cwd(&guard->cwd_dev, &guard->cwd_ino);
	guard->umask = read_umask();
	snprintf(guard->locale, sizeof(guard->locale), "%s", locale ? locale : "C");
	for (size_t i = 0; i < GUARD_SIGNALS; i++)
		sigaction(guarded[i], NULL, &guard->actions[i]);
	pthread_sigmask(SIG_SETMASK, NULL, &guard->mask);
}

void guard_drop(struct guard *guard)
{
	if (guard->cwd >= 0)
		close(guard->cwd);
	guard->cwd = -1;
}

static void note(char *ret, size_t size, const char *word)
{
	size_t len = strlen(ret);

	snprintf(ret + len, size - len, "%s%s", len ? ", " : "", word);
}

static void restore_signals(const struct guard *guard, char *ret, size_t size)
{
	bool changed = false;
	sigset_t mask;

	for (size_t i = 0; i < GUARD_SIGNALS; i++) {
		struct sigaction now;

		sigaction(guarded[i], NULL, &now);
		if (now.sa_handler == guard->actions[i].sa_handler)
			continue;
		sigaction(guarded[i], &guard->actions[i], NULL);
		changed = true;
	}
	if (changed)
		note(ret, size, "signal dispositions");
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	changed = false;
	for (size_t i = 0; i < GUARD_SIGNALS; i++)
		changed = changed || sigismember(&mask, guarded[i]) != sigismember(&guard->mask, guarded[i]);
	if (!changed)
		return;
	pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
	note(ret, size, "signal mask");
}

bool guard_restore(const struct guard *guard, char *ret, size_t size)
{
	const char *locale = setlocale(LC_ALL, NULL);
	dev_t dev;
	ino_t ino;

	ret[0] = '\0';
	read_cwd(&dev, &ino);
	if (dev != guard->cwd_dev || ino != guard->cwd_ino) {
		if (guard->cwd >= 0)
			(void)!fchdir(guard->cwd);
		note(ret, size, "working directory");
	}
	if (read_umask() != guard->umask) {
		umask(guard->umask);
		note(ret, size, "umask");
	}
	if (locale && strcmp(locale, guard->locale)) {
		setlocale(LC_ALL, guard->locale);
		note(ret, size, "locale");
	}
	restore_signals(guard, ret, size);
	return ret[0] != '\0';
}
