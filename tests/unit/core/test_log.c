/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: one line whatever the values are, both formats, level and request id. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/json.h"
#include "core/log.h"
#include "core/log_batch.h"
#include "core/thread.h"

static char text[512 * 1024];
static int saved_stderr, catcher;

static void catch_start(void)
{
	fflush(stderr);
	saved_stderr = dup(STDERR_FILENO);
	catcher = memfd_create("log", MFD_CLOEXEC);
	assert_true(catcher >= 0);
	assert_int_equal(fcntl(catcher, F_SETFL, O_APPEND), 0); /* threads write to it at once */
	dup2(catcher, STDERR_FILENO);
}

static void catch_end(void)
{
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	ssize_t n = pread(catcher, text, sizeof(text) - 1, 0);

	assert_true(n >= 0);
	text[n] = '\0';
	close(catcher);
}

/* What follows "ts=<24 characters> ". */
static const char *after_ts(void)
{
	assert_memory_equal(text, "ts=", 3);
	assert_int_equal(text[3 + 24], ' ');
	return text + 3 + 25;
}

static int begin(void **state)
{
	(void)state;
	log_init(LOG_DEBUG, LOG_LOGFMT);
	log_set_request(NULL);
	pthread_setname_np(pthread_self(), "unit");
	return 0;
}

static void test_logfmt(void **state)
{
	char array[] = "arr";

	(void)state;
	catch_start();
	log_info("hello world", KS("key", "bare"), KS("quoted", "a b=\"c\"\n"), KI("n", -5), KS("null", NULL),
		 KB("bytes", "abcdef", 3), KS("array", array));
	catch_end();
	assert_string_equal(after_ts(), "level=info msg=\"hello world\" thread=unit key=bare "
					"quoted=\"a b=\\\"c\\\"\\n\" n=-5 null=\"\" bytes=abc array=arr\n");
}

static void test_json_lines_parse(void **state)
{
	struct json_object *json = NULL;
	struct json_object *value = NULL;

	(void)state;
	log_init(LOG_DEBUG, LOG_JSON);
	log_set_request("req-1");
	catch_start();
	log_error("it \"broke\"", KB("bad", "\xff\n\x1b[31m", 7), KI("n", INT64_MAX));
	catch_end();
	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_int_equal(json_parse(text, strlen(text), &json, NULL), 0);
	assert_true(json_object_object_get_ex(json, "msg", &value));
	assert_string_equal(json_object_get_string(value), "it \"broke\"");
	assert_true(json_object_object_get_ex(json, "request", &value));
	assert_string_equal(json_object_get_string(value), "req-1");
	assert_true(json_object_object_get_ex(json, "n", &value));
	assert_true(json_object_get_int64(value) == INT64_MAX);
	json_object_put(json);
	assert_null(strchr(text, 0x1b));
}

static void test_level_is_a_floor(void **state)
{
	(void)state;
	log_init(LOG_WARN, LOG_LOGFMT);
	catch_start();
	log_info("no");
	log_debug("no");
	log_warn("yes");
	catch_end();
	assert_string_equal(after_ts(), "level=warn msg=yes thread=unit\n");
	assert_int_equal(log_level_parse("debug"), LOG_DEBUG);
	assert_int_equal(log_level_parse("error"), LOG_ERROR);
	assert_int_equal(log_level_parse("loud"), -1);
	assert_int_equal(log_level_parse(NULL), -1);
}

static void test_a_value_cannot_forge_a_line(void **state)
{
	(void)state;
	log_set_request("a\nlevel=error");
	catch_start();
	log_info("x", KS("k", "v\nts=0 level=error msg=forged"), KS("c1", "\xc2\x9b" "31m"), KS("eq", "a=b"));
	catch_end();
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	assert_non_null(strstr(text, "request=\"a\\nlevel=error\""));
	assert_non_null(strstr(text, "c1=\"\\u009b31m\""));
	assert_non_null(strstr(text, "eq=\"a=b\""));
}

static void test_a_long_value_is_cut_and_counted(void **state)
{
	static char value[10000];

	(void)state;
	memset(value, 'v', sizeof(value) - 1);
	catch_start();
	log_info("x", KS("k", value), KS("last", "here"));
	catch_end();
	assert_non_null(strstr(text, " k_cut_bytes=5903 last=here\n"));
}

static void test_a_line_too_long_is_told(void **state)
{
	static char value[4000];

	(void)state;
	memset(value, 'v', sizeof(value) - 1);
	catch_start();
	log_info("x", KS("a", value), KS("b", value), KS("c", value), KS("d", value), KS("e", value), KS("f", value),
		 KS("g", value), KS("h", value), KS("i", value), KS("j", value), KS("k", value), KS("l", value),
		 KS("m", value), KS("n", value), KS("o", value), KS("p", value), KS("q", value));
	catch_end();
	assert_non_null(strstr(text, "a log line was lost"));
}

