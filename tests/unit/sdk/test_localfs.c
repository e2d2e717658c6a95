/* SPDX-License-Identifier: Apache-2.0 */
/* File operations beneath a local root. Ids name the rows of field failures. */
#include "localfs_fixture.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

static mode_t mode_of(const struct fs_fixture *fx, const char *path)
{
	struct stat st;

	assert_int_equal(fstatat(fx->root_fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode & 07777;
}

static void f1_bytes_come_back(void **state)
{
	struct fs_fixture *fx = *state;
	size_t len = (64u << 20) + 17;
	unsigned char *big = malloc(len);
	static const char crlf[] = "a\r\nb\0c\r";

	assert_non_null(big);
	for (size_t i = 0; i < len; i++)
		big[i] = (unsigned char)(i ^ (i >> 8) ^ (i >> 16));
	assert_int_equal(fs_write(fx, "big", big, len, 0644), BERTH_OK);
	assert_int_equal(fs_read(fx, "big", 0, BERTH_SIZE_UNKNOWN), BERTH_OK);
	assert_data(fx, big, len);
	assert_int_equal(fs_read(fx, "big", 1000000, 300001), BERTH_OK);
	assert_data(fx, big + 1000000, 300001);
	assert_int_equal(fs_read(fx, "big", len - 1, 100), BERTH_OK);
	assert_data(fx, big + len - 1, 1);
	assert_int_equal(fs_read(fx, "big", len + 5, BERTH_SIZE_UNKNOWN), BERTH_OK);
	assert_data(fx, "", 0);
	assert_int_equal(fs_read(fx, "big", UINT64_MAX, UINT64_MAX), BERTH_OK);
	assert_int_equal(fs_write(fx, "empty", "", 0, 0644), BERTH_OK);
	assert_int_equal(fs_read(fx, "empty", 0, BERTH_SIZE_UNKNOWN), BERTH_OK);
	assert_data(fx, "", 0);
	assert_int_equal(fs_write(fx, "crlf", crlf, sizeof(crlf), 0644), BERTH_OK);
	assert_int_equal(fs_read(fx, "crlf", 0, BERTH_SIZE_UNKNOWN), BERTH_OK);
	assert_data(fx, crlf, sizeof(crlf));
	assert_int_equal(leftovers(fx), 0);
	free(big);
}

static void modes_are_exact_and_parents_made(void **state)
{
	struct fs_fixture *fx = *state;
	static const uint32_t modes[] = {0777, 0755, 0644, 0600, 0400, 0001};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		assert_int_equal(fs_write(fx, "a/b/file", "x", 1, modes[i]), BERTH_OK);
		assert_int_equal(mode_of(fx, "a/b/file"), modes[i]);
	}
	assert_int_equal(mode_of(fx, "a"), 0755);
	assert_int_equal(mode_of(fx, "a/b"), 0755);
	assert_int_equal(fs_write(fx, "f", "x", 1, 0), BERTH_INVALID);
	assert_int_equal(fs_write(fx, "f", "x", 1, 04755), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "mode");
}

static void write_is_all_or_nothing(void **state)
{
	struct fs_fixture *fx = *state;
	struct berth_file_write write = {
		.struct_size = sizeof(write), .mode = 0644, .path = fake_str("f"), .size = BERTH_SIZE_UNKNOWN};
	struct berth_call *call;

	assert_int_equal(fs_write(fx, "f", "before", 6, 0644), BERTH_OK);
	call = next_call(fx);
	call->source = "after";
	call->source_len = 5;
	call->source_end = BERTH_INVALID;
	assert_int_equal(berth_localfs_write(&fake_host, call, &fx->fs, &write), BERTH_INVALID);
	call = next_call(fx);
	call->source = "after";
	call->source_len = 5;
	write.size = 6;
	assert_int_equal(berth_localfs_write(&fake_host, call, &fx->fs, &write), BERTH_INVALID);
	assert_string_equal(call->reason, "size_mismatch");
	assert_int_equal(fs_read(fx, "f", 0, BERTH_SIZE_UNKNOWN), BERTH_OK);
	assert_data(fx, "before", 6);
	assert_int_equal(leftovers(fx), 0);
}

static void directories_and_devices_are_refused(void **state)
{
	struct fs_fixture *fx = *state;

	assert_int_equal(mkdirat(fx->root_fd, "dir", 0755), 0);
	assert_int_equal(mkdirat(fx->root_fd, "full", 0755), 0);
	assert_int_equal(mkdirat(fx->root_fd, "full/x", 0755), 0);
	assert_int_equal(mkfifoat(fx->root_fd, "fifo", 0644), 0);
	assert_int_equal(fs_write(fx, "dir", "x", 1, 0644), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "is_directory");
	assert_int_equal(fs_write(fx, "full", "x", 1, 0644), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "is_directory");
	assert_int_equal(fs_write(fx, ".", "x", 1, 0644), BERTH_INVALID);
	assert_int_equal(fs_read(fx, "dir", 0, 1), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "is_directory");
	assert_int_equal(fs_read(fx, "fifo", 0, 1), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "not_regular");
	assert_int_equal(fs_read(fx, "none", 0, 1), BERTH_NOT_FOUND);
	assert_int_equal(fs_read(fx, "none/x", 0, 1), BERTH_NOT_FOUND);
	if (geteuid() == 0 && mknodat(fx->root_fd, "zero", S_IFCHR | 0644, makedev(1, 5)) == 0) {
		assert_int_equal(fs_read(fx, "zero", 0, 1), BERTH_INVALID);
		assert_string_equal(fx->call.reason, "not_regular");
	}
	assert_int_equal(fs_list(fx, "fifo", 0), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "not_directory");
}

static void f2_links_that_leave_are_refused_in_every_verb(void **state)
{
	struct fs_fixture *fx = *state;
	static const char *const targets[] = {"/etc", "/proc/1", "..", "/", "../outside", "/proc/self/root"};
	static const char *const below[] = {"l", "l/passwd", "l/secret", "l/a/b"};

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		assert_int_equal(symlinkat(targets[i], fx->root_fd, "l"), 0);
		for (size_t j = 0; j < sizeof(below) / sizeof(below[0]); j++) {
			assert_int_equal(fs_read(fx, below[j], 0, 1), BERTH_INVALID);
			assert_string_equal(fx->call.reason, "path_escapes");
			assert_int_equal(fs_write(fx, below[j], "x", 1, 0644), BERTH_INVALID);
			assert_string_equal(fx->call.reason, "path_escapes");
			assert_int_equal(fs_stat(fx, below[j]), BERTH_INVALID);
			assert_string_equal(fx->call.reason, "path_escapes");
			assert_int_equal(fs_list(fx, below[j], BERTH_LIST_RECURSIVE), BERTH_INVALID);
			assert_int_equal(fs_import(fx, below[j], "", 0), BERTH_INVALID);
			assert_int_equal(fs_export(fx, below[j]), BERTH_INVALID);
			if (j == 0)
				continue; /* the link itself may be moved and removed */
			assert_int_equal(fs_remove(fx, below[j], BERTH_REMOVE_RECURSIVE), BERTH_INVALID);
			assert_int_equal(fs_move(fx, below[j], "m"), BERTH_INVALID);
			assert_int_equal(fs_move(fx, "l", below[j]), BERTH_INVALID);
		}
		assert_int_equal(fs_move(fx, "l", "m"), BERTH_OK);
		assert_int_equal(fs_remove(fx, "m", BERTH_REMOVE_RECURSIVE), BERTH_OK);
	}
	assert_int_equal(faccessat(fx->outside, "secret", F_OK, 0), 0);
	assert_int_equal(access("/etc/passwd", F_OK), 0);
}

