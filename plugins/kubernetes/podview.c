/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges a Pod object. One table has a row for each thing that Kubernetes says of a pod which is not ready; the first
 * that fits is the verdict, so that what ended a pod stands before what it looks like afterwards. Pure; any thread.
 */
#include "podview.h"

#include <stdio.h>
#include <string.h>

#include "api.h"

/* Where the word of a row is looked for. */
enum where {
	IN_STATUS,     /* status.reason of a failed pod */
	IN_DISRUPTION, /* reason of the condition DisruptionTarget */
	IN_TERMINATED, /* reason of a container's end */
	IN_PHASE,      /* status.phase */
	IN_WAITING,    /* reason why a container waits */
	IN_SCHEDULED,  /* reason of PodScheduled=False */
};

struct row {
	enum where where;
	const char *word;
	int32_t code;
	const char *reason;
	uint32_t phase;
	uint32_t flags;
};

#define DEAD(where, word, reason)                                                                                      \
	{                                                                                                              \
		where, word, BERTH_SESSION_LOST, reason, BERTH_PHASE_DEAD, 0                                           \
	}
#define BROKEN(where, word, reason, flags)                                                                             \
	{                                                                                                              \
		where, word, BERTH_INVALID, reason, BERTH_PHASE_STARTING, flags                                        \
	}

static const struct row rows[] = {
	/* The kubelet would not take it: another node may. */
	DEAD(IN_STATUS, "OutOfcpu", "node_rejected"),
	DEAD(IN_STATUS, "OutOfmemory", "node_rejected"),
	DEAD(IN_STATUS, "OutOfephemeral-storage", "node_rejected"),
	DEAD(IN_STATUS, "OutOfpods", "node_rejected"),
	DEAD(IN_STATUS, "NodeAffinity", "node_rejected"),
	DEAD(IN_STATUS, "UnexpectedAdmissionError", "node_rejected"),
	DEAD(IN_STATUS, "NodeShutdown", "drained"),
	DEAD(IN_STATUS, "Terminated", "drained"),
	DEAD(IN_STATUS, "Shutdown", "drained"),
	DEAD(IN_STATUS, "NodeLost", "node_lost"),
	DEAD(IN_STATUS, "DeadlineExceeded", "expired"),
	DEAD(IN_DISRUPTION, "PreemptionByScheduler", "preempted"),
	DEAD(IN_DISRUPTION, "EvictionByEvictionAPI", "drained"),
	DEAD(IN_DISRUPTION, "DeletionByTaintManager", "node_lost"),
	DEAD(IN_DISRUPTION, "DeletionByPodGC", "node_lost"),
	DEAD(IN_TERMINATED, "OOMKilled", "oom"),
	DEAD(IN_STATUS, "Evicted", "evicted"),
	DEAD(IN_DISRUPTION, "TerminationByKubelet", "evicted"),
	BROKEN(IN_TERMINATED, "StartError", "container_start", 0),
	BROKEN(IN_TERMINATED, "ContainerCannotRun", "container_start", 0),
	DEAD(IN_TERMINATED, "Error", "executor_crashed"),
	DEAD(IN_TERMINATED, "Completed", "executor_ended"),
	DEAD(IN_PHASE, "Failed", "failed"),
	DEAD(IN_PHASE, "Succeeded", "executor_ended"),
	BROKEN(IN_WAITING, "ErrImagePull", "image_pull", VERDICT_GRACE),
	BROKEN(IN_WAITING, "ImagePullBackOff", "image_pull", VERDICT_GRACE),
	BROKEN(IN_WAITING, "RegistryUnavailable", "image_pull", VERDICT_GRACE),
	BROKEN(IN_WAITING, "InvalidImageName", "image_name", 0),
	BROKEN(IN_WAITING, "ErrImageNeverPull", "image_pull", 0),
	BROKEN(IN_WAITING, "ImageInspectError", "image_inspect", 0),
	BROKEN(IN_WAITING, "CreateContainerConfigError", "container_config", VERDICT_GRACE),
	BROKEN(IN_WAITING, "CreateContainerError", "container_create", 0),
	BROKEN(IN_WAITING, "RunContainerError", "container_start", 0),
	BROKEN(IN_WAITING, "StartError", "container_start", 0),
	BROKEN(IN_WAITING, "ContainerCannotRun", "container_start", 0),
	BROKEN(IN_WAITING, "PostStartHookError", "container_start", 0),
	DEAD(IN_WAITING, "CrashLoopBackOff", "executor_crashed"),
	{IN_SCHEDULED, "Unschedulable", BERTH_CAPACITY, "unschedulable", BERTH_PHASE_UNSCHEDULABLE, 0},
	{IN_SCHEDULED, "SchedulingGated", BERTH_CAPACITY, "scheduling_gated", BERTH_PHASE_QUEUED, VERDICT_HOLD},
	{IN_SCHEDULED, "SchedulerError", BERTH_CAPACITY, "scheduler", BERTH_PHASE_QUEUED, VERDICT_HOLD},
	{IN_WAITING, "ContainerCreating", BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	{IN_WAITING, "PodInitializing", BERTH_OK, "", BERTH_PHASE_STARTING, 0},
};

/* The one of a list that has the word under the key. */
static struct json_object *item_with(struct json_object *list, const char *key, const char *word)
{
	for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++) {
		struct json_object *item = json_object_array_get_idx(list, i);

		if (!strcmp(api_text(item, key), word))
			return item;
	}
	return NULL;
}

