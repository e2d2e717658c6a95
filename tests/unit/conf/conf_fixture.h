/* SPDX-License-Identifier: Apache-2.0 */
/* A folder with a configuration in it, and what a load of it says. */
#ifndef CONF_FIXTURE_H
#define CONF_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf.h"
#include "core/log.h"

#define BASE "deployment = \"test\";\n"
#define TARGET "provider = \"mock\"; name = \"one\";\n"
#define SECRET_A "k3Jv9sQ1xZ7pLm2Ra8Wt5Yb0Nc6Ud4Ef"
#define SECRET_B "q8Xn1vB5mT2rGs7Hd0Kj4Lw9Pc3Zy6Ae"

static char fixture_dir[64];
static struct err fixture_err;

static inline void fixture_path(char *ret, size_t size, const char *name)
{
	snprintf(ret, size, "%s/%s", fixture_dir, name);
}

static inline void fixture_write(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	fixture_path(path, sizeof(path), name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0600), 0);
}

static inline int fixture_setup(void **state)
{
	char path[256];

	(void)state;
	log_init(LOG_ERROR, LOG_LOGFMT);
	snprintf(fixture_dir, sizeof(fixture_dir), "/tmp/berth-conf-XXXXXX");
	if (!mkdtemp(fixture_dir))
		return -1;
	fixture_path(path, sizeof(path), "providers.d");
	if (mkdir(path, 0700))
		return -1;
	fixture_write("berth.conf", BASE);
	fixture_write("providers.d/10-one.conf", TARGET);
	return 0;
}

static inline void fixture_empty(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char name[512];

	while (dir && (entry = readdir(dir))) {
		if ((size_t)snprintf(name, sizeof(name), "%s/%s", path, entry->d_name) >= sizeof(name))
			continue;
		if (entry->d_name[0] != '.' || strlen(entry->d_name) > 2)
			if (unlink(name) && rmdir(name))
				fixture_empty(name), rmdir(name);
	}
	if (dir)
		closedir(dir);
}

static inline int fixture_teardown(void **state)
{
	(void)state;
	fixture_empty(fixture_dir);
	return rmdir(fixture_dir);
}

static inline struct conf *fixture_load(void)
{
	struct conf *conf = NULL;
	char path[256];

	memset(&fixture_err, 0, sizeof(fixture_err));
	fixture_path(path, sizeof(path), "berth.conf");
	if (conf_load(path, false, &conf, &fixture_err)) {
		assert_null(conf);
		assert_true(fixture_err.msg[0]);
		return NULL;
	}
	return conf;
}

static inline struct conf *fixture_accept(void)
{
	struct conf *conf = fixture_load();

	if (!conf)
		fail_msg("refused: %s", fixture_err.msg);
	return conf;
}

/* The load is refused, and the sentence holds every part (NULL ends). */
static inline void fixture_refuse(const char *part, ...)
{
	struct conf *conf = fixture_load();
	va_list ap;

	if (conf)
		fail_msg("accepted, expected a refusal with \"%s\"", part);
	assert_int_equal(fixture_err.code, ERR_CONFIG);
	va_start(ap, part);
	for (; part; part = va_arg(ap, const char *))
		if (!strstr(fixture_err.msg, part))
			fail_msg("\"%s\" is not in: %s", part, fixture_err.msg);
	va_end(ap);
}

static inline void fixture_main(const char *more)
{
	char text[4096];

	snprintf(text, sizeof(text), BASE "%s", more);
	fixture_write("berth.conf", text);
}

#endif
