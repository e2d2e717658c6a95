/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the scripts: by digest, with the text when Redis does not know it, again when the connection broke. Entered
 * by the thread that holds the connection. Whatever is called here must bear to be run twice.
 */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "obs/metrics.h"
#include "store/redis/redis.h"

#define READ_PATIENCE_MS 2000
#define WRITE_PATIENCE_MS 10000 /* for an answer that was lost: only Redis knows what happened */
#define LOST_REASON "store_lost"

static const struct {
	const char *name;
	const char *text;
	bool writes;
} scripts[SCRIPT_COUNT] = {
#define X(name, writes) [SCRIPT_##name] = {#name, redis_lua_##name, writes},
	REDIS_SCRIPTS(X)
#undef X
};

/* The whole text: all but "open" share a beginning. */
static char *whole_text(enum redis_script script)
{
	char *text = NULL;

	if (asprintf(&text, "%s%s", script == SCRIPT_open ? "" : redis_lua_common, scripts[script].text) < 0)
		return NULL;
	return text;
}

static int load_one(struct rconn *conn, enum redis_script script, struct err *err)
{
	struct wire_args args = {0};
	redisReply *reply = NULL;
	char *text = whole_text(script);
	bool again;
	int rc = text != NULL ? 0 : err_set(err, ERR_NOMEM, "no memory for a script");

	if (rc != 0)
		return rc;
	wire_text(&args, "SCRIPT");
	wire_text(&args, "LOAD");
	wire_text(&args, text);
	rc = args.error != 0 ? err_set(err, ERR_NOMEM, "no memory for a script")
			     : wire_send(conn, &args, NULL, 0, &reply, NULL, err);
	if (rc == 0 && reply->type == REDIS_REPLY_ERROR) {
		rc = wire_error(reply->str, &again, err);
		err_prefix(err, "script %s", scripts[script].name);
	} else if (rc == 0) {
		snprintf(conn->store->sha[script], sizeof(conn->store->sha[script]), "%s", reply->str);
	}
	freeReplyObject(reply);
	wire_fini(&args);
	free(text);
	return rc == WIRE_BROKEN ? ERR_STORE : rc;
}

int script_load(struct rconn *conn, struct err *err)
{
	int rc = 0;
	unsigned i;

	for (i = 0; rc == 0 && i < SCRIPT_COUNT; i++)
		rc = load_one(conn, (enum redis_script)i, err);
	return rc;
}

const char *script_word(const redisReply *reply)
{
	bool has = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
		   reply->element[0]->str != NULL;

	return has ? reply->element[0]->str : "";
}

int64_t script_int(const redisReply *reply, size_t at)
{
	if (at >= reply->elements || reply->element[at]->str == NULL)
		return 0;
	return strtoll(reply->element[at]->str, NULL, 10);
}

/* ---- one call ---- */

struct call {
	enum redis_script script;
	const struct wire_args *args;
	char *text; /* of the script, when it had to be sent */
	int64_t sent_ns;
	redisReply *reply, *acks;
	unsigned unacked; /* of the store, when it was sent */
};

static void build(struct wire_args *all, struct rconn *conn, const struct call *call)
{
	const struct wire_args *args = call->args;
	int i;

	wire_text(all, call->text != NULL ? "EVAL" : "EVALSHA");
	wire_text(all, call->text != NULL ? call->text : conn->store->sha[call->script]);
	wire_text(all, "1");
	wire_text(all, conn->store->key);
	if (call->script != SCRIPT_open)
		wire_text(all, redis_id_of(conn->store));
	for (i = 0; i < args->count; i++)
		wire_arg(all, args->ptr[i], args->len[i]);
	all->error = args->error != 0 ? args->error : all->error;
}

static int send_once(struct rconn *conn, struct call *call, struct err *err)
{
	struct redis_store *store = conn->store;
	bool waits = call->args->writes && store->min_acks > 0;
	struct wire_args all = {0}, wait = {0};
	char acks[16], ms[24];
	int rc;

	build(&all, conn, call);
	if (waits) {
		snprintf(acks, sizeof(acks), "%u", store->min_acks);
		snprintf(ms, sizeof(ms), "%lld", (long long)store->ack_wait_ms);
		wire_text(&wait, "WAIT");
		wire_text(&wait, acks);
		wire_text(&wait, ms);
	}
	call->unacked = atomic_load(&store->unacked);
	call->sent_ns = clock_boot_ns();
	if (all.error != 0 || wait.error != 0)
		rc = err_set(err, ERR_NOMEM, "no memory to talk to Redis");
	else
		rc = wire_send(conn, &all, waits ? &wait : NULL, store->ack_wait_ms, &call->reply, &call->acks, err);
	wire_fini(&all);
	wire_fini(&wait);
	return rc;
}

