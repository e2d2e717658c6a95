/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals of the API server: HTTP status, reason and message to code and reason of ours. */
#include "kube_test.h"

#include "status.h"

static const struct row {
	uint32_t status;
	const char *word, *message;
	bool writing;
	int32_t code;
	const char *reason;
} rows[] = {
	{400, "BadRequest", "", false, BERTH_INVALID, "bad_request"},
	{401, "Unauthorized", "Unauthorized", true, BERTH_UNAUTHENTICATED, "unauthorized"},
	{403, "Forbidden", "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1", true, BERTH_QUOTA, "quota"},
	{403, "Forbidden", "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\": a", true,
	 BERTH_INVALID, "pod_security"},
	{403, "Forbidden", "pod rejected: RuntimeClass \"kata\" not found", true, BERTH_INVALID, "runtime_class"},
	{403, "Forbidden", "unable to create new content in namespace a because it is being terminated", true,
	 BERTH_UNAVAILABLE, "namespace_terminating"},
	{403, "Forbidden", "maximum memory usage per Container is 1Gi, but limit is 2Gi", true, BERTH_INVALID,
	 "limit_range"},
	{403, "Forbidden", "pods \"x\" is forbidden: error looking up service account a/b: not found", true, BERTH_INVALID,
	 "admission"},
	{403, "Forbidden", "pods \"x\" is forbidden: failed quota: q: must specify limits.cpu", true, BERTH_INVALID,
	 "admission"},
	{403, "Forbidden", "cpu max limit to request ratio per Container is 2, but provided ratio is 4", true,
	 BERTH_INVALID, "admission"},
	{403, "", "admission webhook \"w\" denied the request: not from here", true, BERTH_INVALID, "admission"},
	{403, "Forbidden", "access denied", false, BERTH_FORBIDDEN, "forbidden"},
	{403, "Forbidden", "pods \"x\" is forbidden: User \"u\" cannot patch resource \"pods\"", true, BERTH_FORBIDDEN,
	 "forbidden"},
	{403, "Forbidden", "pods is forbidden: User \"u\" cannot list resource \"pods\"", false, BERTH_FORBIDDEN,
	 "forbidden"},
	{404, "NotFound", "pods \"x\" not found", false, BERTH_NOT_FOUND, "not_found"},
	{405, "MethodNotAllowed", "", false, BERTH_INVALID, "bad_request"},
	{409, "AlreadyExists", "pods \"x\" already exists", true, BERTH_CONFLICT, "exists"},
	{409, "Conflict", "the object has been modified", true, BERTH_CONFLICT, "conflict"},
	{410, "Expired", "too old resource version", false, BERTH_UNAVAILABLE, "expired"},
	{410, "Gone", "", false, BERTH_UNAVAILABLE, "expired"},
	{413, "RequestEntityTooLarge", "", true, BERTH_INVALID, "too_large"},
	{415, "UnsupportedMediaType", "", true, BERTH_INVALID, "bad_request"},
	{422, "Invalid", "spec.containers: Required value", true, BERTH_INVALID, "rejected"},
	{429, "TooManyRequests", "", true, BERTH_RATE_LIMITED, "throttled"},
	{500, "InternalError", "etcdserver: request timed out", false, BERTH_UNAVAILABLE, "server_error"},
	{500, "InternalError", "etcdserver: request timed out", true, BERTH_UNKNOWN, "server_error"},
	{503, "ServiceUnavailable", "", false, BERTH_UNAVAILABLE, "server_unavailable"},
	{504, "Timeout", "", true, BERTH_UNKNOWN, "server_timeout"},
	{302, "", "", false, BERTH_UNAVAILABLE, "bad_response"},
	{302, "", "", true, BERTH_UNKNOWN, "bad_response"},
	{599, "", "", false, BERTH_UNAVAILABLE, "server_error"},
};

static void test_every_row(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct json_object *body = json_object_new_object();
		struct kerr err = {0};
		int32_t code;

		json_object_object_add(body, "kind", json_object_new_string("Status"));
		json_object_object_add(body, "reason", json_object_new_string(rows[i].word));
		json_object_object_add(body, "message", json_object_new_string(rows[i].message));
		code = status_classify(rows[i].status, body, "create pod", rows[i].writing, &err);
		if (code != rows[i].code || strcmp(err.reason, rows[i].reason))
			fail_msg("%u %s: code %d, reason %s", rows[i].status, rows[i].message, code, err.reason);
		assert_non_null(strstr(err.text, "create pod"));
		json_object_put(body);
	}
}

/* A proxy in front answers for itself: the status is all there is. */
static void test_what_is_no_status(void **state)
{
	struct json_object *other =
		json_tokener_parse("{\"kind\":\"Pod\",\"reason\":\"exceeded quota\",\"message\":\"exceeded quota\"}");
	struct kerr err;

	(void)state;
	assert_int_equal(status_classify(403, NULL, "list pods", false, &err), BERTH_FORBIDDEN);
	assert_int_equal(status_classify(403, NULL, "create pod", true, &err), BERTH_FORBIDDEN);
	assert_int_equal(status_classify(403, other, "list pods", false, &err), BERTH_FORBIDDEN);
	/* That something is not there, or is another's, is believed of the API server only. */
	assert_int_equal(status_classify(404, NULL, "get pod", false, &err), BERTH_UNAVAILABLE);
	assert_int_equal(status_classify(404, other, "delete pod", true, &err), BERTH_UNKNOWN);
	assert_int_equal(status_classify(409, NULL, "delete pod", true, &err), BERTH_UNKNOWN);
	assert_string_equal(status_reason(other), "");
	assert_string_equal(status_reason(NULL), "");
	json_object_put(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_row),
		cmocka_unit_test(test_what_is_no_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
