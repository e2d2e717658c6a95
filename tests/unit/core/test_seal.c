/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed boxes: open only whole, in their own row, with a configured key; keys rotate. */
#include "unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "core/buf.h"
#include "core/json.h"
#include "core/secret.h"

static char dir[64], key_path[96], other_path[96];

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/unit-seal-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(key_path, sizeof(key_path), "%s/key", dir);
	snprintf(other_path, sizeof(other_path), "%s/other", dir);
	return 0;
}

static int remove_dir(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -r '%s'", dir);
	return system(command);
}

static struct seal *open_seal(const char *path, const char *old)
{
	struct seal *seal = NULL;
	struct err err = {0};
	int r = seal_open_file(path, old, true, &seal, &err);

	if (r)
		print_error("%s\n", err.msg);
	assert_int_equal(r, 0);
	return seal;
}

static char *close_box(const struct seal *seal, const char *bound, const void *ptr, size_t len)
{
	char *box = NULL;

	assert_int_equal(seal_close_box(seal, bound, ptr, len, &box, NULL), 0);
	return box;
}

static void check_opens(const struct seal *seal, const char *bound, const char *box, const void *want, size_t want_len)
{
	char *out = NULL;
	size_t len = 0;

	assert_int_equal(seal_open_box(seal, bound, box, &out, &len, NULL), 0);
	assert_int_equal(len, want_len);
	assert_memory_equal(out, want, len);
	assert_int_equal(out[len], '\0');
	free(out);
}

static void check_shut(const struct seal *seal, const char *bound, const char *box)
{
	char *out = NULL;
	size_t len = 0;
	struct err err = {0};

	assert_int_equal(seal_open_box(seal, bound, box, &out, &len, &err), ERR_CORRUPT);
	assert_null(out);
	assert_int_not_equal(err.msg[0], '\0');
}

static void test_round_trip(void **state)
{
	struct seal *seal = open_seal(key_path, NULL);
	static char big[100000];
	struct stat st;

	(void)state;
	assert_int_equal(stat(key_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 31);
	const struct {
		const void *ptr;
		size_t len;
	} rows[] = {{"", 0}, {"x", 1}, {"a\0b", 3}, {big, sizeof(big)}};

	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		char *box = close_box(seal, "binding:w/t", rows[i].ptr, rows[i].len);
		char *again = close_box(seal, "", rows[i].ptr, rows[i].len);

		check_opens(seal, "binding:w/t", box, rows[i].ptr, rows[i].len);
		check_opens(seal, "", again, rows[i].ptr, rows[i].len);
		assert_string_not_equal(box, again);
		free(box);
		free(again);
	}
	seal_free(seal);
	seal_free(NULL);
}

static void test_a_box_opens_in_its_own_row_only(void **state)
{
	struct seal *seal = open_seal(key_path, NULL);
	char *box = close_box(seal, "w/a", "state", 5);

	(void)state;
	check_shut(seal, "w/b", box);
	check_shut(seal, "", box);
	check_shut(seal, "w/aa", box);
	check_opens(seal, "w/a", box, "state", 5);
	free(box);
	seal_free(seal);
}

/* Every bit of the box's bytes matters. */
static void test_an_altered_box_stays_shut(void **state)
{
	struct seal *seal = open_seal(key_path, NULL);
	char *box = close_box(seal, "r", "state", 5);
	char *bytes = NULL;
	size_t len = 0;

	(void)state;
	assert_int_equal(json_base64_decode(box, strlen(box), &bytes, &len, NULL), 0);
	for (size_t bit = 0; bit < 8 * len; bit++) {
		struct buf text;

		bytes[bit / 8] ^= (char)(1 << bit % 8);
		buf_init(&text, 1000);
		json_base64_encode(&text, bytes, len);
		check_shut(seal, "r", text.ptr);
		bytes[bit / 8] ^= (char)(1 << bit % 8);
		buf_fini(&text);
	}
	for (size_t cut = 0; cut < strlen(box); cut++) {
		char *shorter = strndup(box, cut);

		check_shut(seal, "r", shorter);
		free(shorter);
	}
	free(bytes);
	free(box);
	seal_free(seal);
}

static void test_rotation(void **state)
{
	struct seal *first = open_seal(key_path, NULL);
	struct seal *second = open_seal(other_path, NULL);
	struct seal *both = open_seal(other_path, key_path);
	char *old_box = close_box(first, "r", "old", 3);
	char *new_box = close_box(both, "r", "new", 3);

	(void)state;
	check_shut(second, "r", old_box);
	check_opens(both, "r", old_box, "old", 3);
	check_opens(both, "r", new_box, "new", 3);
	check_opens(second, "r", new_box, "new", 3);
	check_shut(first, "r", new_box);
	free(old_box);
	free(new_box);
	seal_free(first);
	seal_free(second);
	seal_free(both);
}

static void check_key_refused(const char *text, mode_t mode)
{
	char path[96];
	struct seal *seal = NULL;
	struct err err = {0};

	snprintf(path, sizeof(path), "%s/bad", dir);
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
	chmod(path, mode);
	assert_int_equal(seal_open_file(path, NULL, true, &seal, &err), ERR_CONFIG);
	assert_non_null(strstr(err.msg, path));
	assert_null(seal);
}

static void test_keys_refused(void **state)
{
	static const char good[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
	char longer[80];
	struct seal *seal = NULL;
	struct err err = {0};
	char path[96];

	(void)state;
	check_key_refused("", 0600);
	check_key_refused("0011", 0600);
	check_key_refused(good, 0644);
	check_key_refused("00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF", 0600);
	check_key_refused("zz112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", 0600);
	snprintf(longer, sizeof(longer), "%s\n\n", good);
	check_key_refused(longer, 0600);
	snprintf(longer, sizeof(longer), "%s0", good);
	check_key_refused(longer, 0600);
	snprintf(path, sizeof(path), "%s/missing", dir);
	assert_int_equal(seal_open_file(path, NULL, false, &seal, &err), ERR_CONFIG);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(seal_open_file(key_path, path, true, &seal, &err), ERR_CONFIG); /* an old key is never made */
	snprintf(path, sizeof(path), "%s/no/dir", dir);
	assert_int_equal(seal_open_file(path, NULL, true, &seal, &err), ERR_CONFIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_a_box_opens_in_its_own_row_only),
		cmocka_unit_test(test_an_altered_box_stays_shut),
		cmocka_unit_test(test_rotation),
		cmocka_unit_test(test_keys_refused),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
