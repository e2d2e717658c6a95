/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns secrets in memory, where they come from, and the only comparison of them. Any thread; a struct secret never changes
 * after it was made. Never formats a secret into a message, and wipes what it frees.
 */
#include "core/secret.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/secret_file.h"

#define MAGIC 0x73656372u
#define DIGEST 32
#define PERIOD_MAX 8
#define RANDOM_STORE 512

struct secret {
	unsigned magic;
	size_t len;
	char bytes[];
};

struct secret *secret_new(const void *ptr, size_t len)
{
	struct secret *secret = malloc(sizeof(*secret) + len + 1);

	if (!secret)
		return NULL;
	secret->magic = MAGIC;
	secret->len = len;
	if (len)
		memcpy(secret->bytes, ptr, len);
	secret->bytes[len] = '\0';
	return secret;
}

void secret_free(struct secret *secret)
{
	if (!secret)
		return;
	assert(secret->magic == MAGIC);
	secret_wipe(secret, sizeof(*secret) + secret->len + 1);
	free(secret);
}

const void *secret_ptr(const struct secret *secret, size_t *ret_len)
{
	assert(secret->magic == MAGIC);
	if (ret_len)
		*ret_len = secret->len;
	return secret->bytes;
}

void secret_wipe(void *ptr, size_t len)
{
	if (ptr)
		OPENSSL_cleanse(ptr, len);
}

int secret_file_read(const char *path, void *ptr, size_t size, size_t *ret_len, struct err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	size_t len = 0;
	ssize_t n = 1;
	int r = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		r = err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
	else if (!S_ISREG(st.st_mode))
		r = err_set(err, ERR_CONFIG, "%s: is not a regular file", path);
	else if (st.st_mode & S_IRWXO)
		r = err_set(err, ERR_CONFIG, "%s: holds a secret and is open to every user; chmod o= it", path);
	while (r == 0 && n > 0 && len < size) {
		n = read(fd, (char *)ptr + len, size - len);
		if (n < 0)
			r = err_set(err, ERR_CONFIG, "%s: %s", path, strerror(errno));
		else
			len += (size_t)n;
	}
	if (r == 0 && len == size)
		r = err_set(err, ERR_CONFIG, "%s: is longer than %zu bytes", path, size - 1);
	if (fd >= 0)
		close(fd);
	if (r == 0)
		*ret_len = len;
	return r;
}

static int make(const char *source, const char *ptr, size_t len, struct secret **ret, struct err *err)
{
	if (len > SECRET_MAX)
		return err_set(err, ERR_CONFIG, "%s: is longer than %d bytes", source, SECRET_MAX);

	struct secret *secret = len ? secret_new(ptr, len) : NULL;

	if (len && !secret)
		return err_set(err, ERR_NOMEM, "%s: out of memory", source);
	*ret = secret;
	return 0;
}

static int load_file(const char *source, const char *path, struct secret **ret, struct err *err)
{
	char bytes[SECRET_MAX + 2]; /* a newline, and one more to see that it is too long */
	size_t len = 0;
	int r = secret_file_read(path, bytes, sizeof(bytes), &len, err);

	if (r == 0) {
		if (len && bytes[len - 1] == '\n')
			len--;
		r = make(source, bytes, len, ret, err);
	}
	secret_wipe(bytes, sizeof(bytes));
	return r;
}

int secret_load(const char *source, struct secret **ret, struct err *err)
{
	if (strncmp(source, "file:", 5) == 0 && source[5])
		return load_file(source, source + 5, ret, err);
	if (strncmp(source, "env:", 4) == 0 && source[4]) {
		const char *value = getenv(source + 4);

		return make(source, value ? value : "", value ? strlen(value) : 0, ret, err);
	}
	/* The text is not repeated: it may be the secret itself, written in the wrong place. */
	return err_set(err, ERR_CONFIG, "a secret is given as \"file:<path>\" or \"env:<NAME>\"");
}

/* How published examples begin; compared without case. */
static const char *const defaults[] = {
	"changeme",	"change-me",	    "change_me",	"change this",	   "change-this",
	"change_this",	"changethis",	    "replaceme",	"replace-me",	   "replace_me",
	"replace-this", "your-secret",	    "your_secret",	"yoursecret",	   "insecure",
	"example",	"dev-secret",	    "development",	"default-secret",  "super-secret",
	"supersecret",	"super_secret",	    "my-secret",	"mysecret",	   "0123456789abcdef0123456789abcdef",
	"secretsecret", "passwordpassword", "1234567890123456", "0123456789012345", "abcdefghijklmnopqrstuvwxyz",
};

static bool is_published(const struct secret *secret)
{
	for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
		if (strncasecmp(secret->bytes, defaults[i], strlen(defaults[i])) == 0)
			return true;
	}
	return false;
}

