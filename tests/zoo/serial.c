/* SPDX-License-Identifier: Apache-2.0 */
/* Not THREADSAFE, and checks that the host keeps to it. */
#define ZOO_NAME "serial"
#define ZOO_CAPABILITIES 0
#define ZOO_EXECUTE serial_execute
#define ZOO_OPEN serial_open
#define ZOO_OPTIONS options
#include <berth/provider.h>
#include <semaphore.h>
#include <stdatomic.h>

static int32_t serial_execute(void *inst, struct berth_call *call, const struct berth_session *session,
			      const struct berth_command *command);
static int32_t serial_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			   struct berth_instance_info *ret_info);
static const struct berth_option gate_row = {
    .struct_size = sizeof(gate_row), .type = BERTH_OPTION_INTEGER, .key = "gate", .doc = "Address of two semaphores."};
static const struct berth_option *const options[] = {&gate_row, NULL};
#include "zoo.h"

static sem_t *gate;
static atomic_int inside;

static int32_t serial_open(const struct berth_open_args *args, struct berth_call *call, void **ret_inst,
			   struct berth_instance_info *ret_info)
{
	gate = args->options[0]->is_set ? (sem_t *)(uintptr_t)args->options[0]->integer : NULL;
	return zoo_open(args, call, ret_inst, ret_info);
}

static int32_t serial_execute(void *inst, struct berth_call *call, const struct berth_session *session,
			      const struct berth_command *command)
{
	int32_t rc = BERTH_INTERNAL;

	if (atomic_fetch_add(&inside, 1) == 0) {
		if (session->ref.len == 4 && !memcmp(session->ref.ptr, "gate", 4)) {
			sem_post(&gate[0]);
			while (sem_wait(&gate[1]))
				;
		}
		rc = zoo_execute(inst, call, session, command);
	}
	atomic_fetch_sub(&inside, 1);
	return rc;
}
