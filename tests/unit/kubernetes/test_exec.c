/* SPDX-License-Identifier: Apache-2.0 */
/* A command's requests, by a host that answers from a script: what is asked of it, and what is made of its answers. */
#include "kube_test.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include "exec.h"
#include "owed.h"
#include "sign.h"
#include "watch.h"

#define REQUESTS_MAX 16

/* What a request is answered with: an executor's answer, the API server's, or none. */
struct answer {
	const char *part;   /* of the URL that it is for */
	uint32_t status;    /* 0: none came */
	const char *frames; /* an executor's: types, each with the payload behind a blank, separated by LF; NULL: no
			       executor */
	const char *body;
	int32_t code; /* without a status */
	bool sent;
};

struct seen {
	char url[256], bearer[64];
	uint32_t flags;
	int64_t idle_ms;
};

static struct {
	const struct answer *answers; /* in turn for each URL; the last one of it stays */
	size_t used[REQUESTS_MAX];
	struct seen seen[REQUESTS_MAX];
	size_t count;
	uint32_t cancel;
	unsigned endings;
	struct berth_ending ending;
	char pem[256];
	size_t pem_len;
} script;

static struct kube kube;

static void give(const struct berth_http_request *http, const struct answer *answer)
{
	const struct berth_pair headers[] = {{str_of("Berth-Executor"), str_of("1")},
					     {str_of("Berth-Pod-Uid"), str_of("uid")}};
	const char *at = answer->frames;

	if (http->head(http->ctx, answer->status, headers, at ? 2 : 0))
		return;
	if (answer->body)
		http->write(http->ctx, answer->body, strlen(answer->body));
	while (at && *at) {
		size_t len = strcspn(at, "\n"), payload = len > 2 ? len - 2 : 0;
		unsigned char head[8] = {(unsigned char)*at,	0, 0, 0, 0, 0, (unsigned char)(payload >> 8),
					 (unsigned char)payload};

		if (http->write(http->ctx, head, sizeof(head)) || http->write(http->ctx, at + 2, payload))
			return;
		at += len + (at[len] == '\n');
	}
}

static int32_t host_http(struct berth_target *target, struct berth_call *call, const struct berth_http_request *http,
			 struct berth_http_response *ret)
{
	const struct answer *answer = script.answers;
	struct seen *seen;

	(void)target;
	if (!call)
		return BERTH_UNAVAILABLE; /* the watch's own thread */
	assert_true(script.count < REQUESTS_MAX);
	seen = &script.seen[script.count++];
	memset(seen, 0, sizeof(*seen));
	snprintf(seen->url, sizeof(seen->url), "%.*s", (int)http->url.len, http->url.ptr);
	for (size_t i = 0; i < http->secret_header_count; i++)
		if (str_is(http->secret_headers[i].name, "Authorization"))
			snprintf(seen->bearer, sizeof(seen->bearer), "%.*s", (int)http->secret_headers[i].value.len,
				 http->secret_headers[i].value.ptr);
	seen->flags = http->flags;
	seen->idle_ms = http->idle_timeout_ms;
	for (; answer->part && (!strstr(seen->url, answer->part) || script.used[answer - script.answers]); answer++)
		;
	if (!answer->part)
		fail_msg("nothing answers %s", seen->url);
	script.used[answer - script.answers]++;
	ret->status = answer->status;
	ret->sent = answer->status || answer->sent;
	if (answer->status)
		give(http, answer);
	return answer->status ? BERTH_OK : answer->code;
}

static void host_info(struct berth_call *call, struct berth_call_info *ret)
{
	(void)call;
	ret->deadline_ns = INT64_MAX;
}

static int32_t host_fail(struct berth_call *call, int32_t code, const char *reason, uint32_t retryable, int64_t after,
			 const char *text)
{
	(void)call, (void)reason, (void)retryable, (void)after, (void)text;
	return code;
}

static int32_t host_ending(struct berth_call *call, const struct berth_ending *ending)
{
	(void)call;
	script.ending = *ending;
	script.endings++;
	return BERTH_OK;
}

static int32_t host_sink(struct berth_call *call, uint32_t stream, const void *ptr, size_t len)
{
	(void)call, (void)stream, (void)ptr, (void)len;
	return BERTH_OK;
}

static uint32_t host_cancel_state(struct berth_call *call)
{
	(void)call;
	return script.cancel;
}

static int32_t host_cancel_fd(struct berth_call *call)
{
	(void)call;
	return -1;
}

static void host_random(void *buf, size_t len)
{
	memset(buf, 7, len);
}

