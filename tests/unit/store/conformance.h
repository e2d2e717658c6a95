/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every store must do. A test program gives an environment that opens its store and runs the cases: each begins
 * with an empty store. The cases open, close and open again the same store through the environment.
 */
#ifndef TESTS_STORE_CONFORMANCE_H
#define TESTS_STORE_CONFORMANCE_H

#include <stdbool.h>
#include <stddef.h>

#include "store/store.h"

struct conformance_env {
	int (*open)(void *arg, struct store **ret, struct err *err);
	void *arg;
	bool snapshots; /* a view sees one moment */
};

struct conformance_case {
	const char *name;
	void (*run)(const struct conformance_env *env);
};
extern const struct conformance_case conformance_cases[];
extern const size_t conformance_count;

/* Helpers for tests of stores; they fail the running test. */
struct store *conformance_open(const struct conformance_env *env);
void conformance_put(struct store *store, enum store_table table, const char *key, const char *group, int64_t due,
		     const char *doc);
/* The row's document, to be freed; NULL when absent. */
char *conformance_get(struct store *store, enum store_table table, const char *key);

#endif
