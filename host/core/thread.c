/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns how threads begin and end: named, small stacks, all signals blocked but those of a fault. Any thread starts and
 * joins others. Never leaves a thread unnamed: logs and debuggers tell them apart by that only.
 */
#include "core/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/err.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK ((size_t)4 * THREAD_STACK) /* red zones and shadow calls need room */
#define SANITIZED 1
#else
#define STACK ((size_t)THREAD_STACK)
#define SANITIZED 0
#endif
#define SHED_MARGIN 2048 /* below the caller's frame: what the call itself needs */

#ifndef PR_FUTEX_HASH /* younger than the headers */
#define PR_FUTEX_HASH 78
#define PR_FUTEX_HASH_SET_SLOTS 1
#define PR_FUTEX_HASH_GET_SLOTS 2
#endif
#define FUTEX_SLOTS_LEAST 256u
#define FUTEX_SLOTS_MOST 16384u

/* What a thread does to itself. A blocked one that is raised by a fault ends the process without its handler, and so
 * without a report of the crash. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};

struct start {
	char name[16];
	void *(*main)(void *);
	void *arg;
};

/* Of this thread, the lowest address; 0 = not one of ours. */
static _Thread_local uintptr_t stack_low;

static void find_stack(void)
{
	pthread_attr_t attr;
	void *low = NULL;
	size_t size = 0;

	if (pthread_getattr_np(pthread_self(), &attr))
		return;
	if (pthread_attr_getstack(&attr, &low, &size) == 0)
		stack_low = (uintptr_t)low;
	pthread_attr_destroy(&attr);
}

void thread_shed_stack(void)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	char here;
	uintptr_t used = ((uintptr_t)&here - SHED_MARGIN) & ~(page - 1);

	/* A sanitizer's own notes on the stack speak of these pages, too. */
	if (!SANITIZED && stack_low && used > stack_low)
		(void)madvise((void *)stack_low, used - stack_low, MADV_DONTNEED);
}

static void *thread_main(void *ptr)
{
	struct start start = *(struct start *)ptr;

	free(ptr);
	find_stack();
	pthread_setname_np(pthread_self(), start.name);
	return start.main(start.arg);
}

static void fill_but_faults(sigset_t *set)
{
	sigfillset(set);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(set, faults[i]);
}

/* A new thread inherits the mask: with the signals blocked here, none can reach it before it blocks them itself. */
static int create_blocked(pthread_t *ret, struct start *start)
{
	pthread_attr_t attr;
	sigset_t mask, before;
	int r;

	if (pthread_attr_init(&attr))
		return ENOMEM;
	pthread_attr_setstacksize(&attr, STACK);
	fill_but_faults(&mask);
	pthread_sigmask(SIG_SETMASK, &mask, &before);
	r = pthread_create(ret, &attr, thread_main, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return r;
}

/* Since version 6.16 Linux keeps the futexes of a process in a table of its own, with some 16 places for two processors: with
 * thousands of threads that wait, each wake of any thread walks through hundreds of them. Older kernels refuse, and have one
 * large table for all. */
void thread_expect(unsigned count)
{
	unsigned slots = FUTEX_SLOTS_LEAST;

	while (slots < count && slots < FUTEX_SLOTS_MOST)
		slots *= 2;
	if (prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_GET_SLOTS, 0L, 0L, 0L) < (int)slots)
		(void)prctl(PR_FUTEX_HASH, PR_FUTEX_HASH_SET_SLOTS, (unsigned long)slots, 0L, 0L);
}

int thread_start(pthread_t *ret, const char *name, void *(*main)(void *), void *arg)
{
	struct start *start = calloc(1, sizeof(*start));

	if (!start)
		return ERR_NOMEM;
	snprintf(start->name, sizeof(start->name), "%s", name);
	start->main = main;
	start->arg = arg;
	if (create_blocked(ret, start)) {
		free(start);
		return ERR_NOMEM;
	}
	return 0;
}

/* The thread sanitizer of GCC 12 does not know the join by a chosen clock, and would report what it cannot see. */
static int join_timed(pthread_t thread, int64_t left_ms)
{
#ifdef __SANITIZE_THREAD__
	clockid_t clock = CLOCK_REALTIME;
#else
	clockid_t clock = CLOCK_MONOTONIC;
#endif
	struct timespec ts;

	clock_gettime(clock, &ts);
	ts.tv_sec += (time_t)(left_ms / 1000);
	ts.tv_nsec += (long)(left_ms % 1000) * CLOCK_NS_PER_MS;
	if (ts.tv_nsec >= CLOCK_NS_PER_S) {
		ts.tv_nsec -= CLOCK_NS_PER_S;
		ts.tv_sec++;
	}
#ifdef __SANITIZE_THREAD__
	return pthread_timedjoin_np(thread, NULL, &ts);
#else
	return pthread_clockjoin_np(thread, NULL, clock, &ts);
#endif
}

bool thread_join_until(pthread_t thread, int64_t deadline_ns)
{
	int r;

	if (deadline_ns == INT64_MAX)
		r = pthread_join(thread, NULL);
	else
		r = join_timed(thread, clock_left_ms(deadline_ns));
	if (r == ETIMEDOUT || r == EBUSY) {
		pthread_detach(thread);
		return false;
	}
	return true;
}
