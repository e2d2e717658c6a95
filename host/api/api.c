/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the binding of the route table to one server and to the layers below. Main thread only. Holds no state of its
 * own.
 */
#include "api/api.h"

#include <stdlib.h>

#include "api/intake.h"
#include "api/resources.h"
#include "api/server.h"
#include "api/tls.h"
#include "core/clock.h"
#include "core/log.h"
#include "execution/execution.h"
#include "store/store.h"

#define LOOK_MS 4000

static int load_tls(const struct conf *conf, struct tls **ret, struct err *err)
{
	*ret = NULL;
	return *conf->tls_cert ? tls_load(conf->tls_cert, conf->tls_key, ret, err) : 0;
}

int api_check(const struct conf *conf, struct err *err)
{
	struct tls *tls;
	int r = load_tls(conf, &tls, err);

	tls_unref(r == 0 ? tls : NULL);
	return r;
}

static bool is_closed(void *ctx)
{
	return execution_is_closed(((struct api *)ctx)->config.executions);
}

int api_start(const struct api_config *config, struct api **ret, struct err *err)
{
	const struct conf *conf = config->conf;
	struct api *api = calloc(1, sizeof(*api));
	struct server_config server = {
		.routes = api_routes,
		.auth = {.tokens = conf->tokens, .token_count = conf->token_count, .control = conf->control},
		.watch = config->watch,
		.look_ms = store_is_exclusive(config->store) ? 0 : LOOK_MS,
		.address = conf->listen,
		.port = (unsigned)conf->port,
		.workers = (unsigned)conf->http_workers,
		.limits = {.head_ms = conf->http_head_ms,
			   .idle_ms = conf->http_idle_ms,
			   .linger_ms = INTAKE_LINGER_MS,
			   .window_ms = conf->http_rate_window_ms,
			   .rate = conf->http_rate_min,
			   .connections = (unsigned)conf->http_connections},
		.closed = is_closed,
		.narrow = !(conf_roles(conf) & ROLE_API),
		.ctx = api,
	};

	if (!api)
		return err_set(err, ERR_NOMEM, "out of memory");
	api->config = *config;
	api->started_ns = clock_boot_ns();
	api->started_ms = clock_wall_ms();
	metrics_start();

	int r = address_list_parse(conf->proxies, &server.proxies, err);

	if (r == 0)
		r = load_tls(conf, &server.tls, err);
	if (r == 0)
		r = server_new(&server, &api->server, err);

	if (r != 0) {
		free(api);
		return r;
	}
	*ret = api;
	return 0;
}

unsigned api_port(const struct api *api)
{
	return server_port(api->server);
}

/* The runner's threads were made at start: more than those there cannot be. */
static unsigned live_concurrency(const struct conf *before, const struct conf *now)
{
	if (now->runner_concurrency <= before->runner_concurrency)
		return (unsigned)now->runner_concurrency;
	log_warn("runner.concurrency above that of the start needs a restart", KI("now", now->runner_concurrency),
		 KI("at_start", before->runner_concurrency));
	return (unsigned)before->runner_concurrency;
}

/* The file of the certificate may be a new one under the same name, so it is always read. */
static void take_tls(struct server *server, struct tls *tls)
{
	if (tls && server_has_tls(server)) {
		server_set_tls(server, tls);
		return;
	}
	if (tls || server_has_tls(server))
		log_warn("beginning or ending TLS needs a restart");
	tls_unref(tls);
}

int api_reload(struct api *api, struct conf *conf, struct err *err)
{
	struct auth auth = {.tokens = conf->tokens, .token_count = conf->token_count, .control = conf->control};
	struct auth_set *set;
	struct tls *tls;
	int r = load_tls(conf, &tls, err);

	if (r != 0)
		return r;
	set = auth_set_new(&auth, conf);
	if (!set) {
		tls_unref(tls);
		return err_set(err, ERR_NOMEM, "out of memory");
	}
	take_tls(api->server, tls);
	execution_set_limits(api->config.executions, live_concurrency(api->config.conf, conf), conf);
	server_set_auth(api->server, set);
	return 0;
}

void api_refuse(struct api *api)
{
	server_refuse(api->server);
}

bool api_stop(struct api *api, int64_t deadline_ns)
{
	return server_stop(api->server, deadline_ns);
}

void api_free(struct api *api)
{
	if (!api)
		return;
	server_free(api->server);
	free(api);
}
