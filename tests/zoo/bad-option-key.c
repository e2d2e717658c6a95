/* SPDX-License-Identifier: Apache-2.0 */
/* An option without key. */
#define ZOO_NAME "bad-option-key"
#define ZOO_OPTIONS options
#include <berth/provider.h>
static const struct berth_option one = {
    .struct_size = sizeof(one), .type = BERTH_OPTION_DURATION, .key = NULL, .default_text = "1s", .doc = "One."};
static const struct berth_option *const options[] = {&one, NULL};
#include "zoo.h"
