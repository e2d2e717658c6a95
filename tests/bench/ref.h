/* SPDX-License-Identifier: Apache-2.0 */
/* What the reference programs share: a clock, an argument, an end with a sentence, and clients that count for a while. */
#ifndef BENCH_REF_H
#define BENCH_REF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define REF_NS_PER_S INT64_C(1000000000)

static inline void ref_die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static inline int64_t ref_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * REF_NS_PER_S + now.tv_nsec;
}

static inline long ref_number(const char *text, const char *usage)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (end == text || *end != '\0' || number <= 0)
		ref_die(usage);
	return number;
}

/* Runs `count` threads of `main` for that many seconds; they loop until `stop` and add to `done`. Prints done per second. */
struct ref_load {
	atomic_bool stop;
	atomic_ulong done;
};

static inline void ref_measure(struct ref_load *load, long count, long seconds, void *(*thread_main)(void *))
{
	pthread_t *threads = calloc((size_t)count, sizeof(*threads));
	int64_t begin_ns = ref_now_ns();

	for (long i = 0; i < count; i++)
		if (threads == NULL || pthread_create(&threads[i], NULL, thread_main, (void *)(intptr_t)i) != 0)
			ref_die("cannot start a thread");
	nanosleep(&(struct timespec){.tv_sec = seconds}, NULL);
	atomic_store(&load->stop, true);
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	printf("%.1f\n", (double)atomic_load(&load->done) * 1e9 / (double)(ref_now_ns() - begin_ns));
}

#endif
