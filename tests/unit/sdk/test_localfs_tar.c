/* SPDX-License-Identifier: Apache-2.0 */
/* Import and export of many files as one tar: the format, what is refused, that nothing half-way becomes visible. */
#include "localfs_fixture.h"

#include "../../../sdk/lib/localfs_ustar.h"

struct archive {
	unsigned char bytes[1u << 20];
	size_t len;
};

static void add_block(struct archive *ar, const void *data, size_t len)
{
	size_t padded = (len + 511) / 512 * 512;

	assert_true(ar->len + padded <= sizeof(ar->bytes));
	memset(ar->bytes + ar->len, 0, padded);
	memcpy(ar->bytes + ar->len, data, len);
	ar->len += padded;
}

static void add_entry(struct archive *ar, const char *path, char type, uint32_t mode, const void *data, size_t len)
{
	struct ustar_entry entry = {.type = type, .mode = mode, .size = len};
	unsigned char block[USTAR_BLOCK];

	snprintf(entry.path, sizeof(entry.path), "%s", path);
	ustar_format(&entry, block);
	add_block(ar, block, sizeof(block));
	if (len)
		add_block(ar, data, len);
}

static void add_end(struct archive *ar)
{
	static const char zeros[1024];

	add_block(ar, zeros, sizeof(zeros));
}

static struct archive *archive_new(void)
{
	struct archive *ar = calloc(1, sizeof(*ar));

	assert_non_null(ar);
	return ar;
}

static void export_then_import_is_the_same_tree(void **state)
{
	struct fs_fixture *fx = *state;
	char deep[700] = "tree", wide[260];
	char *bytes = malloc(700000);
	struct fake_bytes tar;

	assert_non_null(bytes);
	for (size_t i = 0; i < 700000; i++)
		bytes[i] = (char)(i * 31 >> 3);
	for (int i = 0; i < 6; i++)
		strncat(deep, "/a-directory-name-of-some-length-so-that-the-path-needs-pax-0123456789-0123456789",
			sizeof(deep) - strlen(deep) - 1);
	memset(wide, 'w', 255);
	wide[255] = '\0';
	assert_int_equal(fs_write(fx, deep, bytes, 700000, 0755), BERTH_OK);
	assert_int_equal(fs_write(fx, "tree/empty", "", 0, 0600), BERTH_OK);
	assert_int_equal(fs_write(fx, "tree/\xc3\xa4", "umlaut", 6, 0644), BERTH_OK);
	assert_int_equal(fs_write(fx, "tree/512", bytes, 512, 0640), BERTH_OK);
	assert_int_equal(mkdirat(fx->root_fd, "tree/dir", 0750), 0);
	assert_int_equal(fs_export(fx, "tree"), BERTH_OK);
	tar = fx->call.stream[BERTH_STREAM_DATA];
	fx->call.stream[BERTH_STREAM_DATA] = (struct fake_bytes){0};
	assert_int_equal(tar.len % 512, 0);
	assert_int_equal(fs_import(fx, "copy/of", tar.ptr, tar.len), BERTH_OK);
	char path[BERTH_PATH_MAX];
	snprintf(path, sizeof(path), "copy/of/%s", deep);
	assert_int_equal(fs_read(fx, path, 0, BERTH_SIZE_UNKNOWN), BERTH_OK);
	assert_data(fx, bytes, 700000);
	assert_int_equal(fs_list(fx, "copy/of/tree", BERTH_LIST_RECURSIVE), BERTH_OK);
	assert_int_equal(fx->call.file_count, 4 + 6);
	assert_int_equal(listed(fx, "copy/of/tree/empty")->mode, 0600);
	assert_int_equal(listed(fx, "copy/of/tree/512")->mode, 0640);
	assert_int_equal(listed(fx, "copy/of/tree/dir")->mode, 0750);
	assert_int_equal(listed(fx, path)->mode, 0755);
	assert_int_equal(listed(fx, "copy/of/tree/\xc3\xa4")->size, 6);
	free(tar.ptr);
	free(bytes);
}

