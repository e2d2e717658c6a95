/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new configuration under a running daemon: read and checked as a whole, told what changed, given to the api. The main
 * thread only; it never ends the daemon.
 */
#include <string.h>

#include "api/api.h"
#include "core/log.h"
#include "daemon.h"

static void log_applied(const char *key, bool live, void *arg)
{
	(void)arg;
	if (live)
		log_info("reload: option applied", KS("key", key));
}

static void log_pending(const char *key, bool live, void *arg)
{
	(void)arg;
	if (!live)
		log_warn("reload: option changed, it needs a restart", KS("key", key));
}

static void log_refusal(const char *sentence, void *arg)
{
	size_t *count = arg;

	++*count;
	log_error("reload: refused", KS("why", sentence));
}

void reload(struct host *host)
{
	struct conf *conf = NULL;
	struct err err = {0};
	size_t refusals = 0;
	bool json;

	if (host->dev) {
		log_warn("reload: not with --dev, whose token is of this run only");
		return;
	}
	if (conf_load_telling(host->conf->file, false, log_refusal, &refusals, &conf, &err) != 0) {
		if (refusals == 0)
			log_refusal(err.msg, &refusals);
		log_error("reload: the configuration is refused, the former one stays", KI("refusals", refusals));
		return;
	}
	/* Each against what is in effect: the last one read, and what the process was started with. */
	conf_diff(host->read_last ? host->read_last : host->conf, conf, log_applied, NULL);
	conf_diff(host->conf, conf, log_pending, NULL);
	json = strcmp(host->conf->log_format, "json") == 0;

	enum log_level level = (enum log_level)log_level_parse(conf->log_level);
	size_t tokens = conf->token_count;

	if (api_reload(host->api, conf, &err) != 0) {
		log_error("reload: failed, the former configuration stays", KS("why", err.msg));
		conf_free(conf);
		return;
	}
	host->read_last = conf;
	log_info("reload: done", KI("tokens", tokens));
	log_init(level, json ? LOG_JSON : LOG_LOGFMT);
}
