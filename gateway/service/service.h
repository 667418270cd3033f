/*
 * The service verbs: what the command line, HTTP and MCP call. Each blocks until it is done and returns its reason in ERR.
 *
 * What they answer with, so that a front end can tell the kinds apart:
 *   -EINVAL bad input · -ENOENT no such sandbox or file · -EEXIST the name is taken · -EALREADY it runs already · -ESRCH it does not run ·
 *   -EBUSY it runs, and that is in the way · -EBADMSG, -EPROTONOSUPPORT its record cannot be read · -ENOTCONN no daemon runs · anything
 *   else: it failed.
 */
#ifndef AK_SERVICE_H
#define AK_SERVICE_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/run/run.h"
#include "gateway/store/plan.h"
#include "gateway/store/report.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* ---- life cycle (service/service.c) ---- */

/* Define one from what OPTS say of mode, profile, project, variables, limits and rules; RET is its SandboxInfo. */
int service_create(
	const struct ak_paths *paths, const char *name, const struct run_request *opts, cJSON **ret, struct ak_err *err);

/* Which one is meant, and how; NULL for neither. */
struct service_how {
	const char *uuid; /* only while NAME is still this one's (else -ENOENT): for a caller who looked at it and acts on that */
	bool accept_dir; /* start: the folder that is at the project's path now becomes the project */
	bool force; /* remove: also one that runs, or whose record cannot be read */
};

/* RET, unless NULL, is the daemon's SandboxInfo, untouched when there is none, with "notes" (of the start) and "changed" (of the stop; see
 * project/guard.h); of a removal it is empty. */
typedef int service_change_fn(
	const struct ak_paths *paths, const char *name, const struct service_how *how, cJSON **ret, struct ak_err *err);
service_change_fn service_start, service_stop, service_remove;

/* Is NAME still the one with UUID (else -ENOENT)? What was opened by its name between two such looks was the sandbox's. */
int service_same(const struct ak_paths *paths, const char *name, const char *uuid, struct ak_err *err);

/*
 * SandboxInfo of one, by name or uuid; or an array of all, in order of name. A damaged one stands there with that status and nothing else
 * known, and is told through BAD (may be NULL).
 */
int service_get(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err);
int service_list(const struct ak_paths *paths, void (*bad)(void *ctx, const char *name, const char *reason), void *ctx,
	cJSON **ret, struct ak_err *err);

/*
 * For a command that works on running sandboxes: if their daemon has died, restart it and wait until NAME has its network back. NAME need not
 * exist or run; NULL if the caller knows that some sandbox runs. True if the user should be told RET, which is one line.
 */
bool service_heal(const struct ak_paths *paths, const char *name, struct ak_err *ret);

/* The supervisor's socket of a running sandbox; -ENOENT, -ESRCH with a reason. */
int service_super(const struct ak_paths *paths, const char *name, struct ak_err *err);

/* state_load for a name that a user gave; -EINVAL is the user's mistake. */
struct state_sandbox;
int service_load(const struct ak_paths *paths, const char *name, struct state_sandbox *ret, struct ak_err *err);

/* "'x' is not a name: …" unless it is one. */
int service_check_name(const char *name, struct ak_err *err);

/* True once the run in DIR ended: run.jsonl says so, its process is gone, or its folder is. A persistent sandbox has ended when it is stopped. */
bool service_ended(const struct ak_paths *p, const char *dir);

/* ---- the daemon (service/daemon.c) ---- */

/* {"op":OP} with the members of REQUEST (taken over; NULL is fine) to the daemon; with START one is started when there is none. */
int service_call(const struct ak_paths *paths, bool start, const char *op, cJSON *request, cJSON **ret, struct ak_err *err);

bool service_daemon_runs(const struct ak_paths *paths);
int service_daemon_status(const struct ak_paths *paths, cJSON **ret, struct ak_err *err);
int service_daemon_stop(const struct ak_paths *paths, struct ak_err *err);
int service_prewarm(const struct ak_paths *paths, enum ak_mode mode, unsigned count, cJSON **ret, struct ak_err *err);

/* ---- live policy (service/policy.c) ---- */

struct service_change {
	bool reset; /* forget all earlier changes first */
	const struct policy_edit *edits;
	size_t n_edits;
	uint64_t for_ms; /* 0: for good */
	bool mcp; /* MCP servers that may use the sandbox may do so with the new policy */
};

/* What store/info.h says of a policy. */
int service_policy_show(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err);

/* All of it or nothing; RET is what the daemon did: the same object, of the policy that is in force now. */
int service_policy_change(
	const struct ak_paths *paths, const char *name, const struct service_change *change, cJSON **ret, struct ak_err *err);

/* The rules of the policy file FILE, what it extends included, as edits that add them; free with service_edits_free. */
int service_edits_of_file(
	const struct ak_paths *paths, const char *file, struct policy_edit **ret, size_t *ret_n, struct ak_err *err);