static int32_t host_secret(struct berth_target *target, const char *option, char *buf, size_t cap, size_t *ret_len)
{
	(void)target, (void)option;
	assert_true(cap > script.pem_len);
	memcpy(buf, script.pem, script.pem_len);
	*ret_len = script.pem_len;
	return BERTH_OK;
}

static void host_counter(struct berth_target *target, uint32_t index, uint64_t add)
{
	(void)target, (void)index, (void)add;
}

static void host_log(struct berth_target *target, struct berth_call *call, uint32_t level, const struct berth_str *text,
		     const struct berth_pair *pairs, size_t count)
{
	(void)target, (void)call, (void)level, (void)text, (void)pairs, (void)count;
}

static const struct berth_host host = {
	.struct_size = sizeof(host),
	.log = host_log,
	.info = host_info,
	.fail = host_fail,
	.emit_ending = host_ending,
	.sink_write = host_sink,
	.cancel_state = host_cancel_state,
	.cancel_fd = host_cancel_fd,
	.http = host_http,
	.random = host_random,
	.secret = host_secret,
	.counter = host_counter,
};

static int make_key(void)
{
	EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	BIO *bio = BIO_new(BIO_s_mem());
	int len = 0;

	if (key && bio && PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL))
		len = BIO_read(bio, script.pem, sizeof(script.pem));
	script.pem_len = len > 0 ? (size_t)len : 0;
	BIO_free(bio);
	EVP_PKEY_free(key);
	return len > 0 ? 0 : -1;
}

static char key_id[] = "k1", container[] = "executor", ns[] = "sandboxes", server[] = "https://api";
static struct session session;
static struct berth_call *const call = (struct berth_call *)(void *)&session; /* never looked into */

static int setup(void **state)
{
	struct kerr err = {0};

	(void)state;
	memset(&script, 0, sizeof(script));
	memset(&kube, 0, sizeof(kube));
	kube_host = &host;
	kube.via_proxy = true;
	kube.port = 8080;
	kube.key_id = key_id;
	kube.container = container;
	kube.ns = ns;
	kube.cluster.server = server;
	kube.cluster.token.text = strdup("secret");
	pthread_mutex_init(&kube.lock, NULL);
	session = (struct session){.pod = "p", .uid = "uid", .ip = "10.0.0.1"};
	snprintf(session.ref.ns, sizeof(session.ref.ns), "sandboxes");
	memset(session.instance, 'a', INSTANCE_LEN);
	return make_key() || owed_start(&kube, &kube.owed, &err) || watch_start(&kube, &kube.watch, &err);
}

static int teardown(void **state)
{
	(void)state;
	owed_stop(kube.owed);
	watch_stop(kube.watch);
	sign_key_drop(kube.sign_key);
	material_fini(&kube.cluster.token);
	pthread_mutex_destroy(&kube.lock);
	return 0;
}

static int32_t run(struct kerr *err)
{
	const struct berth_command command = {
		.struct_size = sizeof(command), .attempt = 1, .script = str_of("true"), .timeout_ms = 1000};

	return exec_run(&kube, call, &session, "e", &command, err);
}

static int32_t follow(struct kerr *err)
{
	const struct berth_resume resume = {.struct_size = sizeof(resume), .attempt = 1};

	return exec_follow(&kube, call, &session, "e", &resume, err);
}

#define ENDED "X {\"kind\": \"exit\", \"exit_code\": 3, \"quiescent\": \"yes\"}\nR {\"code\": \"ok\"}"

/* An executor says every few seconds that it lives; whoever is silent for much longer does not. */
static void test_silence_has_an_end(void **state)
{
	static const struct answer answers[] = {{"/v1/execute", 200, ENDED, NULL, 0, true},
						{"/v1/reattach", 200, "H\n" ENDED, NULL, 0, true},
						{"/v1/signal", 200, "R {\"code\": \"ok\"}", NULL, 0, true},
						{0}};
	struct kerr err = {0};

	(void)state;
	script.answers = answers;
	assert_int_equal(run(&err), BERTH_OK);
	assert_int_equal(script.endings, 1);
	assert_int_equal(script.ending.exit_code, 3);
	assert_int_equal(follow(&err), BERTH_OK);
	assert_int_equal(exec_signal(&kube, call, &session, "e", 1, "TERM", &err), BERTH_OK);
	assert_int_equal(script.count, 3);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(script.seen[i].flags, BERTH_HTTP_LONG);
		assert_int_equal(script.seen[i].idle_ms, 60000);
	}
	assert_int_equal(script.seen[2].flags, 0);
}

