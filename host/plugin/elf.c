/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The look at a file before the dynamic linker gets it, for sentences that say more than "invalid ELF header", and
 * because mapping a truncated file ends in SIGBUS. Pure reads; any thread.
 */
#include "plugin/elf.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#elif defined(__riscv)
#define OUR_MACHINE EM_RISCV
#else
#error "name this machine's ELF number"
#endif
#define PROGRAM_HEADERS_MAX 64

static const struct machine {
	unsigned number;
	const char *name;
} machines[] = {
    {EM_386, "i386"},    {EM_X86_64, "x86-64"}, {EM_ARM, "arm"},   {EM_AARCH64, "aarch64"},
    {EM_RISCV, "riscv"}, {EM_PPC64, "ppc64"},   {EM_S390, "s390"}, {0, NULL},
};

static const char *machine_name(unsigned number)
{
	for (const struct machine *machine = machines; machine->name; machine++)
		if (machine->number == number)
			return machine->name;
	return "another";
}

static int check_ident(const Elf64_Ehdr *head, ssize_t len, const char *path, struct err *err)
{
	if (len < (ssize_t)EI_NIDENT || memcmp(head->e_ident, ELFMAG, SELFMAG))
		return err_set(err, ERR_CONFIG, "plugin %s: expected an ELF shared object, got another kind of file",
			       path);
	if (head->e_ident[EI_CLASS] != ELFCLASS64)
		return err_set(err, ERR_CONFIG, "plugin %s: expected a 64-bit ELF file, got class %u", path,
			       head->e_ident[EI_CLASS]);
	if (head->e_ident[EI_DATA] != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB))
		return err_set(err, ERR_CONFIG, "plugin %s: expected this machine's byte order, got encoding %u", path,
			       head->e_ident[EI_DATA]);
	if (len < (ssize_t)sizeof(*head))
		return err_set(err, ERR_CONFIG, "plugin %s: expected a whole ELF file, got one cut at %zd bytes", path,
			       len);
	if (head->e_machine != OUR_MACHINE)
		return err_set(err, ERR_CONFIG, "plugin %s: expected a file for %s, got one for %s (%u)", path,
			       machine_name(OUR_MACHINE), machine_name(head->e_machine), head->e_machine);
	if (head->e_type != ET_DYN)
		return err_set(err, ERR_CONFIG, "plugin %s: expected a shared object (type %u), got ELF type %u", path,
			       ET_DYN, head->e_type);
	return 0;
}

static bool fits(uint64_t from, uint64_t len, uint64_t size)
{
	return from <= size && len <= size - from;
}

static bool is_whole(int fd, const Elf64_Ehdr *head, uint64_t size)
{
	Elf64_Phdr program[PROGRAM_HEADERS_MAX];
	size_t len = (size_t)head->e_phnum * sizeof(*program);

	if (head->e_phentsize != sizeof(*program) || head->e_phnum > PROGRAM_HEADERS_MAX)
		return false;
	if (!fits(head->e_phoff, len, size) || pread(fd, program, len, (off_t)head->e_phoff) != (ssize_t)len)
		return false;
	if (head->e_shoff && !fits(head->e_shoff, (uint64_t)head->e_shnum * head->e_shentsize, size))
		return false;
	for (size_t i = 0; i < head->e_phnum; i++)
		if (!fits(program[i].p_offset, program[i].p_filesz, size))
			return false;
	return true;
}

int elf_check(int fd, const char *path, struct err *err)
{
	Elf64_Ehdr head = {0};
	struct stat st;
	ssize_t len = pread(fd, &head, sizeof(head), 0);
	int rc;

	if (len < 0 || fstat(fd, &st))
		return err_set(err, ERR_CONFIG, "plugin %s: cannot be read: %s", path, strerror(errno));
	rc = check_ident(&head, len, path, err);
	if (rc)
		return rc;
	if (!is_whole(fd, &head, (uint64_t)st.st_size))
		return err_set(err, ERR_CONFIG, "plugin %s: expected a whole ELF file, got one cut at %lld bytes", path,
			       (long long)st.st_size);
	return 0;
}
