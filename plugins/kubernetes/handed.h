/* SPDX-License-Identifier: Apache-2.0 */
/* Pods as the API server answered them to claims, for the one look that follows. Any thread. */
#ifndef KUBERNETES_HANDED_H
#define KUBERNETES_HANDED_H

#include <json-c/json.h>
#include <pthread.h>
#include <stdint.h>

#define HANDED_MAX 64 /* a claim that finds no place, or loses it to a later one, costs one more look */

struct handed {
	pthread_mutex_t lock;
	unsigned next; /* the place that is overwritten next */
	struct handed_pod {
		char uid[64];
		struct json_object *pod; /* NULL: the place is free */
		int64_t until_ns;
	} pods[HANDED_MAX];
};

void handed_init(struct handed *handed);
void handed_fini(struct handed *handed);
/* Takes the caller's reference, which has to be the only one: references are not counted for threads. */
void handed_put(struct handed *handed, const char *uid, struct json_object *pod);
/* To be put by the caller; NULL: there is none, or it is too old to be believed. Given out once. */
struct json_object *handed_take(struct handed *handed, const char *uid);

#endif