#define ALIVE "{\"metadata\": {\"uid\": \"uid\"}, \"status\": {\"phase\": \"Running\"}}"
#define OOM                                                                                                            \
	"{\"metadata\": {\"uid\": \"uid\"}, \"status\": {\"phase\": \"Failed\", \"containerStatuses\": [{\"name\": "   \
	"\"executor\", \"state\": {\"terminated\": {\"reason\": \"OOMKilled\", \"exitCode\": 137}}}]}}"

/* The memory that its predecessor took is none of a command that did not begin. */
static void test_who_did_not_begin_has_no_ending(void **state)
{
	static const struct answer refused[] = {
		{"/v1/execute", 0, NULL, NULL, BERTH_UNAVAILABLE, false}, {"/pods/p", 200, NULL, OOM, 0, true}, {0}};
	static const struct answer cut[] = {
		{"/v1/execute", 0, NULL, NULL, BERTH_UNKNOWN, true}, {"/pods/p", 200, NULL, OOM, 0, true}, {0}};
	struct kerr err = {0};

	(void)state;
	script.answers = refused;
	assert_int_equal(run(&err), BERTH_SESSION_LOST);
	assert_string_equal(err.reason, "oom");
	assert_int_equal(script.endings, 0);
	memset(script.used, 0, sizeof(script.used));
	script.answers = cut;
	assert_int_equal(run(&err), BERTH_OK);
	assert_int_equal(script.endings, 1);
	assert_int_equal(script.ending.kind, BERTH_ENDING_OOM);
}

/* A look finds a command that was there. */
static void test_a_look_ends_it(void **state)
{
	static const struct answer answers[] = {
		{"/v1/reattach", 0, NULL, NULL, BERTH_UNAVAILABLE, false}, {"/pods/p", 200, NULL, OOM, 0, true}, {0}};
	struct kerr err = {0};

	(void)state;
	script.answers = answers;
	assert_int_equal(follow(&err), BERTH_OK);
	assert_int_equal(script.ending.kind, BERTH_ENDING_OOM);
}

/* What happens to a look is nothing that the executor does not know. */
static void test_a_look_that_breaks(void **state)
{
	static const struct answer ways[][3] = {
		{{"/v1/reattach", 0, NULL, NULL, BERTH_UNKNOWN, true}, {"/pods/p", 200, NULL, ALIVE, 0, true}, {0}},
		{{"/v1/reattach", 502, NULL, NULL, 0, true}, {"/pods/p", 200, NULL, ALIVE, 0, true}, {0}},
		{{"/v1/reattach", 200, "H", NULL, 0, true}, {"/pods/p", 200, NULL, ALIVE, 0, true}, {0}},
	};
	static const struct answer not_known[] = {
		{"/v1/reattach", 200, "R {\"code\": \"unknown\", \"reason\": \"stale_attempt\"}", NULL, 0, true},
		{"/pods/p", 200, NULL, ALIVE, 0, true},
		{0}};
	struct kerr err = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		memset(script.used, 0, sizeof(script.used));
		script.answers = ways[i];
		assert_int_equal(follow(&err), BERTH_UNAVAILABLE);
	}
	memset(script.used, 0, sizeof(script.used));
	script.answers = not_known;
	assert_int_equal(follow(&err), BERTH_UNKNOWN);
	assert_string_equal(err.reason, "stale_attempt");
}

/* Once told to stop, a refused connection must not look as if the command had been refused. */
static void test_a_stop_that_fails_denies_nothing(void **state)
{
	static const struct {
		uint32_t status;
		int32_t code;
	} refusals[] = {{401, 0}, {403, 0}, {429, 0}, {503, 0}, {0, BERTH_UNAVAILABLE}, {0, BERTH_INVALID}};
	struct kerr err = {0};

	(void)state;
	script.cancel = BERTH_CANCEL_STOP;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct answer answers[] = {
			{"/v1/execute", 0, NULL, NULL, BERTH_CANCELLED, true},
			{"/v1/signal", refusals[i].status, NULL, NULL, refusals[i].code, false},
			{"/v1/signal", refusals[i].status, NULL, NULL, refusals[i].code, false},
			{"/pods/p", 200, NULL, ALIVE, 0, true},
			{0}};

		memset(script.used, 0, sizeof(script.used));
		script.count = 0;
		script.answers = answers;
		assert_int_equal(run(&err), BERTH_UNKNOWN);
		assert_string_equal(err.reason, "stop");
	}
}

