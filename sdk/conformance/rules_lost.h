/* SPDX-License-Identifier: Apache-2.0 */
/* What the rules about lost answers share: operations that only look, and what may befall an exchange. */
#ifndef CONFORMANCE_RULES_LOST_H
#define CONFORMANCE_RULES_LOST_H

#include "fault.h"
#include "rules.h"

#define LOST_HTML "<html><head><title>Not what you asked for</title></head><body>gateway</body></html>\n"
#define LOST_DEADLINE_MS 1000
/* Where all goes wrong: how long it goes on asking is not the question. */
#define LOST_FOR_GOOD_MS 120
#define LOST_EXCHANGES 16 /* of one operation that are disturbed, one by one */
#define LOST_COUNT(table) (sizeof(table) / sizeof(*(table)))

struct misfortune {
	const char *words;
	struct fault fault;
	bool half; /* bytes: half of what the undisturbed exchange brought */
};

/* What is there to be seen. */
struct scene {
	struct session *session;
	const char *file; /* NULL: without files */
	const char *mark; /* NULL: without changes; since then the file was written */
};

struct look {
	const char *word;
	uint64_t capability;
	bool needs_file, needs_mark;
	/* *ret_absent: it says that what is there is not there. */
	int (*fn)(const struct scene *scene, struct call *call, bool *ret_absent, struct err *err);
};
#define LOOKS 9
extern const struct look lost_looks[LOOKS]; /* check, find and inspect first */
#define LOOK_FIND (&lost_looks[1])

/* False after check_fail. */
bool scene_make(struct check *check, struct scene *ret);
bool look_possible(const struct check *check, const struct look *one, const struct scene *scene);
/* Once, with whatever is armed. False: it broke a rule of all rules. */
bool look(struct check *check, const struct look *one, const struct scene *scene, int64_t ms, int *ret_rc,
	  bool *ret_absent, struct err *ret_err);

#endif