void service_edits_free(struct policy_edit *edits, size_t n);

/*
 * What {"default","allow":[…],"deny","allow_cidr","deny_cidr","remove"} asks for, as edits; and those that make it the whole of the policy of
 * the sandbox NAME, whatever its mode says: what the mode has and it has not is removed, and without a default it denies.
 */
int service_edits_of_json(const cJSON *json, struct policy_edit **ret, size_t *ret_n, struct ak_err *err);
int service_edits_of_whole(const struct ak_paths *paths, const char *name, const cJSON *json, struct policy_edit **ret,
	size_t *ret_n, struct ak_err *err);

/* ---- policies, and what they say (service/check.c) ---- */

struct service_policy_file {
	char name[AK_NAME_MAX];
	const char *source; /* "user", "system" or "shipped" */
	char path[PATH_MAX];
};

/* All that can be called by a name, in its order; free() it. */
int service_policies(const struct ak_paths *paths, struct service_policy_file **ret, size_t *ret_n, struct ak_err *err);

/* "default", "rules" and "description" as members of a JSON object; "error" with ERR where P is NULL. */
void service_policy_put(struct strbuf *out, const struct policy *p, const struct ak_err *err);

/* What a persistent sandbox is held to now, or a kept or past run was, with EDITS on top. -ENOENT: no such one; -ESRCH: it has no network. */
int service_sandbox_policy(const struct ak_paths *paths, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err);
int service_run_policy(const struct ak_paths *paths, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err);

/* What a policy says of one destination, by the matcher that enforces it, in words. */
struct service_verdict {
	struct policy_decision decision; /* its strings are the policy's */
	const char *verdict; /* "allow" or "deny" */
	const char *policy; /* borrowed from the policy */
	const char *reason; /* static */
	char target[POLICY_NAME_MAX + 32], rule[2 * POLICY_NAME_MAX];
};
void service_check(const struct policy *p, const struct policy_target *t, struct service_verdict *ret);

/* "verdict", "target", "policy", "rule" and "reason" as members of a JSON object. */
void service_verdict_put(struct strbuf *out, const struct service_verdict *v);

/* ---- commands in a running sandbox (service/exec.c) ---- */

struct service_exec_opts {
	char *const *argv;
	const char *const *env; /* "K=V", or "K" for the caller's value; on top of the sandbox's own */
	size_t n_env;
	const char *workdir; /* NULL: the project or the home */
	bool tty;
	uint16_t rows, cols; /* of the terminal; 0: unknown */
	uint64_t timeout_ms; /* 0: none */
	int stdio[3]; /* borrowed; -1 is the null device; not with tty */
	const char *uuid; /* only if the sandbox is still this one; NULL: whichever has the name */
	bool count; /* service_exec_run tells what the network was asked for meanwhile, which takes two questions to the daemon */
};

/* A command that runs. Whoever closes it ends the command. */
struct service_exec {
	int sock; /* owned; readable when service_exec_poll has something to say */
	int tty_fd; /* owned; the pty's master, or -1 */
	uint32_t id;
};

struct service_exit {
	int exit_code; /* the command's own, 128+N, 124 when timed out, 125 to 127 when it never ran */
	bool timed_out;
	struct ak_err why; /* of 125 to 127, or "" */
	unsigned n_left; /* processes that the command left running */
	char left[AK_ERR_MAX]; /* which, as far as they fit: "7 sleep, 9 node" */
};

/* 0 when it runs, or when it ended at once with 126 or 127 (told by the first poll). */
int service_exec_start(const struct ak_paths *paths, const char *name, const struct service_exec_opts *opts,
	struct service_exec *ret, struct ak_err *err);
/* 1 and how it ended; 0 when it has not (only with WAIT false). */
int service_exec_poll(struct service_exec *x, bool wait, struct service_exit *ret, struct ak_err *err);
int service_exec_signal(struct service_exec *x, int sig);
void service_exec_done(struct service_exec *x);

/*
 * All of it in one: start it, wait for its end, report. OUTPUT, unless NULL, takes the place of opts->stdio for standard output (0) and error (1);
 * a background process that still holds them is not waited for. A command that could not be started at all is an error (-EIO).
 */
struct service_output {
	void (*take)(void *ctx, int stream, const char *data, size_t len);
	void *ctx;
};
int service_exec_run(const struct ak_paths *paths, const char *name, const struct service_exec_opts *opts,
	const struct service_output *output, struct run_report *ret, struct ak_err *err);

/* ---- files (service/files.c); paths are absolute, inside the sandbox ---- */

#define SERVICE_FILE_MAX (64u << 20) /* what service_file_read hands out at most */

