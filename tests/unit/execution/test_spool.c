/* SPDX-License-Identifier: Apache-2.0 */
/* The spool: bytes in order whatever the chunks, memory then file, limits that never fail the writer, readers beside
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/secret.h"
#include "execution/spool.h"

struct world {
	char dir[64];
	struct watch *watch;
	struct spool *spool;
	struct spool_output *out;
};

static void open_world(struct world *w, int64_t budget)
{
	snprintf(w->dir, sizeof(w->dir), "/tmp/berth-spool-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	w->watch = watch_new();
	assert_int_equal(spool_new(w->dir, budget, w->watch, &w->spool, NULL), 0);
	w->out = spool_output_new(w->spool, "sexec_1");
}

static unsigned files_in(const char *dir)
{
	DIR *d = opendir(dir);
	unsigned count = 0;

	for (struct dirent *e = readdir(d); e; e = readdir(d))
		count += e->d_name[0] != '.';
	closedir(d);
	return count;
}

static void close_world(struct world *w)
{
	spool_output_unref(w->out);
	assert_int_equal(spool_used(w->spool), 0);
	assert_int_equal(files_in(w->dir), 0);
	spool_free(w->spool);
	watch_free(w->watch);
	assert_int_equal(rmdir(w->dir), 0);
}

static void small_output_stays_in_memory(void **state)
{
	struct spool_summary sum;
	struct world w;
	char buf[16], hex[65];
	size_t len;
	bool end;

	(void)state;
	open_world(&w, 1 << 20);
	assert_int_equal(spool_seen(w.out, 1), 0);
	assert_int_equal(spool_seen(w.out, 2), 0);
	assert_int_equal(spool_read(w.out, 1, 0, buf, sizeof(buf), &len, &end, NULL), 0);
	assert_int_equal(len, 0);
	assert_false(end);
	spool_write(w.out, 1, "he\0llo", 6);
	assert_int_equal(spool_read(w.out, 1, 2, buf, sizeof(buf), &len, &end, NULL), 0);
	assert_int_equal(len, 4);
	assert_memory_equal(buf, "\0llo", 4);
	assert_false(end);
	assert_int_equal(spool_read(w.out, 1, 100, buf, sizeof(buf), &len, &end, NULL), 0);
	assert_int_equal(len, 0);
	assert_false(end); /* more may come up to there */
	spool_finish(w.out);
	assert_int_equal(spool_read(w.out, 1, 6, buf, sizeof(buf), &len, &end, NULL), 0);
	assert_true(end);
	spool_summary(w.out, 1, &sum);
	secret_sha256_hex("he\0llo", 6, hex);
	assert_string_equal(sum.sha256, hex);
	assert_null(sum.path);
	assert_int_equal(sum.bytes, 6);
	assert_null(sum.cut_by);
	spool_summary(w.out, 2, &sum);
	secret_sha256_hex("", 0, hex);
	assert_string_equal(sum.sha256, hex);
	assert_int_equal(sum.bytes, 0);
	assert_int_equal(files_in(w.dir), 0);
	close_world(&w);
}

/* Deterministic bytes of any offset. */
static unsigned char byte_at(uint64_t offset)
{
	return (unsigned char)((offset * 2654435761u) >> 13);
}

static void fill(unsigned char *buf, uint64_t offset, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = byte_at(offset + i);
}

static void large_output_goes_to_a_file(void **state)
{
	size_t total = 3 * 1024 * 1024 + 17;
	unsigned char *all = malloc(total);
	struct spool_summary sum;
	struct world w;
	char hex[65];

	(void)state;
	open_world(&w, 1 << 30);
	fill(all, 0, total);
	for (size_t at = 0, step = 1; at < total; at += step, step = step * 7 % 65521 + 1) {
		if (step > total - at)
			step = total - at;
		spool_write(w.out, 2, all + at, step);
	}
	spool_finish(w.out);
	spool_summary(w.out, 2, &sum);
	secret_sha256_hex(all, total, hex);
	assert_string_equal(sum.sha256, hex);
	assert_int_equal(sum.bytes, total);
	assert_non_null(sum.path);
	assert_int_equal(files_in(w.dir), 1);
	for (uint64_t at = 0; at < total; at += 99991) {
		unsigned char buf[5000];
		size_t len;
		bool end;

		assert_int_equal(spool_read(w.out, 2, at, buf, sizeof(buf), &len, &end, NULL), 0);
		assert_memory_equal(buf, all + at, len);
		assert_int_equal(end, at + len == total);
	}
	free(all);
	close_world(&w);
}

static void limits_drop_and_count(void **state)
{
	struct spool_summary sum;
	struct world w;

	(void)state;
	open_world(&w, 10);
	spool_limit(w.out, 1, 4);
	spool_write(w.out, 1, "abcdef", 6);
	spool_write(w.out, 1, "gh", 2);
	spool_write(w.out, 2, "0123456789", 10);
	spool_write(w.out, 2, "x", 1);
	spool_finish(w.out);
	spool_summary(w.out, 1, &sum);
	assert_int_equal(sum.bytes, 4);
	assert_int_equal(sum.dropped, 4);
	assert_string_equal(sum.cut_by, "limit");
	spool_summary(w.out, 2, &sum);
	assert_int_equal(sum.bytes, 6);
	assert_int_equal(sum.dropped, 5);
	assert_string_equal(sum.cut_by, "spool_full");
	assert_memory_equal(sum.ptr, "012345", 6);
	assert_int_equal(spool_seen(w.out, 2), 11);
	close_world(&w);
}

