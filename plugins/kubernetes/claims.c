/* SPDX-License-Identifier: Apache-2.0 */
/* Mode sandboxclaim. */
#include "backend.h"
const struct backend backend_claims = {0};