static void links_that_stay_inside_are_followed(void **state)
{
	struct fs_fixture *fx = *state;

	assert_int_equal(fs_write(fx, "d/f", "inside", 6, 0644), BERTH_OK);
	assert_int_equal(symlinkat("d", fx->root_fd, "l"), 0);
	assert_int_equal(symlinkat("../d/f", fx->root_fd, "d/self"), 0);
	assert_int_equal(fs_read(fx, "l/f", 0, 100), BERTH_OK);
	assert_data(fx, "inside", 6);
	assert_int_equal(fs_read(fx, "d/self", 0, 100), BERTH_OK);
	assert_data(fx, "inside", 6);
	assert_int_equal(fs_stat(fx, "l"), BERTH_OK);
	assert_int_equal(fx->call.files[0].kind, BERTH_FILE_SYMLINK);
	/* A write replaces the link, as rename does. */
	assert_int_equal(fs_write(fx, "d/self", "new", 3, 0644), BERTH_OK);
	assert_int_equal(fs_read(fx, "d/f", 0, 100), BERTH_OK);
	assert_data(fx, "inside", 6);
}

struct swap {
	struct fs_fixture *fx;
	atomic_bool stop;
};

/* Exchanges a real directory and a link to the outside as fast as it can. */
static void *swapper(void *ctx)
{
	struct swap *swap = ctx;
	int root = swap->fx->root_fd;

	while (!atomic_load(&swap->stop))
		syscall(SYS_renameat2, root, "d", root, "l", 2u /* RENAME_EXCHANGE */);
	return NULL;
}

