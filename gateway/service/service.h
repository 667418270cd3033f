/*
 * The service functions, called by the command line, HTTP and MCP. Each blocks until it is done and returns the reason of a failure in ERR.
 *
 * Return codes that a front end can rely on:
 *   -EINVAL bad input · -ENOENT no such sandbox or file · -EEXIST the name is taken · -EALREADY already running · -ESRCH not running ·
 *   -EBUSY not possible while it is running · -EBADMSG, -EPROTONOSUPPORT its record cannot be read · -ENOTCONN no daemon is running · any other:
 *   it failed.
 */
#ifndef AK_SERVICE_H
#define AK_SERVICE_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/paths.h"
#include "gateway/config/config.h"
#include "gateway/config/detect.h"
#include "gateway/image/image.h"
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

/* Create a sandbox with the mode, profile, project, variables, limits and rules of OPTS; RET is its SandboxInfo. */
int service_create(
	const struct ak_paths *paths, const char *name, const struct run_request *opts, cJSON **ret, struct ak_err *err);

/* Options of start, stop and remove; a NULL pointer means none. */
struct service_how {
	const char *uuid; /* act only if NAME still has this uuid (else -ENOENT), so that a check before the call stays valid */
	bool accept_dir; /* start: use the folder that is now at the project's path as the project */
	uint64_t disk_bytes; /* start: the limit of its files from now on; 0: as it was */
	bool force; /* remove: even if it is running or its record cannot be read */
	bool archive; /* remove: it was a run in the background; its log becomes that of a past run, which ended with … */
	int exit_code; /* … this code */
};

/*
 * RET, unless NULL, is the daemon's SandboxInfo with "notes" (of the start) and "changed" (of the stop; see project/guard.h). It is untouched if the daemon
 * sends none, and empty after a removal.
 */
typedef int service_change_fn(
	const struct ak_paths *paths, const char *name, const struct service_how *how, cJSON **ret, struct ak_err *err);
service_change_fn service_start, service_stop, service_remove;

/* ---- snapshots (service/snapshot.c): copies of the files that a persistent sandbox has written ---- */

struct service_copy_how {
	const char *tag; /* NULL: snapshot: made of the time; fork: the present files */
	bool stop; /* if it is running, stop it for the copy and start it again; else -EBUSY */
};

/* RET: {"tag","bytes","files","created_at"}; or an array of them, oldest first, those that cannot be read with "damaged":true. */
int service_snapshot(
	const struct ak_paths *paths, const char *name, const struct service_copy_how *how, cJSON **ret, struct ak_err *err);
int service_snapshots(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err);
int service_snapshot_remove(const struct ak_paths *paths, const char *name, const char *tag, struct ak_err *err);

/* Replace the files of NAME by those of a snapshot. RET: SandboxInfo. */
int service_restore(
	const struct ak_paths *paths, const char *name, const struct service_copy_how *how, cJSON **ret, struct ak_err *err);

/* Make a stopped sandbox FRESH with the files and settings of NAME. RET: its SandboxInfo. */
int service_fork(const struct ak_paths *paths, const char *name, const char *fresh, const struct service_copy_how *how,
	cJSON **ret, struct ak_err *err);

/* Does NAME still have this UUID (else -ENOENT)? Whatever is opened by name between two successful checks belongs to that sandbox. */
int service_same(const struct ak_paths *paths, const char *name, const char *uuid, struct ak_err *err);

/*
 * SandboxInfo of one sandbox, by name or uuid; or an array of all, sorted by name. A sandbox whose record cannot be read is listed with the
 * status "damaged" and nothing else, and reported through BAD (may be NULL).
 */
int service_get(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err);
int service_list(const struct ak_paths *paths, void (*bad)(void *ctx, const char *name, const char *reason), void *ctx,
	cJSON **ret, struct ak_err *err);

/* Append the runs in STATE/runs to LIST, newest first: {"name","status":"running"|"exited"|"killed","mode","exit_code",…}. */
int service_list_runs(const struct ak_paths *paths, cJSON *list, struct ak_err *err);

