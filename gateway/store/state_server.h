/*
 * MCP servers as owners of sandboxes. A running server holds a lock on STATE/mcp/ID; the kernel releases it when the last process of
 * the server ends, for whatever reason. Its sandboxes end with it (see struct state_mcp): any process that finds the lock free may
 * remove them.
 */
#ifndef AK_STATE_SERVER_H
#define AK_STATE_SERVER_H

#include "gateway/store/state.h"

#define STATE_SERVER_MAX 33 /* an id: 32 hex digits and the NUL */

/* Create a new, unguessable id. */
int state_server_id(char ret[static STATE_SERVER_MAX], struct ak_err *err);

/* Take the lock of a new server; the descriptor is the lock, shared by copies in child processes. */
int state_server_hold(const struct ak_paths *paths, const char *id, struct ak_err *err);

/* Wait until the server ends, then take its lock in order to clean up. -ENOENT if that was already done. */
int state_server_succeed(const struct ak_paths *paths, const char *id);

/* False only if the server has certainly ended. */
bool state_server_lives(const struct ak_paths *paths, const char *id);

/* Call FN with the id of each server that has ended and left its lock file. */
void state_server_each_dead(const struct ak_paths *paths, void (*fn)(void *ctx, const char *id), void *ctx);

/* Remove the lock file, after the server's sandboxes were removed. */
void state_server_forget(const struct ak_paths *paths, const char *id);

/* Was S created by a server that has ended, and not marked to be kept? */
bool state_orphaned(const struct ak_paths *paths, const struct state_sandbox *s);

#endif
