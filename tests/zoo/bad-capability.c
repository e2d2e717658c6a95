/* SPDX-License-Identifier: Apache-2.0 */
/* Declares a capability without its operation. */
#define ZOO_NAME "bad-capability"
#define ZOO_CAPABILITIES (BERTH_CAP_THREADSAFE | BERTH_CAP_RENEW)
#include "zoo.h"