static void nothing_is_kept_after_a_dropped_byte(void **state)
{
	struct spool_summary sum;
	struct spool_output *other;
	struct world w;

	(void)state;
	open_world(&w, 8);
	other = spool_output_new(w.spool, "sexec_2");
	spool_write(other, 1, "xxxxxx", 6);
	spool_write(w.out, 1, "abcd", 4);
	spool_output_unref(other); /* room again, but the stream has a hole now */
	spool_write(w.out, 1, "ef", 2);
	spool_finish(w.out);
	spool_summary(w.out, 1, &sum);
	assert_int_equal(sum.bytes, 2);
	assert_int_equal(sum.dropped, 4);
	close_world(&w);
}

static void an_unwritable_folder_cuts_but_never_fails(void **state)
{
	static char block[LIMIT_INLINE_OBJECT + 1];
	struct spool_summary sum;
	struct world w;

	(void)state;
	open_world(&w, 1 << 20);
	assert_int_equal(rmdir(w.dir), 0);
	spool_write(w.out, 1, "head", 4);
	spool_write(w.out, 1, block, sizeof(block));
	spool_write(w.out, 1, "tail", 4);
	spool_finish(w.out);
	spool_summary(w.out, 1, &sum);
	assert_string_equal(sum.cut_by, "spool_error");
	assert_int_equal(sum.bytes, 4);
	assert_int_equal(sum.dropped, sizeof(block) + 4);
	assert_int_equal(mkdir(w.dir, 0700), 0);
	close_world(&w);
}

static void gaps_move_the_offset(void **state)
{
	struct world w;

	(void)state;
	open_world(&w, 1 << 20);
	spool_write(w.out, 1, "abc", 3);
	spool_gap(w.out, 1, 3, 10);
	spool_write(w.out, 1, "d", 1);
	assert_int_equal(spool_seen(w.out, 1), 11);
	spool_finish(w.out);
	close_world(&w);
}

struct reader {
	struct world *w;
	uint64_t got;
	bool wrong, stuck;
};

struct wait {
	struct reader *r;
	unsigned char buf[4096];
	size_t len;
	bool end;
};

static bool has_more(void *arg)
{
	struct wait *wait = arg;

	spool_read(wait->r->w->out, 1, wait->r->got, wait->buf, sizeof(wait->buf), &wait->len, &wait->end, NULL);
	return wait->len > 0 || wait->end;
}

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	struct wait wait = {.r = r};

	do {
		if (!watch_block(r->w->watch, "out:sexec_1", has_more, &wait, clock_after_ms(20000))) {
			r->stuck = true;
			break;
		}
		for (size_t i = 0; i < wait.len; i++)
			r->wrong |= wait.buf[i] != byte_at(r->got + i);
		r->got += wait.len;
	} while (!wait.end || wait.len > 0);
	return NULL;
}

static void readers_follow_the_writer(void **state)
{
	static unsigned char block[10007];
	struct reader readers[3];
	pthread_t threads[3];
	size_t total = 0;
	struct world w;

	(void)state;
	open_world(&w, 1 << 30);
	for (unsigned i = 0; i < 3; i++) {
		readers[i] = (struct reader){.w = &w};
		pthread_create(&threads[i], NULL, reader_main, &readers[i]);
	}
	for (size_t step = 1; total < 2000000; step = step * 5 % 9973 + 1) {
		fill(block, total, step);
		spool_write(w.out, 1, block, step);
		total += step;
	}
	spool_finish(w.out);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < 3; i++) {
		assert_false(readers[i].stuck);
		assert_false(readers[i].wrong);
		assert_int_equal(readers[i].got, total);
	}
	close_world(&w);
}

/* Where there is no descriptor for the file, nothing is taken; when there is one again nothing is missing. */
static void what_has_no_room_is_refused_and_not_lost(void **state)
{
	static char all[3 * LIMIT_INLINE_OBJECT], back[sizeof(all)];
	struct rlimit before, none;
	struct spool_summary sum;
	struct err err = {0};
	struct world w;
	size_t len;
	bool end;
	int used;

	(void)state;
	for (size_t i = 0; i < sizeof(all); i++)
		all[i] = (char)(i * 7);
	open_world(&w, 1 << 30);
	assert_int_equal(spool_write(w.out, 1, all, 1000), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	used = open("/dev/null", O_RDONLY);
	assert_true(used >= 0);
	none = before;
	none.rlim_cur = (rlim_t)used; /* all below are taken */
	close(used);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(spool_write(w.out, 1, all + 1000, sizeof(all) - 1000), ERR_STORAGE_FULL);
		assert_int_equal(spool_seen(w.out, 1), 1000);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(spool_write(w.out, 1, all + 1000, sizeof(all) - 1000), 0);
	assert_int_equal(spool_read(w.out, 1, 0, back, sizeof(back), &len, &end, &err), 0);
	assert_int_equal(len, sizeof(all));
	assert_memory_equal(back, all, sizeof(all));
	/* Nobody waits any longer. */
	spool_give_up(w.out, 1);
	assert_int_equal(spool_write(w.out, 1, "rest", 4), 0);
	spool_finish(w.out);
	spool_summary(w.out, 1, &sum);
	assert_int_equal(sum.bytes, sizeof(all));
	assert_int_equal(sum.dropped, 4);
	assert_string_equal(sum.cut_by, "spool_error");
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_output_stays_in_memory),
		cmocka_unit_test(large_output_goes_to_a_file),
		cmocka_unit_test(limits_drop_and_count),
		cmocka_unit_test(nothing_is_kept_after_a_dropped_byte),
		cmocka_unit_test(an_unwritable_folder_cuts_but_never_fails),
		cmocka_unit_test(gaps_move_the_offset),
		cmocka_unit_test(readers_follow_the_writer),
		cmocka_unit_test(what_has_no_room_is_refused_and_not_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
