/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that are only pretended, and the cache of sessions that keeps files off their path. The cache is split over
 * locks that are held for a lookup and a copy, never while the disk is read. Entered by any thread. Must never answer
 * for a session that this process removed, nor longer than NULL_CACHE_MS for one that another did.
 */
#include "null.h"

#include "shim.h"
#include "text.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define BUCKETS 4096u
#define LOCKS 64u

struct entry {
	struct entry *next;
	int64_t checked_ns;
	struct session s;
};

struct null_cache {
	pthread_mutex_t locks[LOCKS]; /* locks[i] guards the buckets whose number is i modulo LOCKS */
	struct entry *buckets[BUCKETS];
};

struct null_cache *null_cache_new(void)
{
	struct null_cache *cache = calloc(1, sizeof(*cache));

	for (unsigned i = 0; cache && i < LOCKS; i++)
		pthread_mutex_init(&cache->locks[i], NULL);
	return cache;
}

void null_cache_free(struct null_cache *cache)
{
	if (!cache)
		return;
	for (unsigned i = 0; i < BUCKETS; i++) {
		while (cache->buckets[i]) {
			struct entry *entry = cache->buckets[i];

			cache->buckets[i] = entry->next;
			free(entry);
		}
	}
	for (unsigned i = 0; i < LOCKS; i++)
		pthread_mutex_destroy(&cache->locks[i]);
	free(cache);
}

/* The end of a ref is random already. */
static unsigned bucket_of(const char *ref)
{
	return (unsigned)strtoul(ref + strlen(ref) - 3, NULL, 16) % BUCKETS;
}

static struct entry **find_locked(struct null_cache *cache, const char *ref)
{
	struct entry **at = &cache->buckets[bucket_of(ref)];

	while (*at && strcmp((*at)->s.ref, ref))
		at = &(*at)->next;
	return at;
}

static pthread_mutex_t *lock_of(struct null_cache *cache, const char *ref)
{
	return &cache->locks[bucket_of(ref) % LOCKS];
}

static bool cached(struct null_cache *cache, const char *ref, int64_t now_ns, struct session *ret)
{
	struct entry *entry;
	bool hit;

	pthread_mutex_lock(lock_of(cache, ref));
	entry = *find_locked(cache, ref);
	hit = entry && now_ns - entry->checked_ns < NULL_CACHE_MS * INT64_C(1000000);
	if (hit)
		*ret = entry->s;
	pthread_mutex_unlock(lock_of(cache, ref));
	return hit;
}

/* read_ns is from before the disk was read: an entry never looks fresher than it is. */
static void remember(struct null_cache *cache, const struct session *s, int64_t read_ns)
{
	struct entry **at;

	pthread_mutex_lock(lock_of(cache, s->ref));
	at = find_locked(cache, s->ref);
	if (!*at)
		*at = calloc(1, sizeof(**at)); /* without memory it is simply not remembered */
	if (*at) {
		(*at)->s = *s;
		(*at)->checked_ns = read_ns;
	}
	pthread_mutex_unlock(lock_of(cache, s->ref));
}

void null_forget(struct mock *m, const char *ref)
{
	struct entry **at, *entry;

	pthread_mutex_lock(lock_of(m->cache, ref));
	at = find_locked(m->cache, ref);
	entry = *at;
	if (entry)
		*at = entry->next;
	pthread_mutex_unlock(lock_of(m->cache, ref));
	free(entry);
}

int null_load(struct mock *m, const char *ref, struct session *ret)
{
	int64_t now_ns = text_boot_ns();
	int rc;

	if (cached(m->cache, ref, now_ns, ret))
		return 0;
	rc = store_load(&m->store, ref, ret);
	if (rc)
		null_forget(m, ref);
	else
		remember(m->cache, ret, now_ns);
	return rc;
}

struct shape {
	uint64_t out, err, exit, ms;
};

