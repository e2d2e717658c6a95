/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies the credentials for one request out of the cluster's materials, which may be replaced by another thread the
 * moment the lock is free. Reads small local files under the lock, or runs the operator's own credential program; never
 * the network.
 */
#include "auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t get(struct material *m, bool renew, char **ret, struct kerr *err)
{
	return material_is_set(m) ? material_get(m, renew, ret, err) : BERTH_OK;
}

/* The program runs under this lock: who else wants its credential would have to wait for it anyway. */
static int32_t get_printed(struct kube *k, bool renew, struct credentials *ret, char **ret_token, struct kerr *err)
{
	int32_t rc = execcred_get(&k->cluster, &k->exec, renew, err);

	if (!rc)
		rc = get(&k->exec.token, false, ret_token, err);
	if (!rc)
		rc = get(&k->cluster.ca, false, &ret->ca, err);
	if (!rc)
		rc = get(&k->exec.cert, false, &ret->cert, err);
	return rc ? rc : get(&k->exec.key, false, &ret->key, err);
}

static int32_t get_all(struct kube *k, bool renew, struct credentials *ret, char **ret_token, struct kerr *err)
{
	int32_t rc = get(&k->cluster.token, renew, ret_token, err);

	if (!rc)
		rc = get(&k->cluster.ca, false, &ret->ca, err);
	if (!rc)
		rc = get(&k->cluster.cert, renew, &ret->cert, err);
	return rc ? rc : get(&k->cluster.key, renew, &ret->key, err);
}

static bool is_token(const char *token)
{
	for (; *token; token++)
		if ((unsigned char)*token <= 0x20 || (unsigned char)*token >= 0x7f)
			return false;
	return true;
}

int32_t auth_get(struct kube *k, bool renew, struct credentials *ret, struct kerr *err)
{
	char *token = NULL;
	int32_t rc;

	*ret = (struct credentials){0};
	pthread_mutex_lock(&k->lock);
	rc = k->cluster.exec ? get_printed(k, renew, ret, &token, err) : get_all(k, renew, ret, &token, err);
	pthread_mutex_unlock(&k->lock);
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