/*
 * Everything known about a sandbox or a run, as one object: SandboxInfo, policy, mounts, limits and the names of its variables. Values of variables are
 * never part of it.
 */
int service_inspect(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err);

/*
 * For a command that works on running sandboxes: if their daemon has died, restart it and wait until NAME has its network back. NAME need not
 * exist or be running; NULL if the caller knows that some sandbox is running. True if the caller should show RET, one line, to the user.
 */
bool service_heal(const struct ak_paths *paths, const char *name, struct ak_err *ret);

/* Connect to the supervisor of a running sandbox; -ENOENT or -ESRCH with a reason. */
int service_super(const struct ak_paths *paths, const char *name, struct ak_err *err);

/* state_load for a name that the user gave; -EINVAL if it is not a valid name. */
struct state_sandbox;
int service_load(const struct ak_paths *paths, const char *name, struct state_sandbox *ret, struct ak_err *err);

/* -EINVAL with "'x' is not a name: …" unless NAME is valid. */
int service_check_name(const char *name, struct ak_err *err);

/*
 * True once the run in DIR has ended: run.jsonl says so, its process no longer exists, or its folder does not. A persistent sandbox has ended
 * when it is stopped.
 */
bool service_ended(const struct ak_paths *p, const char *dir);

/* ---- the daemon (service/daemon.c) ---- */

/* Send {"op":OP} with the members of REQUEST to the daemon. Takes ownership of REQUEST (may be NULL). START: start a daemon if none is running. */
int service_call(const struct ak_paths *paths, bool start, const char *op, cJSON *request, cJSON **ret, struct ak_err *err);
/* The same for a request that takes as long as it needs. */
int service_call_long(const struct ak_paths *paths, const char *op, cJSON *request, cJSON **ret, struct ak_err *err);

bool service_daemon_runs(const struct ak_paths *paths);
int service_daemon_status(const struct ak_paths *paths, cJSON **ret, struct ak_err *err);
int service_daemon_stop(const struct ak_paths *paths, struct ak_err *err);
int service_prewarm(const struct ak_paths *paths, enum ak_mode mode, bool vm, unsigned count, cJSON **ret, struct ak_err *err);

/* ---- published ports (service/publish.c) ---- */

struct service_ports {
	struct ak_publish add[AK_PUBLISH_MAX], drop[AK_PUBLISH_MAX];
	size_t n_add, n_drop;
};

/*
 * Publish or remove ports of a persistent sandbox, at once if it runs, and for its later starts; or of a run in the foreground. RET: SandboxInfo with the
 * ports in use.
 */
int service_publish(
	const struct ak_paths *paths, const char *name, const struct service_ports *ports, cJSON **ret, struct ak_err *err);

/* ---- live policy (service/policy.c) ---- */

struct service_change {
	bool reset; /* drop all earlier changes first */
	bool whole; /* the edits are all there is: also drop the rules of the mode that are not among them, and deny unless they set a default */
	const struct policy_edit *edits;
	size_t n_edits;
	uint64_t for_ms; /* the edits expire after this time; 0: never */
	bool mcp; /* allow the sandbox's MCP servers to use it with the new policy */
};

/* RET: sandbox_policy_json of store/info.h. */
int service_policy_show(const struct ak_paths *paths, const char *name, cJSON **ret, struct ak_err *err);

/* Applies all edits or none. RET is the same object for the policy that is now in force. */
int service_policy_change(
	const struct ak_paths *paths, const char *name, const struct service_change *change, cJSON **ret, struct ak_err *err);

/* Edits that add the rules of the policy file FILE, including those it extends; free with service_edits_free. */
int service_edits_of_file(
	const struct ak_paths *paths, const char *file, struct policy_edit **ret, size_t *ret_n, struct ak_err *err);
void service_edits_free(struct policy_edit *edits, size_t n);

/* ---- policies and their verdicts (service/check.c) ---- */

struct service_policy_file {
	char name[AK_NAME_MAX];
	const char *source; /* "user", "system" or "shipped" */
	char path[PATH_MAX];
};

