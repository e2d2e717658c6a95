/* SPDX-License-Identifier: Apache-2.0 */
/* TLS: who is trusted, by which name, with which certificate of our own; and ways through a proxy. */
#include "net_fixture.h"

static char *ca, *other_ca, *client, *client_key, *other_key;

static int tls_setup(void **state)
{
	if (group_setup_tls(state) || !peer.mtls)
		return -1;
	ca = peer_file(&peer, "ca.pem");
	other_ca = peer_file(&peer, "other-ca.pem");
	client = peer_file(&peer, "client.crt");
	client_key = peer_file(&peer, "client.key");
	other_key = peer_file(&peer, "ca.key");
	return 0;
}

static int tls_teardown(void **state)
{
	free(ca);
	free(other_ca);
	free(client);
	free(client_key);
	free(other_key);
	return group_teardown(state);
}

/* A POST, whose outcome must be known when nothing was sent. */
static void ask_tls(struct ask *ask, uint32_t flags, const char *host, unsigned port, const char *trusted)
{
	ask_init(ask, flags, "POST", "https://%s:%u/echo", host, port);
	ask->request.ca_pem = str(trusted);
}

static void trusted(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		for (int i = 0; i < 3; i++) {
			ask_tls(&ask, flags, i % 2 ? "localhost" : "127.0.0.1", peer.tls, ca);
			if (ask_run(&ask))
				fail_msg("%s", ask.failure.text);
			assert_int_equal(ask.response.status, 200);
			ask_fini(&ask);
		}
	}
}

static void refused(void **state)
{
	const struct {
		const char *host;
		unsigned port;
		const char *ca, *name, *reason, *part;
		int32_t code;
	} cases[] = {
	    {"127.0.0.1", peer.tls, other_ca, "", "tls_verify", "issuer", BERTH_UNAVAILABLE},
	    {"127.0.0.1", peer.tls, "", "", "tls_verify", "issuer", BERTH_UNAVAILABLE},
	    {"localhost", peer.wrong, ca, "", "tls_verify", "another name", BERTH_UNAVAILABLE},
	    {"127.0.0.1", peer.tls, ca, "unknown.test", "tls_verify", "another name", BERTH_UNAVAILABLE},
	    {"127.0.0.1", peer.tls, "no PEM", "", "tls_material", "CA", BERTH_INVALID},
	    {"127.0.0.1", peer.plain, ca, "", "connect_timeout", "limit", BERTH_UNAVAILABLE},
	    {"127.0.0.1", peer.tls, ca, "a/b", "request", "server name", BERTH_INVALID},
	};
	unsigned long before = seen("/echo");
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			ask_tls(&ask, flags, cases[i].host, cases[i].port, cases[i].ca);
			ask.request.tls_server_name = str(cases[i].name);
			ask.request.connect_timeout_ms = patience(500);
			ask_run(&ask);
			expect_failure(&ask, cases[i].code, cases[i].reason, 0);
			EXPECT_IN(ask.failure.text, cases[i].part);
			ask_fini(&ask);
		}
	}
	assert_int_equal(seen("/echo"), before);
}

/* A trusted connection is not taken for one that trusts nobody, nor the other way round. */
static void insecure(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		ask_tls(&ask, flags | BERTH_HTTP_TLS_INSECURE, "localhost", peer.wrong, "");
		assert_int_equal(ask_run(&ask), BERTH_OK);
		ask_fini(&ask);
		ask_tls(&ask, flags, "localhost", peer.wrong, ca);
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "tls_verify", 0);
		ask_fini(&ask);
		ask_tls(&ask, flags, "127.0.0.1", peer.tls, ca);
		assert_int_equal(ask_run(&ask), BERTH_OK);
		ask_fini(&ask);
		ask_tls(&ask, flags, "127.0.0.1", peer.tls, other_ca);
		ask_run(&ask);
		expect_failure(&ask, BERTH_UNAVAILABLE, "tls_verify", 0);
		ask_fini(&ask);
	}
}

