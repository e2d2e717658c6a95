/* SPDX-License-Identifier: Apache-2.0 */
/* A default that is none. */
#define ZOO_NAME "bad-option-default"
#define ZOO_OPTIONS options
#include <berth/provider.h>
static const struct berth_option one = {
    .struct_size = sizeof(one), .type = BERTH_OPTION_DURATION, .key = "wait", .default_text = "soon", .doc = "One."};
static const struct berth_option *const options[] = {&one, NULL};
#include "zoo.h"