static struct json_object *condition(struct json_object *pod, const char *type)
{
	return item_with(api_at(pod, "status.conditions"), "type", type);
}

static bool condition_is(struct json_object *pod, const char *type, const char *status)
{
	struct json_object *item = condition(pod, type);

	return item && !strcmp(api_text(item, "status"), status);
}

/* What the rows ask for, looked up once: most pods say nothing of it. */
struct said {
	const char *reason, *phase;
	struct json_object *disruption, *scheduled; /* NULL: no such condition, or it does not hold */
	struct json_object *executor;		    /* its container's status, or NULL */
	bool terminated, waiting;		    /* any container */
};

/* A sidecar among the init containers, or a container with a policy of its own. */
static bool comes_again(struct json_object *pod, const char *name)
{
	static const char *const lists[] = {"spec.initContainers", "spec.containers"};

	for (size_t l = 0; l < 2; l++)
		if (!strcmp(api_text(item_with(api_at(pod, lists[l]), "name", name), "restartPolicy"), "Always"))
			return true;
	return false;
}

static bool has_started(struct json_object *status)
{
	return api_at(status, "state.running") || api_at(status, "state.terminated");
}

/* Of a container that is not the executor's: an end that is none, or not the session's, which from its start on lives
 * with the executor, whatever becomes of others. */
static bool is_beside(struct json_object *pod, const struct said *said, struct json_object *status, const char *state,
		      const struct row *row)
{
	bool ended = !strcmp(state, "terminated");

	if (ended && (comes_again(pod, api_text(status, "name")) || !api_number(status, "state.terminated.exitCode")))
		return true;
	return row && row->code == BERTH_SESSION_LOST && has_started(said->executor);
}

/* The container's state when it says the row's word, or any (NULL). What it was before it was restarted counts for the
 * executor's alone. */
static struct json_object *state_of(struct json_object *pod, const struct said *said, struct json_object *status,
				    const char *state, const struct row *row)
{
	static const char *const times[] = {"state", "lastState"};

	for (size_t i = 0; i < (status == said->executor ? 2 : 1); i++) {
		struct json_object *at = api_at(api_at(status, times[i]), state);

		if (at && (!row || !strcmp(api_text(at, "reason"), row->word)) &&
		    (status == said->executor || !is_beside(pod, said, status, state, row)))
			return at;
	}
	return NULL;
}

