/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP API of docs/http-api.md: routes over sessions and executions. Main thread starts and stops it.
 */
#ifndef API_API_H
#define API_API_H

#include <stdbool.h>
#include <stdint.h>

#include "conf/conf.h"
#include "core/err.h"

struct api;
struct blob_store;
struct executions;
struct registry;
struct sessions;
struct store;
struct watch;

struct api_config {
	const struct conf *conf;
	struct store *store;
	struct blob_store *blobs;
	struct registry *registry;
	struct sessions *sessions;
	struct executions *executions;
	struct watch *watch;
	const char *host_id;
};

/* What a start would refuse beyond conf_load: certificate and key. */
int api_check(const struct conf *conf, struct err *err);
/* Serves when it returns 0. */
int api_start(const struct api_config *config, struct api **ret, struct err *err);
unsigned api_port(const struct api *api);
/* Takes over tokens and limits of a newer configuration, and the configuration itself; see OPTION_LIVE. */
int api_reload(struct api *api, struct conf *conf, struct err *err);
/* New work is answered shutting_down from now on; what is under way goes on. */
void api_refuse(struct api *api);
/* See server_stop. */
bool api_stop(struct api *api, int64_t deadline_ns);
void api_free(struct api *api); /* after a stop that returned true; NULL is fine */

#endif