static void client_certificate(void **state)
{
	struct ask ask;

	(void)state;
	BOTH_MODES(flags) {
		ask_tls(&ask, flags, "127.0.0.1", peer.mtls, ca);
		ask.request.client_cert_pem = str(client);
		ask.request.client_key_pem = str(client_key);
		if (ask_run(&ask))
			fail_msg("%s", ask.failure.text);
		ask_fini(&ask);
		/* With TLS 1.3 the peer refuses after our handshake is done, so a byte may be on its way. */
		ask_tls(&ask, flags, "127.0.0.1", peer.mtls, ca);
		ask_run(&ask);
		assert_true(ask.code == BERTH_UNKNOWN || ask.code == BERTH_UNAVAILABLE);
		assert_int_equal(ask.response.status, 0);
		ask_fini(&ask);
		ask_tls(&ask, flags, "127.0.0.1", peer.mtls, ca);
		ask.request.client_cert_pem = str("no PEM");
		ask_run(&ask);
		expect_failure(&ask, BERTH_INVALID, "tls_material", 0);
		ask_fini(&ask);
		/* Another key, and none: no connection made with the right one serves these. */
		for (int i = 0; i < 2; i++) {
			ask_tls(&ask, flags, "127.0.0.1", peer.mtls, ca);
			ask.request.client_cert_pem = str(client);
			ask.request.client_key_pem = str(i ? other_key : "");
			ask_run(&ask);
			expect_failure(&ask, BERTH_INVALID, "tls_material", 0);
			ask_fini(&ask);
		}
	}
}

static void server_name(void **state)
{
	const struct berth_pair host[] = {{str("Host"), str("chosen.test")}};
	struct ask ask;
	char line[64];

	(void)state;
	snprintf(line, sizeof(line), "\r\nHost: 127.0.0.1:%u\r\n", peer.tls);
	BOTH_MODES(flags) {
		ask_tls(&ask, flags, "127.0.0.1", peer.tls, ca);
		ask.request.tls_server_name = str("inner.test");
		if (ask_run(&ask))
			fail_msg("%s", ask.failure.text);
		EXPECT_IN(ask_text(&ask), line);
		assert_null(strstr(ask_text(&ask), "inner.test"));
		ask_fini(&ask);
		ask_tls(&ask, flags, "localhost", peer.wrong, ca);
		ask.request.tls_server_name = str("other.test");
		ask.request.headers = host;
		ask.request.header_count = 1;
		assert_int_equal(ask_run(&ask), BERTH_OK);
		EXPECT_IN(ask_text(&ask), "\r\nHost: chosen.test\r\n");
		assert_null(strstr(ask_text(&ask), "localhost"));
		ask_fini(&ask);
	}
}

/* The tunnel's head holds nothing of the request, and the failure of a proxy sends nothing. */
static void tunnel(void **state)
{
	const struct berth_pair secret[] = {{str("Authorization"), str("Bearer through-the-tunnel")}};
	char proxy[64], *told;
	struct ask ask;

	(void)state;
	snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u", peer.plain);
	BOTH_MODES(flags) {
		ask_tls(&ask, flags, "127.0.0.1", peer.tls, ca);
		ask.request.proxy = str(proxy);
		ask.request.secret_headers = secret;
		ask.request.secret_header_count = 1;
		if (ask_run(&ask))
			fail_msg("%s", ask.failure.text);
		EXPECT_IN(ask_text(&ask), "through-the-tunnel");
		assert_int_equal(ask.heads, 1);
		ask_fini(&ask);
		ask_tls(&ask, flags, "127.0.0.1", 1, ca);
		ask.request.proxy = str(proxy);
		ask.request.secret_headers = secret;
		ask.request.secret_header_count = 1;
		ask_run(&ask);
		assert_int_equal(ask.code, BERTH_UNAVAILABLE);
		assert_int_equal(ask.response.sent, 0);
		ask_fini(&ask);
	}
	told = stats();
	EXPECT_IN(told, "connect_head=");
	assert_null(strstr(told, "through-the-tunnel"));
	free(told);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(trusted), CASE(refused), CASE(insecure), CASE(client_certificate), CASE(server_name), CASE(tunnel),
	};

	return cmocka_run_group_tests(tests, tls_setup, tls_teardown);
}
