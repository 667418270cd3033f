/* The host's resolvers: read from resolv.conf, followed when the file changes. */
#ifndef AK_RESOLV_H
#define AK_RESOLV_H

#include "gateway/base/err.h"

#include <stdbool.h>
#include <stddef.h>

#define RESOLV_PATH "/etc/resolv.conf"

/* "1.1.1.1:53,[2606::1]:53" from the text of a resolv.conf; -ENOENT when it names no server. */
int resolv_parse(const char *text, char *ret_csv, size_t size);

/* The same from RESOLV_PATH, with a reason a user can act on. */
int resolv_servers(char *ret_csv, size_t size, struct ak_err *err);

/* An inotify descriptor that becomes readable when RESOLV_PATH may have changed, whether it is rewritten or replaced. */
int resolv_watch(void);

/* Empty the descriptor; true when one of the events was about the file. */
bool resolv_changed(int fd);

/* Can this host reach the IPv6 Internet? Asks the routing table; sends nothing. */
bool resolv_host_has_ipv6(void);

#endif
