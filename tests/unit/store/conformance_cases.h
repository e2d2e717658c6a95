/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of the other files, for the table in conformance.c; and steps that must work. */
#ifndef TESTS_STORE_CONFORMANCE_CASES_H
#define TESTS_STORE_CONFORMANCE_CASES_H

#include "store/store.h"

struct conformance_env;

void conformance_must(struct store *store, store_step step, void *arg);
void conformance_must_view(struct store *store, store_step step, void *arg);

void conformance_next(const struct conformance_env *env);
void conformance_counters(const struct conformance_env *env);
void conformance_streams(const struct conformance_env *env);
void conformance_trim(const struct conformance_env *env);
void conformance_view_refuses_writes(const struct conformance_env *env);
void conformance_failing_steps(const struct conformance_env *env);
void conformance_read_modify_write(const struct conformance_env *env);
void conformance_view_snapshot(const struct conformance_env *env);
void conformance_clock(const struct conformance_env *env);
void conformance_kill(const struct conformance_env *env);

#endif
