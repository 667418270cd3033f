/* The dynamic section of an ELF file: see project/tools_internal.h. The file may be damaged: every offset is checked by the read itself. */
#include "gateway/project/tools_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADERS_MAX 64
#define DYNAMIC_MAX 1024 /* entries */

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define OWN_ORDER ELFDATA2LSB
#else
#define OWN_ORDER ELFDATA2MSB
#endif

struct elf_file {
	int fd; /* borrowed */
	Elf64_Phdr headers[HEADERS_MAX];
	size_t n_headers;
	Elf64_Dyn dynamic[DYNAMIC_MAX];
	size_t n_dynamic;
	uint64_t strings; /* address of the string table */
};

static bool read_at(int fd, uint64_t offset, void *ret, size_t size)
{
	return offset <= INT64_MAX && ak_pread_all(fd, ret, size, (off_t)offset) == (ssize_t)size;
}

/* The string at OFFSET, cut to SIZE; "" if there is none. */
static void read_text(int fd, uint64_t offset, char *ret, size_t size)
{
	ssize_t n = offset <= INT64_MAX ? ak_pread_all(fd, ret, size - 1, (off_t)offset) : -1;

	ret[n > 0 ? n : 0] = '\0';
	if (strlen(ret) == size - 1)
		ret[0] = '\0'; /* too long to be a path */
}

/* Read the first bytes; false if it is no ELF file of this machine's kind. */
static bool read_start(int fd, Elf64_Ehdr *ret)
{
	return read_at(fd, 0, ret, sizeof(*ret)) && memcmp(ret->e_ident, ELFMAG, SELFMAG) == 0 &&
		ret->e_ident[EI_CLASS] == ELFCLASS64 && ret->e_ident[EI_DATA] == OWN_ORDER;
}

bool elf_is_library(const char *path)
{
	_cleanup_close_ int fd = -1;
	Elf64_Ehdr head;
	struct stat st;

	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode)) /* opening a device may have effects */
		return false;
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	return fd >= 0 && read_start(fd, &head) && head.e_type == ET_DYN;
}

static bool read_headers(struct elf_file *f)
{
	Elf64_Ehdr head;

	if (!read_start(f->fd, &head) || head.e_phentsize != sizeof(f->headers[0]) || head.e_phnum > HEADERS_MAX)
		return false;
	f->n_headers = head.e_phnum;
	return read_at(f->fd, head.e_phoff, f->headers, f->n_headers * sizeof(f->headers[0]));
}

static const Elf64_Phdr *find_header(const struct elf_file *f, uint32_t type)
{
	for (size_t i = 0; i < f->n_headers; i++) {
		if (f->headers[i].p_type == type)
			return &f->headers[i];
	}
	return NULL;
}

static bool read_dynamic(struct elf_file *f)
{
	const Elf64_Phdr *h = find_header(f, PT_DYNAMIC);
	size_t n = h ? h->p_filesz / sizeof(f->dynamic[0]) : 0;

	f->n_dynamic = n < DYNAMIC_MAX ? n : DYNAMIC_MAX;
	if (!h)
		return true; /* linked statically */
	if (!read_at(f->fd, h->p_offset, f->dynamic, f->n_dynamic * sizeof(f->dynamic[0])))
		return false;
	for (size_t i = 0; i < f->n_dynamic && f->dynamic[i].d_tag != DT_NULL; i++) {
		if (f->dynamic[i].d_tag == DT_STRTAB)
			f->strings = f->dynamic[i].d_un.d_ptr;
	}
	return true;
}

/* Where in the file the loader finds ADDRESS; UINT64_MAX if nowhere. */
static uint64_t offset_of(const struct elf_file *f, uint64_t address)
{
	for (size_t i = 0; i < f->n_headers; i++) {
		const Elf64_Phdr *h = &f->headers[i];

		if (h->p_type == PT_LOAD && address >= h->p_vaddr && address - h->p_vaddr < h->p_filesz)
			return h->p_offset + (address - h->p_vaddr);
	}
	return UINT64_MAX;
}

static void take_entry(const struct elf_file *f, const Elf64_Dyn *d, struct elf_needs *ret)
{
	uint64_t at = offset_of(f, f->strings + d->d_un.d_val);

	if (d->d_tag == DT_RPATH || d->d_tag == DT_RUNPATH)
		read_text(f->fd, at, ret->path[d->d_tag == DT_RPATH ? ELF_RPATH : ELF_RUNPATH], PATH_MAX);
	if (d->d_tag != DT_NEEDED || ret->n_needed == ELF_NEEDED_MAX)
		return;
	read_text(f->fd, at, ret->needed[ret->n_needed], sizeof(ret->needed[0]));
	ret->n_needed += ret->needed[ret->n_needed][0] != '\0';
}

bool elf_needs_read(int fd, struct elf_needs *ret)
{
	_cleanup_free_ struct elf_file *f = calloc(1, sizeof(*f));
	const Elf64_Phdr *h;

	ret->interpreter[0] = ret->path[ELF_RPATH][0] = ret->path[ELF_RUNPATH][0] = '\0';
	ret->n_needed = 0;
	if (!f)
		return false;
	f->fd = fd;
	if (!read_headers(f) || !read_dynamic(f))
		return false;
	h = find_header(f, PT_INTERP);
	if (h)
		read_text(fd, h->p_offset, ret->interpreter, sizeof(ret->interpreter));
	for (size_t i = 0; i < f->n_dynamic && f->dynamic[i].d_tag != DT_NULL; i++)
		take_entry(f, &f->dynamic[i], ret);
	return true;
}
