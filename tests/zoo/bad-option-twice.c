/* SPDX-License-Identifier: Apache-2.0 */
/* One option twice. */
#define ZOO_NAME "bad-option-twice"
#define ZOO_OPTIONS options
#include <berth/provider.h>
static const struct berth_option one = {
    .struct_size = sizeof(one), .type = BERTH_OPTION_DURATION, .key = "wait", .default_text = "1s", .doc = "One."};
static const struct berth_option *const options[] = {&one, &one, NULL};
#include "zoo.h"
