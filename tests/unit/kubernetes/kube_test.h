/* SPDX-License-Identifier: Apache-2.0 */
/* What every test program of the Kubernetes provider includes. */
#ifndef TESTS_KUBE_TEST_H
#define TESTS_KUBE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <json-c/json.h>

#endif
