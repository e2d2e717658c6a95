/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of net/ share. Nothing outside includes it. */
#ifndef NET_PRIVATE_H
#define NET_PRIVATE_H

#include <curl/curl.h>
#include <stdatomic.h>

#include "core/arena.h"
#include "core/buf.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/thread.h"
#include "net/net.h"

#define NET_URL_MAX (64 * LIMIT_KIB)
#define NET_HEADERS_MAX (64 * LIMIT_KIB) /* bytes, of a request and of a response each */
#define NET_HEADER_COUNT_MAX 256
#define NET_PEM_MAX (256 * LIMIT_KIB)
#define NET_TEXT_MAX (64 * LIMIT_KIB)    /* proxy, socket, names of one request together with its URL: twice this */
#define NET_WINDOW (128 * LIMIT_KIB)     /* response bytes of a long exchange that wait for its caller */
#define NET_FEED (64 * LIMIT_KIB)        /* request bytes of one that wait for the peer */
#define NET_RESPONSE_DEFAULT (64 * LIMIT_MIB)
#define NET_RETRY_AFTER_MAX_MS (24 * INT64_C(3600000)) /* a peer's longer wish counts as this */
#define NET_CONNECT_DEFAULT_MS 10000
#define NET_IDLE_DEFAULT_MS 60000 /* short exchanges; a long one is expected to be silent */
/* Peers close idle connections after 5 s (node, uvicorn), 60 s, 75 s; the loser of that race cannot tell whether its request
 * was seen, so idle ones are given up before. */
#define NET_KEEP_S 4
#define NET_LIFE_S 600 /* of a connection: addresses behind a name change */
#define NET_LOOPS_MAX 4
#define NET_LOOP_IDLE 16       /* idle connections that a loop keeps */
#define NET_LOOP_DESCRIPTORS 4 /* of a loop itself: epoll, wake-up, libcurl's pair */
#define NET_SHELF_DESCRIPTORS 2 /* of a further shelf of a loop: libcurl's pair */
#define NET_SHELF_IDLE 4       /* idle connections that it keeps */
#define NET_SHORT_DESCRIPTORS 3 /* of a pooled handle: its connection, libcurl's pair */
#define NET_POOL_BUCKETS 64
#define NET_POOL_MAX 256 /* idle handles */

struct loop;

/* One easy handle with a multi of its own: a thread that waits in it can be woken, one in curl_easy_perform cannot. */
struct handle {
	CURLM *multi;
	CURL *easy;
	uint64_t key;
	int64_t idle_since_ns;
	struct handle *next;            /* of its bucket */
	struct handle *older, *younger; /* of all idle ones */
};

struct pool_idle {
	struct lock lock; /* LOCK_LEAF */
	struct handle *idle[NET_POOL_BUCKETS];
	struct handle *oldest, *youngest;
	unsigned count;
	bool swept; /* the first loop looks after it */
};

struct net {
	uint64_t limit;
	bool has_cainfo;       /* libcurl was built with the path of a file of certificates */
	_Atomic uint64_t used; /* descriptors */
	unsigned direct_most;
	_Atomic unsigned direct; /* long exchanges on pooled handles */
	struct pool_idle pool;
	struct lock lock; /* LOCK_STREAM: starting loops */
	struct loop *loops[NET_LOOPS_MAX];
	_Atomic unsigned loop_count;
	unsigned loop_most;
};

/* Why the host ended an exchange, where libcurl does not know it. */
enum cut {
	CUT_NONE,
	CUT_CANCELLED,
	CUT_DEADLINE,
	CUT_TOTAL,
	CUT_IDLE,
	CUT_BODY_SIZE,
	CUT_HEAD_SIZE,
	CUT_CALLBACK,   /* code: what it returned */
	CUT_RESEND,     /* a reused connection was closed */
	CUT_BODY_SHORT, /* of the request */
	CUT_BODY_LONG,
	CUT_DESCRIPTORS,
	CUT_MEMORY,
};

struct exchange;

/* Where bytes go: directly to the callbacks, or through a long exchange's window. */
struct way {
	bool (*head)(struct exchange *ex);                               /* complete; false ends it */
	size_t (*write)(struct exchange *ex, const char *ptr, size_t len); /* as of CURLOPT_WRITEFUNCTION */
	size_t (*read)(struct exchange *ex, char *buf, size_t cap);        /* as of CURLOPT_READFUNCTION */
};

struct exchange {
	struct net *net;
	const struct net_caller *caller;
	const struct berth_http_request *request;
	const struct way *way;
	void *carrier; /* long.c's */
	CURL *easy;
	struct net_failure *failure;

	/* request.c */
	struct arena *arena;
	char *method, *url, *proxy, *unix_socket;
	char *origin; /* scheme://host:port: all of the URL that a text may show */
	struct curl_slist *headers, *connect_to;
	struct buf identity; /* client certificate and key as one text: libcurl tells connections apart by the first only */
	uint64_t key; /* of its pooled connections */
	bool safe;    /* the method changes nothing */
	bool has_body;

	int64_t deadline_ns; /* the caller's or the total limit, what comes first */
	enum cut late;       /* which of the two */
	int64_t idle_ns;     /* INT64_MAX = none */
	uint64_t body_max;
	_Atomic int64_t moved_ns; /* when a byte last moved */

