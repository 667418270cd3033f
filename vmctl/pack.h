/*
 * Values of any length in a memory file: how a command or a job travels to init, whose control socket carries small messages only.
 *
 * A pack is written once, sealed, and read in the order in which it was written. The reader trusts the writer to mean well, not to
 * be right: a pack that is too short, too long or not terminated is an error.
 */
#ifndef AK_VMCTL_PACK_H
#define AK_VMCTL_PACK_H

#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

#define PACK_MAX (4u << 20) /* the kernel takes about 2 MiB of arguments and environment */

void pack_u64(struct strbuf *pack, uint64_t value);
void pack_str(struct strbuf *pack, const char *text); /* NULL stays NULL */
void pack_list(struct strbuf *pack, char *const *list); /* ends with a NULL; NULL stays NULL */

/* The sealed memory file; -E2BIG past PACK_MAX. */
int pack_seal(const struct strbuf *pack);

/* Errors stick: after one, everything reads as 0 or NULL and BAD is set. */
struct pack {
	char *data; /* owned; what is read points into it */
	size_t len, at;
	char **lists; /* owned: room for all lists */
	size_t n_lists, used;
	bool bad;
};

int pack_open(int fd, struct pack *ret);
void pack_done(struct pack *p);
uint64_t unpack_u64(struct pack *p);
char *unpack_str(struct pack *p);
char **unpack_list(struct pack *p);

#define _cleanup_pack_ __attribute__((cleanup(pack_done)))

#endif
