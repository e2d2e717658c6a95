/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Redis says of itself, and what of it refuses a start. Pure but for the log; entered when a connection is made.
 * INFO only: managed servers and careful ACLs do not allow CONFIG.
 */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "store/redis/redis.h"

static void read_line(const char *line, size_t len, const char *key, char *ret, size_t size)
{
	size_t key_len = strlen(key);

	if (len <= key_len || strncmp(line, key, key_len) != 0 || line[key_len] != ':')
		return;
	len -= key_len + 1;
	len = len < size ? len : size - 1;
	memcpy(ret, line + key_len + 1, len);
	ret[len] = '\0';
}

void info_parse(const char *text, struct redis_info *ret)
{
	char aof[4] = "", cluster[4] = "", loading[4] = "";
	size_t len;

	*ret = (struct redis_info){0};
	for (; *text != '\0'; text += len + strspn(text + len, "\r\n")) {
		len = strcspn(text, "\r\n");
		read_line(text, len, "run_id", ret->run_id, sizeof(ret->run_id));
		read_line(text, len, "redis_mode", ret->mode, sizeof(ret->mode));
		read_line(text, len, "redis_version", ret->version, sizeof(ret->version));
		read_line(text, len, "role", ret->role, sizeof(ret->role));
		read_line(text, len, "maxmemory_policy", ret->policy, sizeof(ret->policy));
		read_line(text, len, "aof_enabled", aof, sizeof(aof));
		read_line(text, len, "cluster_enabled", cluster, sizeof(cluster));
		read_line(text, len, "loading", loading, sizeof(loading));
	}
	ret->aof = strcmp(aof, "1") == 0;
	ret->cluster = strcmp(cluster, "1") == 0;
	ret->loading = strcmp(loading, "1") == 0;
}

int info_check(const struct redis_store *store, const struct redis_info *info, struct err *err)
{
	if (strcmp(info->mode, "sentinel") == 0)
		return err_set(
			err, ERR_CONFIG,
			"redis.url names a sentinel; redis+sentinel://host:port,…/master asks it for the master");
	if (info->cluster || strcmp(info->mode, "cluster") == 0)
		return err_set(err, ERR_CONFIG,
			       "Redis runs as a Cluster, which cannot hold a store; use one server, or sentinels");
	if (strtol(info->version, NULL, 10) < 6)
		return err_set(err, ERR_CONFIG, "Redis has version %s; 6.0 or later is needed", info->version);
	if (store->is_volatile) {
		if (!info->aof || strcmp(info->policy, "noeviction") != 0)
			log_warn("store.volatile: Redis may lose the state, and nobody will know what ran",
				 KS("appendonly", info->aof ? "yes" : "no"), KS("maxmemory_policy", info->policy));
		return 0;
	}
	if (!info->aof)
		return err_set(
			err, ERR_CONFIG,
			"Redis keeps no append-only file, so a restart would lose the state; set appendonly yes, "
			"or store.volatile = true to take the loss");
	if (strcmp(info->policy, "noeviction") != 0)
		return err_set(err, ERR_CONFIG,
			       "Redis has maxmemory-policy %s and may drop state when memory is short; set noeviction, "
			       "or store.volatile = true to take the loss",
			       info->policy);
	return 0;
}
