/*
 * Values of any length in a memory file. Commands and jobs travel to init this way, because its control socket
 * carries small messages only.
 *
 * A pack is written once, sealed, and read in the order of writing. The reader trusts the writer's intent but not its
 * correctness: a pack that is too short, too long or not terminated is an error.
 */
#ifndef AK_VMCTL_PACK_H
#define AK_VMCTL_PACK_H

#include "gateway/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

#define PACK_MAX (4u << 20) /* the kernel takes about 2 MiB of arguments and environment */

void pack_u64(struct strbuf *pack, uint64_t value);
void pack_str(struct strbuf *pack, const char *text); /* NULL is kept as NULL */
void pack_list(struct strbuf *pack, char *const *list); /* NULL-terminated; NULL is kept as NULL */

/* Return the pack as a sealed memory file; -E2BIG beyond PACK_MAX. */
int pack_seal(const struct strbuf *pack);

/* Errors are sticky: after one, BAD is set and every value reads as 0 or NULL. */
struct pack {
	char *data; /* owned; results point into it */
	size_t len, at;
	char **lists; /* owned: storage of all lists */
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
