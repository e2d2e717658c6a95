/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds the answers to claims for the moment until whoever claimed waits for the pod: the answer to a patch is the pod,
 * as fresh as a look would find it. Any thread; the lock is held for moments. It must never answer a second look, nor
 * one that comes later than a look and its way may take: what exists is asked of the API server.
 */
#include "handed.h"

#include <stdio.h>
#include <string.h>

#include "text.h"

#define FRESH_NS INT64_C(1000000000)

void handed_init(struct handed *handed)
{
	*handed = (struct handed){0};
	pthread_mutex_init(&handed->lock, NULL);
}

void handed_fini(struct handed *handed)
{
	for (unsigned i = 0; i < HANDED_MAX; i++)
		json_object_put(handed->pods[i].pod);
	pthread_mutex_destroy(&handed->lock);
}

void handed_put(struct handed *handed, const char *uid, struct json_object *pod)
{
	struct json_object *former;
	struct handed_pod *at;

	pthread_mutex_lock(&handed->lock);
	at = &handed->pods[handed->next++ % HANDED_MAX];
	former = at->pod;
	snprintf(at->uid, sizeof(at->uid), "%s", uid);
	at->pod = pod;
	at->until_ns = text_boot_ns() + FRESH_NS;
	pthread_mutex_unlock(&handed->lock);
	json_object_put(former);
}

static struct handed_pod *find_locked(struct handed *handed, const char *uid)
{
	for (unsigned i = 0; i < HANDED_MAX; i++)
		if (handed->pods[i].pod && !strcmp(handed->pods[i].uid, uid))
			return &handed->pods[i];
	return NULL;
}

struct json_object *handed_take(struct handed *handed, const char *uid)
{
	struct handed_pod found = {.pod = NULL}, *at;

	pthread_mutex_lock(&handed->lock);
	at = find_locked(handed, uid);
	if (at) {
		found = *at;
		at->pod = NULL;
	}
	pthread_mutex_unlock(&handed->lock);
	if (text_boot_ns() < found.until_ns)
		return found.pod;
	json_object_put(found.pod);
	return NULL;
}
