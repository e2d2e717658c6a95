/* SPDX-License-Identifier: Apache-2.0 */
/* The cases of conformance_crash.c, for the table in conformance.c. */
#ifndef TESTS_STORE_CONFORMANCE_CASES_H
#define TESTS_STORE_CONFORMANCE_CASES_H

struct conformance_env;
void conformance_failing_steps(const struct conformance_env *env);
void conformance_read_modify_write(const struct conformance_env *env);
void conformance_view_snapshot(const struct conformance_env *env);
void conformance_clock(const struct conformance_env *env);
void conformance_kill(const struct conformance_env *env);

#endif
