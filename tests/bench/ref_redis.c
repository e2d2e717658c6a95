/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What executions in Redis have to be measured against: clients that each have one connection and make six exchanges
 * of 1 KiB per execution, one after the other: two scripts that append an entry to a stream, three that write a row,
 * and an XACK of what the first one appended. "ref_redis SOCKET CLIENTS SECONDS" prints executions per second.
 */
#include <hiredis/hiredis.h>
#include <string.h>

#include "ref.h"

#define ROW 1024
#define SHA_LEN 40
#define ROWS 3

static const char add_script[] = "return redis.call('XADD', KEYS[1], '*', 'event', ARGV[1])";
static const char put_script[] = "return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])";

static struct ref_load load;
static const char *path;
static char doc[ROW], add_sha[SHA_LEN + 1], put_sha[SHA_LEN + 1];

static redisContext *open_redis(void)
{
	redisContext *redis = redisConnectUnix(path);

	if (redis == NULL || redis->err)
		ref_die("cannot connect to Redis");
	return redis;
}

static redisReply *check(redisContext *redis, void *answer)
{
	redisReply *reply = answer;

	if (reply == NULL)
		ref_die(redis->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		ref_die(reply->str);
	return reply;
}

static void load_script(redisContext *redis, const char *text, char ret_sha[SHA_LEN + 1])
{
	redisReply *reply = check(redis, redisCommand(redis, "SCRIPT LOAD %s", text));

	snprintf(ret_sha, SHA_LEN + 1, "%s", reply->str);
	freeReplyObject(reply);
}

static redisReply *append(redisContext *redis, const char *stream)
{
	return check(redis, redisCommand(redis, "EVALSHA %s 1 %s %b", add_sha, stream, doc, (size_t)ROW));
}

static void execute(redisContext *redis, const char *id)
{
	redisReply *request = append(redis, "ref.requests");

	for (int i = 0; i < ROWS; i++)
		freeReplyObject(check(redis, redisCommand(redis, "EVALSHA %s 1 ref:rows-%d %s %b", put_sha, i, id, doc,
							  (size_t)ROW)));
	freeReplyObject(append(redis, "ref.events"));
	freeReplyObject(check(redis, redisCommand(redis, "XACK ref.requests ref %s", request->str)));
	freeReplyObject(request);
}

static void *client_main(void *arg)
{
	redisContext *redis = open_redis();
	char id[48];

	for (unsigned long i = 0; !atomic_load(&load.stop); i++) {
		snprintf(id, sizeof(id), "sexec_%016lx%08lx", (unsigned long)ref_now_ns(),
			 (unsigned long)(intptr_t)arg * 65536 + i % 65536);
		execute(redis, id);
		atomic_fetch_add(&load.done, 1);
	}
	redisFree(redis);
	return NULL;
}

int main(int argc, char **argv)
{
	static const char usage[] = "usage: ref_redis SOCKET CLIENTS SECONDS";
	redisContext *redis;

	if (argc != 4)
		ref_die(usage);
	path = argv[1];
	memset(doc, 'd', sizeof(doc));
	redis = open_redis();
	load_script(redis, add_script, add_sha);
	load_script(redis, put_script, put_sha);
	freeReplyObject(check(redis, redisCommand(redis, "XGROUP CREATE ref.requests ref 0 MKSTREAM")));
	redisFree(redis);
	ref_measure(&load, ref_number(argv[2], usage), ref_number(argv[3], usage), client_main);
	return 0;
}
