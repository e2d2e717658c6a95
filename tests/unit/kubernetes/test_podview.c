/* SPDX-License-Identifier: Apache-2.0 */
/* What a pod says and what it is taken for: a row for each word of Kubernetes. */
#include "kube_test.h"

#include "podview.h"

#define SCHEDULED "\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"True\"}]"
#define WAITING(word)                                                                                                  \
	"\"phase\":\"Pending\"," SCHEDULED                                                                             \
	",\"containerStatuses\":[{\"name\":\"executor\",\"state\":{\"waiting\":{\"reason\":\"" word "\"}}}]"
#define ENDED(word, phase)                                                                                             \
	"\"phase\":\"" phase "\"," SCHEDULED                                                                           \
	",\"containerStatuses\":[{\"name\":\"executor\",\"state\":{\"terminated\":{\"reason\":\"" word                 \
	"\",\"exitCode\":1}}}]"
#define FAILED(word) "\"phase\":\"Failed\",\"reason\":\"" word "\",\"message\":\"because\""
#define UNBOUND(word)                                                                                                  \
	"\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\",\"reason\":\"" word     \
	"\",\"message\":\"because\"}]"
#define DISRUPTED(word)                                                                                                \
	"\"phase\":\"Failed\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"True\"},{\"type\":"              \
	"\"DisruptionTarget\",\"status\":\"True\",\"reason\":\"" word "\"}]"
#define READY                                                                                                          \
	"\"phase\":\"Running\",\"podIP\":\"10.0.0.1\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"True\"}" \
	",{\"type\":\"Ready\",\"status\":\"True\"}]"

