/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration on trial: what a start would check, with every refusal told and nothing left behind. The main thread
 * only. Must not open the store or the port: a daemon may be running on them.
 */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "core/buf.h"
#include "core/limits.h"
#include "daemon.h"
#include "plugin/trial.h"

/* From here on the configuration has this target only, and its refusal is an error. */
static int take_target(struct host *host, const char *name, struct err *err)
{
	struct conf *conf = host->conf;

	for (size_t i = 0; i < conf->target_count; i++) {
		if (strcmp(conf->targets[i].name, name) != 0)
			continue;
		conf->targets[i].required = true;
		host->one = *conf;
		host->one.targets = &conf->targets[i];
		host->one.target_count = 1;
		return 0;
	}
	return err_set(err, ERR_CONFIG, "there is no target \"%.60s\"", name);
}

/* The targets' private folders are made in one on loan, so that a check needs no right to the state and leaves nothing. */
static int lend_folder(struct host *host, struct trial *trial, struct err *err)
{
	int r = trial_begin(trial, err);

	if (r != 0)
		return r;
	if (!host->one.targets)
		host->one = *host->conf;
	host->one.state_dir = trial->dir;
	return 0;
}

/* One refusal hides no other: where there is one, each target is opened by itself, in a process of its own. */
static int test_providers(struct host *host, const char *target, struct trial *trial)
{
	struct err err = {0};

	if (lend_folder(host, trial, &err) != 0)
		return fail("check", &err);
	if (parts_providers(host, &err) == 0)
		return 0;
	if (!target && host->conf->target_count > 1 && trial_apart(host->conf, host->probe) > 0)
		return fail_code(&err); /* they have said why */
	return fail("providers", &err);
}

static int test_http(struct host *host, struct err *err)
{
	return api_check(host->conf, err);
}

static int test_state(struct host *host, struct err *err)
{
	return trial_look(host->conf, err);
}

int check_conf(struct host *host, const char *target)
{
	static const struct {
		const char *place;
		int (*test)(struct host *host, struct err *err);
	} tests[] = {{"limits", parts_limits}, {"state", test_state}, {"http", test_http}};
	struct trial trial = {.fd = -1};
	struct err err = {0};
	struct buf dump;
	int code = 0, providers;

	if (target && take_target(host, target, &err) != 0)
		code = fail("targets", &err);
	for (size_t i = 0; !target && i < sizeof(tests) / sizeof(tests[0]); i++) {
		int failed = tests[i].test(host, &err) != 0 ? fail(tests[i].place, &err) : 0;

		code = code ? code : failed;
	}
	providers = code && target ? 0 : test_providers(host, target, &trial);
	code = code ? code : providers;
	if (code == 0) {
		buf_init(&dump, LIMIT_MIB);
		conf_dump(host->conf, true, &dump);
		fwrite(dump.ptr, 1, dump.len, stdout);
		buf_fini(&dump);
	}
	parts_free(host);
	trial_end(&trial);
	return code;
}
