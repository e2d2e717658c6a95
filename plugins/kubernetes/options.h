/* SPDX-License-Identifier: Apache-2.0 */
/* Names of options that are asked for after open. */
#ifndef KUBERNETES_OPTIONS_H
#define KUBERNETES_OPTIONS_H

#define OPTION_SIGNING_KEY "signing_key"

#endif
