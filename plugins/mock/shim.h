/* SPDX-License-Identifier: Apache-2.0 */
/* The host's table as the operations see it: the real services, but for answers that a fault of the running call bends.
 */
#ifndef MOCK_SHIM_H
#define MOCK_SHIM_H

#include <berth/host.h>

struct opcall;

/* Constant after shim_init. */
extern struct berth_host shim_host;
void shim_init(const struct berth_host *host);

/* The call that runs on this thread, between opcall_begin and opcall_end. */
void shim_enter(struct opcall *oc);
void shim_leave(void);

#endif
