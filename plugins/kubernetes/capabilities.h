/* SPDX-License-Identifier: Apache-2.0 */
/* What each mode can do. */
#ifndef KUBERNETES_CAPABILITIES_H
#define KUBERNETES_CAPABILITIES_H

#include <berth/types.h>

#define CAPABILITIES_BOTH                                                                                              \
	(BERTH_CAP_THREADSAFE | BERTH_CAP_REATTACH | BERTH_CAP_SIGNAL | BERTH_CAP_BULK | BERTH_CAP_CHANGES)
/* A pod's own limit of time can only be lowered: no RENEW. */
#define CAPABILITIES_PODS (CAPABILITIES_BOTH | BERTH_CAP_ASSIGN_TAGS)
/* The controller keeps the pool, and a claim's end can be moved. */
#define CAPABILITIES_CLAIMS (CAPABILITIES_BOTH | BERTH_CAP_NATIVE_POOL | BERTH_CAP_RENEW)
#define CAPABILITIES_ALL (CAPABILITIES_PODS | CAPABILITIES_CLAIMS)

#endif
