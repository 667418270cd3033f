/* Small helpers for files, sockets and file descriptors. */
#ifndef AK_BASE_IO_H
#define AK_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AK_FDS_MAX 16

/*
 * Raise the descriptor limit as far as the host permits: flows and sandboxes need several each. The limit also matters for
 * passing descriptors: sending one fails if all processes of this user have more in flight than the sender may open.
 */
void ak_raise_descriptor_limit(void);

/* Write all LEN bytes; 0 or -errno. */
int ak_write_all(int fd, const void *data, size_t len);

/* Read a whole file into a NUL-terminated buffer; -EFBIG if it is larger than MAX. DIRFD may be AT_FDCWD. */
int ak_read_file(int dirfd, const char *path, size_t max, char **ret_data, size_t *ret_len);

/* Read up to LEN bytes, fewer only at the end of the file or stream. Returns the number, or -errno. */
ssize_t ak_read_all(int fd, void *data, size_t len);

/* Read up to LEN bytes at offset AT, fewer only at the end of the file. Returns the number, or -errno. */
ssize_t ak_pread_all(int fd, void *data, size_t len, uint64_t at);

/* Open the file behind an O_PATH descriptor with FLAGS; the new descriptor or -errno. */
int ak_reopen(int pinned, int flags);

/* A unique name for a temporary file that is renamed later; -errno. */
int ak_fresh_name(char ret[static 32]);

/* Write TEXT to an existing file with one write, as /proc and /sys require; -errno. */
int ak_write_file(const char *path, const char *text);

/* Like mkdir -p: create missing folders with MODE; an existing folder is no error. */
int ak_mkdir_p(const char *path, mode_t mode);

/*
 * Open the folder PATH below DIRFD, one or more parts, and create missing ones with MODE. Follows no link, not even in the middle:
 * -ELOOP if a part is one. Returns the descriptor or -errno.
 */
int ak_open_below(int dirfd, const char *path, mode_t mode);

/*
 * Remove a tree below DIRFD, of any depth, width or permissions, with few descriptors and little memory. Follows no links and
 * enters no other mount. Continues after a failure: returns -errno of the last failed removal and writes its path to WHERE
 * (starting with the last part of NAME, truncated). On failure, parts of a very deep tree may have moved up into NAME.
 */
#define AK_WHERE_MAX 256
int ak_remove_tree(int dirfd, const char *name);
int ak_remove_tree_told(int dirfd, const char *name, char where[static AK_WHERE_MAX]);

/* Send one message with file descriptors (SCM_RIGHTS) on a SOCK_SEQPACKET socket. */
int ak_send_fds(int sock, const void *data, size_t len, const int *fds, size_t n_fds);

/*
 * Receive one message; *N_FDS is the capacity on entry and the count on return. Returns the length, -errno on failure, or 0 at end
 * of file. An empty message also returns 0 and its descriptors are closed. Received descriptors are CLOEXEC.
 */
ssize_t ak_recv_fds(int sock, void *data, size_t len, int *fds, size_t *n_fds);

int ak_set_nonblock(int fd, bool on);

/* Close all descriptors from 3 up except the N in KEEP (may contain negative ones and duplicates); redirect 0 to 2 to /dev/null, or close them if there is none. */
void ak_close_others(const int *keep, size_t n);

/* Open /dev/null for closed standard streams: otherwise one of our descriptors could become 0, 1 or 2. */
void ak_fill_standard_streams(void);

/*
 * Atomically replace NAME in DIRFD with DATA: write a temporary file and rename it; SYNC makes it durable. Concurrent writers of
 * one NAME need a lock of their own.
 */
int ak_replace_file(int dirfd, const char *name, const void *data, size_t len, bool sync);

/* Create a sealed memory file with DATA, used to pass larger data between our processes. */
int ak_memory_file(const char *name, const void *data, size_t len);

/* Read a file created by ak_memory_file, NUL-terminated; -EFBIG if larger than MAX, -EBADMSG if it is not sealed. */
int ak_memory_read(int fd, size_t max, char **ret_data, size_t *ret_len);

/* Block the N signals at SIGS and return a signalfd for them; -errno. Children inherit the mask. */
int ak_signal_fd(const int *sigs, size_t n);

/* CLOCK_MONOTONIC in milliseconds and microseconds, and wall-clock microseconds since 1970. */
uint64_t ak_now_ms(void);
uint64_t ak_now_us(void);
uint64_t ak_wall_us(void);
/* A clock for deadlines: follows the wall clock when it is set forward, and keeps advancing when it is set back. */
uint64_t ak_deadline_now_us(void);

/* Microseconds since BEGAN_US (a value of ak_now_us), limited to UINT32_MAX; at least 1, because 0 means unknown. */
uint32_t ak_since_us(uint64_t began_us);

#endif
