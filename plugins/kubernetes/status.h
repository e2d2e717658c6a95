/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer of the API server that is no success means. Pure; any thread. */
#ifndef KUBERNETES_STATUS_H
#define KUBERNETES_STATUS_H

#include <json-c/json.h>

#include "text.h"

/* `status` is the HTTP status, `body` a Status object or NULL (a proxy's answer is none), `what` the request in words.
 * Returns the code that err now holds. `writing`: the request may have changed something before it failed. */
int32_t status_classify(uint32_t status, struct json_object *body, const char *what, bool writing, struct kerr *err);
/* The Status object's reason word ("NotFound", "Expired", …), or "". */
const char *status_reason(struct json_object *body);

#endif
