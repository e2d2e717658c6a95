/* SPDX-License-Identifier: Apache-2.0 */
/* Reading files that hold secrets; shared by secret.c and seal.c. */
#ifndef CORE_SECRET_FILE_H
#define CORE_SECRET_FILE_H

#include <stddef.h>

#include "core/err.h"

/* Reads a regular file that other users cannot open. ERR_CONFIG when it does not fit in size - 1 bytes. */
int secret_file_read(const char *path, void *ptr, size_t size, size_t *ret_len, struct err *err);

#endif