static const struct row {
	const char *status;
	int32_t code;
	const char *reason;
	uint32_t phase, flags;
} rows[] = {
	{READY, BERTH_OK, "", BERTH_PHASE_READY, 0},
	{"\"phase\":\"Pending\"", BERTH_OK, "", BERTH_PHASE_QUEUED, 0},
	{"\"phase\":\"Running\",\"podIP\":\"10.0.0.1\"," SCHEDULED, BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	{"\"phase\":\"Running\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"True\"},{\"type\":\"Ready\","
	 "\"status\":\"True\"}]",
	 BERTH_OK, "", BERTH_PHASE_STARTING, 0}, /* no address */
	{WAITING("ContainerCreating"), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	{WAITING("PodInitializing"), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	{UNBOUND("Unschedulable"), BERTH_CAPACITY, "unschedulable", BERTH_PHASE_UNSCHEDULABLE, 0},
	{UNBOUND("SchedulingGated"), BERTH_CAPACITY, "scheduling_gated", BERTH_PHASE_QUEUED, VERDICT_HOLD},
	{UNBOUND("SchedulerError"), BERTH_CAPACITY, "scheduler", BERTH_PHASE_QUEUED, VERDICT_HOLD},
	{WAITING("ErrImagePull"), BERTH_INVALID, "image_pull", BERTH_PHASE_STARTING, VERDICT_GRACE},
	{WAITING("ImagePullBackOff"), BERTH_INVALID, "image_pull", BERTH_PHASE_STARTING, VERDICT_GRACE},
	{WAITING("RegistryUnavailable"), BERTH_INVALID, "image_pull", BERTH_PHASE_STARTING, VERDICT_GRACE},
	{WAITING("InvalidImageName"), BERTH_INVALID, "image_name", BERTH_PHASE_STARTING, 0},
	{WAITING("ErrImageNeverPull"), BERTH_INVALID, "image_pull", BERTH_PHASE_STARTING, 0},
	{WAITING("ImageInspectError"), BERTH_INVALID, "image_inspect", BERTH_PHASE_STARTING, 0},
	{WAITING("CreateContainerConfigError"), BERTH_INVALID, "container_config", BERTH_PHASE_STARTING, VERDICT_GRACE},
	{WAITING("CreateContainerError"), BERTH_INVALID, "container_create", BERTH_PHASE_STARTING, 0},
	{WAITING("RunContainerError"), BERTH_INVALID, "container_start", BERTH_PHASE_STARTING, 0},
	{WAITING("StartError"), BERTH_INVALID, "container_start", BERTH_PHASE_STARTING, 0},
	{WAITING("ContainerCannotRun"), BERTH_INVALID, "container_start", BERTH_PHASE_STARTING, 0},
	{WAITING("PostStartHookError"), BERTH_INVALID, "container_start", BERTH_PHASE_STARTING, 0},
	{WAITING("CrashLoopBackOff"), BERTH_SESSION_LOST, "executor_crashed", BERTH_PHASE_DEAD, 0},
	{ENDED("StartError", "Failed"), BERTH_INVALID, "container_start", BERTH_PHASE_STARTING, 0},
	{ENDED("ContainerCannotRun", "Failed"), BERTH_INVALID, "container_start", BERTH_PHASE_STARTING, 0},
	{ENDED("OOMKilled", "Failed"), BERTH_SESSION_LOST, "oom", BERTH_PHASE_DEAD, 0},
	{ENDED("Error", "Failed"), BERTH_SESSION_LOST, "executor_crashed", BERTH_PHASE_DEAD, 0},
	{ENDED("Completed", "Succeeded"), BERTH_SESSION_LOST, "executor_ended", BERTH_PHASE_DEAD, 0},
	{FAILED("OutOfcpu"), BERTH_SESSION_LOST, "node_rejected", BERTH_PHASE_DEAD, 0},
	{FAILED("OutOfmemory"), BERTH_SESSION_LOST, "node_rejected", BERTH_PHASE_DEAD, 0},
	{FAILED("OutOfpods"), BERTH_SESSION_LOST, "node_rejected", BERTH_PHASE_DEAD, 0},
	{FAILED("NodeAffinity"), BERTH_SESSION_LOST, "node_rejected", BERTH_PHASE_DEAD, 0},
	{FAILED("UnexpectedAdmissionError"), BERTH_SESSION_LOST, "node_rejected", BERTH_PHASE_DEAD, 0},
	{FAILED("NodeShutdown"), BERTH_SESSION_LOST, "drained", BERTH_PHASE_DEAD, 0},
	{FAILED("Terminated"), BERTH_SESSION_LOST, "drained", BERTH_PHASE_DEAD, 0},
	{FAILED("NodeLost"), BERTH_SESSION_LOST, "node_lost", BERTH_PHASE_DEAD, 0},
	{FAILED("Evicted"), BERTH_SESSION_LOST, "evicted", BERTH_PHASE_DEAD, 0},
	{FAILED("DeadlineExceeded"), BERTH_SESSION_LOST, "expired", BERTH_PHASE_DEAD, 0},
	{FAILED("SomethingNew"), BERTH_SESSION_LOST, "failed", BERTH_PHASE_DEAD, 0},
	{DISRUPTED("PreemptionByScheduler"), BERTH_SESSION_LOST, "preempted", BERTH_PHASE_DEAD, 0},
	{DISRUPTED("EvictionByEvictionAPI"), BERTH_SESSION_LOST, "drained", BERTH_PHASE_DEAD, 0},
	{DISRUPTED("DeletionByTaintManager"), BERTH_SESSION_LOST, "node_lost", BERTH_PHASE_DEAD, 0},
	{DISRUPTED("DeletionByPodGC"), BERTH_SESSION_LOST, "node_lost", BERTH_PHASE_DEAD, 0},
	{DISRUPTED("TerminationByKubelet"), BERTH_SESSION_LOST, "evicted", BERTH_PHASE_DEAD, 0},
};

static struct json_object *pod_with(const char *metadata, const char *status)
{
	char text[2048];
	struct json_object *pod;

	snprintf(text, sizeof(text),
		 "{\"metadata\":{\"name\":\"n\",\"uid\":\"u\",\"creationTimestamp\":\"2026-01-02T03:04:05Z\"%s},"
		 "\"spec\":{"
		 "\"activeDeadlineSeconds\":60,\"initContainers\":[{\"name\":\"log\",\"restartPolicy\":\"Always\"}],"
		 "\"containers\":[{\"name\":\"executor\",\"resources\":{\"limits\":{"
		 "\"cpu\":\"1500m\","
		 "\"memory\":\"1Gi\",\"ephemeral-storage\":\"2G\"}}}]},\"status\":{%s}}",
		 metadata, status);
	pod = json_tokener_parse(text);
	assert_non_null(pod);
	return pod;
}

static void check_rows(const struct row *row, size_t count)
{
	for (size_t i = 0; i < count; i++, row++) {
		struct json_object *pod = pod_with("", row->status);
		struct podview view;

		podview_of(pod, "executor", &view);
		if (view.verdict.code != row->code || strcmp(view.verdict.reason, row->reason) ||
		    view.verdict.phase != row->phase || view.verdict.flags != row->flags)
			fail_msg("row %zu (%s): code %d, reason %s, phase %u, flags %u", i, row->status,
				 view.verdict.code, view.verdict.reason, view.verdict.phase, view.verdict.flags);
		json_object_put(pod);
	}
}

static void test_every_row(void **state)
{
	(void)state;
	check_rows(rows, sizeof(rows) / sizeof(rows[0]));
}

static void test_a_pod_that_is_going_is_dead(void **state)
{
	struct json_object *pod = pod_with(",\"deletionTimestamp\":\"2026-01-02T03:04:05Z\"", READY);
	struct podview view;

	(void)state;
	podview_of(pod, "executor", &view);
	assert_int_equal(view.verdict.code, BERTH_SESSION_LOST);
	assert_string_equal(view.verdict.reason, "deleted");
	json_object_put(pod);
	/* What ended it stands before that it is being cleaned up. */
	pod = pod_with(",\"deletionTimestamp\":\"2026-01-02T03:04:05Z\"", ENDED("OOMKilled", "Failed"));
	podview_of(pod, "executor", &view);
	assert_string_equal(view.verdict.reason, "oom");
	json_object_put(pod);
}

static void test_an_init_container_that_is_done_is_no_end(void **state)
{
	struct json_object *pod =
		pod_with("", "\"phase\":\"Pending\"," SCHEDULED ",\"initContainerStatuses\":[{\"name\":\"install\","
			     "\"state\":{\"terminated\":{\"reason\":\"Completed\",\"exitCode\":0}}}]");
	struct podview view;

	(void)state;
	podview_of(pod, "executor", &view);
	assert_int_equal(view.verdict.code, BERTH_OK);
	assert_int_equal(view.verdict.phase, BERTH_PHASE_STARTING);
	json_object_put(pod);
	pod = pod_with("", "\"phase\":\"Pending\"," SCHEDULED ",\"initContainerStatuses\":[{\"name\":\"install\","
			   "\"state\":{\"waiting\":{\"reason\":\"InvalidImageName\"}}}]");
	podview_of(pod, "executor", &view);
	assert_string_equal(view.verdict.reason, "image_name");
	json_object_put(pod);
}

#define EXECUTOR(state) ",\"containerStatuses\":[{\"name\":\"executor\",\"state\":{" state "}}"
#define RUNS "\"running\":{}"
#define ERROR "\"terminated\":{\"reason\":\"Error\",\"exitCode\":1}"
#define DONE "\"terminated\":{\"reason\":\"Completed\",\"exitCode\":0}"
#define OOM "\"terminated\":{\"reason\":\"OOMKilled\",\"exitCode\":137}"
#define BACKOFF "\"waiting\":{\"reason\":\"CrashLoopBackOff\"}"
#define LOG(state) ",\"initContainerStatuses\":[{\"name\":\"log\",\"state\":{" state "},\"lastState\":{" ERROR "}}]"
#define SIDE(state) ",{\"name\":\"side\",\"state\":{" state "},\"lastState\":{" OOM "}}]"
#define UNREADY "\"phase\":\"Running\",\"podIP\":\"10.0.0.1\"," SCHEDULED
#define PENDING "\"phase\":\"Pending\"," SCHEDULED

/* What other containers say of themselves is no word about a session that runs. */
static void test_other_containers(void **state)
{
	static const struct row others[] = {
		{READY EXECUTOR(RUNS) "]" LOG(RUNS), BERTH_OK, "", BERTH_PHASE_READY, 0},
		{UNREADY EXECUTOR(RUNS) "]" LOG(OOM), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
		{UNREADY EXECUTOR(RUNS) "]" LOG(BACKOFF), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
		{READY EXECUTOR(RUNS) SIDE(RUNS), BERTH_OK, "", BERTH_PHASE_READY, 0},
		{UNREADY EXECUTOR(RUNS) SIDE(ERROR), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
		{UNREADY EXECUTOR(RUNS) SIDE(DONE), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
		/* Before it runs: one that is started again may yet come, what has failed for good is the end. */
		{PENDING LOG(ERROR), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
		{PENDING LOG(BACKOFF), BERTH_SESSION_LOST, "executor_crashed", BERTH_PHASE_DEAD, 0},
		{PENDING ",\"initContainerStatuses\":[{\"name\":\"install\",\"state\":{" ERROR "}}]", BERTH_SESSION_LOST,
		 "executor_crashed", BERTH_PHASE_DEAD, 0},
		{PENDING EXECUTOR("\"waiting\":{\"reason\":\"ContainerCreating\"}") SIDE(ERROR), BERTH_SESSION_LOST,
		 "executor_crashed", BERTH_PHASE_DEAD, 0},
		/* The executor's own end is the session's, also one before a restart, and under its own name. */
		{UNREADY EXECUTOR(DONE) SIDE(ERROR), BERTH_SESSION_LOST, "executor_ended", BERTH_PHASE_DEAD, 0},
		{READY EXECUTOR(RUNS "},\"lastState\":{" OOM) "]", BERTH_SESSION_LOST, "oom", BERTH_PHASE_DEAD, 0},
	};

	(void)state;
	check_rows(others, sizeof(others) / sizeof(others[0]));
}

#define SINCE(time)                                                                                                    \
	"\"phase\":\"Running\",\"podIP\":\"10.0.0.1\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"True\"}" \
	",{\"type\":\"ContainersReady\",\"status\":\"False\",\"lastTransitionTime\":\"" time "\"}"                    \
	",{\"type\":\"Ready\",\"status\":\"False\",\"lastTransitionTime\":\"" time "\"}]"
#define NEVER SINCE("2026-01-02T03:04:06Z")
#define LATER SINCE("2026-01-02T03:05:00Z")
#define UP(ready) EXECUTOR("\"running\":{\"startedAt\":\"2026-01-02T03:04:06Z\"}},\"ready\":" ready ",\"x\":{")
#define BESIDE(state, ready) ",{\"name\":\"side\",\"state\":{" state "},\"ready\":" ready "}]"
#define LOGS(state) ",\"initContainerStatuses\":[{\"name\":\"log\",\"state\":{" state "},\"ready\":false}]"

static const struct row unready[] = {
	/* Not ready again, by what the others do. */
	{LATER UP("true") BESIDE(ERROR, "false"), BERTH_OK, "", BERTH_PHASE_READY, 0},
	{LATER UP("true") BESIDE(DONE, "false"), BERTH_OK, "", BERTH_PHASE_READY, 0},
	{LATER UP("true") BESIDE(RUNS, "false"), BERTH_OK, "", BERTH_PHASE_READY, 0},
	{LATER UP("true") "]" LOGS(BACKOFF), BERTH_OK, "", BERTH_PHASE_READY, 0},
	{LATER UP("false") BESIDE(ERROR, "false"), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	{LATER UP("false") BESIDE(RUNS, "true"), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	/* Not ready yet: they are waited for, but for what is done. */
	{NEVER UP("true") BESIDE(RUNS, "false"), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	{NEVER UP("true") BESIDE(ERROR, "false"), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	{NEVER UP("true") BESIDE(DONE, "false"), BERTH_OK, "", BERTH_PHASE_READY, 0},
	{NEVER UP("true") BESIDE(DONE, "false") LOGS(DONE), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	{NEVER UP("false") BESIDE(DONE, "false"), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
	/* No container keeps it: its node is away, or a gate of its own is shut. */
	{UNREADY UP("true") BESIDE(RUNS, "true"), BERTH_OK, "", BERTH_PHASE_STARTING, 0},
};

static void test_whose_readiness_counts(void **state)
{
	(void)state;
	check_rows(unready, sizeof(unready) / sizeof(unready[0]));
}

#define MANAGED ",\"labels\":{\"" LABEL_MANAGED "\":\"" LABEL_MANAGED_VALUE "\"},\"annotations\":{\"" NOTE_TASK "\":\""

/* Of several that are free there is a better one; who has one has its files. */
static void test_a_free_pod_is_taken_whole(void **state)
{
	static const struct {
		const char *metadata;
		uint32_t phase;
	} pods[] = {{MANAGED "t\"}", BERTH_PHASE_READY}, {MANAGED "\"}", BERTH_PHASE_STARTING}};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct json_object *pod = pod_with(pods[i].metadata, LATER UP("true") BESIDE(ERROR, "false"));
		struct podview view;

		podview_of(pod, "executor", &view);
		assert_int_equal(view.verdict.code, BERTH_OK);
		assert_int_equal(view.verdict.phase, pods[i].phase);
		json_object_put(pod);
	}
}

static void test_numbers(void **state)
{
	struct json_object *pod = pod_with("", READY);
	struct podview view;

	(void)state;
	podview_of(pod, "executor", &view);
	assert_int_equal(view.cpu_millis, 1500);
	assert_int_equal(view.memory_bytes, 1024 * 1024 * 1024);
	assert_int_equal(view.disk_bytes, 2000000000);
	assert_int_equal(view.created_ms, INT64_C(1767323045000));
	assert_int_equal(view.expires_ms, INT64_C(1767323105000));
	json_object_put(pod);
}

static void test_nonsense_is_survived(void **state)
{
	static const char *const texts[] = {
		"{}", "[]", "null", "{\"metadata\":[],\"status\":{\"conditions\":{},\"containerStatuses\":[1,null]}}",
		"{\"status\":{\"conditions\":[null,3,{\"type\":7}]},\"spec\":{\"containers\":[null]}}"};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct json_object *pod = json_tokener_parse(texts[i]);
		struct podview view;

		podview_of(pod, "executor", &view);
		assert_false(view.managed);
		json_object_put(pod);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_row),
		cmocka_unit_test(test_a_pod_that_is_going_is_dead),
		cmocka_unit_test(test_an_init_container_that_is_done_is_no_end),
		cmocka_unit_test(test_other_containers),
		cmocka_unit_test(test_whose_readiness_counts),
		cmocka_unit_test(test_a_free_pod_is_taken_whole),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_nonsense_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
