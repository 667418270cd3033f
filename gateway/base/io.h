/* Files, sockets and file descriptors: the small helpers that everyone needs. */
#ifndef AK_BASE_IO_H
#define AK_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AK_FDS_MAX 16

/*
 * As many descriptors as the host lets us have: flows and sandboxes need several each, and passing one fails when more are on their way, of all
 * processes of this user, than the sender may open.
 */
void ak_raise_descriptor_limit(void);

/* Write all of it or fail; -errno. */
int ak_write_all(int fd, const void *data, size_t len);

/* Read a whole file of at most MAX bytes into a NUL-terminated buffer; -EFBIG past it. DIRFD may be AT_FDCWD. */
int ak_read_file(int dirfd, const char *path, size_t max, char **ret_data, size_t *ret_len);

/* As much of LEN bytes at offset AT as there is; how many, or -errno. */
ssize_t ak_pread_all(int fd, void *data, size_t len, uint64_t at);

/* The file behind an O_PATH descriptor, opened with FLAGS; -errno. */
int ak_reopen(int pinned, int flags);

/* A name that nobody has: for what is written beside its place and renamed. -errno. */
int ak_fresh_name(char ret[static 32]);

/* One existing file, one write: for /proc and /sys; -errno. */
int ak_write_file(const char *path, const char *text);

/* mkdir -p with MODE for the parts that are missing; an existing folder is fine. */
int ak_mkdir_p(const char *path, mode_t mode);

/*
 * Remove a tree below DIRFD, however deep, wide or locked, with few descriptors and little memory. Follows no links and enters no other mount.
 * Goes on after a failure: -errno of the last place that could not be removed, which is written to WHERE (from NAME's last part on, cut).
 * Parts of a very deep tree may have moved up to NAME by then.
 */
#define AK_WHERE_MAX 256
int ak_remove_tree(int dirfd, const char *name);
int ak_remove_tree_told(int dirfd, const char *name, char where[static AK_WHERE_MAX]);

/* One message with file descriptors (SCM_RIGHTS) on a SOCK_SEQPACKET socket. */
int ak_send_fds(int sock, const void *data, size_t len, const int *fds, size_t n_fds);

/* Receive one message; *N_FDS is the room on entry and the count on return. 0 at end of file (or for a
 * message without a byte, whose descriptors are closed), -errno on failure, else the length. Received descriptors are CLOEXEC. */
ssize_t ak_recv_fds(int sock, void *data, size_t len, int *fds, size_t *n_fds);

int ak_set_nonblock(int fd, bool on);

/* Close every descriptor from 3 on but the N given ones (negative ones and repetitions are fine), and point 0, 1 and 2 at /dev/null. */
void ak_close_others(const int *keep, size_t n);

/* Where 0, 1 or 2 is closed it becomes /dev/null: or a descriptor of ours would be some program's standard stream. */
void ak_fill_standard_streams(void);

/* NAME in DIRFD becomes DATA as a whole or stays as it was: written beside, with SYNC made durable, renamed. Writers of one NAME exclude
 * each other by a lock of their own. */
int ak_replace_file(int dirfd, const char *name, const void *data, size_t len, bool sync);

/* A memory file that holds DATA and can never change again: how larger things travel between our processes. */
int ak_memory_file(const char *name, const void *data, size_t len);

/* All of a memory file that ak_memory_file made, NUL-terminated; -EFBIG past MAX, -EBADMSG when it could still change. */
int ak_memory_read(int fd, size_t max, char **ret_data, size_t *ret_len);

/* The N signals at SIGS come by a descriptor from now on, instead of interrupting; -errno. Children inherit the mask. */
int ak_signal_fd(const int *sigs, size_t n);

/* Milliseconds and microseconds of CLOCK_MONOTONIC, and wall-clock microseconds since 1970. */
uint64_t ak_now_ms(void);
uint64_t ak_now_us(void);
uint64_t ak_wall_us(void);
/* The wall clock for what must end in time: it goes along when that is set forward, and on with the time that passes when it is set back. */
uint64_t ak_deadline_now_us(void);

/* How long ago BEGAN_US (of ak_now_us) was; never 0, which stands for "not known", and held at the most that fits. */
uint32_t ak_since_us(uint64_t began_us);

#endif
