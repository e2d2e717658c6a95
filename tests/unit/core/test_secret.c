/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets: where they come from, which are refused, and that only the same bytes are equal. */
#include "unit.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/secret.h"

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/unit-secret-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r '%s'", dir);
	return system(command);
}

static const char *write_file(const char *name, const void *ptr, size_t len, mode_t mode)
{
	static char source[128];

	snprintf(source, sizeof(source), "file:%s/%s", dir, name);
	FILE *file = fopen(source + 5, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(ptr, 1, len, file), len);
	fclose(file);
	assert_int_equal(chmod(source + 5, mode), 0);
	return source;
}

static void check_holds(const char *source, const char *want, size_t want_len)
{
	struct secret *secret = NULL;
	struct err err = {0};
	size_t len = 0;

	assert_int_equal(secret_load(source, &secret, &err), 0);
	assert_non_null(secret);
	const void *ptr = secret_ptr(secret, &len);

	assert_int_equal(len, want_len);
	assert_memory_equal(ptr, want, len);
	secret_free(secret);
}

static void check_refused(const char *source, const char *named)
{
	struct secret *secret = NULL;
	struct err err = {0};

	assert_int_equal(secret_load(source, &secret, &err), ERR_CONFIG);
	assert_null(secret);
	assert_non_null(strstr(err.msg, named));
}

static void test_files(void **state)
{
	static char big[SECRET_MAX + 3];
	struct secret *secret = (struct secret *)big;

	(void)state;
	check_holds(write_file("a", "hello", 5, 0600), "hello", 5);
	check_holds(write_file("b", "hello\n", 6, 0640), "hello", 5);
	check_holds(write_file("c", "x\n\n", 3, 0400), "x\n", 2); /* one newline only */
	check_holds(write_file("d", "a\0b", 3, 0600), "a\0b", 3);
	check_refused(write_file("e", "hello", 5, 0644), "open to every user");
	check_refused(write_file("f", "hello", 5, 0602), "/f");
	check_refused("file:/nonexistent/secret", "/nonexistent/secret");
	check_refused("file:/tmp", "not a regular file");
	memset(big, 'x', sizeof(big));
	check_holds(write_file("g", big, SECRET_MAX, 0600), big, SECRET_MAX);
	check_refused(write_file("h", big, SECRET_MAX + 1, 0600), "longer");
	check_refused(write_file("i", big, sizeof(big), 0600), "longer");
	assert_int_equal(secret_load(write_file("j", "\n", 1, 0600), &secret, NULL), 0);
	assert_null(secret);
}

static void test_environment(void **state)
{
	static char big[SECRET_MAX + 2];
	struct secret *secret = (struct secret *)big;

	(void)state;
	setenv("UNIT_SECRET", "value\n", 1);
	check_holds("env:UNIT_SECRET", "value\n", 6);
	setenv("UNIT_SECRET", "", 1);
	assert_int_equal(secret_load("env:UNIT_SECRET", &secret, NULL), 0);
	assert_null(secret);
	unsetenv("UNIT_SECRET");
	secret = (struct secret *)big;
	assert_int_equal(secret_load("env:UNIT_SECRET", &secret, NULL), 0);
	assert_null(secret);
	memset(big, 'x', sizeof(big) - 1);
	setenv("UNIT_SECRET", big, 1);
	check_refused("env:UNIT_SECRET", "env:UNIT_SECRET");
	unsetenv("UNIT_SECRET");
}

static void test_a_misplaced_secret_is_not_repeated(void **state)
{
	static const char *const bad[] = {"hunter2hunter2", "file:", "env:", "", "FILE:/x"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bad); i++) {
		struct secret *secret = NULL;
		struct err err = {0};

		assert_int_equal(secret_load(bad[i], &secret, &err), ERR_CONFIG);
		assert_null(strstr(err.msg, "hunter2"));
	}
}

static int check(const char *text)
{
	struct secret *secret = secret_new(text, strlen(text));
	struct err err = {0};
	int r = secret_check(secret, "auth.token", &err);

	if (r) {
		assert_memory_equal(err.msg, "auth.token: ", 12);
		assert_null(strlen(text) ? strstr(err.msg, text) : NULL);
	}
	secret_free(secret);
	return r;
}

