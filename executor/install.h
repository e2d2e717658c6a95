/* SPDX-License-Identifier: Apache-2.0 */
/* `install`: puts the program itself where another container finds it. */
#ifndef EXECUTOR_INSTALL_H
#define EXECUTOR_INSTALL_H

#include <stddef.h>

/* Copies the running program to dir/berth-executor. 0, or -1 with a sentence in text. */
int install_self(const char *dir, char *text, size_t cap);

#endif