static void f2_links_swapped_during_open_do_not_leave(void **state)
{
	struct fs_fixture *fx = *state;
	struct swap swap = {.fx = fx};
	pthread_t thread;
	char text[16] = "";
	int read_inside = 0, fd;

	assert_int_equal(mkdirat(fx->root_fd, "d", 0755), 0);
	put_file(fx->root_fd, "d/secret", "inside", 6);
	assert_int_equal(symlinkat("../outside", fx->root_fd, "l"), 0);
	assert_int_equal(pthread_create(&thread, NULL, swapper, &swap), 0);
	for (int i = 0; i < 3000 || read_inside == 0; i++) {
		if (fs_read(fx, "d/secret", 0, 100) == BERTH_OK) {
			assert_data(fx, "inside", 6);
			read_inside++;
		} else {
			assert_data(fx, "", 0);
		}
		(void)fs_write(fx, "d/written", "x", 1, 0644);
		(void)fs_write(fx, "d/sub/written", "x", 1, 0644);
		if (fs_list(fx, "d", BERTH_LIST_RECURSIVE) == BERTH_OK)
			assert_true(listed(fx, "d/secret") && listed(fx, "d/secret")->size == 6);
		(void)fs_remove(fx, "d/sub", BERTH_REMOVE_RECURSIVE);
		(void)fs_move(fx, "d/written", "d/moved");
		assert_true(i < 200000);
	}
	atomic_store(&swap.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(faccessat(fx->outside, "written", F_OK, 0) < 0);
	assert_true(faccessat(fx->outside, "sub", F_OK, 0) < 0);
	assert_true(faccessat(fx->outside, "moved", F_OK, 0) < 0);
	fd = openat(fx->outside, "secret", O_RDONLY | O_CLOEXEC);
	assert_int_equal(read(fd, text, sizeof(text)), 6);
	assert_string_equal(text, "secret");
	close(fd);
}

static void f3_bad_paths_are_refused_in_every_verb(void **state)
{
	struct fs_fixture *fx = *state;
	char long_name[300], long_path[4200];
	const char *const bad[] = {"../x", "a/../../b", "a/..", "..", "//etc", "/etc", "a//b", "a/", "./a", "a/./b", "",
				   long_name, long_path};

	memset(long_name, 'n', sizeof(long_name) - 1);
	long_name[256] = '\0';
	for (size_t i = 0; i < sizeof(long_path); i++)
		long_path[i] = i % 100 == 99 ? '/' : 'p';
	long_path[4097] = '\0';
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(fs_read(fx, bad[i], 0, 1), BERTH_INVALID);
		assert_int_equal(fs_write(fx, bad[i], "x", 1, 0644), BERTH_INVALID);
		assert_int_equal(fs_stat(fx, bad[i]), BERTH_INVALID);
		assert_int_equal(fs_list(fx, bad[i], 0), BERTH_INVALID);
		assert_int_equal(fs_remove(fx, bad[i], BERTH_REMOVE_RECURSIVE), BERTH_INVALID);
		assert_int_equal(fs_move(fx, bad[i], "x"), BERTH_INVALID);
		assert_int_equal(fs_move(fx, "x", bad[i]), BERTH_INVALID);
		assert_int_equal(fs_import(fx, bad[i], "", 0), BERTH_INVALID);
		assert_int_equal(fs_export(fx, bad[i]), BERTH_INVALID);
	}
	/* Odd but plain names are names. */
	assert_int_equal(fs_write(fx, "%2e%2e%2f", "x", 1, 0644), BERTH_OK);
	assert_int_equal(fs_write(fx, "\\..\\", "x", 1, 0644), BERTH_OK);
	assert_int_equal(fs_write(fx, "C:\\x", "x", 1, 0644), BERTH_OK);
	assert_int_equal(fs_write(fx, "new\nline", "x", 1, 0644), BERTH_OK);
	assert_int_equal(fs_write(fx, "...", "x", 1, 0644), BERTH_OK);
	assert_int_equal(fs_list(fx, ".", 0), BERTH_OK);
	assert_int_equal(fx->call.file_count, 5);
}