static struct json_object *container_state(struct json_object *pod, const struct said *said, const char *state,
					   const struct row *row)
{
	static const char *const lists[] = {"status.containerStatuses", "status.initContainerStatuses"};

	for (size_t l = 0; l < 2; l++) {
		struct json_object *list = api_at(pod, lists[l]), *at;

		for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
		     i++) {
			at = state_of(pod, said, json_object_array_get_idx(list, i), state, row);
			if (at)
				return at;
		}
	}
	return NULL;
}

static bool is_ready(struct json_object *status)
{
	return json_object_get_boolean(api_at(status, "ready"));
}

/* Whether one beside the executor's may yet become ready: all but what is done for good. */
static bool is_another_awaited(struct json_object *pod, const struct said *said)
{
	static const char *const lists[] = {"status.containerStatuses", "status.initContainerStatuses"};

	for (size_t l = 0; l < 2; l++) {
		struct json_object *list = api_at(pod, lists[l]);

		for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list);
		     i++) {
			struct json_object *status = json_object_array_get_idx(list, i);
			bool done = api_at(status, "state.terminated") &&
				    !api_number(status, "state.terminated.exitCode") &&
				    !comes_again(pod, api_text(status, "name"));

			if (status != said->executor && !done && !is_ready(status))
				return true;
		}
	}
	return false;
}

/* All containers were ready at once: they have not been since a time after the executor's start. */
static bool was_ready(struct json_object *pod, const struct said *said)
{
	int64_t start_ms = text_time_ms(api_text(said->executor, "state.running.startedAt"));

	return start_ms && text_time_ms(api_text(condition(pod, "ContainersReady"), "lastTransitionTime")) > start_ms;
}

/* To Kubernetes a pod is as ready as all of its containers, also those that have ended. A session is as its executor:
 * others are waited for until they are ready, or done, once. One that nobody has yet is better taken whole. */
static bool is_pod_ready(struct json_object *pod, const struct said *said, const struct podview *v)
{
	bool is_free = v->managed && !*v->task;

	if (condition_is(pod, "Ready", "True"))
		return true;
	if (!condition_is(pod, "ContainersReady", "False") || !is_ready(said->executor))
		return false;
	return (!is_free && was_ready(pod, said)) || !is_another_awaited(pod, said);
}

static struct said said_of(struct json_object *pod, const char *container)
{
	struct said said = {.reason = api_text(pod, "status.reason"),
			    .phase = api_text(pod, "status.phase"),
			    .executor = item_with(api_at(pod, "status.containerStatuses"), "name", container)};

	if (condition_is(pod, "DisruptionTarget", "True"))
		said.disruption = condition(pod, "DisruptionTarget");
	if (condition_is(pod, "PodScheduled", "False"))
		said.scheduled = condition(pod, "PodScheduled");
	said.terminated = container_state(pod, &said, "terminated", NULL) != NULL;
	said.waiting = container_state(pod, &said, "waiting", NULL) != NULL;
	return said;
}

/* The object whose message explains the row, or NULL when the row does not fit. */
static struct json_object *fits(struct json_object *pod, const struct said *said, const struct row *row)
{
	switch (row->where) {
	case IN_STATUS:
		return strcmp(said->reason, row->word) ? NULL : api_at(pod, "status");
	case IN_PHASE:
		return strcmp(said->phase, row->word) ? NULL : api_at(pod, "status");
	case IN_DISRUPTION:
		return strcmp(api_text(said->disruption, "reason"), row->word) ? NULL : said->disruption;
	case IN_SCHEDULED:
		return strcmp(api_text(said->scheduled, "reason"), row->word) ? NULL : said->scheduled;
	case IN_TERMINATED:
		return said->terminated ? container_state(pod, said, "terminated", row) : NULL;
	case IN_WAITING:
		return said->waiting ? container_state(pod, said, "waiting", row) : NULL;
	}
	return NULL;
}

