/*
 * MCP servers as owners of sandboxes: while a server lives it holds a lock on STATE/mcp/ID, which the kernel releases with its last process,
 * however that ends. What it made ends with it (see struct state_mcp), and whoever finds the lock free may see to that.
 */
#ifndef AK_STATE_SERVER_H
#define AK_STATE_SERVER_H

#include "gateway/store/state.h"

#define STATE_SERVER_MAX 33 /* an id: 32 hex digits and a NUL */

/* A new id, which nobody can guess. */
int state_server_id(char ret[static STATE_SERVER_MAX], struct ak_err *err);

/* Take the lock of a new server; the descriptor is the lock, and copies of it in children are the same one. */
int state_server_hold(const struct ak_paths *paths, const char *id, struct ak_err *err);

/* Wait until it is gone, and take its place: the lock, for the one who clears up. -ENOENT when that was done already. */
int state_server_succeed(const struct ak_paths *paths, const char *id);

/* False only when it is certain that the server has ended. */
bool state_server_lives(const struct ak_paths *paths, const char *id);

/* Ids of servers that have ended and left their lock's file: FN for each. */
void state_server_each_dead(const struct ak_paths *paths, void (*fn)(void *ctx, const char *id), void *ctx);

/* Its sandboxes are gone, and so is the file. */
void state_server_forget(const struct ak_paths *paths, const char *id);

/* Did a server make S that has ended, and was S not to be kept? */
bool state_orphaned(const struct ak_paths *paths, const struct state_sandbox *s);

#endif
