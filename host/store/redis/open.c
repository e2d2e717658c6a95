/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing: what Redis must be, whose store it holds, whether it is a new one. Entered by the thread that
 * starts and stops the daemon. It must never take over another deployment's keys.
 */
#include <stdlib.h>
#include <string.h>

#include "core/ident.h"
#include "core/limits.h"
#include "core/log.h"
#include "store/redis/redis.h"

#define CONNECTIONS 16
#define CACHE_BYTES (16 * LIMIT_MIB)
#define ACK_WAIT_MS 1000
#define HOLD_MS 60000

#define OPEN_TRIES 5 /* of connections that break while the store is being opened */

static void redis_close(struct store *base);
static int redis_renew(struct store *base, bool begin, struct err *err);

const char *redis_id_of(const struct redis_store *store)
{
	const struct redis_id *id = atomic_load(&store->id);

	return id != NULL ? id->text : "";
}

static const char *redis_id(const struct store *base)
{
	return redis_id_of((const struct redis_store *)base);
}

static bool redis_lost(struct store *base)
{
	return atomic_load(&redis_of(base)->lost);
}

static int redis_now(struct store *base, int64_t *ret_ms, struct err *err)
{
	(void)err;
	*ret_ms = guard_now(redis_of(base));
	return 0;
}

const struct store_ops redis_ops = {
	.name = "redis",
	.exclusive = false,
	.update = step_update,
	.view = step_view,
	.now = redis_now,
	.healthy = conns_healthy,
	.close = redis_close,
	.hold_ms = guard_hold_ms,
	.id = redis_id,
	.lost = redis_lost,
	.renew = redis_renew,
	.listen = redis_listen,
	.get = redis_get,
	.scan_due = redis_scan_due,
	.scan = redis_scan,
	.read_stream = redis_read_stream,
	.find_trim = redis_find_trim,
	.stream_size = redis_stream_size,
	.due_size = redis_due_size,
	.count_get = redis_count,
	.next = redis_next,
};

/* ---- the store's own rows ---- */

enum { OPEN_ID, OPEN_DEPLOYMENT, OPEN_SCHEMA, OPEN_COUNT = 10 };

static int judge_owner(struct redis_store *store, const redisReply *reply, struct err *err)
{
	const char *owner, *schema;

	if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 0) {
		err_set(err, ERR_STORE, "there is no state in Redis");
		err_reason(err, "store_lost");
		return ERR_STORE;
	}
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != OPEN_COUNT || reply->element[OPEN_ID]->str == NULL ||
	    reply->element[OPEN_DEPLOYMENT]->str == NULL || reply->element[OPEN_SCHEMA]->str == NULL ||
	    reply->element[OPEN_ID]->len != 32)
		return err_set(err, ERR_CONFIG, "the key %.64s:store in Redis is not a store of Berth, or is damaged",
			       store->prefix);
	owner = reply->element[OPEN_DEPLOYMENT]->str;
	schema = reply->element[OPEN_SCHEMA]->str;
	if (strcmp(owner, store->deployment) != 0)
		return err_set(err, ERR_CONFIG,
			       "the keys %.64s:* in Redis belong to the deployment \"%.64s\", not to \"%.64s\"; give "
			       "this one another redis.prefix",
			       store->prefix, owner, store->deployment);
	if (strtol(schema, NULL, 10) > REDIS_SCHEMA)
		return err_set(err, ERR_CONFIG,
			       "the state in Redis was made by a newer berthd (schema %.16s, this one knows %d)",
			       schema, REDIS_SCHEMA);
	return 0;
}

static int set_id(struct redis_store *store, const char *text, struct err *err)
{
	struct redis_id *id = calloc(1, sizeof(*id));

	if (id == NULL)
		return err_set(err, ERR_NOMEM, "no memory for the store");
	snprintf(id->text, sizeof(id->text), "%s", text);
	id->before = atomic_load(&store->id);
	atomic_store(&store->id, id);
	return 0;
}

