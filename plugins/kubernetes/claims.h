/* SPDX-License-Identifier: Apache-2.0 */
/* Where agent-sandbox keeps claims. Only v1beta1 is spoken: it is what every release since v0.5 serves. */
#ifndef KUBERNETES_CLAIMS_H
#define KUBERNETES_CLAIMS_H

#define CLAIMS_GROUP "extensions.agents.x-k8s.io/v1beta1"
#define CLAIMS_PATH "/apis/" CLAIMS_GROUP "/namespaces/%s/sandboxclaims"
#define CLAIMS_POOL_PATH "/apis/" CLAIMS_GROUP "/namespaces/%s/sandboxwarmpools/%s"
/* The one label domain that its controller lets through to pods by default. */
#define CLAIMS_LABEL_TASK "sandbox.users.io/task-id"
#define CLAIMS_LABEL_INTERNET "sandbox.users.io/internet" /* as LABEL_INTERNET of a pod of our own */

#endif
