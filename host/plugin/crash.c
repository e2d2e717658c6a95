/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the report of a crash: the table of mapped plugins (written on the main thread, read by the handler), what each
 * thread is in, and the handler. The handler runs on whatever thread faulted, in whatever state the process is then:
 * it must call nothing but async-signal-safe functions, take no lock and touch no memory that it does not own.
 */
#include "plugin/crash.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/log.h"
#include "core/log_batch.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define PLUGINS_MAX 256	    /* as many as the configuration takes targets */
#define HANDLER_STACK 16384 /* beside what the kernel itself puts there */

static const struct {
	int number;
	const char *name;
	bool has_address; /* si_addr says what was touched */
} signals[] = {
	{SIGSEGV, "SIGSEGV", true}, {SIGBUS, "SIGBUS", true},	 {SIGILL, "SIGILL", false},
	{SIGFPE, "SIGFPE", false},  {SIGABRT, "SIGABRT", false},
};
#define SIGNAL_COUNT (sizeof(signals) / sizeof(*signals))

/* A plugin whose init failed keeps its row: its code stays mapped, and its threads may live. */
static struct mapped {
	uintptr_t start, end;
	char name[64];
} table[PLUGINS_MAX];
static atomic_size_t table_count; /* rows below it are complete */

static bool installed; /* before there are threads */
static pthread_key_t stack_key;
static atomic_int reporting; /* thread id of the one that writes the line */

static _Thread_local struct {
	const char *plugin, *operation, *target;
	bool ready;
} here;

/* ---- the line, without stdio ---- */

struct line {
	char text[512];
	size_t len;
};

static void add(struct line *line, const char *text)
{
	while (*text && line->len < sizeof(line->text) - 1) /* one for the line's end */
		line->text[line->len++] = *text++;
}

