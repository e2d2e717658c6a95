/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of a shared object before it is mapped. */
#ifndef PLUGIN_ELF_H
#define PLUGIN_ELF_H

#include "core/err.h"

/* A whole ELF shared object of this machine, or ERR_CONFIG: one sentence with path, expected and got. */
int elf_check(int fd, const char *path, struct err *err);

#endif
