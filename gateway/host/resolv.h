/* The host's resolvers: read from resolv.conf, and again when the file changes. */
#ifndef AK_RESOLV_H
#define AK_RESOLV_H

#include "gateway/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RESOLV_PATH "/etc/resolv.conf"

/* Convert the text of a resolv.conf to "1.1.1.1:53,[2606::1]:53"; -ENOENT if it has no name server. */
int resolv_parse(const char *text, char *ret_csv, size_t size);

/* The same from RESOLV_PATH, with an error message for the user. */
int resolv_servers(char *ret_csv, size_t size, struct ak_err *err);

/* Identifies the version of the file last read. A check costs one system call; an inotify watch costs ten milliseconds at exit. */
struct resolv_stamp {
	uint64_t ino, mtime_ns, size;
};
void resolv_look(struct resolv_stamp *ret);
bool resolv_same(const struct resolv_stamp *a, const struct resolv_stamp *b);

/* Does this host have a route to the IPv6 Internet? Sends nothing. */
bool resolv_host_has_ipv6(void);

#endif
