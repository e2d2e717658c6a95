/* SPDX-License-Identifier: Apache-2.0 */
/* From errno to a code of the ABI with its reason, once for the library. */
#ifndef LOCALFS_ERRNO_H
#define LOCALFS_ERRNO_H

#include <berth/host.h>

/* Explains the failure and returns its code. err: positive or negative errno. doing: what failed, for people. */
int32_t localfs_fail_errno(const struct berth_host *host, struct berth_call *call, int err, const char *doing);
/* Explains a refusal that does not come from errno and is never worth a retry. */
int32_t localfs_fail(const struct berth_host *host, struct berth_call *call, int32_t code, const char *reason,
		     const char *text);

#endif
