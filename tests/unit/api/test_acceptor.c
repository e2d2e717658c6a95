/* SPDX-License-Identifier: Apache-2.0 */
/* Accepting: as many as may be open, the others wait; a system without room is asked again; a stop refuses at once. */
#include "api/acceptor.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "client.h"
#include "core/log.h"
#include "core/thread.h"

#define MOST 2
#define ROUNDS 1000
#define HELLO "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

static struct acceptor *acceptor;
static struct MHD_Daemon *daemon_of_test;
static atomic_uint port;
static atomic_uint taken; /* of the connections that are open, those that a loop knows */
static struct answer a;

/* ---- a daemon that says 200 to everything ---- */

static enum MHD_Result on_access(void *cls, struct MHD_Connection *conn, const char *url, const char *method,
				 const char *version, const char *data, size_t *size, void **con_cls)
{
	static int begun;
	struct MHD_Response *response;
	enum MHD_Result r;

	(void)cls, (void)url, (void)method, (void)version, (void)data, (void)size;
	/* An answer to the head alone would end the connection. */
	if (!*con_cls) {
		*con_cls = &begun;
		return MHD_YES;
	}
	response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
	r = MHD_queue_response(conn, 200, response);
	MHD_destroy_response(response);
	return r;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **context, enum MHD_ConnectionNotificationCode c)
{
	(void)cls, (void)conn, (void)context;
	if (c == MHD_CONNECTION_NOTIFY_STARTED) {
		atomic_fetch_add(&taken, 1);
	} else {
		acceptor_closed(acceptor);
		atomic_fetch_sub(&taken, 1);
	}
}

static int listener(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
	assert_int_equal(listen(fd, 64), 0);
	getsockname(fd, (struct sockaddr *)&address, &len);
	port = ntohs(address.sin_port);
	return fd;
}

static void start_with(unsigned most)
{
	struct err err = {0};

	assert_int_equal(acceptor_new(listener(), most, &acceptor, &err), 0);
	daemon_of_test = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_NO_LISTEN_SOCKET, 0,
					  NULL, NULL, on_access, NULL, MHD_OPTION_THREAD_POOL_SIZE, 2u,
					  MHD_OPTION_NOTIFY_CONNECTION, on_connection, NULL, MHD_OPTION_END);
	assert_non_null(daemon_of_test);
	assert_int_equal(acceptor_run(acceptor, daemon_of_test, &err), 0);
}

static int start(void **state)
{
	(void)state;
	log_init(LOG_ERROR + 1, LOG_LOGFMT);
	start_with(MOST);
	return 0;
}

/* A loop that ends closes what it has not taken yet, and may have seen the end in a plain flag: right, since whoever gave it was
 * joined before, but a race to the thread sanitizer, which does not see into the library. */
static int stop(void **state)
{
	(void)state;
	acceptor_stop(acceptor);
	while (acceptor_open(acceptor) != atomic_load(&taken))
		poll(NULL, 0, 1);
	MHD_stop_daemon(daemon_of_test);
	acceptor_free(acceptor);
	return 0;
}

/* ---- tests ---- */

static void served(struct client *c)
{
	assert_true(client_answer(c, &a));
	assert_int_equal(a.status, 200);
	answer_free(&a);
}

static void ask(struct client *c)
{
	assert_true(client_open(c, port));
	assert_true(client_say(c, HELLO));
}

static bool silent(struct client *c)
{
	struct pollfd fd = {.fd = c->fd, .events = POLLIN};

	return poll(&fd, 1, 300) == 0;
}

static void test_more_than_may_be_open_wait(void **state)
{
	static struct client c[MOST + 2];

	(void)state;
	for (size_t i = 0; i < MOST; i++) {
		ask(&c[i]);
		served(&c[i]);
	}
	ask(&c[MOST]);
	ask(&c[MOST + 1]);
	assert_true(silent(&c[MOST]));
	assert_int_equal(acceptor_open(acceptor), MOST);
	/* Each that goes lets in one. */
	client_close(&c[0]);
	served(&c[MOST]);
	assert_true(silent(&c[MOST + 1]));
	client_close(&c[1]);
	served(&c[MOST + 1]);
	client_close(&c[MOST]);
	client_close(&c[MOST + 1]);
}

/* The limit is this process's own, so the clients have their descriptors before. */
static void test_a_system_without_room_is_asked_again(void **state)
{
	static struct client c;
	struct rlimit before, none;
	int lowest;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	c.fd = -1;
	lowest = dup(0);
	assert_true(lowest >= 0);
	close(lowest);
	none = before;
	none.rlim_cur = (rlim_t)lowest + 1; /* the client's own; none for the accepting side */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	ask(&c);
	assert_true(silent(&c));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	served(&c);
	client_close(&c);
}

static void test_a_stop_refuses_and_serves_on(void **state)
{
	static struct client kept, late;

	(void)state;
	ask(&kept);
	served(&kept);
	acceptor_stop(acceptor);
	assert_false(client_open(&late, port));
	assert_int_equal(errno, ECONNREFUSED);
	client_close(&late);
	assert_true(client_say(&kept, HELLO));
	served(&kept);
	client_close(&kept);
}

static atomic_bool enough;

static void *knock(void *arg)
{
	struct client *c = malloc(sizeof(*c));

	(void)arg;
	while (!atomic_load(&enough)) {
		struct answer got = {0};

		if (client_open(c, port) && client_say(c, HELLO))
			client_answer(c, &got);
		answer_free(&got);
		client_close(c);
	}
	free(c);
	return NULL;
}

/* With the loops awake: this is where libmicrohttpd's own end of accepting aborts the process. */
static void test_stops_while_clients_knock(void **state)
{
	pthread_t clients[2];

	for (size_t i = 0; i < 2; i++)
		assert_int_equal(thread_start(&clients[i], "knock", knock, NULL), 0);
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct client c;

		assert_true(client_open(&c, port));
		client_close(&c);
		stop(state);
		start_with(64);
	}
	atomic_store(&enough, true);
	for (size_t i = 0; i < 2; i++)
		pthread_join(clients[i], NULL);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, start, stop)
	const struct CMUnitTest tests[] = {
		T(test_more_than_may_be_open_wait),
		T(test_a_system_without_room_is_asked_again),
		T(test_a_stop_refuses_and_serves_on),
		T(test_stops_while_clients_knock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