static void test_errno_is_kept(void **state)
{
	(void)state;
	catch_start();
	close(STDERR_FILENO);
	errno = ENOTTY;
	log_info("nobody hears");
	assert_int_equal(errno, ENOTTY);
	catch_end();
	assert_string_equal(log_request(), "");
}

#define LINES 500

static void *shout(void *arg)
{
	log_set_request(arg);
	for (int i = 0; i < LINES; i++)
		log_info("a line that must stay whole", KI("i", i));
	return NULL;
}

static void *shout_later(void *arg)
{
	log_set_request(arg);
	for (int i = 0; i < LINES; i++)
		log_emit_later(LOG_INFO, "a line that must stay whole", (struct log_field[]){KI("i", i), {0}});
	return NULL;
}

static void shout_in_four(void *(*main)(void *))
{
	pthread_t threads[4];
	char request[4][4] = {"r0", "r1", "r2", "r3"};

	for (size_t i = 0; i < 4; i++)
		thread_start(&threads[i], request[i], main, request[i]);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void check_four(void)
{
	size_t lines = 0;

	for (char *line = text; *line; line = strchr(line, '\n') + 1, lines++) {
		char *thread = strstr(line, "thread=r");

		assert_memory_equal(line, "ts=", 3);
		assert_non_null(thread);
		assert_memory_equal(thread + 9, " request=r", 10);
		assert_int_equal(thread[8], thread[19]);
		assert_non_null(strchr(line, '\n'));
	}
	assert_int_equal(lines, 4 * LINES);
}

static void test_threads_do_not_mix_lines(void **state)
{
	(void)state;
	catch_start();
	shout_in_four(shout);
	catch_end();
	check_four();
}

/* ---- lines that may be written later ---- */

static void test_later_lines_come_whole_and_all(void **state)
{
	(void)state;
	catch_start();
	assert_int_equal(log_batch_start(NULL), 0);
	shout_in_four(shout_later);
	log_batch_stop();
	catch_end();
	check_four();
}

static void test_without_a_batch_later_is_now(void **state)
{
	(void)state;
	assert_false(log_batch_add("x\n", 2));
	catch_start();
	log_emit_later(LOG_INFO, "before", NULL);
	assert_int_equal(log_batch_start(NULL), 0);
	log_batch_stop();
	log_emit_later(LOG_INFO, "after", NULL);
	catch_end();
	assert_non_null(strstr(text, "msg=before "));
	assert_non_null(strstr(text, "msg=after "));
	assert_false(log_batch_add("x\n", 2));
}

static void test_a_rescue_writes_what_is_kept(void **state)
{
	ssize_t n;

	(void)state;
	catch_start();
	assert_int_equal(log_batch_start(NULL), 0);
	log_emit_later(LOG_INFO, "last words", NULL);
	log_batch_rescue();
	n = pread(catcher, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = '\0';
	assert_non_null(strstr(text, "msg=\"last words\" "));
	log_batch_stop();
	catch_end();
}

static void *read_to_end(void *arg)
{
	size_t *lines = arg;
	char part[4096];
	ssize_t n;

	while ((n = read(catcher, part, sizeof(part))) > 0)
		for (ssize_t i = 0; i < n; i++)
			*lines += part[i] == '\n';
	return NULL;
}

/* A standard error that nobody reads: what is kept is bounded, then callers have to wait themselves, and nothing is lost. */
static void test_a_stuck_reader_fills_the_batch_once(void **state)
{
	static const char line[] = "a line of forty bytes that stands for any\n";
	size_t added = 0, read = 0;
	pthread_t reader;
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	saved_stderr = dup(STDERR_FILENO);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	catcher = ends[0];
	assert_int_equal(log_batch_start(NULL), 0);
	while (log_batch_add(line, sizeof(line) - 1))
		assert_true(++added < 1024 * 1024 / sizeof(line));
	assert_int_equal(thread_start(&reader, "reader", read_to_end, &read), 0);
	log_batch_stop();
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	pthread_join(reader, NULL);
	close(catcher);
	assert_int_equal(read, added);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_logfmt, begin),
		cmocka_unit_test_setup(test_json_lines_parse, begin),
		cmocka_unit_test_setup(test_level_is_a_floor, begin),
		cmocka_unit_test_setup(test_a_value_cannot_forge_a_line, begin),
		cmocka_unit_test_setup(test_a_long_value_is_cut_and_counted, begin),
		cmocka_unit_test_setup(test_a_line_too_long_is_told, begin),
		cmocka_unit_test_setup(test_errno_is_kept, begin),
		cmocka_unit_test_setup(test_threads_do_not_mix_lines, begin),
		cmocka_unit_test_setup(test_later_lines_come_whole_and_all, begin),
		cmocka_unit_test_setup(test_without_a_batch_later_is_now, begin),
		cmocka_unit_test_setup(test_a_rescue_writes_what_is_kept, begin),
		cmocka_unit_test_setup(test_a_stuck_reader_fills_the_batch_once, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