static void add_number(struct line *line, uintptr_t value, unsigned base)
{
	char digits[24];
	size_t i = sizeof(digits) - 1;

	digits[i] = '\0';
	do {
		digits[--i] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	add(line, base == 16 ? "0x" : "");
	add(line, digits + i);
}

static bool instruction_of(const void *context, uintptr_t *ret)
{
	const ucontext_t *uc = context;

#if defined(__x86_64__)
	*ret = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
	return true;
#elif defined(__aarch64__)
	*ret = (uintptr_t)uc->uc_mcontext.pc;
	return true;
#else
	(void)uc;
	*ret = 0;
	return false;
#endif
}

static const struct mapped *owner_of(uintptr_t address)
{
	size_t count = atomic_load_explicit(&table_count, memory_order_acquire);

	for (size_t i = 0; i < count; i++)
		if (address >= table[i].start && address < table[i].end)
			return &table[i];
	return NULL;
}

static void add_signal(struct line *line, const siginfo_t *info)
{
	size_t i = 0;

	while (i < SIGNAL_COUNT - 1 && signals[i].number != info->si_signo)
		i++;
	add(line, signals[i].name);
	if (info->si_code <= 0) { /* sent, abort() included */
		if (info->si_pid != getpid()) {
			add(line, " sent by process ");
			add_number(line, (uintptr_t)info->si_pid, 10);
		}
	} else if (signals[i].has_address) {
		/* The processor does not tell it for addresses that cannot exist. */
		bool known = info->si_code != SI_KERNEL;

		add(line, known ? " at address " : " at an unknown address");
		if (known)
			add_number(line, (uintptr_t)info->si_addr, 16);
	}
}

static void add_place(struct line *line, const void *context)
{
	const struct mapped *owner = NULL;
	uintptr_t instruction;

	if (instruction_of(context, &instruction)) {
		add(line, ", instruction ");
		add_number(line, instruction, 16);
		owner = owner_of(instruction);
	}
	if (owner) {
		add(line, " in plugin ");
		add(line, owner->name);
		add(line, "+");
		add_number(line, instruction - owner->start, 16);
	} else {
		add(line, " outside the plugins");
	}
	if (!here.plugin) {
		add(line, ", on a thread that is in no plugin's call");
		return;
	}
	add(line, ", in ");
	add(line, here.operation);
	add(line, " of plugin ");
	add(line, here.plugin);
	if (here.target) {
		add(line, ", target ");
		add(line, here.target);
	}
}

static void report(const siginfo_t *info, const void *context)
{
	struct line line = {.len = 0};

	add(&line, "berthd: crash: ");
	add_signal(&line, info);
	add_place(&line, context);
	line.text[line.len++] = '\n';
	log_batch_rescue();
	(void)!write(STDERR_FILENO, line.text, line.len);
}

/* The default action comes by itself: a fault happens again when the handler returns, a sent signal is sent again. */
static void on_crash(int number, siginfo_t *info, void *context)
{
	static const struct sigaction dfl = {.sa_handler = SIG_DFL};
	int none = 0, self = gettid();
	int saved = errno;

	if (atomic_compare_exchange_strong(&reporting, &none, self))
		report(info, context);
	else if (none != self)
		for (;;)
			pause(); /* the first one is writing, and ends us all */
	sigaction(number, &dfl, NULL);
	if (info->si_code <= 0)
		raise(number);
	errno = saved;
}

/* ---- before a crash ---- */

static size_t alternate_size(void)
{
	size_t least = getauxval(AT_MINSIGSTKSZ);

	return (least > (size_t)MINSIGSTKSZ ? least : (size_t)MINSIGSTKSZ) + HANDLER_STACK;
}

static void free_stack(void *stack)
{
	const stack_t off = {.ss_flags = SS_DISABLE};

	sigaltstack(&off, NULL);
	munmap(stack, alternate_size());
}

/* A stack that overflowed has no room for a handler. Without memory for one the report is lost, no more. Not from the heap:
 * there it lies on pages that others have used, and ten thousand threads keep two of those each. */
static void prepare_thread(void)
{
	stack_t stack = {.ss_size = alternate_size()};
	sigset_t set;

	here.ready = true;
	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack.ss_sp != MAP_FAILED && (pthread_setspecific(stack_key, stack.ss_sp) || sigaltstack(&stack, NULL))) {
		pthread_setspecific(stack_key, NULL);
		munmap(stack.ss_sp, stack.ss_size);
	}
	sigemptyset(&set);
	for (size_t i = 0; i < SIGNAL_COUNT; i++)
		sigaddset(&set, signals[i].number);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void crash_install(void)
{
	struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	if (SANITIZED || installed || pthread_key_create(&stack_key, free_stack))
		return;
	installed = true;
	sigfillset(&action.sa_mask);
	for (size_t i = 0; i < SIGNAL_COUNT; i++)
		sigdelset(&action.sa_mask, signals[i].number); /* a second fault has to find its way out, too */
	for (size_t i = 0; i < SIGNAL_COUNT; i++)
		sigaction(signals[i].number, &action, NULL);
}

static int find_range(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct mapped *range = arg;
	uintptr_t base = info->dlpi_addr;

	(void)size;
	if (base != range->start)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type == PT_LOAD && base + segment->p_vaddr + segment->p_memsz > range->end)
			range->end = base + segment->p_vaddr + segment->p_memsz;
	}
	return 1;
}

void crash_learn(void *handle, const char *name)
{
	size_t count = atomic_load_explicit(&table_count, memory_order_relaxed);
	struct link_map *map = NULL;
	struct mapped range = {0};

	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map)
		return;
	range.start = map->l_addr; /* objects are linked at 0, so addresses in the report are those of the file */
	snprintf(range.name, sizeof(range.name), "%s", name);
	if (!dl_iterate_phdr(find_range, &range) || owner_of(range.start))
		return;
	if (count == PLUGINS_MAX) {
		log_warn("crash reports will not know a plugin: too many were loaded", KS("plugin", name));
		return;
	}
	table[count] = range;
	atomic_store_explicit(&table_count, count + 1, memory_order_release);
}

void crash_enter(const char *plugin, const char *operation, const char *target)
{
	here.operation = operation;
	here.target = target;
	here.plugin = plugin;
	if (installed && !here.ready)
		prepare_thread();
}

void crash_leave(void)
{
	here.plugin = NULL;
}
