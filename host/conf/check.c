/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold between options once all are read: addresses, paths, lifetimes, placement. Main thread at start; what
 * is merely of no use is a warning.
 */
#include "conf/internal.h"

#include <errno.h>
#include <unistd.h>

#include "conf/address.h"
#include "core/clock.h"
#include "core/ident.h"
#include "core/log.h"

/* [a-z0-9-]+: regions and providers are compared exactly, so that "EU" or " eu " can only be a mistake. */
static bool is_plain_word(const char *text, size_t max)
{
	size_t len = strlen(text);

	return len > 0 && len <= max && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static int check_proxies(const struct conf *conf, struct err *err)
{
	struct address_list proxies;
	struct err why = {0};

	if (*conf->proxies && !conf->behind_proxy)
		return err_set(err, ERR_CONFIG, "%s: http.proxies: needs http.behind_proxy = true",
			       conf_at(conf, "http.proxies"));
	if (address_list_parse(conf->proxies, &proxies, &why))
		return err_set(err, ERR_CONFIG, "%s: http.proxies: %s", conf_at(conf, "http.proxies"), why.msg);
	return 0;
}

static int check_listen(const struct conf *conf, bool dev, struct err *err)
{
	struct address address;
	bool loopback;

	if (address_parse(conf->listen, &address) || address.bits != 128 || strchr(conf->listen, '/'))
		return err_set(err, ERR_CONFIG, "%s: http.listen: expected an IPv4 or IPv6 address, got \"%.60s\"",
			       conf_at(conf, "http.listen"), conf->listen);
	loopback = address_is_loopback(&address);
	if (!loopback && dev)
		return err_set(err, ERR_CONFIG, "%s: http.listen: --dev takes only a loopback address, got %s",
			       conf_at(conf, "http.listen"), conf->listen);
	if (!loopback && !*conf->tls_cert && !conf->behind_proxy)
		return err_set(err, ERR_CONFIG,
			       "%s: http.listen: %s is not a loopback address: set http.tls_cert and http.tls_key, or "
			       "http.behind_proxy = true when a proxy in front ends TLS",
			       conf_at(conf, "http.listen"), conf->listen);
	return 0;
}

static int check_tls(const struct conf *conf, struct err *err)
{
	const char *key = *conf->tls_cert ? "http.tls_cert" : "http.tls_key";

	if (!*conf->tls_cert == !*conf->tls_key)
		return 0;
	return err_set(err, ERR_CONFIG, "%s: %s: http.tls_cert and http.tls_key need each other", conf_at(conf, key), key);
}

static int check_manifest(const struct conf *conf, struct err *err)
{
	if (*conf->manifest && *conf->manifest_json)
		return err_set(err, ERR_CONFIG, "%s: runtime.manifest and runtime.manifest_json exclude each other",
			       conf_at(conf, "runtime.manifest"));
	if (*conf->manifest && access(conf->manifest, R_OK) != 0)
		log_warn("runtime.manifest cannot be read: /runtime/manifest answers 503 until it can",
			 KS("file", conf->manifest), KS("why", strerror(errno)),
			 KS("at", conf_at(conf, "runtime.manifest")));
	return 0;
}

static int check_paths(const struct conf *conf, struct err *err)
{
	const struct {
		const char *key;
		const char *path;
		bool needed;
	} paths[] = {
	    {"state_dir", conf->state_dir, true},
	    {"plugin_dir", conf->plugin_dir, true},
	    {"helper_dir", conf->helper_dir, true},
	    {"store.path", conf->store_path, false},
	    {"objects.path", conf->blob_path, false},
	    {"store.state_key", conf->state_key, false},
	    {"store.state_key_old", conf->state_key_old, false},
	    {"http.tls_cert", conf->tls_cert, false},
	    {"http.tls_key", conf->tls_key, false},
	};

	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof(paths) / sizeof(*paths); i++)
		if (paths[i].path[0] != '/' && (paths[i].needed || paths[i].path[0]))
			rc = conf_reported_check(conf->report,
						 err_set(err, ERR_CONFIG, "%s: %s: expected an absolute path, got \"%.60s\"",
							 conf_at(conf, paths[i].key), paths[i].key, paths[i].path),
						 err);
	return rc;
}

static int check_timeout(const struct conf *conf, struct err *err)
{
	char timeout[32], most[32];

	if (conf->exec_timeout_ms <= conf->exec_timeout_max_ms)
		return 0;
	clock_format_duration(conf->exec_timeout_ms, timeout);
	clock_format_duration(conf->exec_timeout_max_ms, most);
	return err_set(err, ERR_CONFIG, "%s: execution.timeout: %s is above execution.timeout_max, %s",
		       conf_at(conf, "execution.timeout"), timeout, most);
}