static void list_reports_everything_but_temporary_names(void **state)
{
	struct fs_fixture *fx = *state;

	assert_int_equal(fs_write(fx, "a/b/c", "123", 3, 0600), BERTH_OK);
	assert_int_equal(fs_write(fx, ".hidden", "", 0, 0644), BERTH_OK);
	assert_int_equal(symlinkat("/etc", fx->root_fd, "a/out"), 0);
	assert_int_equal(mkfifoat(fx->root_fd, "a/fifo", 0644), 0);
	put_file(fx->root_fd, ".berth-0123.tmp", "x", 1);
	put_file(fx->root_fd, ".berth-config", "x", 1);
	assert_int_equal(fs_list(fx, ".", BERTH_LIST_RECURSIVE), BERTH_OK);
	assert_int_equal(fx->call.file_count, 7);
	assert_int_equal(listed(fx, "a")->kind, BERTH_FILE_DIRECTORY);
	assert_int_equal(listed(fx, "a/b")->kind, BERTH_FILE_DIRECTORY);
	assert_int_equal(listed(fx, "a/b/c")->size, 3);
	assert_int_equal(listed(fx, "a/b/c")->mode, 0600);
	assert_int_equal(listed(fx, "a/out")->kind, BERTH_FILE_SYMLINK);
	assert_int_equal(listed(fx, "a/fifo")->kind, BERTH_FILE_OTHER);
	assert_non_null(listed(fx, ".hidden"));
	assert_non_null(listed(fx, ".berth-config"));
	assert_int_equal(fs_list(fx, "a", 0), BERTH_OK);
	assert_int_equal(fx->call.file_count, 3);
	assert_non_null(listed(fx, "a/b"));
	struct berth_str root = fake_str(".");
	next_call(fx)->file_limit = 2;
	assert_int_equal(berth_localfs_list(&fake_host, &fx->call, &fx->fs, &root, BERTH_LIST_RECURSIVE), BERTH_QUOTA);
	assert_int_equal(fs_list(fx, "nope", 0), BERTH_NOT_FOUND);
}

