/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the configuration's files. The input is berth.conf, then after a line "====" one file of providers.d.
 * What was read can be dumped and read again, and is then the same.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf/conf.h"
#include "fuzz.h"

#define SECRET "0f1e2d3c4b5a69788796a5b4c3d2e1f001"

static char main_file[4200];
static int providers = -1;

static void prepare(void)
{
	int dir = fuzz_folder_fd();

	if (providers >= 0)
		return;
	fuzz_quiet();
	setenv("FUZZ_TOKEN", SECRET, 1);
	snprintf(main_file, sizeof(main_file), "%s/berth.conf", fuzz_folder());
	FUZZ_CHECK(mkdirat(dir, "providers.d", 0700) == 0);
	fuzz_write_file(dir, "more.conf", "http : { port = 8081; };\n", 25);
	providers = openat(dir, "providers.d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	FUZZ_CHECK(providers >= 0);
}

static void write_files(struct fuzz_input *in)
{
	size_t len = 0;
	char *text = fuzz_text(in, "\n====\n", &len);

	fuzz_write_file(fuzz_folder_fd(), "berth.conf", text, len);
	free(text);
	text = fuzz_text(in, "\n====\n", &len);
	if (len)
		fuzz_write_file(providers, "one.conf", text, len);
	else
		unlinkat(providers, "one.conf", 0);
	free(text);
}

static void check_target(const struct conf_target *target)
{
	FUZZ_CHECK(target->name && target->provider && target->max_operations > 0);
	FUZZ_PLANTED(target->name, strlen(target->name));
	for (size_t i = 0; i < target->setting_count; i++) {
		FUZZ_PLANTED(target->settings[i].key, strlen(target->settings[i].key));
		FUZZ_PLANTED(target->settings[i].value, strlen(target->settings[i].value));
	}
}

static void check_conf(const struct conf *conf)
{
	FUZZ_CHECK(conf->deployment && conf->port > 0 && conf->port < 65536 && conf->lease_active_ms > 0);
	FUZZ_PLANTED(conf->deployment, strlen(conf->deployment));
	for (size_t i = 0; i < conf->target_count; i++)
		check_target(&conf->targets[i]);
	for (size_t i = 0; i < conf->token_count; i++)
		FUZZ_CHECK(conf->tokens[i].secret && conf->tokens[i].scopes && conf->tokens[i].name);
}

static void check_again(const struct buf *dump)
{
	struct conf *conf = NULL;
	struct err err = {0};
	struct buf again;

	buf_init(&again, 1 << 22);
	fuzz_write_file(fuzz_folder_fd(), "berth.conf", dump->ptr, dump->len);
	unlinkat(providers, "one.conf", 0);
	if (conf_load(main_file, false, &conf, &err) != 0) {
		fprintf(stderr, "%s\n%s\n", err.msg, dump->ptr);
		FUZZ_CHECK(!"a dump can be read");
	}
	conf_dump(conf, false, &again);
	FUZZ_CHECK(again.len == dump->len && memcmp(again.ptr, dump->ptr, dump->len) == 0);
	conf_free(conf);
	buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	struct conf *conf = NULL;
	struct err err = {0};
	struct buf dump;

	prepare();
	write_files(&in);
	if (conf_load(main_file, false, &conf, &err) != 0) {
		FUZZ_CHECK(err.code < 0 && err.msg[0] && !conf);
		return 0;
	}
	check_conf(conf);
	buf_init(&dump, 1 << 22);
	conf_dump(conf, false, &dump);
	/* Unless it was written into the file itself: libFuzzer learns what is looked for. */
	FUZZ_CHECK(!dump.error && (!strstr(dump.ptr, SECRET) || memmem(data, size, SECRET, strlen(SECRET))));
	if (!strstr(dump.ptr, "(secret)"))
		check_again(&dump);
	buf_fini(&dump);
	conf_free(conf);
	return 0;
}
