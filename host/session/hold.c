/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds: one operation's grip on a live session, with the session's secrets unsealed for the provider. Any thread; the
 * keeper's thread tells a holder that its session is lost, with no lock held.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "plugin/call.h"
#include "session/session_private.h"

/* Moves the row's texts and the opened state into one block of the hold's own. */
static int hold_fill(struct session_hold_private *priv, const struct binding *b, const char *state, size_t state_len)
{
	const size_t ref_len = strlen(b->ref), root_len = strlen(b->root), boot_len = strlen(b->boot_id);
	struct berth_session *session = &priv->hold.session;
	char *at = malloc(ref_len + root_len + boot_len + state_len + 4);

	if (!at)
		return ERR_NOMEM;
	priv->strings = at;
	*session = (struct berth_session){.struct_size = sizeof(*session)};
	session->ref = (struct berth_str){memcpy(at, b->ref, ref_len + 1), ref_len};
	at += ref_len + 1;
	session->root = (struct berth_str){memcpy(at, b->root, root_len + 1), root_len};
	at += root_len + 1;
	session->boot_id = (struct berth_str){memcpy(at, b->boot_id, boot_len + 1), boot_len};
	at += boot_len + 1;
	if (state_len)
		memcpy(at, state, state_len);
	at[state_len] = '\0';
	session->state = (struct berth_str){at, state_len};
	return 0;
}

static int hold_open(struct sessions *s, struct session_hold_private *priv, const struct binding *b, struct err *err)
{
	char key[IDENT_KEY_MAX + 1];
	char *state = NULL;
	size_t len = 0;
	int r = 0;

	priv->hold.target = registry_find(s->config.registry, b->target);
	if (!priv->hold.target || !priv->hold.target->plugin) {
		err_set(err, ERR_PROVIDER_UNAVAILABLE, "target %.64s is %s", b->target,
			priv->hold.target ? "not available: its plugin was refused" : "not configured any more");
		err_reason(err, "target_gone"); /* targets come with a start of the host only */
		return ERR_PROVIDER_UNAVAILABLE;
	}
	ident_key(&priv->hold.ident, key);
	if (*b->sealed_state)
		r = seal_open_box(s->config.seal, key, b->sealed_state, &state, &len, err);
	if (r == 0 && hold_fill(priv, b, state, len))
		r = err_set(err, ERR_NOMEM, "no memory is left to hold a session");
	if (state)
		secret_wipe(state, len);
	free(state);
	priv->hold.incarnation = priv->kept.incarnation = b->incarnation;
	priv->hold.fence = b->fence;
	priv->hold.ceiling_ms = b->ceiling_ms;
	priv->provider_expires_ms = b->provider_expires_ms;
	return r;
}

static void private_free(struct session_hold_private *priv)
{
	if (priv->strings)
		secret_wipe((char *)(uintptr_t)priv->hold.session.state.ptr, priv->hold.session.state.len);
	free(priv->strings);
	free(priv->row);
	free(priv);
}

static int hold_keep(struct session_hold_private *priv, const struct binding *b, const char *op_id, struct err *err)
{
	struct buf buf;
	int r;

	buf_init(&buf, LIMIT_ROW);
	r = binding_keep(b, op_id, &buf);
	if (r == 0)
		priv->row = buf_take(&buf);
	buf_fini(&buf);
	return r ? err_set(err, r, "no memory is left to hold a session") : 0;
}

int hold_make(struct sessions *s, const struct ident *ident, const char *op_id, const char *doc,
	      struct session_hold **ret, struct err *err)
{
	struct session_hold_private *priv = calloc(1, sizeof(*priv));
	struct arena *arena = arena_new(LIMIT_ROW * 4);
	struct binding b;
	int r = priv && arena ? 0 : err_set(err, ERR_NOMEM, "no memory is left to hold a session");

	if (r == 0 && strlen(op_id) > IDENT_ID_MAX)
		r = err_set(err, ERR_INVALID_REQUEST, "the operation's id is longer than %d bytes", IDENT_ID_MAX);
	if (r)
		goto out;
	priv->s = s;
	priv->hold.private = priv;
	priv->hold.ident = *ident;
	priv->kept.hold = priv;
	memcpy(priv->hold.op_id, op_id, strlen(op_id) + 1);
	r = binding_decode(arena, ident, doc, strlen(doc), &b, err);
	if (r == 0)
		r = hold_open(s, priv, &b, err);
	if (r == 0 && !s->exclusive)
		r = hold_keep(priv, &b, op_id, err);
	if (r == 0 && kept_add(s, &priv->kept, ident, op_id))
		r = err_set(err, ERR_NOMEM, "no memory is left to hold a session");
	if (r == 0) {
		*ret = &priv->hold;
		priv = NULL;
	}
out:
	arena_free(arena);
	if (priv)
		private_free(priv);
	return r;
}

void hold_free(struct sessions *s, struct session_hold *hold)
{
	if (!hold)
		return;
	kept_remove(s, &hold->private->kept);
	private_free(hold->private);
}

void session_hold_on_lost(struct session_hold *hold, void (*fn)(void *arg, const char *reason), void *arg)
{
	struct session_hold_private *priv = hold->private;
	struct sessions *s = priv->s;

	lock_take(&s->lock);
	priv->on_lost = fn;
	priv->arg = arg;
	while (priv->firing && !pthread_equal(pthread_self(), s->teller))
		cond_wait_until(&s->changed, &s->lock, INT64_MAX);
	if (fn && priv->kept.lost && !priv->told) {
		s->keeper_kicked = true;
		cond_wake_all(&s->keeper_wake);
	}
	lock_drop(&s->lock);
}

bool session_hold_lost(const struct session_hold *hold, const char **ret_reason)
{
	const struct session_hold_private *priv = hold->private;
	bool lost;

	lock_take(&priv->s->lock);
	lost = priv->kept.lost;
	if (lost && ret_reason)
		*ret_reason = priv->kept.reason; /* set once, before lost */
	lock_drop(&priv->s->lock);
	return lost;
}

/* A hold that must be told now, marked as being told. */
static struct session_hold_private *next_to_tell_locked(struct sessions *s, struct local *local)
{
	lock_assert(&s->lock);
	for (struct kept *kept = local->kept; kept; kept = kept->next) {
		struct session_hold_private *priv = kept->hold;

		if (priv && kept->lost && priv->on_lost && !priv->told) {
			priv->told = priv->firing = true;
			return priv;
		}
	}
	return NULL;
}

struct search {
	struct sessions *s;
	struct session_hold_private *found;
};

static bool search_local(const char *key, void *value, void *arg)
{
	struct search *search = arg;

	(void)key;
	search->found = next_to_tell_locked(search->s, value);
	return !search->found;
}

void holds_tell_lost(struct sessions *s)
{
	struct search search = {.s = s};

	lock_take(&s->lock);
	s->teller = pthread_self();
	for (;;) {
		struct session_hold_private *priv;
		void (*fn)(void *arg, const char *reason);
		void *arg;

		search.found = NULL;
		map_each(s->tasks, search_local, &search);
		priv = search.found;
		if (!priv)
			break;
		fn = priv->on_lost;
		arg = priv->arg;
		lock_drop(&s->lock);
		fn(arg, priv->kept.reason);
		lock_take(&s->lock);
		priv->firing = false;
		cond_wake_all(&s->changed);
	}
	lock_drop(&s->lock);
}
