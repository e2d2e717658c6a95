/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies the credentials for one request out of the cluster's materials, which may be replaced by another thread the
 * moment the lock is free. Reads small local files under the lock; what the operator's own credential program prints is
 * execcred.c's. Never the network.
 */
#include "auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t get(struct material *m, bool renew, char **ret, struct kerr *err)
{
	return material_is_set(m) ? material_get(m, renew, ret, err) : BERTH_OK;
}

static char *taken(struct material *m)
{
	char *text = m->text;

	m->text = NULL;
	return text;
}

static int32_t get_printed(struct kube *k, struct berth_call *call, int64_t refused_ns, struct credentials *ret,
			   char **ret_token, struct kerr *err)
{
	struct execcred cred;
	int32_t rc = execprog_get(&k->cluster, &k->exec, refused_ns, call, &cred, err);

	if (rc)
		return rc;
	*ret_token = taken(&cred.token);
	ret->cert = taken(&cred.cert);
	ret->key = taken(&cred.key);
	pthread_mutex_lock(&k->lock);
	rc = get(&k->cluster.ca, false, &ret->ca, err);
	pthread_mutex_unlock(&k->lock);
	return rc;
}

static int32_t get_all_locked(struct kube *k, bool renew, struct credentials *ret, char **ret_token, struct kerr *err)
{
	int32_t rc = get(&k->cluster.token, renew, ret_token, err);

	if (!rc)
		rc = get(&k->cluster.ca, false, &ret->ca, err);
	if (!rc)
		rc = get(&k->cluster.cert, renew, &ret->cert, err);
	return rc ? rc : get(&k->cluster.key, renew, &ret->key, err);
}

static int32_t get_all(struct kube *k, bool renew, struct credentials *ret, char **ret_token, struct kerr *err)
{
	int32_t rc;

	pthread_mutex_lock(&k->lock);
	rc = get_all_locked(k, renew, ret, ret_token, err);
	pthread_mutex_unlock(&k->lock);
	return rc;
}

static bool is_token(const char *token)
{
	for (; *token; token++)
		if ((unsigned char)*token <= 0x20 || (unsigned char)*token >= 0x7f)
			return false;
	return true;
}

int32_t auth_get(struct kube *k, struct berth_call *call, int64_t refused_ns, struct credentials *ret, struct kerr *err)
{
	char *token = NULL;
	int32_t rc;

	*ret = (struct credentials){0};
	rc = k->cluster.exec ? get_printed(k, call, refused_ns, ret, &token, err)
			     : get_all(k, refused_ns != 0, ret, &token, err);
	if (!rc && token && !is_token(token))
		rc = kerr_set(err, BERTH_INVALID, "credential", "the token holds a blank or a control byte");
	if (!rc && token && asprintf(&ret->bearer, "Bearer %s", token) < 0) {
		ret->bearer = NULL;
		rc = kerr_set(err, BERTH_UNAVAILABLE, "memory", "no memory");
	}
	material_drop(token);
	if (rc)
		auth_drop(ret);
	return rc;
}

void auth_drop(struct credentials *credentials)
{
	material_drop(credentials->bearer);
	material_drop(credentials->ca);
	material_drop(credentials->cert);
	material_drop(credentials->key);
	*credentials = (struct credentials){0};
}