/* All policies that have a name, sorted by name; free() the array. */
int service_policies(const struct ak_paths *paths, struct service_policy_file **ret, size_t *ret_n, struct ak_err *err);

/* Write "kind" (service_policy_kind), "default", "rules" and "description" as members of a JSON object; if P is NULL, "error" with ERR. */
void service_policy_put(struct strbuf *out, const char *name, const struct policy *p, const struct ak_err *err);

/* What the policy P, installed as NAME, is used for: a "mode", a "group", or "policy" for all others. */
const char *service_policy_kind(const char *name, const struct policy *p);

/* The policy of a persistent sandbox now, or of a kept or past run, with EDITS applied. -ENOENT: does not exist; -ESRCH: has no network. */
int service_sandbox_policy(const struct ak_paths *paths, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err);
int service_run_policy(const struct ak_paths *paths, const char *name, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err);

/* The verdict of a policy on one destination, from the same matcher that enforces it. */
struct service_verdict {
	struct policy_decision decision; /* its strings are borrowed from the policy */
	const char *verdict; /* "allow" or "deny" */
	const char *policy; /* borrowed from the policy */
	const char *reason; /* static, or WHY */
	char why[64];
	char target[POLICY_NAME_MAX + 32], rule[2 * POLICY_NAME_MAX];
};
void service_check(const struct policy *p, const struct policy_target *t, struct service_verdict *ret);

/* Write "verdict", "target", "policy", "rule" and "reason" as members of a JSON object. */
void service_verdict_put(struct strbuf *out, const struct service_verdict *v);

/* ---- groups (service/groups.c) ---- */

/* All installed groups. What cannot be read is left out, NULL when out of memory: groups only serve for hints. */
struct service_groups;
struct service_groups *service_groups_load(const struct ak_paths *paths);
void service_groups_freep(struct service_groups **g);

/* The name of the group that allows NAME at PORT (0: at any); NULL if none does. Borrowed from G. */
const char *service_group_of(const struct service_groups *g, const char *name, enum policy_proto proto, uint16_t port);

/* ---- what was denied (service/denied.c) ---- */

struct service_denial {
	char what[POLICY_NAME_MAX + 32]; /* "pastebin.com", "pypi.org:80"; safe to print */
	char why[160]; /* "not in codex", "only port 443 is allowed", "in source-hosting" */
	char option[POLICY_NAME_MAX + 32]; /* that allows it; "" if none does */
	char group[AK_NAME_MAX]; /* "" if it is in none */
	uint64_t count;
};

/* The destinations that the run or sandbox NAME was denied, the most frequent first, at most CAP. */
int service_denials(const struct ak_paths *paths, const char *name, struct service_denial *ret, size_t cap, size_t *ret_n,
	struct ak_err *err);

/* "pastebin.com (not in codex). Allow with --allow-host pastebin.com, or see: " */
void service_denials_put(struct strbuf *out, const struct service_denial *list, size_t n);

/* "only port 443 is allowed": the ports of NAME that P allows, for someone who asked for PROTO. */
void service_ports_text(const struct policy *p, const char *name, enum policy_proto proto, char *buf, size_t size);

/* ---- commands in a running sandbox (service/exec.c) ---- */

struct service_exec_opts {
	char *const *argv;
	const char *const *env; /* "K=V", or "K" for the caller's value; added to the sandbox's environment */
	size_t n_env;
	const char *workdir; /* NULL: the project or the home folder */
	bool tty;
	uint16_t rows, cols; /* of the terminal; 0: unknown */
	uint64_t timeout_ms; /* 0: none */
	int stdio[3]; /* borrowed; -1 is the null device; not with tty */
	const char *uuid; /* run only if the sandbox still has this uuid; NULL: any */
	bool count; /* service_exec_run also reports allowed and denied connections, which costs two requests to the daemon */
};

/* A running command. Closing the socket ends the command. */
struct service_exec {
	int sock; /* owned; readable when service_exec_poll has an event */
	int tty_fd; /* owned; the pty's master, or -1 */
	uint32_t id;
};