static void test_check(void **state)
{
	(void)state;
	assert_int_equal(check("k3Jx9vQ2mZ7pL0aWc5Rt8YbN4uHs6GdE"), 0);
	assert_int_equal(check("k3Jx9vQ2mZ7pL0aWc5Rt8YbN4uHs6Gd"), ERR_CONFIG);
	assert_int_equal(check(""), ERR_CONFIG);
	assert_int_equal(check("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), ERR_CONFIG);
	assert_int_equal(check("abcabcabcabcabcabcabcabcabcabcabcabcab"), ERR_CONFIG);
	assert_int_equal(check("passwordpasswordpasswordpassword"), ERR_CONFIG);
	assert_int_equal(check("changeme-changeme-changeme-changeme!"), ERR_CONFIG);
	assert_int_equal(check("ChangeMe0123456789k3Jx9vQ2mZ7pL0aWc5"), ERR_CONFIG);
	assert_int_equal(check("0123456789abcdef0123456789abcdef"), ERR_CONFIG);
	assert_int_equal(secret_check(NULL, "x", NULL), ERR_CONFIG);
}

static void test_equal(void **state)
{
	struct secret *secret = secret_new("a\0bc", 4);
	struct secret *empty = secret_new("", 0);

	(void)state;
	assert_true(secret_equal(secret, "a\0bc", 4));
	assert_false(secret_equal(secret, "a\0bd", 4));
	assert_false(secret_equal(secret, "a\0b", 3));
	assert_false(secret_equal(secret, "a\0bcd", 5));
	assert_false(secret_equal(secret, "a", 1));
	assert_false(secret_equal(secret, "", 0));
	assert_false(secret_equal(secret, NULL, 0));
	assert_false(secret_equal(secret, NULL, 4));
	assert_false(secret_equal(empty, "", 0));
	assert_false(secret_equal(NULL, "", 0));
	assert_false(secret_equal(NULL, "x", 1));
	secret_free(secret);
	secret_free(empty);
	secret_free(NULL);
}

static void test_digests(void **state)
{
	char hex[65];
	uint8_t digest[32];

	(void)state;
	secret_sha256_hex("abc", 3, hex);
	assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	secret_sha256_hex(NULL, 0, hex);
	assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	secret_sha256("abc", 3, digest);
	assert_int_equal(digest[0], 0xba);
	assert_int_equal(digest[31], 0xad);
}

static void test_random_and_wipe(void **state)
{
	uint8_t a[64], b[64];

	(void)state;
	memset(a, 0, sizeof(a));
	memset(b, 0, sizeof(b));
	secret_random(a, sizeof(a));
	secret_random(b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	memset(b, 0, sizeof(b));
	secret_wipe(a, sizeof(a));
	assert_memory_equal(a, b, sizeof(a));
	secret_wipe(NULL, 0);
	secret_random(a, 0);
}

static void read_all(int fd, void *ptr, size_t len)
{
	for (size_t at = 0; at < len;) {
		ssize_t n = read(fd, (char *)ptr + at, len - at);

		assert_true(n > 0);
		at += (size_t)n;
	}
}

/* Threads keep drawn bytes; a child has a copy of them, and must not hand out the same. */
static void test_a_child_draws_other_bytes(void **state)
{
	uint8_t ours[16], theirs[16];
	int fds[2];

	(void)state;
	secret_random(ours, sizeof(ours));
	assert_int_equal(pipe(fds), 0);

	pid_t pid = fork();

	if (pid == 0) {
		secret_random(theirs, sizeof(theirs));
		_exit(write(fds[1], theirs, sizeof(theirs)) != sizeof(theirs));
	}
	secret_random(ours, sizeof(ours));
	read_all(fds[0], theirs, sizeof(theirs));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_memory_not_equal(ours, theirs, sizeof(ours));
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),	cmocka_unit_test(test_environment),
		cmocka_unit_test(test_a_misplaced_secret_is_not_repeated),
		cmocka_unit_test(test_check),	cmocka_unit_test(test_equal),
		cmocka_unit_test(test_digests), cmocka_unit_test(test_random_and_wipe),
		cmocka_unit_test(test_a_child_draws_other_bytes),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