static void call_clear(struct call *call)
{
	freeReplyObject(call->reply);
	freeReplyObject(call->acks);
	call->reply = call->acks = NULL;
}

static int send_known(struct rconn *conn, struct call *call, struct err *err)
{
	int rc = send_once(conn, call, err);

	if (rc != 0 || call->reply->type != REDIS_REPLY_ERROR || strncmp(call->reply->str, "NOSCRIPT", 8) != 0)
		return rc;
	call_clear(call);
	call->text = whole_text(call->script);
	if (call->text == NULL)
		return err_set(err, ERR_NOMEM, "no memory for a script");
	return send_once(conn, call, err);
}

static int lose(struct redis_store *store, struct err *err)
{
	if (!atomic_exchange(&store->lost, true))
		log_error("the state store is another one than before: what it held is lost",
			  KS("store", redis_id_of(store)));
	err_set(err, ERR_STORE, "the state in Redis is gone or another deployment's");
	err_reason(err, LOST_REASON);
	return ERR_STORE;
}

/* A replica that has this write has what was written before it. */
static int acked(struct redis_store *store, const struct call *call)
{
	atomic_store(&store->made_up, call->unacked);
	return 0;
}

/* Applied here, but not where it would survive this server. */
static int check_acks(struct rconn *conn, const struct call *call, struct err *err)
{
	bool again;

	if (call->acks == NULL || strcmp(script_word(call->reply), "STALE") == 0)
		return 0;
	if (call->acks->type == REDIS_REPLY_INTEGER && call->acks->integer >= (long long)conn->store->min_acks)
		return acked(conn->store, call);
	atomic_fetch_add(&conn->store->unacked, 1);
	if (call->acks->type == REDIS_REPLY_ERROR)
		return wire_error(call->acks->str, &again, err);
	err_set(err, ERR_STORE, "the state store: %lld of the %u replicas that redis.min_acks asks for have the change",
		call->acks->integer, conn->store->min_acks);
	err_reason(err, "outcome_unknown");
	return ERR_STORE;
}

/* *ret_again: the same call may work in a moment, on another connection. */
static int judge(struct rconn *conn, struct call *call, bool *ret_again, struct err *err)
{
	if (call->reply->type == REDIS_REPLY_ERROR) {
		int rc = wire_error(call->reply->str, ret_again, err);

		if (*ret_again)
			wire_drop(conn);
		return rc;
	}
	if (call->script == SCRIPT_open)
		return 0;
	if (strcmp(script_word(call->reply), "LOST") == 0)
		return lose(conn->store, err);
	if (atomic_exchange(&conn->store->lost, false))
		log_warn("the state store is the former one again", KS("store", redis_id_of(conn->store)));
	guard_sample(conn, call->reply, call->sent_ns, clock_boot_ns());
	return check_acks(conn, call, err);
}

static int run(struct rconn *conn, struct call *call, struct err *err)
{
	bool writes = scripts[call->script].writes, sent = false, again = true;
	int64_t until_ns = clock_after_ms(writes ? WRITE_PATIENCE_MS : READ_PATIENCE_MS);
	unsigned round = 0;
	int rc = 0;

	wire_check_idle(conn);
	while (again) {
		rc = conns_connect(conn, until_ns, sent, err);
		if (rc != 0)
			break;
		call_clear(call);
		rc = send_known(conn, call, err);
		again = rc == WIRE_BROKEN;
		sent |= again;
		if (rc == 0)
			rc = judge(conn, call, &again, err);
		if (again && clock_boot_ns() >= until_ns)
			break;
		if (again)
			conns_pause(conn, round++);
	}
	if (rc != 0 && sent && call->script == SCRIPT_apply && strcmp(err->reason, LOST_REASON) != 0) {
		err_reason(err, "outcome_unknown");
		if (call->args->writes && conn->store->min_acks > 0)
			atomic_fetch_add(&conn->store->unacked, 1);
	}
	return rc == WIRE_BROKEN ? ERR_STORE : rc;
}

int script_once(struct rconn *conn, enum redis_script script, const struct wire_args *args, redisReply **ret,
		struct err *err)
{
	struct call call = {.script = script, .args = args};
	bool again = false;
	int rc = send_known(conn, &call, err);

	if (rc == 0)
		rc = judge(conn, &call, &again, err);
	free(call.text);
	freeReplyObject(call.acks);
	if (rc == 0)
		*ret = call.reply;
	else
		freeReplyObject(call.reply);
	return rc;
}

int script_run(struct rconn *conn, enum redis_script script, const struct wire_args *args, redisReply **ret,
	       struct err *err)
{
	struct call call = {.script = script, .args = args};
	int rc = run(conn, &call, err);

	err->code = rc;
	free(call.text);
	freeReplyObject(call.acks);
	if (rc == 0)
		*ret = call.reply;
	else
		freeReplyObject(call.reply);
	return rc;
}