/* Nothing was sent: nothing is to be stopped, and the host need not ask. */
static void test_a_stop_before_the_start(void **state)
{
	static const struct answer answers[] = {
		{"/v1/execute", 0, NULL, NULL, BERTH_CANCELLED, false}, {"/pods/p", 200, NULL, ALIVE, 0, true}, {0}};
	struct kerr err = {0};

	(void)state;
	script.cancel = BERTH_CANCEL_STOP;
	script.answers = answers;
	assert_int_equal(run(&err), BERTH_UNAVAILABLE);
	script.count = 0;
	memset(script.used, 0, sizeof(script.used));
	script.cancel = BERTH_CANCEL_DETACH;
	assert_int_equal(run(&err), BERTH_CANCELLED);
	assert_int_equal(script.count, 1);
}

/* The signal finds nothing yet; the look behind it does. Then it is sent again, not from within the look. */
static void test_a_stop_that_is_too_early(void **state)
{
	static const struct answer answers[] = {
		{"/v1/execute", 0, NULL, NULL, BERTH_CANCELLED, true},
		{"/v1/signal", 404, "", "{\"code\": \"not_found\", \"reason\": \"not_running\"}", 0, true},
		{"/v1/reattach", 200, "H", NULL, 0, true},
		{"/v1/signal", 200, "R {\"code\": \"ok\"}", NULL, 0, true},
		{"/v1/reattach", 200, "H\nX {\"kind\": \"cancelled\", \"quiescent\": \"yes\"}\nR {\"code\": \"ok\"}",
		 NULL, 0, true},
		{0}};
	struct kerr err = {0};

	(void)state;
	script.cancel = BERTH_CANCEL_STOP;
	script.answers = answers;
	assert_int_equal(run(&err), BERTH_OK);
	assert_int_equal(script.ending.kind, BERTH_ENDING_CANCELLED);
	assert_int_equal(script.count, 5);
	assert_non_null(strstr(script.seen[3].url, "/v1/signal"));
}

#define RAN(forgotten)                                                                                                 \
	"X {\"kind\": \"exit\", \"quiescent\": \"yes\"}\nR {\"code\": \"ok\", \"forgotten\": " forgotten "}"

static void owe(const char *const *ids, size_t count)
{
	owed_can(kube.owed, &session);
	for (size_t i = 0; i < count; i++)
		assert_true(owed_add(kube.owed, &session, ids[i], 1));
}

/* How many it passes over an executor says, not which: all of them are asked for again. */
static void test_what_is_passed_over_is_owed_again(void **state)
{
	static const char *const ids[] = {"e1", "e2", "e3"};
	static const struct answer answers[] = {{"/v1/execute", 200, RAN("1"), NULL, 0, true},
						{"/v1/execute", 200, RAN("3"), NULL, 0, true},
						{0}};
	struct kerr err = {0};

	(void)state;
	script.answers = answers;
	owe(ids, 3);
	assert_int_equal(run(&err), BERTH_OK);
	for (size_t i = 0; i < 3; i++)
		assert_true(owed_has(kube.owed, &session, ids[i]));
	assert_int_equal(run(&err), BERTH_OK);
	assert_null(owed_take(kube.owed, &session));
}

/* Also by a request that is for nothing else: what it says of the first is one answer, the rest another. */
static void test_the_first_that_is_passed_over(void **state)
{
	static const char *const ids[] = {"e", "e1"};
	static const struct answer ways[][3] = {
		{{"/v1/forget", 200, "R {\"code\": \"ok\", \"forgotten\": 0}", NULL, 0, true},
		 {"/v1/reattach", 200, ENDED, NULL, 0, true},
		 {0}},
		{{"/v1/forget", 409, "",
		  "{\"code\": \"conflict\", \"reason\": \"running\", \"forgotten\": 1}", 0, true},
		 {"/v1/reattach", 200, ENDED, NULL, 0, true},
		 {0}},
		{{"/v1/forget", 200, "R {\"code\": \"ok\", \"forgotten\": 1}", NULL, 0, true},
		 {"/v1/reattach", 200, ENDED, NULL, 0, true},
		 {0}},
	};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct kerr err = {0};

		memset(script.used, 0, sizeof(script.used));
		script.answers = ways[i];
		owed_list_free(owed_take(kube.owed, &session));
		owe(ids, 2);
		assert_int_equal(follow(&err), BERTH_OK);
		assert_int_equal(owed_has(kube.owed, &session, "e1"), i < 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_silence_has_an_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_who_did_not_begin_has_no_ending, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_look_ends_it, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_look_that_breaks, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_stop_that_fails_denies_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_stop_before_the_start, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_stop_that_is_too_early, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_passed_over_is_owed_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_the_first_that_is_passed_over, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
