/* SPDX-License-Identifier: Apache-2.0 */
/* What a create request may say. Pure. */
#ifndef EXECUTION_VALIDATE_H
#define EXECUTION_VALIDATE_H

#include "execution/execution.h"
#include "execution/record.h"

#define VALIDATE_ARTIFACT_BYTES ((size_t)16 * 1024) /* of all artifact paths; from the reference manager */

/* ERR_INVALID_REQUEST names the field; ERR_PAYLOAD_TOO_LARGE names the limit. */
int validate_create(const struct conf *conf, const struct execution_create *in, struct err *err);
/* The record of a valid request, before its first event: defaults filled in, strings borrowed from `in`. */
void validate_record(const struct conf *conf, const struct execution_create *in, const char *id, struct record *ret);

#endif
