/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the named places where tests make the process fail, and the only list of their names. Any thread hits them; one plain
 * mutex (outside the lock order, as points lie anywhere) guards the counting and is never held while an action runs.
 * Off unless the environment asks: then nothing here is ever entered.
 */
#include "core/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"

#define POLL_MS 5

static const char *const names[] = {
	"store.commit.before",
	"store.commit.after",
	"provision.before",
	"provision.created",
	"provision.ready",
	"provision.publish.before",
	"exec.accepted",
	"exec.claimed",
	"exec.begin.after",
	"exec.started",
	"exec.running",
	"exec.shown.before",
	"exec.ended",
	"exec.stored.before",
	"exec.terminal.before",
	"exec.terminal.after",
	"exec.forget.before",
	"release.before",
	"release.after",
	"release.confirmed.before",
	"gc.reclaim.before",
	"warm.created",
	"warm.reserved",
	"assign.before",
	"assign.after",
};
#define NAME_COUNT (sizeof(names) / sizeof(names[0]))

enum action { ACTION_NONE, ACTION_KILL, ACTION_SLEEP, ACTION_ERROR, ACTION_PAUSE };

struct armed {
	size_t index; /* of its name; NAME_COUNT for an empty line */
	enum action action;
	int64_t sleep_ms;
	unsigned nth; /* 0: every hit */
};

bool failpoint_active;

static char file[PATH_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned hits[NAME_COUNT]; /* under mutex */

static size_t index_of(const char *name)
{
	size_t i = 0;

	while (i < NAME_COUNT && strcmp(names[i], name) != 0)
		i++;
	return i;
}

static bool parse_count(const char *text, unsigned *ret)
{
	char *end;

	errno = 0;
	unsigned long value = strtoul(text, &end, 10);

	if (errno || *end || end == text || value > UINT_MAX || value == 0)
		return false;
	*ret = (unsigned)value;
	return true;
}

static bool parse_action(const char *word, struct armed *ret)
{
	unsigned ms;

	if (strcmp(word, "kill") == 0)
		ret->action = ACTION_KILL;
	else if (strcmp(word, "error") == 0)
		ret->action = ACTION_ERROR;
	else if (strcmp(word, "pause") == 0)
		ret->action = ACTION_PAUSE;
	else if (strncmp(word, "sleep:", 6) == 0 && parse_count(word + 6, &ms)) {
		ret->action = ACTION_SLEEP;
		ret->sleep_ms = ms;
	}
	return ret->action != ACTION_NONE;
}

/* NULL, or what is wrong with the line. */
static const char *parse_line(char *line, struct armed *ret)
{
	char *save = NULL;
	const char *name = strtok_r(line, " \t\r\n", &save);
	const char *action = name ? strtok_r(NULL, " \t\r\n", &save) : NULL;
	const char *nth = action ? strtok_r(NULL, " \t\r\n", &save) : NULL;

	memset(ret, 0, sizeof(*ret));
	ret->index = NAME_COUNT;
	if (!name || name[0] == '#')
		return NULL;
	ret->index = index_of(name);
	if (ret->index == NAME_COUNT)
		return "unknown failpoint";
	if (!action || !parse_action(action, ret))
		return "the action is kill, sleep:<ms>, error or pause";
	if (nth && (!parse_count(nth, &ret->nth) || strtok_r(NULL, " \t\r\n", &save)))
		return "after the action comes at most the number of the hit, from 1";
	return NULL;
}

/* Finds the line that arms `index` (the last one counts); with NAME_COUNT it only checks the file. */
static int read_file(size_t index, struct armed *ret, struct err *err)
{
	FILE *stream = fopen(file, "re");
	char line[256];
	unsigned number = 0;
	int r = 0;

	if (!stream)
		return err_set(err, ERR_CONFIG, "BERTH_FAILPOINTS: %s: %s", file, strerror(errno));
	while (r == 0 && fgets(line, sizeof(line), stream)) {
		struct armed armed;
		const char *fault = parse_line(line, &armed);

		number++;
		if (fault)
			r = err_set(err, ERR_CONFIG, "%s:%u: %s", file, number, fault);
		else if (ret && armed.index == index && index < NAME_COUNT)
			*ret = armed;
	}
	fclose(stream);
	return r;
}

int failpoint_init(struct err *err)
{
	const char *path = getenv("BERTH_FAILPOINTS");

	if (!path || !*path)
		return 0;
	if ((size_t)snprintf(file, sizeof(file), "%s", path) >= sizeof(file) - sizeof(".hit"))
		return err_set(err, ERR_CONFIG, "BERTH_FAILPOINTS: the path is too long");

	int r = read_file(NAME_COUNT, NULL, err);

	failpoint_active = r == 0;
	return r;
}

static void note_hit(const char *name, unsigned number)
{
	char path[PATH_MAX];
	char line[128];
	int len = snprintf(line, sizeof(line), "%s %u\n", name, number);

	snprintf(path, sizeof(path), "%.*s.hit", (int)sizeof(path) - 8, file);

	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	if (fd < 0 || write(fd, line, (size_t)len) != len)
		log_error("a failpoint's hit could not be noted", KS("file", path), KS("why", strerror(errno)));
	if (fd >= 0)
		close(fd);
}

static void wait_ms(int64_t ms)
{
	struct timespec ts = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * CLOCK_NS_PER_MS};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
		;
}

static void wait_for_go(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s.go", (int)sizeof(path) - 8, file);
	while (access(path, F_OK) < 0)
		wait_ms(POLL_MS);
}

static bool act(const struct armed *armed)
{
	switch (armed->action) {
	case ACTION_KILL:
		kill(getpid(), SIGKILL);
		for (;;)
			pause();
	case ACTION_SLEEP:
		wait_ms(armed->sleep_ms);
		return false;
	case ACTION_PAUSE:
		wait_for_go();
		return false;
	case ACTION_ERROR:
		return true;
	case ACTION_NONE:
		break;
	}
	return false;
}

bool failpoint_hit(const char *name)
{
	struct armed armed = {.action = ACTION_NONE};
	struct err err = {0};
	size_t index = index_of(name);
	unsigned number = 0;

	if (index == NAME_COUNT) {
		log_error("a failpoint is hit that is not in the list", KS("name", name));
		abort();
	}
	pthread_mutex_lock(&mutex);
	if (read_file(index, &armed, &err))
		log_error("the failpoint file cannot be used", KS("error", err.msg));
	else if (armed.action != ACTION_NONE)
		number = ++hits[index];
	if (number)
		note_hit(name, number);
	pthread_mutex_unlock(&mutex);
	return number && (armed.nth == 0 || armed.nth == number) && act(&armed);
}