static void judge(struct json_object *pod, const char *container, struct podview *v)
{
	const struct said said = said_of(pod, container);
	struct verdict *verdict = &v->verdict;

	*verdict = (struct verdict){.reason = "", .phase = BERTH_PHASE_STARTING};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct json_object *at = fits(pod, &said, &rows[i]);

		if (!at)
			continue;
		*verdict = (struct verdict){
			.code = rows[i].code, .reason = rows[i].reason, .phase = rows[i].phase, .flags = rows[i].flags};
		snprintf(verdict->text, sizeof(verdict->text), "%s%s%.250s", rows[i].word,
			 *api_text(at, "message") ? ": " : "", api_text(at, "message"));
		break;
	}
	if (v->deleting && verdict->code != BERTH_SESSION_LOST) {
		*verdict = (struct verdict){.code = BERTH_SESSION_LOST,
					    .reason = "deleted",
					    .phase = BERTH_PHASE_DEAD,
					    .text = "the pod is being deleted"};
	} else if (!verdict->code && !condition(pod, "PodScheduled")) {
		verdict->phase = BERTH_PHASE_QUEUED;
	} else if (!verdict->code && !strcmp(said.phase, "Running") && *v->ip && is_pod_ready(pod, &said, v)) {
		verdict->phase = BERTH_PHASE_READY;
	}
}

/* Limits of all containers together. */
static void take_resources(struct json_object *pod, struct podview *v)
{
	struct json_object *list = api_at(pod, "spec.containers");

	for (size_t i = 0; json_object_is_type(list, json_type_array) && i < json_object_array_length(list); i++) {
		struct json_object *item = json_object_array_get_idx(list, i);
		uint64_t milli;

		if (text_quantity(api_text(item, "resources.limits.cpu"), &milli))
			v->cpu_millis += milli;
		if (text_quantity(api_text(item, "resources.limits.memory"), &milli))
			v->memory_bytes += milli / 1000;
		if (text_quantity(api_text(item, "resources.limits.ephemeral-storage"), &milli))
			v->disk_bytes += milli / 1000;
	}
}

static void take_times(struct json_object *pod, struct podview *v)
{
	int64_t start = text_time_ms(api_text(pod, "status.startTime"));
	int64_t seconds = api_number(pod, "spec.activeDeadlineSeconds");

	v->created_ms = text_time_ms(api_text(pod, "metadata.creationTimestamp"));
	if (seconds)
		v->expires_ms = (start ? start : v->created_ms) + seconds * 1000;
}

void podview_of(struct json_object *pod, const char *container, struct podview *ret)
{
	*ret = (struct podview){
		.ns = api_text(pod, "metadata.namespace"),
		.name = api_text(pod, "metadata.name"),
		.uid = api_text(pod, "metadata.uid"),
		.version = api_text(pod, "metadata.resourceVersion"),
		.ip = api_text(pod, "status.podIP"),
		.deployment = api_member(pod, "metadata.annotations", NOTE_DEPLOYMENT),
		.workspace = api_member(pod, "metadata.annotations", NOTE_WORKSPACE),
		.task = api_member(pod, "metadata.annotations", NOTE_TASK),
		.intent = api_member(pod, "metadata.annotations", NOTE_INTENT),
		.runtime_class = api_text(pod, "spec.runtimeClassName"),
		.deleting = api_at(pod, "metadata.deletionTimestamp") != NULL,
		.managed = !strcmp(api_member(pod, "metadata.labels", LABEL_MANAGED), LABEL_MANAGED_VALUE),
		.restarts = api_number(item_with(api_at(pod, "status.containerStatuses"), "name", container),
				       "restartCount"),
	};
	take_times(pod, ret);
	take_resources(pod, ret);
	judge(pod, container, ret);
}