static void deep_and_wide_trees(void **state)
{
	struct fs_fixture *fx = *state;
	int at = dup(fx->root_fd), next;

	for (int i = 0; i < 500; i++) {
		assert_int_equal(mkdirat(at, "d", 0755), 0);
		next = openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(at);
		at = next;
	}
	assert_int_equal(fs_list(fx, ".", BERTH_LIST_RECURSIVE), BERTH_OK);
	assert_int_equal(fx->call.file_count, 500);
	assert_int_equal(fx->call.logs, 0);
	/* Beyond what a path can name the list leaves out, not without a word: who works there must not break it. */
	for (int i = 0; i < 100; i++) {
		assert_int_equal(mkdirat(at, "d", 0755), 0);
		next = openat(at, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(at);
		at = next;
	}
	close(at);
	assert_int_equal(fs_list(fx, ".", BERTH_LIST_RECURSIVE), BERTH_OK);
	assert_int_equal(fx->call.file_count, 512); /* 1023 bytes */
	assert_int_equal(fx->call.logs, 1);
	assert_non_null(strstr(fx->call.log, "1 "));
	assert_int_equal(fs_export(fx, "."), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "path_too_long");
	assert_int_equal(fs_remove(fx, "d", BERTH_REMOVE_RECURSIVE), BERTH_OK);
	assert_int_equal(fs_list(fx, ".", BERTH_LIST_RECURSIVE), BERTH_OK);
	assert_int_equal(fx->call.file_count, 0);
}

static void remove_and_move(void **state)
{
	struct fs_fixture *fx = *state;

	assert_int_equal(fs_write(fx, "a/b/c", "1", 1, 0644), BERTH_OK);
	assert_int_equal(fs_remove(fx, "a", 0), BERTH_CONFLICT);
	assert_string_equal(fx->call.reason, "not_empty");
	assert_int_equal(fs_move(fx, "a/b/c", "x/y/z"), BERTH_OK);
	assert_int_equal(fs_read(fx, "x/y/z", 0, 9), BERTH_OK);
	assert_data(fx, "1", 1);
	assert_int_equal(fs_remove(fx, "a/b", 0), BERTH_OK);
	assert_int_equal(fs_remove(fx, "a/b", 0), BERTH_NOT_FOUND);
	assert_int_equal(fs_remove(fx, "x/y/z/below", 0), BERTH_NOT_FOUND);
	assert_int_equal(symlinkat("../../outside", fx->root_fd, "x/y/out"), 0);
	assert_int_equal(fs_remove(fx, "x", BERTH_REMOVE_RECURSIVE), BERTH_OK);
	assert_int_equal(faccessat(fx->outside, "secret", F_OK, 0), 0);
	assert_int_equal(fs_remove(fx, ".", BERTH_REMOVE_RECURSIVE), BERTH_INVALID);
	assert_int_equal(fs_move(fx, "none", "new/dir/x"), BERTH_NOT_FOUND);
	assert_true(faccessat(fx->root_fd, "new", F_OK, 0) < 0);
	assert_int_equal(fs_write(fx, "one", "1", 1, 0644), BERTH_OK);
	assert_int_equal(fs_write(fx, "two", "2", 1, 0644), BERTH_OK);
	assert_int_equal(fs_move(fx, "one", "two"), BERTH_OK);
	assert_int_equal(fs_read(fx, "two", 0, 9), BERTH_OK);
	assert_data(fx, "1", 1);
}

static int told, told_gone;
static char mark[64];

static int32_t count_change(struct berth_call *call, const struct berth_change *change)
{
	(void)call;
	told++;
	told_gone += change->kind == 0;
	return BERTH_OK;
}

static int32_t keep_token(struct berth_call *call, const struct berth_str *token)
{
	(void)call;
	snprintf(mark, sizeof(mark), "%.*s", (int)token->len, token->ptr);
	return BERTH_OK;
}

/* Of what the mark knew "open/gone" is gone; the closed folders have other modes, and nobody can say what is in them. */
static int mark_with_closed_folders(struct fs_fixture *fx, const struct berth_host *host, int marks_fd)
{
	struct berth_str token = fake_str(mark);
	size_t unnamed = 0;
	int step = 0;

	step += berth_localfs_changes(host, next_call(fx), &fx->fs, marks_fd, &token, &unnamed) == BERTH_OK;
	step += told == 3 && told_gone == 1 && unnamed == 2;
	step += berth_localfs_mark(host, next_call(fx), &fx->fs, marks_fd, &unnamed) == BERTH_OK && unnamed == 2;
	told = 0;
	token = fake_str(mark);
	step += berth_localfs_changes(host, next_call(fx), &fx->fs, marks_fd, &token, &unnamed) == BERTH_OK && !told;
	return step;
}

/* As the files' user, whom modes bind. */
static int look_at_closed_folders(struct fs_fixture *fx, const struct berth_host *host, int marks_fd)
{
	int step = 0;

	if (geteuid() == 0 && (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
		return 77;
	step += fs_list(fx, ".", BERTH_LIST_RECURSIVE) == BERTH_OK && fx->call.file_count == 4;
	step += listed(fx, "open/f") && listed(fx, "closed") && listed(fx, "blind") && !listed(fx, "blind/f");
	step += fx->call.logs == 1 && strncmp(fx->call.log, "2 ", 2) == 0;
	step += fs_list(fx, "closed", 0) == BERTH_FORBIDDEN && strcmp(fx->call.reason, "access") == 0;
	step += fs_export(fx, ".") == BERTH_FORBIDDEN && strcmp(fx->call.reason, "access") == 0;
	return step + mark_with_closed_folders(fx, host, marks_fd);
}

static void folders_whose_mode_forbids_a_look_break_no_list(void **state)
{
	struct fs_fixture *fx = *state;
	struct berth_host host = fake_host;
	int marks_fd, status;
	size_t unnamed;
	pid_t pid;

	assert_int_equal(fchmodat(AT_FDCWD, fx->base, 0755, 0), 0);
	assert_int_equal(fchmodat(AT_FDCWD, fx->root, 0755, 0), 0);
	assert_int_equal(fs_write(fx, "open/f", "x", 1, 0644), BERTH_OK);
	assert_int_equal(fs_write(fx, "closed/f", "x", 1, 0644), BERTH_OK);
	assert_int_equal(fs_write(fx, "blind/f", "x", 1, 0644), BERTH_OK);
	assert_int_equal(fs_write(fx, "open/gone", "x", 1, 0644), BERTH_OK);
	host.emit_change = count_change;
	host.emit_token = keep_token;
	/* A directory that anyone may write to. */
	marks_fd = openat(fx->outside, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fchmod(marks_fd, 0777), 0);
	assert_int_equal(berth_localfs_mark(&host, next_call(fx), &fx->fs, marks_fd, &unnamed), BERTH_OK);
	/* Who works there later must be able to read it. */
	assert_int_equal(fchmodat(marks_fd, mark, 0644, 0), 0);
	assert_int_equal(unlinkat(fx->root_fd, "open/gone", 0), 0);
	assert_int_equal(fchmodat(fx->root_fd, "closed", 0, 0), 0);
	assert_int_equal(fchmodat(fx->root_fd, "blind", 0444, 0), 0); /* names, and no more */
	pid = fork();
	if (pid == 0)
		_exit(look_at_closed_folders(fx, &host, marks_fd));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(fchmodat(fx->root_fd, "closed", 0755, 0), 0);
	assert_int_equal(fchmodat(fx->root_fd, "blind", 0755, 0), 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 9);
	close(marks_fd);
}

#define MANY 1500

static void make_many(struct fs_fixture *fx)
{
	static const char *const dirs[] = {"many", "many/a", "many/b"};
	char name[32];

	for (size_t i = 0; i < 3; i++)
		(void)mkdirat(fx->root_fd, dirs[i], 0755);
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%s/%d", dirs[i % 3], i);
		put_file(fx->root_fd, name, "", 0);
	}
}

static size_t count_many(struct fs_fixture *fx)
{
	assert_int_equal(fs_list(fx, "many", BERTH_LIST_RECURSIVE), BERTH_OK);
	return fx->call.file_count;
}

/* With a session's whole tree to go through, an operation still ends by its deadline and soon after a cancel. */
static void large_trees_are_left_at_the_deadline_and_the_cancel(void **state)
{
	struct fs_fixture *fx = *state;
	struct berth_str many = fake_str("many");
	size_t left;

	make_many(fx);
	next_call(fx)->deadline_ns = fake_now_ns() - 1;
	assert_int_equal(berth_localfs_remove(&fake_host, &fx->call, &fx->fs, &many, BERTH_REMOVE_RECURSIVE),
			 BERTH_TIMEOUT);
	assert_string_equal(fx->call.reason, "deadline");
	assert_int_equal(fx->call.fails, 1);
	next_call(fx)->deadline_ns = fake_now_ns() - 1;
	assert_int_equal(berth_localfs_list(&fake_host, &fx->call, &fx->fs, &many, BERTH_LIST_RECURSIVE),
			 BERTH_TIMEOUT);
	assert_int_equal(count_many(fx), MANY + 2);
	next_call(fx)->cancel_after = 3;
	assert_int_equal(berth_localfs_list(&fake_host, &fx->call, &fx->fs, &many, BERTH_LIST_RECURSIVE),
			 BERTH_CANCELLED);
	assert_true(fx->call.file_count > 0 && fx->call.file_count < MANY);
	next_call(fx)->cancel_after = 3;
	assert_int_equal(berth_localfs_remove(&fake_host, &fx->call, &fx->fs, &many, BERTH_REMOVE_RECURSIVE),
			 BERTH_CANCELLED);
	left = count_many(fx);
	assert_true(left > 0 && left < MANY);
	assert_int_equal(fs_remove(fx, "many", BERTH_REMOVE_RECURSIVE), BERTH_OK);
	assert_true(faccessat(fx->root_fd, "many", F_OK, 0) < 0);
}

static void pass_the_deadline(void *ctx)
{
	((struct berth_call *)ctx)->deadline_ns = 1;
}

static void stop_it(void *ctx)
{
	atomic_store(&((struct berth_call *)ctx)->cancel, BERTH_CANCEL_STOP);
}

/* Read, written, given out and taken in, with the first bytes that move telling it to end. */
static void must_hear(struct fs_fixture *fx, const char *bytes, size_t len, void (*tell)(void *ctx), int32_t want)
{
	struct berth_str big = fake_str("big"), root = fake_str(".");
	struct berth_file_write write = {
		.struct_size = sizeof(write), .mode = 0644, .path = fake_str("new"), .size = BERTH_SIZE_UNKNOWN};

	for (int op = 0; op < 4; op++) {
		struct berth_call *call = next_call(fx);
		int32_t rc;

		call->hook = tell;
		call->hook_ctx = call;
		call->source = bytes;
		call->source_len = len;
		rc = op == 0   ? berth_localfs_read(&fake_host, call, &fx->fs, &big, 0, BERTH_SIZE_UNKNOWN)
		     : op == 1 ? berth_localfs_write(&fake_host, call, &fx->fs, &write)
		     : op == 2 ? berth_localfs_export(&fake_host, call, &fx->fs, &big, 1)
			       : berth_localfs_import(&fake_host, call, &fx->fs, &root);
		assert_int_equal(rc, want);
		assert_true(call->stream[BERTH_STREAM_DATA].len < len && call->source_len > 0);
	}
	assert_int_equal(leftovers(fx), 0);
	assert_true(faccessat(fx->root_fd, "new", F_OK, 0) < 0);
}

static void moving_bytes_hear_the_deadline_and_the_cancel(void **state)
{
	struct fs_fixture *fx = *state;
	size_t len = 2u << 20;
	char *tar;

	assert_non_null(tar = malloc(len));
	memset(tar, 'x', len);
	assert_int_equal(fs_write(fx, "big", tar, len, 0644), BERTH_OK);
	free(tar);
	assert_int_equal(fs_export(fx, "big"), BERTH_OK);
	len = fx->call.stream[BERTH_STREAM_DATA].len;
	assert_non_null(tar = malloc(len));
	memcpy(tar, fx->call.stream[BERTH_STREAM_DATA].ptr, len);
	must_hear(fx, tar, len, pass_the_deadline, BERTH_TIMEOUT);
	must_hear(fx, tar, len, stop_it, BERTH_CANCELLED);
	free(tar);
}

#define WIDE 4000
#define WIDE_HEAP (256u << 10)

/* Directories with long names, each of which holds one more. */
static void make_wide(int dir)
{
	char name[240];

	for (int i = 0; i < WIDE; i++) {
		snprintf(name, sizeof(name), "%0200d", i);
		assert_int_equal(mkdirat(dir, name, 0755), 0);
		snprintf(name, sizeof(name), "%0200d/below", i);
		assert_int_equal(mkdirat(dir, name, 0755), 0);
	}
}

static size_t heap_peak;

/* Asked every few entries. */
static uint32_t look_at_heap(struct berth_call *call)
{
	size_t heap = mallinfo2().uordblks;

	(void)call;
	heap_peak = heap > heap_peak ? heap : heap_peak;
	return BERTH_CANCEL_NONE;
}

static void removal_of_a_wide_tree_takes_little_memory(void **state)
{
	struct fs_fixture *fx = *state;
	struct berth_host host = fake_host;
	struct berth_str wide = fake_str("wide");
	size_t before;
	int dir;

	host.cancel_state = look_at_heap;
	assert_int_equal(mkdirat(fx->root_fd, "wide", 0755), 0);
	dir = openat(fx->root_fd, "wide", O_PATH | O_DIRECTORY | O_CLOEXEC);
	make_wide(dir);
	close(dir);
	next_call(fx)->deadline_ns = 0;
	before = heap_peak = mallinfo2().uordblks;
	assert_int_equal(berth_localfs_remove(&host, &fx->call, &fx->fs, &wide, BERTH_REMOVE_RECURSIVE), BERTH_OK);
	assert_true(faccessat(fx->root_fd, "wide", F_OK, 0) < 0);
	assert_in_range(heap_peak - before, 0, WIDE_HEAP);
}

static size_t directories_sent;

/* Headers of directories; a chunk is whole blocks. */
static int32_t count_directories(struct berth_call *call, uint32_t stream, const void *ptr, size_t len)
{
	const char *at = ptr;

	(void)call, (void)stream;
	for (size_t i = 0; i + 512 <= len; i += 512)
		directories_sent += memcmp(at + i + 257, "ustar", 5) == 0 && at[i + 156] == '5';
	return BERTH_OK;
}

static int32_t count_files(struct berth_call *call, const struct berth_file_info *info)
{
	(void)call;
	directories_sent += info->kind == BERTH_FILE_DIRECTORY;
	return BERTH_OK;
}

static void reading_a_wide_tree_takes_little_memory(void **state)
{
	struct fs_fixture *fx = *state;
	struct berth_host host = fake_host;
	struct berth_str root = fake_str(".");
	size_t before;

	host.cancel_state = look_at_heap;
	host.sink_write = count_directories;
	host.emit_file = count_files;
	make_wide(fx->root_fd);
	next_call(fx)->deadline_ns = 0;
	before = heap_peak = mallinfo2().uordblks;
	assert_int_equal(berth_localfs_list(&host, &fx->call, &fx->fs, &root, BERTH_LIST_RECURSIVE), BERTH_OK);
	assert_int_equal(directories_sent, 2 * WIDE);
	directories_sent = 0;
	assert_int_equal(berth_localfs_export(&host, &fx->call, &fx->fs, &root, 1), BERTH_OK);
	assert_int_equal(directories_sent, 2 * WIDE);
	assert_in_range(heap_peak - before, 0, 2 * WIDE_HEAP); /* an export has a buffer of its own */
}

#define NESTED 100
#define NESTED_WIDE 130

/* So many wide directories within one another that not all can be left open. */
static void a_pile_of_wide_directories_is_left_out_of_a_list(void **state)
{
	struct fs_fixture *fx = *state;
	int at = dup(fx->root_fd), next;
	char name[16];

	for (int i = 0; i < NESTED; i++) {
		for (int n = 0; n < NESTED_WIDE; n++) {
			snprintf(name, sizeof(name), "%03d", n);
			assert_int_equal(mkdirat(at, name, 0755), 0);
		}
		next = openat(at, "000", O_PATH | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(at);
		at = next;
		if (i == 9) { /* that many are no pile */
			assert_int_equal(fs_list(fx, ".", BERTH_LIST_RECURSIVE), BERTH_OK);
			assert_int_equal(fx->call.file_count, 10 * NESTED_WIDE);
			assert_int_equal(fx->call.logs, 0);
		}
	}
	close(at);
	assert_int_equal(fs_list(fx, ".", BERTH_LIST_RECURSIVE), BERTH_OK);
	assert_int_equal(fx->call.logs, 1);
	assert_in_range(fx->call.file_count, 64 * NESTED_WIDE, NESTED * NESTED_WIDE);
	next_call(fx)->discard = true;
	struct berth_str root = fake_str(".");
	assert_int_equal(berth_localfs_export(&fake_host, &fx->call, &fx->fs, &root, 1), BERTH_INVALID);
	assert_string_equal(fx->call.reason, "tree_too_wide");
}

static void another_owner(void **state)
{
	struct fs_fixture *fx = *state;
	struct stat st;

	if (geteuid() != 0)
		skip();
	fx->fs.uid = 65534;
	fx->fs.gid = 65533;
	assert_int_equal(fs_write(fx, "made/f", "x", 1, 0640), BERTH_OK);
	assert_int_equal(fstatat(fx->root_fd, "made/f", &st, 0), 0);
	assert_true(st.st_uid == 65534 && st.st_gid == 65533 && (st.st_mode & 07777) == 0640);
	assert_int_equal(fstatat(fx->root_fd, "made", &st, 0), 0);
	assert_true(st.st_uid == 65534 && st.st_gid == 65533);
}

static void full_storage_is_told(void **state)
{
	struct fs_fixture *fx = *state;
	struct berth_localfs full = fx->fs;
	struct berth_file_write write = {
		.struct_size = sizeof(write), .mode = 0644, .path = fake_str("f"), .size = 1u << 20};
	static char bytes[1u << 20];
	char path[120];
	int32_t rc;

	snprintf(path, sizeof(path), "%s/full", fx->base);
	assert_int_equal(mkdir(path, 0755), 0);
	if (syscall(SYS_mount, "tmpfs", path, "tmpfs", 0, "size=64k") < 0)
		skip();
	full.root_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	next_call(fx)->source = bytes;
	fx->call.source_len = sizeof(bytes);
	rc = berth_localfs_write(&fake_host, &fx->call, &full, &write);
	close(full.root_fd);
	assert_int_equal(syscall(SYS_umount2, path, 2 /* MNT_DETACH */), 0);
	assert_int_equal(rc, BERTH_STORAGE_FULL);
}

/* What a kernel without openat2 does: every link is refused, plain paths work. In a process of its own. */
static void without_openat2(void **state)
{
	struct fs_fixture *fx = *state;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int step = 0;

		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
			_exit(77);
		step += fs_write(fx, "a/b/f", "x", 1, 0644) == BERTH_OK;
		step += fs_read(fx, "a/b/f", 0, 9) == BERTH_OK;
		step += fs_list(fx, ".", BERTH_LIST_RECURSIVE) == BERTH_OK && fx->call.file_count == 3;
		step += symlinkat("../outside", fx->root_fd, "l") == 0;
		step += symlinkat("../outside/secret", fx->root_fd, "s") == 0;
		step += fs_read(fx, "l/secret", 0, 9) != BERTH_OK;
		step += fs_read(fx, "s", 0, 9) == BERTH_INVALID;
		step += fs_write(fx, "l/x", "x", 1, 0644) != BERTH_OK;
		step += fs_list(fx, "l", 0) != BERTH_OK;
		step += fs_remove(fx, "l/secret", 0) != BERTH_OK;
		_exit(step);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 10);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fs_setup, fs_teardown)
	const struct CMUnitTest tests[] = {
		TEST(f1_bytes_come_back),
		TEST(modes_are_exact_and_parents_made),
		TEST(write_is_all_or_nothing),
		TEST(directories_and_devices_are_refused),
		TEST(f2_links_that_leave_are_refused_in_every_verb),
		TEST(links_that_stay_inside_are_followed),
		TEST(f2_links_swapped_during_open_do_not_leave),
		TEST(f3_bad_paths_are_refused_in_every_verb),
		TEST(list_reports_everything_but_temporary_names),
		TEST(deep_and_wide_trees),
		TEST(remove_and_move),
		TEST(folders_whose_mode_forbids_a_look_break_no_list),
		TEST(large_trees_are_left_at_the_deadline_and_the_cancel),
		TEST(moving_bytes_hear_the_deadline_and_the_cancel),
		TEST(removal_of_a_wide_tree_takes_little_memory),
		TEST(reading_a_wide_tree_takes_little_memory),
		TEST(a_pile_of_wide_directories_is_left_out_of_a_list),
		TEST(another_owner),
		TEST(full_storage_is_told),
		TEST(without_openat2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