/* One byte, or a word of up to eight, again and again. */
static bool is_repetition(const struct secret *secret)
{
	for (size_t period = 1; period <= PERIOD_MAX; period++) {
		size_t i = period;

		while (i < secret->len && secret->bytes[i] == secret->bytes[i - period])
			i++;
		if (i >= secret->len)
			return true;
	}
	return false;
}

int secret_check(const struct secret *secret, const char *name, struct err *err)
{
	if (!secret)
		return err_set(err, ERR_CONFIG, "%s: is not set", name);
	assert(secret->magic == MAGIC);
	if (secret->len < SECRET_MIN)
		return err_set(err, ERR_CONFIG, "%s: is shorter than %d bytes", name, SECRET_MIN);
	if (is_published(secret))
		return err_set(err, ERR_CONFIG, "%s: is a published default", name);
	if (is_repetition(secret))
		return err_set(err, ERR_CONFIG, "%s: repeats one pattern", name);
	return 0;
}

/* The digests have one length whatever the sides are, so that not even the length is told by the time taken. */
bool secret_equal(const struct secret *secret, const void *ptr, size_t len)
{
	uint8_t ours[DIGEST], theirs[DIGEST];

	if (!secret || secret->len == 0 || !ptr || len == 0)
		return false;
	assert(secret->magic == MAGIC);
	secret_sha256(secret->bytes, secret->len, ours);
	secret_sha256(ptr, len, theirs);

	bool equal = CRYPTO_memcmp(ours, theirs, DIGEST) == 0;

	secret_wipe(ours, sizeof(ours));
	secret_wipe(theirs, sizeof(theirs));
	return equal;
}

bool secret_signed(const struct secret *secret, const void *ptr, size_t len, const void *mac, size_t mac_len)
{
	uint8_t ours[DIGEST];
	unsigned ours_len = 0;

	if (!secret || secret->len == 0 || !ptr || !mac || mac_len != DIGEST)
		return false;
	assert(secret->magic == MAGIC);
	if (!HMAC(EVP_sha256(), secret->bytes, (int)secret->len, ptr, len, ours, &ours_len) || ours_len != DIGEST)
		return false;

	bool equal = CRYPTO_memcmp(ours, mac, DIGEST) == 0;

	secret_wipe(ours, sizeof(ours));
	return equal;
}

/* Fetched once: looking an algorithm up by name costs more than a short digest. */
static EVP_MD *sha256;
static pthread_once_t sha256_once = PTHREAD_ONCE_INIT;

static void sha256_fetch(void)
{
	sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
}

/* A daemon without digests or randomness could only go on wrongly. */
static void crypto_must(bool worked, const char *what)
{
	if (worked)
		return;
	log_error("libcrypto failed", KS("in", what));
	abort();
}

void secret_sha256(const void *ptr, size_t len, uint8_t ret_digest[32])
{
	pthread_once(&sha256_once, sha256_fetch);
	crypto_must(sha256 && EVP_Digest(len ? ptr : "", len, ret_digest, NULL, sha256, NULL) == 1, "sha256");
}

void secret_sha256_hex(const void *ptr, size_t len, char ret_hex[65])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t digest[DIGEST];

	secret_sha256(ptr, len, digest);
	for (size_t i = 0; i < DIGEST; i++) {
		ret_hex[2 * i] = digits[digest[i] >> 4];
		ret_hex[2 * i + 1] = digits[digest[i] & 15];
	}
	ret_hex[2 * DIGEST] = '\0';
}

/* Every request draws an id or two, and a draw costs the library as much as hundreds of bytes: each thread keeps a store
 * of bytes, which are wiped as they are handed out. A child process must not draw what its parent will. */
static _Thread_local struct {
	uint8_t bytes[RANDOM_STORE];
	size_t left;
	unsigned forks; /* as of the time it was filled */
} drawn;
static atomic_uint forks;
static pthread_once_t forks_once = PTHREAD_ONCE_INIT;

static void forked(void)
{
	atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
	crypto_must(pthread_atfork(NULL, NULL, forked) == 0, "fork handler");
}

static void draw(void *ptr, size_t len)
{
	crypto_must(len <= INT32_MAX && RAND_priv_bytes(ptr, (int)len) == 1, "random bytes");
}

void secret_random(void *ptr, size_t len)
{
	unsigned now = atomic_load(&forks);

	if (len > RANDOM_STORE / 8) {
		draw(ptr, len);
		return;
	}
	if (drawn.left < len || drawn.forks != now) {
		pthread_once(&forks_once, watch_forks);
		draw(drawn.bytes, RANDOM_STORE);
		drawn.left = RANDOM_STORE;
		drawn.forks = now;
	}
	drawn.left -= len;
	memcpy(ptr, drawn.bytes + drawn.left, len);
	secret_wipe(drawn.bytes + drawn.left, len);
}