/* Written and read by the system's tar. */
static void the_systems_tar_agrees(void **state)
{
	struct fs_fixture *fx = *state;
	char script[512];
	FILE *out;
	char *long_name = calloc(1, 201), *bytes = malloc(1u << 20);
	size_t len;

	if (access("/bin/tar", X_OK) < 0)
		skip();
	memset(long_name, 'n', 200);
	assert_int_equal(fs_write(fx, "t/x/file", "content", 7, 0640), BERTH_OK);
	assert_int_equal(fs_write(fx, long_name, "long", 4, 0644), BERTH_OK);
	assert_int_equal(fs_export(fx, "."), BERTH_OK);
	snprintf(script, sizeof(script), "%s/out.tar", fx->base);
	out = fopen(script, "we");
	assert_int_equal(fwrite(fx->call.stream[0].ptr, 1, fx->call.stream[0].len, out), fx->call.stream[0].len);
	fclose(out);
	snprintf(script, sizeof(script),
		 "cd %s && mkdir un && tar -C un -xf out.tar && diff -r root un && "
		 "for f in ustar pax gnu; do tar --format=$f -C root -cf $f.tar ./t || exit 1; done && "
		 "tar --format=pax -C root -cf all.tar .",
		 fx->base);
	char sh[] = "/bin/sh", option[] = "-c";
	char *argv[] = {sh, option, script, NULL}, path[] = "PATH=/bin:/usr/bin", *env[] = {path, NULL};
	pid_t pid;
	int status;
	assert_int_equal(posix_spawn(&pid, sh, NULL, NULL, argv, env), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	static const char *const names[] = {"ustar", "pax", "gnu", "all"};
	for (size_t i = 0; i < 4; i++) {
		snprintf(script, sizeof(script), "%s/%s.tar", fx->base, names[i]);
		out = fopen(script, "re");
		assert_non_null(out);
		len = fread(bytes, 1, 1u << 20, out);
		fclose(out);
		assert_int_equal(fs_import(fx, names[i], bytes, len), BERTH_OK);
		snprintf(script, sizeof(script), "%s/t/x/file", names[i]);
		assert_int_equal(fs_read(fx, script, 0, 100), BERTH_OK);
		assert_data(fx, "content", 7);
	}
	assert_int_equal(leftovers(fx), 0);
	free(long_name);
	free(bytes);
}

static void refused(struct fs_fixture *fx, const struct archive *ar, size_t len, const char *reason)
{
	assert_int_equal(fs_import(fx, ".", ar->bytes, len), BERTH_INVALID);
	assert_string_equal(fx->call.reason, reason);
	/* Nothing of it, not even the entries before the bad one. */
	assert_int_equal(fs_list(fx, ".", BERTH_LIST_RECURSIVE), BERTH_OK);
	assert_int_equal(fx->call.file_count, 0);
	assert_int_equal(leftovers(fx), 0);
}

static void bad_archives_leave_nothing(void **state)
{
	struct fs_fixture *fx = *state;
	struct archive *ar = archive_new();
	static const struct {
		const char *path;
		char type;
		const char *reason;
	} rows[] = {
		{"../x", '0', "path_escapes"}, {"/etc/x", '0', "path_escapes"}, {"a/../../x", '0', "path_escapes"},
		{"a//b", '0', "path_invalid"}, {"", '0', "path_invalid"},	{"link", '2', "tar_entry"},
		{"hard", '1', "tar_entry"},    {"dev", '3', "tar_entry"},	{"fifo", '6', "tar_entry"},
		{"long", 'L', "tar_entry"},    {"sparse", 'S', "tar_entry"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ar->len = 0;
		add_entry(ar, "good", '0', 0644, "good", 4);
		add_entry(ar, rows[i].path, rows[i].type, 0644, NULL, 0);
		add_end(ar);
		refused(fx, ar, ar->len, rows[i].reason);
	}
	free(ar);
}

static void cut_and_damaged_archives_leave_nothing(void **state)
{
	struct fs_fixture *fx = *state;
	struct archive *ar = archive_new();

	add_entry(ar, "good", '0', 0644, "good", 4);
	add_entry(ar, "more", '0', 0644, "more", 4);
	add_end(ar);
	for (size_t len = 0; len < ar->len; len += 97)
		refused(fx, ar, len, "tar_truncated");
	ar->bytes[3] ^= 1; /* the checksum tells */
	refused(fx, ar, ar->len, "tar_invalid");
	ar->bytes[3] ^= 1;
	memcpy(ar->bytes + ar->len, "trailing", 8);
	refused(fx, ar, ar->len + 8, "tar_invalid");
	free(ar);
}

static void source_that_ends_badly_leaves_nothing(void **state)
{
	struct fs_fixture *fx = *state;
	struct berth_str path = fake_str(".");
	struct archive *ar = archive_new();
	struct berth_call *call = next_call(fx);

	add_entry(ar, "good", '0', 0644, "good", 4);
	add_end(ar);
	call->source = (const char *)ar->bytes;
	call->source_len = ar->len;
	call->source_chunk = 100;
	call->source_end = BERTH_INVALID;
	assert_int_equal(berth_localfs_import(&fake_host, call, &fx->fs, &path), BERTH_INVALID);
	assert_int_equal(fs_list(fx, ".", 0), BERTH_OK);
	assert_int_equal(fx->call.file_count, 0);
	assert_int_equal(leftovers(fx), 0);
	free(ar);
}

/* The source has ended well; what was placed stays, what was staged does not. */
static void a_cancel_is_heard_while_files_are_placed(void **state)
{
	struct fs_fixture *fx = *state;
	struct archive *ar = archive_new();
	struct berth_str root = fake_str(".");
	char name[16];

	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		add_entry(ar, name, USTAR_REGULAR, 0644, "x", 1);
	}
	add_end(ar);
	next_call(fx)->cancel_after = 10; /* two of them: the source is asked for its bytes, and for its end */
	fx->call.source = (const char *)ar->bytes;
	fx->call.source_len = ar->len;
	assert_int_equal(berth_localfs_import(&fake_host, &fx->call, &fx->fs, &root), BERTH_CANCELLED);
	assert_int_equal(fs_list(fx, ".", 0), BERTH_OK);
	assert_int_equal(fx->call.file_count, 7);
	assert_int_equal(leftovers(fx), 0);
	free(ar);
}

static void import_places_over_what_is_there(void **state)
{
	struct fs_fixture *fx = *state;
	struct archive *ar = archive_new();

	assert_int_equal(fs_write(fx, "d/f", "old", 3, 0600), BERTH_OK);
	assert_int_equal(fs_write(fx, "d/other", "stays", 5, 0600), BERTH_OK);
	assert_int_equal(symlinkat("../outside", fx->root_fd, "out"), 0);
	add_entry(ar, ".", '5', 0755, NULL, 0);
	add_entry(ar, "./d", '5', 0711, NULL, 0);
	add_entry(ar, "./d/f", '0', 0755, "new", 3);
	add_entry(ar, "closed", '5', 0555, NULL, 0);
	add_entry(ar, "closed/f", '0', 0444, "c", 1);
	add_end(ar);
	assert_int_equal(fs_import(fx, ".", ar->bytes, ar->len), BERTH_OK);
	assert_int_equal(fs_list(fx, ".", BERTH_LIST_RECURSIVE), BERTH_OK);
	assert_int_equal(listed(fx, "d")->mode, 0711);
	assert_int_equal(listed(fx, "d/f")->mode, 0755);
	assert_int_equal(listed(fx, "closed")->mode, 0555);
	assert_int_equal(listed(fx, "closed/f")->size, 1);
	assert_int_equal(listed(fx, "d/other")->size, 5);
	ar->len = 0;
	add_entry(ar, "out/secret", '0', 0644, "stolen", 6);
	add_end(ar);
	assert_int_equal(fs_import(fx, ".", ar->bytes, ar->len), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "path_escapes");
	ar->len = 0;
	add_entry(ar, "d", '0', 0644, "x", 1);
	add_end(ar);
	assert_int_equal(fs_import(fx, ".", ar->bytes, ar->len), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "is_directory");
	assert_int_equal(leftovers(fx), 0);
	free(ar);
}

static void export_refuses_what_it_cannot_carry(void **state)
{
	struct fs_fixture *fx = *state;
	struct berth_str none;

	assert_int_equal(fs_export(fx, "none"), BERTH_NOT_FOUND);
	assert_int_equal(symlinkat("x", fx->root_fd, "link"), 0);
	assert_int_equal(fs_export(fx, "."), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "not_regular");
	assert_int_equal(fs_remove(fx, "link", 0), BERTH_OK);
	assert_int_equal(mkfifoat(fx->root_fd, "fifo", 0644), 0);
	assert_int_equal(fs_export(fx, "fifo"), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "not_regular");
	/* No paths: an archive with nothing in it. */
	assert_int_equal(berth_localfs_export(&fake_host, next_call(fx), &fx->fs, &none, 0), BERTH_OK);
	assert_int_equal(fx->call.stream[0].len, 1024);
}

static void pax_records_are_judged(void **state)
{
	static const struct {
		const char *text;
		int rc;
	} rows[] = {
		{"9 path=a\n", 0}, {"10 path=ab\n", -EBADMSG}, {"11 path=abc\n", -EBADMSG},
		{"12 path=abc\n", 0}, {"9 path=a", -EBADMSG}, {"09 path=a\n", -EBADMSG},
		{"x path=a\n", -EBADMSG}, {" 9 path=a\n", -EBADMSG},
		{"99999999999999999999 path=a\n", -EBADMSG}, {"4 =\n", -EBADMSG}, {"4 a\n", -EBADMSG},
		{"0 a=\n", -EBADMSG}, {"10 size=12\n", -EBADMSG}, {"11 size=12\n", 0},
		{"11 size=-1\n", -EBADMSG}, {"8 size=\n", 0}, {"22 GNU.sparse.major=1\n", -ENOTSUP},
		{"13 comment=ab\n", -EBADMSG}, {"14 comment=ab\n", 0}, {"", 0}, {"6 a=b\n6 c=d\n", 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ustar_pax pax = {0};
		size_t len = strlen(rows[i].text);
		char *exact = malloc(len + 1); /* no byte behind it, for the sanitizer */

		memcpy(exact, rows[i].text, len);
		exact = realloc(exact, len ? len : 1);
		if (ustar_pax_parse(exact, len, &pax) != rows[i].rc)
			fail_msg("row %zu: %s", i, rows[i].text);
		free(exact);
	}
}

static void pax_size_and_path_win(void **state)
{
	struct fs_fixture *fx = *state;
	struct archive *ar = archive_new();

	add_entry(ar, "pax", 'x', 0644, "19 path=other-name\n10 size=5\n", 29);
	add_entry(ar, "name", '0', 0644, NULL, 0);
	add_block(ar, "12345", 5);
	add_entry(ar, "global", 'g', 0644, "14 comment=xy\n", 14);
	add_entry(ar, "last", '0', 0644, "l", 1);
	add_end(ar);
	assert_int_equal(fs_import(fx, ".", ar->bytes, ar->len), BERTH_OK);
	assert_int_equal(fs_read(fx, "other-name", 0, 100), BERTH_OK);
	assert_data(fx, "12345", 5);
	assert_int_equal(fs_list(fx, ".", 0), BERTH_OK);
	assert_int_equal(fx->call.file_count, 2);
	free(ar);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fs_setup, fs_teardown)
	const struct CMUnitTest tests[] = {
		TEST(export_then_import_is_the_same_tree),
		TEST(the_systems_tar_agrees),
		TEST(bad_archives_leave_nothing),
		TEST(cut_and_damaged_archives_leave_nothing),
		TEST(source_that_ends_badly_leaves_nothing),
		TEST(a_cancel_is_heard_while_files_are_placed),
		TEST(import_places_over_what_is_there),
		TEST(export_refuses_what_it_cannot_carry),
		TEST(pax_records_are_judged),
		TEST(pax_size_and_path_win),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
