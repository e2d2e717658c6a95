/* SPDX-License-Identifier: Apache-2.0 */
/* Flags and environment of `serve`. */
#ifndef EXECUTOR_OPTIONS_H
#define EXECUTOR_OPTIONS_H

#include "executor.h"

/* argv behind the command's name. 0, or -1 with a sentence in text. */
int options_parse(int argc, char **argv, struct options *ret_options, char *text, size_t cap);

#endif
