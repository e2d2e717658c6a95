/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder, and what was logged meanwhile. */
#ifndef PLUGIN_FIXTURE_H
#define PLUGIN_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "plugin/call.h"
#include "plugin/loader.h"
#include "plugin/target.h"

#define PROBE BERTH_TEST_ZOO_DIR "/zoo_probe"
#define EXPECT_ERR(err, part)                                                                                          \
	do {                                                                                                           \
		if (!strstr((err).msg, part))                                                                          \
			fail_msg("\"%s\" is not in: %s", part, (err).msg);                                             \
	} while (0)

static char fixture_dir[64];
static int fixture_stderr = -1;

static inline void fixture_path(char *ret, size_t size, const char *name)
{
	snprintf(ret, size, "%s/%s", fixture_dir, name);
}

static inline int fixture_setup(void **state)
{
	(void)state;
	log_init(LOG_INFO, LOG_LOGFMT);
	snprintf(fixture_dir, sizeof(fixture_dir), "/tmp/berth-plugin-XXXXXX");
	return mkdtemp(fixture_dir) && !chmod(fixture_dir, 0755) ? 0 : -1;
}

static inline int fixture_teardown(void **state)
{
	char command[128];
	pid_t pid = fork();

	(void)state;
	snprintf(command, sizeof(command), "%s", fixture_dir);
	if (pid == 0) {
		execlp("rm", "rm", "-rf", command, (char *)NULL);
		_exit(127);
	}
	return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

/* Standard error goes to a file until capture_end, which gives its text (free). */
static inline void capture_begin(void)
{
	char path[128];
	int fd;

	fixture_path(path, sizeof(path), "stderr");
	fflush(stderr);
	fixture_stderr = dup(2);
	fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	dup2(fd, 2);
	close(fd);
}

static inline char *capture_end(void)
{
	char path[128], *text = calloc(1, 65536);
	FILE *file;

	fflush(stderr);
	dup2(fixture_stderr, 2);
	close(fixture_stderr);
	fixture_path(path, sizeof(path), "stderr");
	file = fopen(path, "r");
	assert_true(text && file);
	text[fread(text, 1, 65535, file)] = '\0';
	fclose(file);
	return text;
}

#endif