static int check_age(const struct conf *conf, struct err *err)
{
	char age[32], timeout[32], grace[32];

	clock_format_duration(conf->session_max_age_ms, age);
	clock_format_duration(conf->exec_timeout_max_ms, timeout);
	clock_format_duration(conf->completion_grace_ms, grace);
	if (conf->session_max_age_ms <= conf->exec_timeout_max_ms + conf->completion_grace_ms)
		return err_set(err, ERR_CONFIG,
			       "%s: session.max_age: %s does not exceed execution.timeout_max + "
			       "execution.completion_grace, %s + %s",
			       conf_at(conf, "session.max_age"), age, timeout, grace);
	return 0;
}

static int check_objects(const struct conf *conf, struct err *err)
{
	if (strcmp(conf->blob_type, "dir"))
		return err_set(err, ERR_CONFIG,
			       "%s: objects.type: this version keeps objects in a folder only, got \"%s\"",
			       conf_at(conf, "objects.type"),
			       conf->blob_type);
	return 0;
}

/* One that is missing has been said. */
static int check_deployment(const struct conf *conf, struct err *err)
{
	if (conf->deployment && !ident_part_valid(conf->deployment, strlen(conf->deployment)))
		return err_set(
		    err, ERR_CONFIG,
		    "%s: deployment: expected a letter or digit, then letters, digits, '.', '_', '-', got \"%.60s\"",
		    conf_at(conf, "deployment"), conf->deployment);
	return 0;
}

int conf_check_target(const struct conf_target *target, struct err *err)
{
	if (!target->provider || !target->name)
		return 0; /* that has been said */
	if (!is_plain_word(target->provider, 63))
		return err_set(err, ERR_CONFIG,
			       "%s: provider: expected lower-case letters, digits and '-', got \"%.60s\"",
			       conf_target_at(target, "provider"),
			       target->provider);
	if (!ident_part_valid(target->name, strlen(target->name)))
		return err_set(
		    err, ERR_CONFIG,
		    "%s: name: expected a letter or digit, then letters, digits, '.', '_', '-', got \"%.60s\"",
		    conf_target_at(target, "name"), target->name);
	if (*target->region && !is_plain_word(target->region, 63))
		return err_set(err, ERR_CONFIG,
			       "%s: region: expected lower-case letters, digits and '-', got \"%.60s\"",
			       conf_target_at(target, "region"),
			       target->region);
	if (target->max_sessions && target->warm > target->max_sessions)
		return err_set(err, ERR_CONFIG, "%s: warm: %lld is above max_sessions, %lld",
			       conf_target_at(target, "warm"),
			       (long long)target->warm, (long long)target->max_sessions);
	return 0;
}

#define APART "give each target a region of its own, or set placement.pin = true when they shall share it"

static int check_pair(const struct conf *conf, const struct conf_target *one, const struct conf_target *two,
		      struct err *err)
{
	if (!one->name || !two->name)
		return 0;
	if (!strcmp(one->name, two->name))
		return err_set(err, ERR_CONFIG, "%s: name: \"%s\" is also the name of the target in %s",
			       conf_target_at(two, "name"), two->name, conf_target_at(one, "name"));
	if (!conf->placement_pin && !strcmp(one->region, two->region))
		return err_set(err, ERR_CONFIG,
			       *two->region ? "%s: region: \"%s\" is also the region of \"%s\" in %s; " APART
					    : "%s: region: \"%s\" has none, nor has \"%s\" in %s; " APART,
			       conf_target_at(two, "region"), *two->region ? two->region : two->name, one->name,
			       one->file);
	return 0;
}

static int check_placement(const struct conf *conf, struct err *err)
{
	int rc = 0;

	if (!conf->target_count)
		return err_set(err, ERR_CONFIG,
			       "%s: no target is configured: providers.d beside it holds no *.conf file", conf->file);
	for (size_t i = 0; !rc && i < conf->target_count; i++) {
		rc = conf_reported_check(conf->report, conf_check_target(&conf->targets[i], err), err);
		for (size_t j = 0; !rc && j < i; j++)
			rc = conf_reported_check(conf->report, check_pair(conf, &conf->targets[j], &conf->targets[i], err), err);
	}
	return rc;
}

int conf_check(const struct conf *conf, bool dev, struct err *err)
{
	static int (*const checks[])(const struct conf *conf, struct err *err) = {
		check_objects,	  check_deployment, check_paths,   check_manifest, conf_check_redis,
		conf_check_roles, check_tls,	    check_proxies, check_timeout,  check_age,
		check_placement,
	};
	int rc = conf_check_required(conf->report, conf_options, conf, conf->file, err);

	if (!rc)
		rc = conf_reported_check(conf->report, check_listen(conf, dev, err), err);
	for (size_t i = 0; !rc && i < sizeof(checks) / sizeof(*checks); i++)
		rc = conf_reported_check(conf->report, checks[i](conf, err), err);
	return rc;
}