struct service_exit {
	int exit_code; /* of the command; 128+N for signal N, 124 after a timeout, 125 to 127 if it never ran */
	bool timed_out;
	uint64_t oom_limit; /* the memory limit in bytes, if it killed a process meanwhile; else 0 */
	uint64_t pids_limit; /* the process limit, if it was reached meanwhile; else 0 */
	bool out_of_disk; /* the sandbox was ended for what it wrote: */
	uint64_t disk_limit; /* bytes */
	struct ak_err why; /* reason of 125 to 127, or "" */
	unsigned n_left; /* number of processes that the command left running */
	char left[AK_ERR_MAX]; /* their pids and names, truncated: "7 sleep, 9 node" */
};

/* How it ended and which limits it reached, for reports. */
void service_exit_outcome(const struct service_exit *end, struct run_outcome *ret);

/* 0 if the request was sent. The first poll reports a command that could not be executed (126, 127). */
int service_exec_start(const struct ak_paths *paths, const char *name, const struct service_exec_opts *opts,
	struct service_exec *ret, struct ak_err *err);
/* 1 with RET if it has ended; 0 if it has not (only with WAIT false). */
int service_exec_poll(struct service_exec *x, bool wait, struct service_exit *ret, struct ak_err *err);
int service_exec_signal(struct service_exec *x, int sig);
void service_exec_done(struct service_exec *x);

/*
 * Start a command, wait for its end and report. OUTPUT, unless NULL, receives standard output (stream 0) and standard error (1) instead of opts->stdio;
 * does not wait for background processes that keep them open. A command that could not be started at all is an error (-EIO).
 */
struct service_output {
	void (*take)(void *ctx, int stream, const char *data, size_t len);
	void *ctx;
};
int service_exec_run(const struct ak_paths *paths, const char *name, const struct service_exec_opts *opts,
	const struct service_output *output, struct run_report *ret, struct ak_err *err);

/* ---- files (service/files.c); paths are absolute, inside the sandbox ---- */

/* O_PATH descriptor of a running sandbox's root. The functions below take it and never reach outside of it. */
int service_root(const struct ak_paths *paths, const char *name, struct ak_err *err);

/*
 * The same for a stopped sandbox or a kept run (service/kept.c): returns the host folder that holds what the sandbox wrote at *PATH, and changes *PATH to
 * the path inside that folder. Works even if the sandbox cannot start or its record cannot be read. For reading only. -ENOENT.
 */
int service_kept(const struct ak_paths *paths, const char *name, const char **path, struct ak_err *err);

/* Open a regular file for reading; *RET_ST has its size. Symbolic links in folders resolve inside the root; the file itself must not be one. */
int service_file_open(int root, const char *path, struct stat *ret_st, struct ak_err *err);
int service_file_read(int root, const char *path, size_t max, char **ret, size_t *ret_len, struct ak_err *err);

/* Create PATH or replace it atomically; PARENTS: create missing folders. A symbolic link is replaced, not followed; a device or FIFO is an error. */
int service_file_write(int root, const char *path, const void *data, size_t len, mode_t mode, bool parents, struct ak_err *err);

/* Delete a file, a symbolic link or an empty folder; TREE: a folder with its contents. */
int service_file_delete(int root, const char *path, bool tree, struct ak_err *err);

struct service_entry {
	const char *name; /* borrowed during the call */
	mode_t mode;
	uint64_t size, mtime_s;
};
/* The names in a folder, sorted, without duplicates. Terminates even if files are renamed faster than we read. */
struct service_names {
	char **list; /* owned */
	size_t n, cap;
};
int service_names_read(DIR *d, struct service_names *ret);
void service_names_done(struct service_names *l);

/* Call FN for each entry, sorted by name; stops if FN returns non-zero, and returns that value. */
int service_file_list(
	int root, const char *path, int (*fn)(void *ctx, const struct service_entry *e), void *ctx, struct ak_err *err);

/* Record an access to a sandbox's files: OP is "read", "write", "delete", "copy_in" or "copy_out". */
void service_file_event(const struct ak_paths *paths, const char *name, const char *op, const char *path);