/* candidate: the id of the store if there is none yet; the same one again when the answer was lost; "": none is made. */
static int open_rows(struct rconn *conn, const char *candidate, struct err *err)
{
	struct redis_store *store = conn->store;
	struct wire_args args = {0};
	redisReply *reply = NULL;
	char schema[16];
	int64_t sent_ns;
	int rc;

	snprintf(schema, sizeof(schema), "%d", REDIS_SCHEMA);
	wire_text(&args, candidate);
	wire_text(&args, store->deployment);
	wire_text(&args, schema);
	wire_text(&args, store->streams[STREAM_REQUESTS]);
	wire_text(&args, store->group);
	wire_text(&args, store->boot_id);
	wire_text(&args, store->streams[STREAM_EVENTS]);
	wire_text(&args, store->streams[STREAM_DEAD]);
	sent_ns = clock_boot_ns();
	rc = args.error != 0 ? err_set(err, ERR_NOMEM, "no memory to talk to Redis")
			     : script_once(conn, SCRIPT_open, &args, &reply, err);
	wire_fini(&args);
	if (rc == 0)
		rc = judge_owner(store, reply, err);
	if (rc == 0)
		rc = guard_start(conn, reply, sent_ns, clock_boot_ns(), err);
	if (rc == 0)
		rc = set_id(store, reply->element[OPEN_ID]->str, err);
	freeReplyObject(reply);
	return rc;
}

static int open_once(struct rconn *conn, const char *candidate, struct err *err)
{
	struct redis_info info;
	int rc = wire_connect(conn, &info, err);

	if (rc == 0)
		rc = info_check(conn->store, &info, err);
	/* After a loss others run scripts already: the digests stay, and a Redis that does not know one is sent the text. */
	if (rc == 0 && redis_id_of(conn->store)[0] == '\0')
		rc = script_load(conn, err);
	if (rc == 0)
		rc = redis_try_channels(conn->store, err);
	if (rc == 0)
		rc = open_rows(conn, candidate, err);
	if (rc == 0) {
		memcpy(conn->run_id, info.run_id, sizeof(conn->run_id));
		rc = guard_seen(conn, err);
	}
	if (rc != 0)
		wire_drop(conn);
	return rc;
}

static bool is_broken(int rc, const struct err *err)
{
	return rc == WIRE_BROKEN || strcmp(err->reason, "away") == 0;
}

static int open_first(struct redis_store *store, struct err *err)
{
	struct rconn *conn = conns_take(store);
	char candidate[IDENT_ID_MAX + 1];
	unsigned round = 0;
	int rc;

	if (conn == NULL)
		return err_set(err, ERR_NOMEM, "no memory for the store");
	ident_random(candidate, "", 32);
	while ((rc = open_once(conn, candidate, err)) != 0 && is_broken(rc, err) && ++round < OPEN_TRIES)
		conns_pause(conn, round);
	if (rc == WIRE_BROKEN)
		rc = err->code = ERR_STORE;
	if (rc == 0) {
		store->base.is_new = strcmp(redis_id_of(store), candidate) == 0;
		log_info("the state store is open", KS("prefix", store->prefix), KS("store", redis_id_of(store)));
	}
	conns_give(conn);
	return rc;
}

/* The connection may belong to the former store's last step; whoever comes first makes the new one. */
static int redis_renew(struct store *base, bool begin, struct err *err)
{
	struct redis_store *store = redis_of(base);
	struct rconn *conn;
	char candidate[IDENT_ID_MAX + 1];
	int rc;

	if (!redis_lost(base))
		return 0;
	conn = conns_take(store);
	if (conn == NULL)
		return err_set(err, ERR_NOMEM, "no memory for the store");
	candidate[0] = '\0';
	if (begin)
		ident_random(candidate, "", 32);
	wire_drop(conn);
	rc = open_once(conn, candidate, err);
	if (rc == WIRE_BROKEN)
		rc = err->code = ERR_STORE;
	if (rc == 0) {
		cache_clear(store->cache); /* revisions of another store */
		guard_outage(store);
		apply_untouch(store);
		atomic_store(&store->lost, false);
		log_warn(strcmp(redis_id_of(store), candidate) == 0
				 ? "the state store was lost and is begun anew"
				 : "the state store was lost; another one of the deployment stands there and is taken",
			 KS("store", redis_id_of(store)));
	}
	conns_give(conn);
	return rc;
}

/* ---- the store ---- */

static const char *text_or(const char *text, const char *fallback)
{
	return text != NULL && *text != '\0' ? text : fallback;
}

