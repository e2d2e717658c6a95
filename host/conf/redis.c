/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of Redis that are more than a row: REDIS_URL with its login, the password's source, and what they have to
 * be together. Main thread. Must never keep a login where the dump or a sentence would show it.
 */
#include "conf/internal.h"

#include "core/clock.h"

static char *end_of_login(char *url)
{
	char *at = strstr(url, "://");

	at = at ? at + 3 : url;
	return memrchr(at, '@', strcspn(at, "/"));
}

/* Cuts "user:password@" out of the url. */
static void cut_login(char *url)
{
	char *end = end_of_login(url), *from = strstr(url, "://");

	if (!end)
		return;
	from = from ? from + 3 : url;
	memmove(from, end + 1, strlen(end + 1) + 1);
}

static int take_env_url(struct conf *conf, const char *text, struct err *err)
{
	char *url = strdup(text), *type = strdup("redis");
	int rc;

	if (!url || !type) {
		free(url);
		free(type);
		return err_set(err, ERR_NOMEM, "memory is out");
	}
	free(conf->redis_url);
	free(conf->store_type);
	conf->redis_url = url;
	conf->store_type = type;
	if ((rc = conf_note(conf_options, "redis.url", "environment REDIS_URL", conf, err)) ||
	    (rc = conf_note(conf_options, "store.type", "environment REDIS_URL", conf, err)) || !end_of_login(url))
		return rc;
	cut_login(url);
	conf->redis_login_url = secret_new(text, strlen(text));
	return conf->redis_login_url ? 0 : err_set(err, ERR_NOMEM, "memory is out");
}

int conf_apply_redis(struct conf *conf, const char *env_url, struct err *err)
{
	int rc;

	if (end_of_login(conf->redis_url))
		return err_set(err, ERR_CONFIG,
			       "%s: redis.url: it holds a login; write the user into redis.user and the place of the "
			       "password into redis.password",
			       conf_at(conf, "redis.url"));
	rc = env_url ? take_env_url(conf, env_url, err) : 0;
	if (rc || !*conf->redis_password || conf->redis_login_url)
		return rc;
	rc = secret_load(conf->redis_password, &conf->redis_secret, err);
	if (rc == 0 && !conf->redis_secret)
		rc = err_set(err, ERR_CONFIG, "it is empty");
	return rc ? err_prefix(err, "%s: redis.password", conf_at(conf, "redis.password")) : 0;
}

int conf_check_redis(const struct conf *conf, struct err *err)
{
	char wait[32], ttl[32];

	if (strpbrk(conf->redis_prefix, "{}* \t\n") || strlen(conf->redis_prefix) > 64)
		return err_set(err, ERR_CONFIG,
			       "%s: redis.prefix: expected up to 64 characters, none of them {, }, * or blank",
			       conf_at(conf, "redis.prefix"));
	if (strcmp(conf->store_type, "redis"))
		return 0;
	if (!*conf->redis_url)
		return err_set(err, ERR_CONFIG, "%s: redis.url: is missing, and store.type = \"redis\" needs it",
			       conf_at(conf, "redis.url"));
	if (*conf->redis_user && !conf->redis_secret && !conf->redis_login_url)
		return err_set(err, ERR_CONFIG, "%s: redis.user: needs redis.password", conf_at(conf, "redis.user"));
	if (conf->redis_min_acks == 0 || conf->redis_ack_wait_ms <= conf->operation_ttl_ms)
		return 0;
	clock_format_duration(conf->redis_ack_wait_ms, wait);
	clock_format_duration(conf->operation_ttl_ms, ttl);
	return err_set(err, ERR_CONFIG,
		       "%s: redis.ack_wait: %s is above lease.operation_ttl, %s: whoever waits so long counts as dead",
		       conf_at(conf, "redis.ack_wait"), wait, ttl);
}