/* O_PATH descriptor of PATH's parent folder, and PATH's last component; -EINVAL for "/" and for paths that end in "." or "..". */
int service_file_parent(int root, const char *path, bool make, char ret_base[static NAME_MAX + 1], struct ak_err *err);

/* 0 if a file may replace NAME in DIR: it does not exist, or is a regular file or symbolic link. Else -EISDIR, -EPERM (a mount) or -EINVAL. */
int service_file_replaceable(int dir, const char *name, struct ak_err *err);

/* True for file systems of the kernel (proc, sysfs, cgroup …), which we never read, write or walk. */
bool service_fs_forbidden(int fd);

/* ---- the memory of agents (service/agents.c; see store/agent.h) ---- */

struct agent;
struct service_memory {
	/* Each file or folder of the home that is copied, before what is in it; REAL: where it leads to if it is a link, else NULL. May be NULL. */
	void (*source)(void *ctx, const char *path, const char *real);
	void (*found)(void *ctx, const char *path, uint64_t size); /* see struct service_copy */
	void (*skipped)(void *ctx, const char *path, const char *why); /* see struct service_copy; may be NULL */
	void *ctx;
};
/*
 * Report what service_agent_import would copy. The same errors: -EEXIST if A has a memory, -ENOENT if the host has no files of it.
 */
int service_agent_look(const struct ak_paths *paths, const struct agent *a, const struct service_memory *how, struct ak_err *err);

/*
 * Copy the host's own files of A into its shared memory, which must be empty: -EEXIST if not. A folder of the home that is a link is copied from where it leads
 * to; links that lead out of such a folder are left out. What was copied is counted in *RET_FILES. -ENOENT if the host has none. Leaves nothing after a failure.
 */
int service_agent_import(const struct ak_paths *paths, const struct agent *a, uint64_t *ret_files, struct ak_err *err);

/* Report what service_agent_reset would remove: paths below the agent's name, "codex/shared/…". -ENOENT if there is none. */
int service_agent_memory(
	const struct ak_paths *paths, const struct agent *a, const struct service_memory *how, struct ak_err *err);

/* Remove all memory of A, the shared one and those of projects. -ENOENT if there is none. */
int service_agent_reset(const struct ak_paths *paths, const struct agent *a, struct ak_err *err);

/* ---- copying trees (service/copy.c) ---- */

struct service_copy {
	const volatile sig_atomic_t *stop; /* may be NULL; non-zero: clean up and end with -EINTR */
	/* May be NULL; called for devices, FIFOs, sockets, unreadable files, folders that are too deep, and links that are not copied. */
	void (*skipped)(void *ctx, const char *path, const char *why);
	void *ctx;
	const char *to; /* borrowed; the destination as the user wrote it, for errors; may be NULL */
	bool inner_links; /* skip links that lead out of the copied folder, and absolute ones */
	bool look; /* only count and report what would be copied; there is no destination */
	void (*found)(void *ctx, const char *path,
		uint64_t size); /* may be NULL; with LOOK, each file and link (size 0), in order of their paths */
	uint64_t files, folders, links, left_out, bytes; /* result: how many were copied or skipped */
};

/*
 * Copy SRC_DIR/SRC to DST_DIR/DST, both single names in open folders: files with their contents, permissions and times, folders recursively,
 * symbolic links as links. The walk uses only descriptors, so concurrent renames cannot redirect it. An existing file or link is replaced
 * atomically, an existing folder is merged into; anything else at the destination is an error. Set-id bits are dropped. Files in a folder that
 * cannot be read are skipped.
 */
int service_copy_tree(int src_dir, const char *src, int dst_dir, const char *dst, struct service_copy *c, struct ak_err *err);

/* The same for what PINNED, opened with O_PATH, is; NAME is for messages. */
int service_copy_pinned(int pinned, const char *name, int dst_dir, const char *dst, struct service_copy *c, struct ak_err *err);

/* ---- runs in the background (service/detach.c) ---- */

#define SERVICE_OUTPUT_MAX (16u << 20) /* bytes of output that are kept, unless the request has a limit of its own */