static bool copy_names(struct redis_store *store, const struct store_redis_config *config)
{
	char once[IDENT_ID_MAX + 1];
	size_t i;
	bool all = true;

	/* Numbers of applications begin anew with each opening. */
	ident_random(once, "", 12);
	if (asprintf(&store->applier, "%s-%s", config->host_id, once) < 0)
		store->applier = NULL;
	store->prefix = strdup(text_or(config->prefix, STORE_REDIS_PREFIX));
	if (store->prefix == NULL || asprintf(&store->key, "%s:store", store->prefix) < 0)
		store->key = NULL;
	store->deployment = strdup(config->deployment);
	store->group = strdup(text_or(config->group, STORE_REDIS_GROUP));
	store->streams[STREAM_REQUESTS] = strdup(text_or(config->request_stream, STORE_REDIS_REQUESTS));
	store->streams[STREAM_EVENTS] = strdup(text_or(config->event_stream, STORE_REDIS_EVENTS));
	store->streams[STREAM_DEAD] = strdup(text_or(config->dead_stream, STORE_REDIS_DEAD));
	for (i = 0; i < STREAM_COUNT; i++)
		all &= store->streams[i] != NULL;
	return all && store->key != NULL && store->applier != NULL && store->deployment != NULL && store->group != NULL;
}

static struct redis_store *store_new(const struct store_redis_config *config)
{
	struct redis_store *store = calloc(1, sizeof(*store));

	if (store == NULL)
		return NULL;
	store->base.magic = STORE_MAGIC;
	store->base.ops = &redis_ops;
	store->conns_max = config->connections > 0 ? config->connections : CONNECTIONS;
	store->min_acks = config->min_acks;
	store->ack_wait_ms = config->ack_wait_ms > 0 ? config->ack_wait_ms : ACK_WAIT_MS;
	store->hold_ms = config->hold_ms > 0 ? config->hold_ms : HOLD_MS;
	store->is_volatile = config->is_volatile;
	lock_init(&store->lock, LOCK_STORE);
	lock_init(&store->clock_lock, LOCK_STORE);
	lock_init(&store->lane_lock, LOCK_STORE);
	cond_init(&store->changed);
	cond_init(&store->freed);
	cond_init(&store->lane_free);
	clock_boot_id(store->boot_id);
	store->cache = cache_new(CACHE_BYTES);
	if (copy_names(store, config) && store->cache != NULL)
		return store;
	redis_close(&store->base);
	return NULL;
}

static void leave_mark(struct redis_store *store)
{
	struct rconn *conn = conns_take(store);
	struct err ignored;

	if (conn == NULL)
		return;
	if (conn->ctx != NULL)
		guard_seen(conn, &ignored);
	conns_give(conn);
}

static void redis_close(struct store *base)
{
	struct redis_store *store = redis_of(base);
	struct redis_id *id;
	size_t i;

	redis_unlisten(store);
	if (redis_id_of(store)[0] != '\0')
		leave_mark(store);
	conns_close(store);
	cache_free(store->cache);
	cond_fini(&store->lane_free);
	cond_fini(&store->freed);
	cond_fini(&store->changed);
	lock_fini(&store->lane_lock);
	lock_fini(&store->clock_lock);
	lock_fini(&store->lock);
	redis_url_fini(&store->url);
	while ((id = atomic_load(&store->id)) != NULL) {
		atomic_store(&store->id, id->before);
		free(id);
	}
	for (i = 0; i < STREAM_COUNT; i++)
		free(store->streams[i]);
	free(store->group);
	free(store->deployment);
	free(store->applier);
	free(store->key);
	free(store->prefix);
	store->base.magic = 0;
	free(store);
}

/* A login of its own, unless the url has one. */
static int take_login(struct redis_url *url, const struct store_redis_config *config, struct err *err)
{
	const void *ptr;
	size_t len;

	if (url->password != NULL || config->password == NULL)
		return 0;
	ptr = secret_ptr(config->password, &len);
	url->password = secret_new(ptr, len);
	if (config->user != NULL && *config->user != '\0')
		url->user = strdup(config->user);
	if (url->password == NULL || (url->user == NULL && config->user != NULL && *config->user != '\0'))
		return err_set(err, ERR_NOMEM, "no memory for the store");
	return memchr(ptr, '\0', len) == NULL ? 0 : err_set(err, ERR_CONFIG, "redis.password holds a zero byte");
}

int store_open_redis(const struct store_redis_config *config, struct store **ret, struct err *err)
{
	struct redis_store *store;
	int rc;

	if (config->deployment == NULL || config->deployment[0] == '\0' || config->host_id == NULL ||
	    config->host_id[0] == '\0')
		return err_set(err, ERR_CONFIG, "the state store needs a deployment and a host id");
	store = store_new(config);
	if (store == NULL)
		return err_set(err, ERR_NOMEM, "no memory for the store");
	rc = redis_url_parse(config->url, &store->url, err);
	if (rc == 0)
		rc = take_login(&store->url, config, err);
	if (rc == 0)
		rc = open_first(store, err);
	if (rc != 0)
		redis_close(&store->base);
	else
		*ret = &store->base;
	return rc;
}