/* O_PATH descriptor of a running sandbox's root: what the verbs below work on, and never outside of. */
int service_root(const struct ak_paths *paths, const char *name, struct ak_err *err);

/*
 * The same of a sandbox that does not run, or of a run that was kept (service/kept.c): the folder that holds what was written at *PATH, which
 * becomes the path in that folder. Works whatever became of the sandbox's root and of its record. For reading only. -ENOENT.
 */
int service_kept(const struct ak_paths *paths, const char *name, const char **path, struct ak_err *err);

/* A regular file for reading, at its start, with its size in *RET_ST. Links on the way stay inside; the file itself must not be one. */
int service_file_open(int root, const char *path, struct stat *ret_st, struct ak_err *err);
int service_file_read(int root, const char *path, size_t max, char **ret, size_t *ret_len, struct ak_err *err);

/* Replace or make PATH as a whole; with PARENTS missing folders are made. A link of that name is replaced, not followed; a device
 * or a FIFO is refused. */
int service_file_write(int root, const char *path, const void *data, size_t len, mode_t mode, bool parents, struct ak_err *err);

/* A file, a link or an empty folder; with TREE a folder and all in it. */
int service_file_delete(int root, const char *path, bool tree, struct ak_err *err);

struct service_entry {
	const char *name; /* borrowed during the call */
	mode_t mode;
	uint64_t size, mtime_s;
};
/* The names in a folder, in order, each once; ends also when things are renamed in there faster than one can read. */
struct service_names {
	char **list; /* owned */
	size_t n, cap;
};
int service_names_read(DIR *d, struct service_names *ret);
void service_names_done(struct service_names *l);

/* FN for each entry in order of name; it stops when FN returns non-zero, which is handed on. */
int service_file_list(
	int root, const char *path, int (*fn)(void *ctx, const struct service_entry *e), void *ctx, struct ak_err *err);

/* Record what was done with a sandbox's files: OP is "read", "write", "delete", "copy_in" or "copy_out". */
void service_file_event(const struct ak_paths *paths, const char *name, const char *op, const char *path);

/* The folder that holds PATH, O_PATH, and PATH's last part; -EINVAL for "/" and parts that are ".." at the end. */
int service_file_parent(int root, const char *path, bool make, char ret_base[static NAME_MAX + 1], struct ak_err *err);

/* Is what NAME in DIR is now something that a file may replace: nothing, a file or a link? 0, or -EINVAL (a device, a FIFO …), -EISDIR. */
int service_file_replaceable(int dir, const char *name, struct ak_err *err);

/* True for file systems that are the kernel's own (proc, sysfs, cgroup …): never read, written or walked. */
bool service_fs_forbidden(int fd);

/* ---- the memory of agents (service/agents.c; see store/agent.h) ---- */

struct agent;
/*
 * Copy the host's own files of A into its shared memory, which must be empty: -EEXIST if not. EACH gets every path of the home before it is copied; what
 * was copied is counted in *RET_FILES. -ENOENT if the host has none.
 */
int service_agent_import(const struct ak_paths *paths, const struct agent *a, void (*each)(const char *path), uint64_t *ret_files,
	struct ak_err *err);

/* Remove all memory of A, the shared one and those of projects. -ENOENT if there is none. */
int service_agent_reset(const struct ak_paths *paths, const struct agent *a, struct ak_err *err);

/* ---- copying trees (service/copy.c) ---- */

struct service_copy {
	const volatile sig_atomic_t *stop; /* may be NULL; non-zero: clean up and end with -EINTR */
	void (*skipped)(
		void *ctx, const char *path, const char *why); /* devices, FIFOs, sockets, what cannot be read or is too deep */
	void *ctx;
	uint64_t files, folders, links, left_out, bytes; /* what was done */
};

/*
 * Copy SRC_DIR/SRC to DST_DIR/DST, both single names below open folders: files byte for byte with their permissions and time, folders with all
 * in them, links as links. Nothing but descriptors is walked, so that whoever renames things meanwhile gains nothing. An existing
 * file or link is replaced as a whole, an existing folder is filled, anything else of that name is in the way. Set-id bits are dropped.
 * What cannot be read inside a folder is left out, and the rest is copied.
 */
int service_copy_tree(int src_dir, const char *src, int dst_dir, const char *dst, struct service_copy *c, struct ak_err *err);

/* ---- what a run would be (service/explain.c) ---- */

/* Plan OPTS and tell everything that the plan decides, each with its reason. Nothing is started. */
int service_explain(const struct run_request *opts, const struct ak_paths *paths, struct strbuf *out, struct ak_err *err);

/* ---- run (service/run.c) ---- */

/* run_execute, by a warm sandbox of the daemon when one fits. */
int service_run(const struct run_request *opts, const struct ak_paths *paths, struct run_report *ret, struct ak_err *err);

#endif
