/* SPDX-License-Identifier: Apache-2.0 */
/* G1, G2, G3: plugins that must not get in, each with the sentence that says why; and those that may. */
#include "plugin_fixture.h"

#include <elf.h>
#include <locale.h>
#include <signal.h>

#include "plugin/probe.h"

static void copy_good(const char *name, size_t most)
{
	char path[256], *bytes = malloc(1 << 24);
	FILE *from = fopen(BERTH_TEST_ZOO_DIR "/good.so", "r"), *to;
	size_t len;

	assert_true(bytes && from);
	len = fread(bytes, 1, 1 << 24, from);
	fclose(from);
	fixture_path(path, sizeof(path), name);
	to = fopen(path, "w");
	assert_non_null(to);
	assert_int_equal(fwrite(bytes, 1, len < most ? len : most, to), len < most ? len : most);
	fclose(to);
	assert_int_equal(chmod(path, 0644), 0);
	free(bytes);
}

static void patch(const char *name, long off, const void *ptr, size_t len)
{
	char path[256];
	FILE *file;

	fixture_path(path, sizeof(path), name);
	file = fopen(path, "r+");
	assert_non_null(file);
	fseek(file, off, SEEK_SET);
	assert_int_equal(fwrite(ptr, 1, len, file), len);
	fclose(file);
}

static void refuse(const char *dir, const char *name, const char *probe, const char *part)
{
	struct plugin *plugin = NULL;
	struct err err = {0};

	assert_int_equal(loader_load(dir, name, probe, &hostapi_table, &plugin, &err), ERR_CONFIG);
	assert_null(plugin);
	EXPECT_ERR(err, part);
	EXPECT_ERR(err, name);
}

static void good(void **state)
{
	struct plugin *plugin = NULL;
	struct err err = {0};

	(void)state;
	if (loader_load(BERTH_TEST_ZOO_DIR, "good", PROBE, &hostapi_table, &plugin, &err))
		fail_msg("%s", err.msg);
	assert_string_equal(plugin->name, "good");
	assert_string_equal(plugin->path, BERTH_TEST_ZOO_DIR "/good.so");
	assert_true(plugin->initialized);
	assert_true(plugin->fd >= 0);
	loader_fini(plugin);
	assert_false(plugin->initialized);
	loader_free(plugin);
}

/* The linker knows a file by the name of its descriptor; a second plugin must not be taken for the first. */
static void two_are_two(void **state)
{
	struct plugin *one = NULL, *two = NULL;
	struct err err = {0};

	(void)state;
	assert_int_equal(loader_load(BERTH_TEST_ZOO_DIR, "good", NULL, &hostapi_table, &one, &err), 0);
	assert_int_equal(loader_load(BERTH_TEST_ZOO_DIR, "serial", NULL, &hostapi_table, &two, &err), 0);
	assert_string_equal(two->name, "serial");
	assert_ptr_not_equal(one->handle, two->handle);
	loader_fini(one);
	loader_fini(two);
	loader_free(one);
	loader_free(two);
}