/* Only the first line counts, and only when it begins with the mark. False: a word or value that is none. */
static bool parse_shape(struct berth_str script, struct shape *shape)
{
	const struct {
		const char *name;
		uint64_t *at;
	} keys[] = {{"out=", &shape->out}, {"err=", &shape->err}, {"exit=", &shape->exit}, {"ms=", &shape->ms}};
	char line[256], *word, *rest = line;
	size_t len = 0;

	while (len < script.len && script.ptr[len] != '\n')
		len++;
	if (len < 5 || memcmp(script.ptr, "#null", 5))
		return true;
	if (!text_copy(line, sizeof(line), (struct berth_str){script.ptr + 5, len - 5}))
		return false;
	while ((word = strtok_r(rest, " ", &rest))) {
		bool known = false;

		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			if (!strncmp(word, keys[i].name, strlen(keys[i].name)))
				known = text_size(word + strlen(keys[i].name), keys[i].at);
		if (!known)
			return false;
	}
	return shape->exit <= 255 && shape->ms <= INT64_MAX / 1000000;
}

/* Writes what the limit lets through; *ret_dropped is the rest. */
static int32_t put(struct opcall *oc, uint32_t stream, uint64_t len, uint64_t max, uint64_t *ret_dropped)
{
	static const char line[] = "null null null null null null null null null null null null nul\n";
	const size_t line_len = sizeof(line) - 1;
	char block[64 * (sizeof(line) - 1)];
	uint64_t left = len < max ? len : max;
	int32_t rc = BERTH_OK;

	*ret_dropped = len - left;
	for (size_t i = 0; left && i < sizeof(block); i += line_len)
		memcpy(block + i, line, line_len);
	while (left && !rc) {
		size_t part = left < sizeof(block) ? (size_t)left : sizeof(block);

		rc = shim_host.sink_write(oc->call, stream, block, part);
		left -= part;
		if (!rc && left)
			rc = opcall_stopped(oc);
	}
	return rc;
}

/* Waits as long as the command is to take, its timeout and the call's cancel included; sets kind and duration. */
static int32_t pretend(struct opcall *oc, uint64_t ms, int64_t timeout_ms, struct berth_ending *ending)
{
	bool late = ms > (uint64_t)timeout_ms;
	int64_t begin_ns, wait_ms = late ? timeout_ms : (int64_t)ms;
	int32_t rc;

	if (!wait_ms)
		return BERTH_OK;
	begin_ns = text_boot_ns();
	rc = opcall_wait(oc, begin_ns + wait_ms * 1000000);
	ending->duration_ms = (text_boot_ns() - begin_ns) / 1000000;
	if (rc == BERTH_CANCELLED && shim_host.cancel_state(oc->call) == BERTH_CANCEL_STOP) {
		ending->kind = BERTH_ENDING_CANCELLED;
		return BERTH_OK;
	}
	if (!rc && late)
		ending->kind = BERTH_ENDING_TIMEOUT;
	return rc;
}

int32_t null_execute(struct opcall *oc, const struct berth_command *command)
{
	struct shape shape = {.out = 100};
	struct berth_ending ending = {
	    .struct_size = sizeof(ending), .kind = BERTH_ENDING_EXIT, .quiescent = BERTH_QUIESCENT_YES};
	int32_t rc;

	if (!parse_shape(command->script, &shape))
		return opcall_fail(oc, BERTH_INVALID, "null_script",
				   "the first line is no \"#null out= err= exit= ms=\"");
	tally_count(&oc->m->tally, TALLY_STARTED);
	rc = put(oc, BERTH_STREAM_STDOUT, shape.out, command->stdout_max, &ending.stdout_dropped);
	if (!rc)
		rc = put(oc, BERTH_STREAM_STDERR, shape.err, command->stderr_max, &ending.stderr_dropped);
	if (!rc)
		rc = pretend(oc, shape.ms, command->timeout_ms, &ending);
	if (rc)
		return rc;
	ending.exit_code = ending.kind == BERTH_ENDING_EXIT ? (int32_t)shape.exit : 0;
	return shim_host.emit_ending(oc->call, &ending);
}
