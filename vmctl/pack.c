/*
 * Values in a memory file: see pack.h. A string is its length including the NUL (0: NULL) and its bytes; a list is its count
 * plus one (0: NULL) and its strings.
 */
#include "vmctl/pack.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void pack_u64(struct strbuf *pack, uint64_t value)
{
	strbuf_add(pack, &value, sizeof(value));
}

void pack_str(struct strbuf *pack, const char *text)
{
	size_t len = text ? strlen(text) + 1 : 0;

	pack_u64(pack, len);
	if (len)
		strbuf_add(pack, text, len);
}

void pack_list(struct strbuf *pack, char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	pack_u64(pack, list ? n + 1 : 0);
	for (size_t i = 0; i < n; i++)
		pack_str(pack, list[i]);
}

int pack_seal(const struct strbuf *pack)
{
	_cleanup_close_ int fd = -1;
	int rc;

	if (pack->failed)
		return -ENOMEM;
	if (pack->len > PACK_MAX)
		return -E2BIG;
	fd = memfd_create("agentkernel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	rc = ak_write_all(fd, pack->data, pack->len);
	if (rc < 0)
		return rc;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int pack_open(int fd, struct pack *ret)
{
	struct pack p = { .bad = false };
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > PACK_MAX)
		return -EBADMSG;
	p.len = (size_t)st.st_size;
	/*
	 * Every list entry is preceded by its length, and every list needs one more pointer for its end: this many pointers
	 * suffice.
	 */
	p.n_lists = p.len / sizeof(uint64_t) + 1;
	p.data = malloc(p.len);
	p.lists = calloc(p.n_lists, sizeof(*p.lists));
	/* Read instead of mapping: accessing a mapping of a file that shrinks raises SIGBUS. */
	n = p.data && p.lists ? pread(fd, p.data, p.len, 0) : -1;
	if (n != (ssize_t)p.len) {
		int rc = !p.data || !p.lists ? -ENOMEM : n < 0 ? -errno : -EBADMSG;

		pack_done(&p);
		return rc;
	}
	*ret = p;
	return 0;
}

void pack_done(struct pack *p)
{
	free(p->data);
	free(p->lists);
	*p = (struct pack){ .bad = true };
}

uint64_t unpack_u64(struct pack *p)
{
	uint64_t value;

	if (p->bad || p->len - p->at < sizeof(value)) {
		p->bad = true;
		return 0;
	}
	memcpy(&value, p->data + p->at, sizeof(value));
	p->at += sizeof(value);
	return value;
}

char *unpack_str(struct pack *p)
{
	uint64_t len = unpack_u64(p);
	char *text = p->data + p->at;

	if (p->bad || len == 0)
		return NULL;
	if (len > p->len - p->at || text[len - 1] != '\0') {
		p->bad = true;
		return NULL;
	}
	p->at += len;
	return text;
}

char **unpack_list(struct pack *p)
{
	uint64_t n = unpack_u64(p);
	char **list = p->lists + p->used;

	if (p->bad || n == 0)
		return NULL;
	if (n > p->n_lists - p->used) {
		p->bad = true;
		return NULL;
	}
	for (uint64_t i = 0; i + 1 < n; i++) {
		list[i] = unpack_str(p);
		if (!list[i])
			p->bad = true;
	}
	list[n - 1] = NULL;
	p->used += n;
	return p->bad ? NULL : list;
}
