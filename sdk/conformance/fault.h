/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults between the plugin and the network. The kit is linked so that the host's one exchange function comes through
 * here (and every log line): an exchange may be really made and its answer lost, cut, delayed or replaced, or an answer
 * given without making it. The plugin, the host's HTTP service and the network are the real ones, so any plugin that
 * uses host->http is tested unchanged.
 */
#ifndef CONFORMANCE_FAULT_H
#define CONFORMANCE_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fault_kind {
	FAULT_NONE,	 /* only counted */
	FAULT_REFUSE,	 /* no connection; nothing is sent */
	FAULT_LOSE,	 /* made; the connection breaks where the answer begins */
	FAULT_LOSE_LATE, /* made; all of the answer is lost */
	FAULT_DELAY,	 /* made; the answer comes after the call's deadline */
	FAULT_CUT,	 /* made; `bytes` of the answer's body come, then the connection breaks */
	FAULT_SHORT,	 /* the same, and the answer ends as if it were whole */
	FAULT_GARBAGE,	 /* made; the answer's body is replaced by `body` */
	FAULT_AFTER,	 /* made; then it is answered with `status` and `body` */
	FAULT_ANSWER,	 /* not made; answered with `status` and `body` */
};

struct fault {
	enum fault_kind kind;
	unsigned at; /* which exchange from now, from 1; 0 = every one */
	uint64_t bytes;
	unsigned status;
	const char *body;
	const char *location;
	int64_t retry_after_ms;
};

#define FAULT_TRAP "http://192.0.2.1:8/" /* where redirects lead; never reached, and asked for is noticed */

/* Main thread, while no operation runs: secrets that must not show (the values of the target's secret options). */
struct target;
void fault_open(struct target *target);
void fault_close(void);
size_t fault_secrets(void);
const char *fault_secret(size_t i);

/* From now on exchanges are counted anew, and one of them, or all, go wrong. Any thread. */
void fault_arm(const struct fault *fault);
void fault_disarm(void);
unsigned fault_seen(void); /* exchanges since it was armed */
bool fault_struck(void);
uint64_t
fault_body(unsigned at); /* bytes of body that the exchange of this number was answered with; of the first 64 */
/* Between the first strike and the next exchange; -1 when none came. */
int64_t fault_gap_ms(void);
/* Exchanges of this process. */
uint64_t fault_exchanges(void);
/* What was seen so far that must not be: a secret in a log line, an address, a plain header, or at the trap. "" =
 * nothing. */
const char *fault_evidence(void);
/* True, and evidence, when the text holds a secret. */
bool fault_tells(const char *text, const char *where);
bool fault_trapped(void); /* since it was armed: credentials went where a redirect led */

#endif
