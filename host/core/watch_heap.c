/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the order of deadlines: a pairing heap, because it needs no memory of its own and removal from the middle is common
 * (most waits end before their deadline). Entered under the watch's lock only. `before` is the parent for a first child and
 * the left neighbour for the others. Never recurses: chains of siblings grow as long as the heap is big.
 */
#include "core/watch_heap.h"

#include <stddef.h>

/* Both are roots without siblings. */
static struct watch_waiter *meld(struct watch_waiter *a, struct watch_waiter *b)
{
	if (!a || !b)
		return a ? a : b;
	if (b->deadline_ns < a->deadline_ns) {
		struct watch_waiter *swap = a;

		a = b;
		b = swap;
	}
	b->before = a;
	b->sibling = a->child;
	if (b->sibling)
		b->sibling->before = b;
	a->child = b;
	return a;
}

/* Takes the first of a list of siblings off it. */
static struct watch_waiter *pop(struct watch_waiter **list)
{
	struct watch_waiter *first = *list;

	if (first) {
		*list = first->sibling;
		first->sibling = NULL;
		first->before = NULL;
	}
	return first;
}

/* Pairs from the left, then melds the pairs from the right: that is what keeps removals cheap. */
static struct watch_waiter *meld_siblings(struct watch_waiter *list)
{
	struct watch_waiter *pairs = NULL;
	struct watch_waiter *root = NULL;

	while (list) {
		struct watch_waiter *a = pop(&list);
		struct watch_waiter *pair = meld(a, pop(&list));

		pair->sibling = pairs;
		pairs = pair;
	}
	while (pairs)
		root = meld(root, pop(&pairs));
	return root;
}

struct watch_waiter *watch_heap_add(struct watch_waiter *root, struct watch_waiter *waiter)
{
	waiter->child = NULL;
	waiter->sibling = NULL;
	waiter->before = NULL;
	return meld(root, waiter);
}

struct watch_waiter *watch_heap_remove(struct watch_waiter *root, struct watch_waiter *waiter)
{
	struct watch_waiter *below = meld_siblings(waiter->child);

	waiter->child = NULL;
	if (waiter == root)
		return below;
	if (waiter->before->child == waiter)
		waiter->before->child = waiter->sibling;
	else
		waiter->before->sibling = waiter->sibling;
	if (waiter->sibling)
		waiter->sibling->before = waiter->before;
	waiter->sibling = NULL;
	waiter->before = NULL;
	return meld(root, below);
}
