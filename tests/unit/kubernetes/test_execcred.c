/* SPDX-License-Identifier: Apache-2.0 */
/* The program of a kubeconfig: run once for all who wait, not again when it has just failed, and waited for no longer
 * than a call may take. */
#include "kube_test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "kube.h"

#define MS INT64_C(1000000)

static char version[] = "client.authentication.k8s.io/v1", server[] = "https://api";
static char dir[64], path[96];
static struct exec_plugin plugin;
static struct cluster cluster;
static struct execprog prog;
static int64_t deadline_ns;
static struct berth_call *const call = (struct berth_call *)(void *)&prog; /* never looked into */

static void host_info(struct berth_call *asked, struct berth_call_info *ret)
{
	(void)asked;
	ret->deadline_ns = deadline_ns;
}

static const struct berth_host host = {.struct_size = sizeof(host), .info = host_info};

static void write_program(const char *body)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fprintf(file, "#!/bin/sh\necho run >>%s/runs\n%s\n", dir, body);
	fclose(file);
	assert_int_equal(chmod(path, 0700), 0);
}

static unsigned runs(void)
{
	char name[96];
	struct stat st = {0};

	snprintf(name, sizeof(name), "%s/runs", dir);
	return stat(name, &st) ? 0 : (unsigned)(st.st_size / 4);
}

static void touch(const char *name)
{
	char file[128];
	FILE *made;

	snprintf(file, sizeof(file), "%s/%s", dir, name);
	made = fopen(file, "w");
	assert_non_null(made);
	fclose(made);
}

static int setup(void **state)
{
	(void)state;
	kube_host = &host;
	deadline_ns = INT64_MAX;
	snprintf(dir, sizeof(dir), "/tmp/berth-execcred-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/login", dir);
	plugin = (struct exec_plugin){.api_version = version, .argv = {path}};
	cluster = (struct cluster){.server = server, .exec = &plugin};
	execprog_init(&prog);
	return 0;
}

static int teardown(void **state)
{
	static const char *const names[] = {"login", "runs", "go"};
	char file[96];

	(void)state;
	execprog_fini(&prog);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(file, sizeof(file), "%s/%s", dir, names[i]);
		unlink(file);
	}
	return rmdir(dir);
}

#define PRINT "echo '{\"kind\": \"ExecCredential\", \"status\": {\"token\": \"secret\"}}'"
#define EXPIRED                                                                                                        \
	"echo '{\"kind\": \"ExecCredential\", \"status\": {\"token\": \"secret\", \"expirationTimestamp\": "           \
	"\"2020-01-01T00:00:00Z\"}}'"

static int32_t get(int64_t refused_ns, struct kerr *err)
{
	struct execcred cred;
	int32_t rc = execprog_get(&cluster, &prog, refused_ns, call, &cred, err);

	if (!rc)
		assert_string_equal(cred.token.text, "secret");
	execcred_fini(&cred);
	return rc;
}

static void test_kept_until_it_is_refused(void **state)
{
	int64_t before_ns = text_boot_ns(), after_ns;
	struct kerr err = {0};

	(void)state;
	write_program(PRINT);
	assert_int_equal(get(0, &err), BERTH_OK);
	assert_int_equal(get(0, &err), BERTH_OK);
	/* Of many who were refused with the former one, the first runs it. */
	assert_int_equal(get(before_ns, &err), BERTH_OK);
	assert_int_equal(runs(), 1);
	after_ns = text_boot_ns();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(get(after_ns, &err), BERTH_OK);
	assert_int_equal(runs(), 2);
}

static void test_a_failure_is_kept_for_a_while(void **state)
{
	struct kerr err = {0};

	(void)state;
	write_program("exit 3");
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(get(0, &err), BERTH_UNAUTHENTICATED);
		assert_string_equal(err.reason, "exec_plugin");
		assert_non_null(strstr(err.text, "status 3"));
	}
	assert_int_equal(runs(), 1);
}

/* One of the clocks may be wrong; but it is asked for again. */
static void test_what_has_expired_is_used_once(void **state)
{
	struct kerr err = {0};

	(void)state;
	write_program(EXPIRED);
	for (unsigned i = 1; i <= 3; i++) {
		assert_int_equal(get(0, &err), BERTH_OK);
		assert_int_equal(runs(), i);
	}
}

struct other {
	pthread_t thread;
	int32_t rc;
};

static void *run_other(void *arg)
{
	struct other *other = arg;
	struct execcred cred;
	struct kerr err = {0};

	other->rc = execprog_get(&cluster, &prog, 0, NULL, &cred, &err);
	execcred_fini(&cred);
	return NULL;
}

static void test_nobody_waits_past_the_deadline(void **state)
{
	struct other others[3] = {{0}};
	struct kerr err = {0};
	int64_t now_ns;

	(void)state;
	write_program("until [ -e \"$(dirname $0)/go\" ]; do sleep 0.02; done; " PRINT);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&others[i].thread, NULL, run_other, &others[i]), 0);
	while (!runs())
		usleep(1000);
	deadline_ns = text_boot_ns() + 300 * MS;
	assert_int_equal(get(0, &err), BERTH_TIMEOUT);
	now_ns = text_boot_ns();
	assert_true(now_ns >= deadline_ns);
	assert_int_equal(runs(), 1);
	touch("go");
	for (unsigned i = 0; i < 3; i++) {
		pthread_join(others[i].thread, NULL);
		assert_int_equal(others[i].rc, BERTH_OK);
	}
	assert_int_equal(get(0, &err), BERTH_OK); /* though its time is over: there is nothing to wait for */
	assert_int_equal(runs(), 1);
}

/* The call that runs it has little time: that is no failure of the program. */
static void test_a_short_call_is_no_failure(void **state)
{
	struct kerr err = {0};

	(void)state;
	write_program("until [ -e \"$(dirname $0)/go\" ]; do sleep 0.02; done; " PRINT);
	deadline_ns = text_boot_ns() + 200 * MS;
	assert_int_equal(get(0, &err), BERTH_TIMEOUT);
	touch("go");
	deadline_ns = INT64_MAX;
	assert_int_equal(get(0, &err), BERTH_OK);
	assert_int_equal(runs(), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_kept_until_it_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_failure_is_kept_for_a_while, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_has_expired_is_used_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_waits_past_the_deadline, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_short_call_is_no_failure, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
