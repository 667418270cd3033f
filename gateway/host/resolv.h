/* The host's resolvers: read from resolv.conf, followed when the file changes. */
#ifndef AK_RESOLV_H
#define AK_RESOLV_H

#include "gateway/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESOLV_PATH "/etc/resolv.conf"

/* "1.1.1.1:53,[2606::1]:53" from the text of a resolv.conf; -ENOENT when it names no server. */
int resolv_parse(const char *text, char *ret_csv, size_t size);

/* The same from RESOLV_PATH, with a reason a user can act on. */
int resolv_servers(char *ret_csv, size_t size, struct ak_err *err);

/* What the file was when last looked at. Looking costs one system call, where a kernel watch costs ten milliseconds at exit. */
struct resolv_stamp {
	uint64_t ino, mtime_ns, size;
};
void resolv_look(struct resolv_stamp *ret);
bool resolv_same(const struct resolv_stamp *a, const struct resolv_stamp *b);

/* Can this host reach the IPv6 Internet? Asks the routing table; sends nothing. */
bool resolv_host_has_ipv6(void);

#endif