/*
 * Start the command of OPTS in a sandbox of its own and return once it runs; RET is its name. The sandbox is like a persistent one while the command runs.
 * When the command ends, a process in the background stops the sandbox and, unless OPTS says to keep it, removes it; its log and output stay as those of
 * a past run. *RET_CODE is 126 or 127 if the command could not be executed.
 */
int service_run_detached(const struct run_request *opts, const struct ak_paths *paths, char ret[static AK_NAME_MAX],
	int *ret_code, struct ak_err *err);

/* ---- settings of a project (service/config.c) ---- */

/*
 * Store in O what agentkernel.toml gives and O does not: the file O->config, or the one in the project folder DIR (NULL: none). *RET is the file,
 * which must outlive O; NULL if there is none. -EINVAL: the file is wrong. -EKEYREJECTED: it widens O and the user has not trusted this content; O is
 * unchanged, and *RET is set so that the caller can ask.
 */
int service_config(struct run_request *o, const char *dir, const struct ak_paths *paths, struct config **ret, struct ak_err *err);

/* Read the file PATH, or the one in the folder PATH; -ENOENT. */
int service_config_file(const char *path, struct config **ret, struct ak_err *err);

/* Append lines that say what C changed since it was trusted, and what of it counts only after that: for any run, not only for the one at hand. */
int service_config_tell(const struct ak_paths *paths, struct config *c, struct strbuf *out, struct ak_err *err);

/* The sizes of the daemon's pool that agentkernel.toml in DIR gives; RET is unchanged where it gives none. -EINVAL: wrong, or not trusted. */
struct daemon_conf;
int service_pool_settings(const char *dir, const struct ak_paths *paths, struct daemon_conf *ret, struct ak_err *err);

/* Trust exactly the content of C; forget a file or the one in a folder (-ENOENT); list [{path, status, sha256, time}]. */
int service_trust(const struct ak_paths *paths, const struct config *c, struct ak_err *err);
int service_trust_revoke(const struct ak_paths *paths, const char *path, char ret[static PATH_MAX], struct ak_err *err);
int service_trust_list(const struct ak_paths *paths, cJSON **ret, struct ak_err *err);

/* ---- images by language (service/detect.c) ---- */

/* Which image fits O, the settings C (may be NULL) and the project folder DIR (NULL: none), and why. */
void service_detect(const struct run_request *o, const struct config *c, const char *dir, struct detect_answer *ret);

/* ---- explaining a run (service/explain.c) ---- */

/* Plan OPTS and describe every decision of the plan with its reason. C: the file that gave some of it, or NULL. Starts nothing. */
int service_explain(const struct run_request *opts, const struct config *c, const struct ak_paths *paths, struct strbuf *out,
	struct ak_err *err);

/* ---- run (service/run.c) ---- */

/* Run a command in a temporary sandbox: a warm one of the daemon if one fits, else a new one. See run/run.h for the result. */
int service_run(const struct run_request *opts, const struct ak_paths *paths, struct run_report *ret, struct ak_err *err);

/* ---- images (service/image.c) ---- */

struct service_image {
	const char *name; /* import: store it under this name; NULL: made from the source */
	bool digest_known; /* import: who had the image has checked the digest in NAME */
	uint64_t max_bytes; /* 0: the default */
	const char *ca_file, *auth_file; /* pull: for the registry; NULL: none */
	const struct policy_edit *edits; /* pull: rules besides those of the registry */
	size_t n_edits;
};

/* Bring an image to the store; RET is the name for `--image`. Progress goes to standard error. */
int service_image_pull(const struct ak_paths *paths, const char *name, const struct service_image *how,
	char ret[static IMAGE_NAME_MAX], struct ak_err *err);
int service_image_import(const struct ak_paths *paths, const char *source, const struct service_image *how,
	char ret[static IMAGE_NAME_MAX], struct ak_err *err);

/* -EBUSY: a sandbox, running or not, has it as its root. */
int service_image_remove(const struct ak_paths *paths, const char *name, struct ak_err *err);
int service_image_prune(
	const struct ak_paths *paths, void (*told)(void *ctx, const struct image_row *row), void *ctx, struct ak_err *err);

#endif