	/* The thread that runs libcurl for it, until it ended there. */
	enum cut cut;
	int32_t code; /* with CUT_CALLBACK */
	bool fresh;
	bool reused;
	unsigned starts; /* times that libcurl was about to send in this attempt */
	curl_off_t sent_before, seen_moved;
	uint64_t body_taken, body_given;
	struct buf head; /* lines as they came, since the last status line */
	unsigned head_lines;
	bool head_done;
	bool sent;
	uint32_t status;
	int64_t retry_after_ms;
};

/* net.c: false = over the limit, even after idle connections were closed. */
bool net_reserve(struct net *net, unsigned count);
void net_unreserve(struct net *net, unsigned count);
struct loop *net_loop_least(struct net *net); /* NULL: no memory or descriptors */

/* request.c: fills the part of the exchange above. */
int32_t request_build(struct exchange *ex);
void request_fini(struct exchange *ex);

/* exchange.c */
void exchange_prepare(struct exchange *ex); /* options of ex->easy for one attempt */
void exchange_cut(struct exchange *ex, enum cut cut);
/* Whether the caller, its limits or silence end it now; if not, when to look again. Calling thread. */
enum cut exchange_due(const struct exchange *ex, int64_t *ret_next_ns);
/* True when the attempt that ended so is to be repeated on a fresh connection; the exchange is ready for that. */
bool exchange_again(struct exchange *ex, CURLcode result);
/* The request's callbacks, on the calling thread; what they return. */
int32_t exchange_deliver_head(struct exchange *ex);
int32_t exchange_deliver(struct exchange *ex, const char *ptr, size_t len);
int32_t exchange_fetch(struct exchange *ex, char *buf, size_t cap, size_t *ret_len);

/* head.c */
size_t head_take(struct exchange *ex, const char *line, size_t len); /* as of CURLOPT_HEADERFUNCTION */
/* Borrowed from the exchange; NULL when memory is out. */
struct berth_pair *head_pairs(struct exchange *ex, size_t *ret_count);
int64_t head_retry_after(struct exchange *ex);

/* outcome.c */
int32_t outcome_of(struct exchange *ex, CURLcode result);
int32_t outcome_invalid(struct exchange *ex, const char *text);

/* pool.c */
struct handle *pool_take(struct net *net, uint64_t key); /* NULL: descriptors or memory */
void pool_give(struct net *net, struct handle *handle);
bool pool_evict(struct net *net);       /* the longest idle one; false when none is */
/* Frees what is older than NET_KEEP_S; when to look again, INT64_MAX when it is empty. */
int64_t pool_sweep(struct net *net, int64_t now_ns);
void pool_clear(struct net *net);

/* short.c, long.c */
int32_t short_exchange(struct exchange *ex);
int32_t long_exchange(struct exchange *ex);

/* loop.c: what a long exchange shares with its loop. */
struct carried {
	struct exchange *ex;
	struct loop *loop;
	struct shelf *shelf;  /* that it stands on; the loop's thread only */
	struct carried *next; /* of the loop's list */
	unsigned wants;       /* under the loop's lock, as are the next two */
	bool listed;
	bool gone; /* the loop is done with it */
	void (*ended)(struct carried *carried, CURLcode result); /* on the loop; the last it does with it */
	void (*told)(struct carried *carried);                   /* on the loop, without a lock: see loop_news */
	struct carried *next_news; /* the loop's thread only */
	bool has_news;
};
/* shelf.c: the multis of a loop; its thread only. */
struct shelf {
	struct net *net;
	int epoll_fd;
	uint32_t number;
	CURLM *multi; /* NULL: nothing ran on it for a while */
	unsigned active;
	int64_t timer_ns; /* when libcurl wants to be called */
	int64_t quiet_ns; /* when idle connections are closed; INT64_MAX = there are none, or it is busy */
};
struct shelves {
	struct net *net;
	int epoll_fd;
	struct shelf **all;
	unsigned count;
};
/* What epoll remembers of a connection. */
static inline uint64_t shelf_event(uint32_t number, int fd)
{
	return (uint64_t)number << 32 | (uint32_t)fd;
}
void shelves_free(struct shelves *shelves);
bool shelves_put(struct shelves *shelves, struct carried *carried); /* false: no memory or descriptors */
void shelf_take(struct carried *carried); /* before its end */
void shelf_forget(struct carried *carried); /* libcurl is done with it */
/* One that ended and was taken off; NULL: no more. */
struct carried *shelf_ended(struct shelf *shelf, CURLcode *ret_result);
int64_t shelves_due(const struct shelves *shelves);
void shelf_on_time(struct shelf *shelf, int64_t now_ns);

enum { LOOP_ADD = 1, LOOP_RESUME = 2, LOOP_REMOVE = 4 };
void loop_ask(struct carried *carried, unsigned want); /* any thread; nothing when it is gone */
/* From a callback of libcurl: calls told() once libcurl is through with what has come, unless that was the end. */
void loop_news(struct carried *carried);
struct loop *loop_new(struct net *net, unsigned number);
void loop_free(struct loop *loop); /* joins */
unsigned loop_active(const struct loop *loop);
void loop_poke(struct loop *loop);

#endif