static void g1_descriptors(void **state)
{
	static const struct {
		const char *name, *part;
	} cases[] = {
	    {"bad-magic", "expected the magic word"},
	    {"bad-major", "expected ABI 1.x, got 2.0"},
	    {"bad-minor", "needs 1.999"},
	    {"bad-size", "struct_size 40"},
	    {"bad-flags", "expected flags 0"},
	    {"bad-reserved", "expected reserved[0] NULL"},
	    {"bad-name", "got \"good\""},
	    {"bad-capability", "declares the capability RENEW and lacks its operation renew"},
	    {"bad-op", "expected the operation execute"},
	    {"bad-option-key", "expected a key"},
	    {"bad-option-twice", "declared twice"},
	    {"bad-option-default", "default that does not fit"},
	    {"entry-null", "expected a descriptor"},
	    {"no-entry", "expected the symbol berth_provider_entry_v1, got none"},
	    {"init-fails", "expected OK from init, got code 10 (unavailable)"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		refuse(BERTH_TEST_ZOO_DIR, cases[i].name, PROBE, cases[i].part);
		refuse(BERTH_TEST_ZOO_DIR, cases[i].name, NULL, cases[i].part);
	}
}

static void g1_files(void **state)
{
	static const unsigned char class32 = ELFCLASS32, type_exec = ET_EXEC, big_endian = ELFDATA2MSB;
	static const uint16_t machine = EM_S390;
	static const uint64_t no_sections = 0;
	char path[256];
	FILE *file;

	(void)state;
	fixture_path(path, sizeof(path), "text.so");
	file = fopen(path, "w");
	fputs("#!/bin/sh\n", file);
	fclose(file);
	refuse(fixture_dir, "text", PROBE, "expected an ELF shared object");
	fixture_path(path, sizeof(path), "empty.so");
	fclose(fopen(path, "w"));
	refuse(fixture_dir, "empty", PROBE, "expected an ELF shared object");
	copy_good("cut.so", 40);
	refuse(fixture_dir, "cut", PROBE, "cut at 40 bytes");
	copy_good("half.so", 5000);
	refuse(fixture_dir, "half", PROBE, "cut at 5000 bytes");
	/* Without section headers only the segments tell. */
	copy_good("segment.so", 5000);
	patch("segment.so", offsetof(Elf64_Ehdr, e_shoff), &no_sections, sizeof(no_sections));
	refuse(fixture_dir, "segment", PROBE, "cut at 5000 bytes");
	copy_good("small.so", SIZE_MAX);
	patch("small.so", EI_CLASS, &class32, 1);
	refuse(fixture_dir, "small", PROBE, "expected a 64-bit ELF file, got class 1");
	copy_good("order.so", SIZE_MAX);
	patch("order.so", EI_DATA, &big_endian, 1);
	refuse(fixture_dir, "order", PROBE, "byte order");
	copy_good("other.so", SIZE_MAX);
	patch("other.so", offsetof(Elf64_Ehdr, e_machine), &machine, 2);
	refuse(fixture_dir, "other", PROBE, "got one for s390 (22)");
	copy_good("program.so", SIZE_MAX);
	patch("program.so", offsetof(Elf64_Ehdr, e_type), &type_exec, 1);
	refuse(fixture_dir, "program", PROBE, "expected a shared object");
	fixture_path(path, sizeof(path), "folder.so");
	mkdir(path, 0755);
	refuse(fixture_dir, "folder", PROBE, "expected a regular file, got a folder");
	fixture_path(path, sizeof(path), "pipe.so");
	mkfifo(path, 0600);
	refuse(fixture_dir, "pipe", PROBE, "expected a regular file");
}

static void g1_links(void **state)
{
	struct plugin *plugin = NULL;
	struct err err = {0};
	char path[256];

	(void)state;
	fixture_path(path, sizeof(path), "loop.so");
	assert_int_equal(symlink("loop.so", path), 0);
	refuse(fixture_dir, "loop", PROBE, "loop of symbolic links");
	fixture_path(path, sizeof(path), "dangling.so");
	assert_int_equal(symlink("nowhere.so", path), 0);
	refuse(fixture_dir, "dangling", PROBE, "got no such file");
	fixture_path(path, sizeof(path), "good.so");
	assert_int_equal(symlink(BERTH_TEST_ZOO_DIR "/good.so", path), 0);
	if (loader_load(fixture_dir, "good", PROBE, &hostapi_table, &plugin, &err))
		fail_msg("%s", err.msg);
	loader_fini(plugin);
	loader_free(plugin);
}

static void g1_owners(void **state)
{
	char path[256];

	(void)state;
	fixture_path(path, sizeof(path), "good.so");
	copy_good("good.so", SIZE_MAX);
	assert_int_equal(chmod(path, 0664), 0);
	refuse(fixture_dir, "good", PROBE, "only its owner may write, got mode 0664");
	assert_int_equal(chmod(path, 0646), 0);
	refuse(fixture_dir, "good", PROBE, "got mode 0646");
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(chmod(fixture_dir, 0775), 0);
	refuse(fixture_dir, "good", PROBE, "expected a folder that only its owner may write");
	assert_int_equal(chmod(fixture_dir, 0755), 0);
	if (geteuid() != 0)
		return;
	assert_int_equal(chown(path, 12345, 0), 0);
	refuse(fixture_dir, "good", PROBE, "got uid 12345");
	assert_int_equal(chown(path, 0, 0), 0);
	assert_int_equal(chown(fixture_dir, 12345, 0), 0);
	refuse(fixture_dir, "good", PROBE, "expected a folder owned by root");
	assert_int_equal(chown(fixture_dir, 0, 0), 0);
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(seteuid(65534), 0);
	refuse(fixture_dir, "good", PROBE, "cannot be read: Permission denied");
	assert_int_equal(seteuid(0), 0);
}

static void g2_missing(void **state)
{
	struct plugin *plugin = NULL;
	struct err err = {0};

	(void)state;
	refuse(BERTH_TEST_ZOO_DIR, "nosuch", PROBE, "expected the file of provider \"nosuch\", got no such file");
	refuse("/nonexistent", "nosuch", PROBE, "no such file");
	refuse(BERTH_TEST_ZOO_DIR, "missing-library", PROBE, "libzoo_nowhere.so");
	refuse(BERTH_TEST_ZOO_DIR, "missing-library", NULL, "libzoo_nowhere.so");
	refuse(BERTH_TEST_ZOO_DIR, "missing-symbol", PROBE, "undefined symbol: zoo_is_nowhere");
	assert_int_equal(loader_load(BERTH_TEST_ZOO_DIR, "../good", PROBE, &hostapi_table, &plugin, &err), ERR_CONFIG);
	EXPECT_ERR(err, "expected a name of [a-z0-9-]");
}

static void g3_crashes(void **state)
{
	(void)state;
	refuse(BERTH_TEST_ZOO_DIR, "init-crashes", PROBE, "crashed in init: SIGSEGV");
	refuse(BERTH_TEST_ZOO_DIR, "init-exits", PROBE, "ended the process in init with exit status 3");
	refuse(BERTH_TEST_ZOO_DIR, "fini-crashes", PROBE, "crashed in fini: SIG");
}

static void g3_hangs(void **state)
{
	struct err err = {0};
	int fd = open(BERTH_TEST_ZOO_DIR "/init-hangs.so", O_RDONLY | O_CLOEXEC);
	int64_t start = clock_boot_ns();

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(probe_run(PROBE, fd, "/p/init-hangs.so", "init-hangs", 1500, &err), ERR_CONFIG);
	EXPECT_ERR(err, "plugin /p/init-hangs.so: did not come back from init");
	assert_true(clock_boot_ns() - start < 5 * CLOCK_NS_PER_S);
	close(fd);
}

static void g3_prints(void **state)
{
	struct plugin *plugin = NULL;
	struct err err = {0};
	char *text;

	(void)state;
	capture_begin();
	assert_int_equal(loader_load(BERTH_TEST_ZOO_DIR, "init-prints", PROBE, &hostapi_table, &plugin, &err), 0);
	text = capture_end();
	assert_non_null(strstr(text, "a plugin wrote to standard output or error during its probe"));
	assert_non_null(strstr(text, "init-prints.so"));
	assert_non_null(strstr(text, "hello from a plugin"));
	free(text);
	loader_fini(plugin);
	loader_free(plugin);
}

static void g3_process_is_put_back(void **state)
{
	struct sigaction action = {.sa_handler = SIG_IGN}, term;
	struct plugin *plugin = NULL;
	struct err err = {0};
	char before[256], after[256], *text;

	(void)state;
	sigaction(SIGPIPE, &action, NULL);
	umask(022);
	assert_non_null(getcwd(before, sizeof(before)));
	capture_begin();
	assert_int_equal(loader_load(BERTH_TEST_ZOO_DIR, "init-changes", PROBE, &hostapi_table, &plugin, &err), 0);
	text = capture_end();
	assert_non_null(strstr(text, "plugin=init-changes"));
	assert_non_null(strstr(text, "working directory, umask, locale, signal dispositions"));
	free(text);
	assert_non_null(getcwd(after, sizeof(after)));
	assert_string_equal(before, after);
	assert_int_equal(umask(022), 022);
	assert_string_equal(setlocale(LC_ALL, NULL), "C");
	sigaction(SIGPIPE, NULL, &action);
	assert_true(action.sa_handler == SIG_IGN);
	sigaction(SIGTERM, NULL, &term);
	assert_true(term.sa_handler == SIG_DFL);
	loader_fini(plugin);
	loader_free(plugin);
}

static void probe_missing(void **state)
{
	(void)state;
	refuse(BERTH_TEST_ZOO_DIR, "good", "/nonexistent/berthd", "/nonexistent/berthd cannot be started");
	refuse(BERTH_TEST_ZOO_DIR, "good", "/bin/true", "ended the process in the start of the probe");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(good),
	    CASE(two_are_two),
	    CASE(g1_descriptors),
	    CASE(g1_files),
	    CASE(g1_links),
	    CASE(g1_owners),
	    CASE(g2_missing),
	    CASE(g3_crashes),
	    CASE(g3_hangs),
	    CASE(g3_prints),
	    CASE(g3_process_is_put_back),
	    CASE(probe_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
