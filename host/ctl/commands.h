/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of berthctl: each with its options, for the one table in commands.c. */
#ifndef CTL_COMMANDS_H
#define CTL_COMMANDS_H

#include "ctl/ctl.h"

struct exec_options {
	const char *cwd, *region, *env_ref, *stdin_ref, *script, *key;
	struct ctl_many env;
	int64_t timeout;
	bool input, keep, detach, quiet;
};
struct logs_options {
	bool follow, only_stdout, only_stderr;
};
struct wait_options {
	bool quiet;
};
struct list_options {
	const char *status;
	int64_t limit;
};
struct put_options {
	const char *mode, *links;
	bool recursive, plain;
	int64_t jobs;
};
struct get_options {
	const char *links;
	bool recursive, plain;
	int64_t jobs;
};
struct ls_options {
	bool one_level;
};
struct rm_options {
	bool recursive, force;
};
struct retire_options {
	bool force;
	int64_t wait;
};
struct local_options {
	const char *conf, *berthd;
};

#define CTL_COMMANDS(X)                                                                                                \
	X(exec)                                                                                                        \
	X(logs)                                                                                                        \
	X(events)                                                                                                      \
	X(executions)                                                                                                  \
	X(execution_show)                                                                                              \
	X(wait)                                                                                                        \
	X(cancel)                                                                                                      \
	X(put)                                                                                                         \
	X(get)                                                                                                         \
	X(ls)                                                                                                          \
	X(cat)                                                                                                         \
	X(rm)                                                                                                          \
	X(mv)                                                                                                          \
	X(task)                                                                                                        \
	X(sessions)                                                                                                    \
	X(retire)                                                                                                      \
	X(targets)                                                                                                     \
	X(drain)                                                                                                       \
	X(undrain)                                                                                                     \
	X(hosts)                                                                                                       \
	X(verify)                                                                                                      \
	X(recover)                                                                                                     \
	X(deadletters_list)                                                                                            \
	X(deadletters_show)                                                                                            \
	X(deadletters_requeue)                                                                                         \
	X(deadletters_drop)                                                                                            \
	X(providers_list)                                                                                              \
	X(providers_check)                                                                                             \
	X(providers_inspect)                                                                                           \
	X(config_check)                                                                                                \
	X(config_dump)                                                                                                 \
	X(completion)                                                                                                  \
	X(help_of)                                                                                                     \
	X(version)

#define X(name) int ctl_##name(struct ctl *ctl, const struct ctl_args *args);
CTL_COMMANDS(X)
#undef X

extern const struct ctl_option exec_options[], logs_options[], executions_options[], wait_options[], sessions_options[], put_options[],
	get_options[], ls_options[], rm_options[], retire_options[], deadletters_options[], local_options[];

#endif
