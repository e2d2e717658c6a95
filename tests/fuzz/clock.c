/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the rows that the store keeps about itself, in a real database: the clock's mark (first byte 'c'), the
 * schema's number, the deployment and the id ('s', separated by newlines).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "store/sqlite/sqlite.h"

static struct conn *conn;

static void close_conn(void)
{
	conn_close(conn);
}

static void prepare(void)
{
	static char path[4200];
	struct store_clock clock = {.time_ms = 1700000000000, .boot_ns = 1, .boot_id = "0"};
	struct conn *create = NULL;

	if (conn)
		return;
	fuzz_quiet();
	snprintf(path, sizeof(path), "%s/berth.db", fuzz_folder());
	fuzz_write_file(fuzz_folder_fd(), "berth.db", "", 0);
	FUZZ_CHECK(conn_open(path, "berth.db", CONN_CREATE, &create, NULL) == 0);
	FUZZ_CHECK(schema_create(create, "0123456789abcdef0123456789abcdef", "fuzz", &clock, NULL) == 0);
	conn_close(create);
	FUZZ_CHECK(conn_open(path, "berth.db", CONN_WRITER, &conn, NULL) == 0);
	FUZZ_CHECK(conn_exec(conn, "PRAGMA synchronous=OFF; PRAGMA journal_mode=OFF", NULL) == 0);
	atexit(close_conn);
}

static void put(const char *key, const char *doc, size_t len)
{
	sqlite3_stmt *stmt;

	FUZZ_CHECK(conn_plain(conn, STMT_PLAIN_META_SET, &stmt, NULL) == 0);
	sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
	sqlite3_bind_text(stmt, 2, doc, (int)len, SQLITE_STATIC);
	FUZZ_CHECK(conn_run(conn, stmt, NULL) == 0);
}

static void fuzz_clock(const char *doc, size_t len)
{
	struct store_clock clock = {0}, again = {0};
	struct err err = {0};
	int64_t now;

	put(STORE_RESERVED "clock", doc, len);
	if (schema_load_clock(conn, &clock, &err) != 0) {
		FUZZ_CHECK(err.code == ERR_STORE && err.msg[0]);
		return;
	}
	FUZZ_PLANTED(clock.boot_id, strlen(clock.boot_id));
	FUZZ_CHECK(clock.time_ms > 0);
	FUZZ_CHECK(schema_save_clock(conn, &clock, NULL) == 0 && schema_load_clock(conn, &again, NULL) == 0);
	FUZZ_CHECK(again.time_ms == clock.time_ms && again.boot_ns == clock.boot_ns &&
		   again.offset_ms == clock.offset_ms);
	FUZZ_CHECK(strcmp(again.boot_id, clock.boot_id) == 0);
	/* It goes on from any mark that it accepts, never back. */
	store_clock_start(&clock, INT64_C(1700000000000), INT64_C(5000000000), "00000000-0000-0000-0000-000000000000");
	now = store_clock_now(&clock, INT64_C(6000000000));
	FUZZ_CHECK(now >= again.time_ms);
	store_clock_judge(&clock, INT64_C(1700000000000), INT64_C(6000000000));
	store_clock_mark(&clock, INT64_C(7000000000));
	FUZZ_CHECK(store_clock_now(&clock, INT64_C(7000000000)) >= now);
}

static void fuzz_schema(struct fuzz_input *in)
{
	static const char *const keys[] = {STORE_RESERVED "schema", STORE_RESERVED "deployment", STORE_RESERVED "id"};
	char id[33] = "";
	struct err err = {0};
	int schema = 0;

	for (size_t i = 0; i < 3; i++) {
		size_t len = 0;
		char *doc = fuzz_text(in, "\n", &len);

		put(keys[i], doc, len);
		free(doc);
	}
	if (schema_check(conn, "fuzz", &schema, id, &err) == 0)
		FUZZ_CHECK(schema >= 0 && schema <= SQLITE_STORE_SCHEMA && strlen(id) == 32);
	else
		FUZZ_CHECK(err.code < 0 && err.msg[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	uint8_t kind = fuzz_byte(&in);
	char *doc;

	prepare();
	if (kind == 's') {
		fuzz_schema(&in);
		return 0;
	}
	doc = fuzz_copy(in.ptr, in.len);
	fuzz_clock(doc, in.len);
	free(doc);
	return 0;
}
