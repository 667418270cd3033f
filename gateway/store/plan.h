/*
 * The plan of a run: mode, profile and flags resolved into the properties of the sandbox. It only inspects the project folder and
 * creates our own folders if they must be covered; it starts nothing.
 */
#ifndef AK_PLAN_H
#define AK_PLAN_H

#include "gateway/base/err.h"
#include "gateway/base/paths.h"
#include "gateway/base/publish.h"
#include "gateway/image/image.h"
#include "gateway/project/guard.h"
#include "gateway/project/owndir.h"
#include "gateway/project/project.h"
#include "gateway/project/tools.h"
#include "policies/policy.h"
#include "vmctl/sandbox.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* AK_MODE_OWN is any other installed policy, by its name: the project is mounted, and isolation is moderate. */
enum ak_mode { AK_MODE_NATIVE, AK_MODE_CLAUDE, AK_MODE_CODEX, AK_MODE_GEMINI, AK_MODE_OPENCODE, AK_MODE_OWN, AK_MODE_NUM };
enum ak_profile { AK_PROFILE_PERMISSIVE, AK_PROFILE_MODERATE, AK_PROFILE_RESTRICTIVE, AK_PROFILE_NUM };

const char *ak_mode_name(enum ak_mode mode); /* "own" for AK_MODE_OWN: a label, not the name of a policy */
const char *ak_mode_policy(enum ak_mode mode, const char *own); /* the name of the mode's policy: OWN for AK_MODE_OWN */
const char *ak_profile_name(enum ak_profile profile);
int ak_mode_parse(const char *text, enum ak_mode *ret, struct ak_err *err); /* never AK_MODE_OWN */
/* Any mode. *RET_OWN is TEXT for AK_MODE_OWN, otherwise NULL; whether such a policy exists is checked by run_plan_init. */
int ak_mode_choose(const char *text, enum ak_mode *ret, const char **ret_own, struct ak_err *err);
int ak_profile_parse(const char *text, enum ak_profile *ret, struct ak_err *err);
bool ak_profile_network(enum ak_profile profile);

/* Who requested a run: each origin has its own share of the logs that are kept. */
enum run_origin { RUN_ORIGIN_CLI, RUN_ORIGIN_HTTP, RUN_ORIGIN_MCP, RUN_ORIGIN_NUM };
const char *run_origin_name(enum run_origin origin);

/* Whose memory an agent's run has: see store/agent.h. AUTO is SHARED when the user starts an agent by its name, and NONE otherwise. */
enum agent_state { AGENT_STATE_AUTO, AGENT_STATE_SHARED, AGENT_STATE_PROJECT, AGENT_STATE_NONE, AGENT_STATE_NUM };
int agent_state_parse(const char *text, enum agent_state *ret, struct ak_err *err);
#define AGENT_STATE_MAX 3 /* folders of one agent */

#define PLAN_LIST_MAX 256
#define RUN_FIELDS_MAX 160 /* room for enum field_id */

/* A file or folder of the host that the user brings in besides the project: see store/mounts.h. */
struct run_mount {
	const char *source; /* on the host */
	const char *target; /* inside; NULL: the same path as the source */
	bool writable;
	struct project_id
		id; /* of the source when the sandbox was created, or the file that names it was trusted; else unknown */
};
#define RUN_MOUNTS_MAX 16
#define RUN_TOOLS_MAX 16

/* The user's request; everything is borrowed from argv. */
struct run_request {
	const char *name; /* NULL: a new one, "run-<8 hex>" */
	enum ak_mode mode;
	const char *own; /* the policy of AK_MODE_OWN, else NULL */
	enum ak_profile profile;
	enum run_origin origin;
	enum agent_state agent_state;
	bool no_network, keep, pass_api_key, tty, no_tty, quiet, json, project_writable, allow_broad_dir;
	bool cold; /* never use a warm sandbox */
	bool detach; /* run in the background */
	bool explain; /* print the plan and run nothing */
	bool nested; /* allow nested namespaces */
	bool vm; /* in a virtual machine */
	bool debug; /* show the console of the virtual machine */
	bool vm_if_fast; /* the same, where hardware virtualisation runs one (run/vm.h) */
	bool podman; /* in a container of podman's */
	bool mcp; /* create: MCP servers of the project may use it */
	const char *mcp_server; /* create: the server that creates it, or NULL; with KEEP, it outlives that server */
	const char *image; /* name of a local image that becomes the root; NULL: the host's programs */
	const char *image_id; /* with fixed_env: the image that IMAGE stood for when the sandbox was created */
	const char *dir; /* NULL: the mode decides */
	struct project_id dir_id; /* with fixed_env: the identity of the folder when the sandbox was created */
	const struct sandbox_mount *own_mounts; /* folders of ours, for programs that work on them; never from a user */
	size_t n_own_mounts;
	const char *workdir;
	const char *env[PLAN_LIST_MAX]; /* "K=V", or "K" for the caller's value */
	size_t n_env;
	size_t n_env_files; /* how many of them, at the beginning, come from --env-file: --env beats those */
	char *const *
		fixed_env; /* not NULL: the environment that run_plan_capture saved when the sandbox was created; the caller's own
				   environment and folder are then ignored, and a NULL dir means no project */
	struct run_mount mounts[RUN_MOUNTS_MAX];
	size_t n_mounts;
	const char *tools[RUN_TOOLS_MAX + 1]; /* other programs of the host to bring in; ends with NULL */
	size_t n_tools;
	const char *path; /* with fixed_env: the PATH of the user who created the sandbox; NULL: bring no programs in */
	struct policy_edit edits[PLAN_LIST_MAX]; /* changes to the mode's policy: rules, further policies, groups */
	size_t n_edits;
	struct ak_publish publish[AK_PUBLISH_MAX];
	size_t n_publish;
	uint64_t timeout_ms; /* 0: none */
	uint64_t output_bytes; /* how much of the output is captured or stored; 0: the default of the front end */
	bool reset; /* policy change: drop all earlier changes first */
	uint64_t for_ms; /* policy change: the edits expire after this time; 0: never */
	const char *config; /* the user's --config; NULL: agentkernel.toml of the project */
	bool given[RUN_FIELDS_MAX]; /* by enum field_id: what the request itself sets, so that agentkernel.toml does not */
	size_t n_file_env, n_file_edits; /* how many of the last env and edits are from agentkernel.toml */
	struct sandbox_limits limits;
	char *const *argv; /* empty with an image: its own command */
};

/* Set the backend by its name; -EINVAL for docker, with the reason. */
int run_request_backend(struct run_request *o, const char *name, struct ak_err *err);

/* The name of a backend, for records and lists. */
const char *run_backend_name(bool vm, bool podman);

#define PLAN_ENV_MAX 1024
#define PLAN_OWN_MOUNTS_MAX 4
#define PLAN_INNER_MAX 96 /* mounts on top of the user's own, in all */
#define PLAN_MOUNTS_MAX                                                                                                          \
	(2 + PLAN_OWN_MOUNTS_MAX + OWNDIR_COVERS_MAX + GUARD_MOUNTS_MAX + TOOLS_MAX + AGENT_STATE_MAX + RUN_MOUNTS_MAX +         \
		PLAN_INNER_MAX)

/* Where a variable comes from. */
enum plan_source {
	PLAN_FROM_SYSTEM, /* PATH */
	PLAN_FROM_CALLER_PATH,
	PLAN_FROM_TERMINAL,
	PLAN_FROM_AUTHORITIES,
	PLAN_FROM_GIT,
	PLAN_FROM_SANDBOX,
	PLAN_FROM_TMP, /* TMPDIR */
	PLAN_FROM_PROFILE,
	PLAN_FROM_API_KEY,
	PLAN_FROM_OPTION,
	PLAN_FROM_FILE, /* agentkernel.toml */
	PLAN_FROM_CREATE,
	PLAN_FROM_AGENT,
	PLAN_FROM_IMAGE,
	PLAN_SOURCE_NUM
};

struct run_plan {
	char name[64];
	bool network;
	const char *policy; /* name of the policy file */
	enum sandbox_isolation isolation;
	bool readonly_root;
	bool vm; /* in a virtual machine; set by whoever starts it, if the request leaves the choice to the host */
	struct sandbox_podman *podman; /* owned; NULL: another backend */
	struct image *image; /* owned; NULL: the host's programs */
	char **argv; /* owned; the request's command after the image's entry point; NULL without an image */
	struct project_id project_id;
	struct guard *guard; /* owned; NULL without a project */
	struct plan_mounts *brought; /* owned; NULL without mounts of the user's */
	const struct run_mount *asked; /* borrowed from BROUGHT, or from a request: the user's mounts, resolved */
	size_t n_asked, n_mounts, n_links, n_files, n_env;
	struct tools tools; /* owned; what the command needs of the host besides its system folders */

	/* run_plan_init clears only the first element of each of these: they are large, and most runs use little of them. */
	char notes[1536]; /* notes for the user at the start, one per line */
	char home[PATH_MAX]; /* inside the sandbox */
	char project[PATH_MAX]; /* "" if none is mounted */
	char workdir[PATH_MAX];
	char host_home[PATH_MAX]; /* mounted read-only unless "" */
	char empty[PATH_MAX]; /* the empty folder that is mounted over our own folders where they are visible */
	char covers[OWNDIR_COVERS_MAX][PATH_MAX]; /* where it is mounted */
	struct {
		char source[PATH_MAX], target[PATH_MAX];
	} agent_state[AGENT_STATE_MAX];
	struct sandbox_mount mounts[PLAN_MOUNTS_MAX];
	const char *mounts_why[PLAN_MOUNTS_MAX]; /* of each */
	struct sandbox_link links[TOOLS_MAX];
	struct sandbox_file files[SANDBOX_FILES_MAX]; /* borrowed texts */
	const char *files_why[SANDBOX_FILES_MAX];
	char gitconfig[1200], mise[2048]; /* texts of two of them */
	char *env[PLAN_ENV_MAX + 1]; /* owned strings, NULL-terminated */
	enum plan_source env_from[PLAN_ENV_MAX]; /* of each */
};

/* EMPTY_DIR covers our own folders where a mount would show them; "": cover nothing yet. */
int run_plan_init(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths, const char *empty_dir,
	struct ak_err *err);
void run_plan_done(struct run_plan *plan);

/* Can the ports of OPTS be published? -EINVAL without a network. */
int run_plan_publish(const struct run_request *opts, struct ak_err *err);

/* Choose another name, unless OPTS fixes it: a failed earlier attempt may have left a folder with the old name. */
int run_plan_rename(struct run_plan *plan, const struct run_request *opts);

void run_plan_note(struct run_plan *plan, const char *line); /* ignores "" */

void plan_add_mount(struct run_plan *plan, const char *source, const char *target, bool readonly, const struct project_id *id,
	const char *why);

/*
 * Call after the sandbox has ended: guard_tell for the project and for every writable mount, in one line. NULL if there is nothing
 * to report; the caller frees it.
 */
char *run_plan_tell(struct run_plan *plan, const struct ak_paths *paths, const char *origin);

/* Add the notes that take a moment to compute; call it while the sandbox is being created. */
void run_plan_look(struct run_plan *plan, const struct run_request *opts, const struct ak_paths *paths);

/*
 * Fill the part of a sandbox's spec that the plan determines; the rest is zero. LINK is NULL without a network. RESOLV holds text
 * that the spec borrows.
 */
#define PLAN_RESOLV_MAX 128
void run_plan_spec(
	const struct run_plan *plan, const struct gwns_link *link, char resolv[static PLAN_RESOLV_MAX], struct sandbox_spec *ret);

/*
 * What `create` fixes for the life of the sandbox, interpreted as `run` does: the project folder ("" if none is mounted) with its
 * identity, and the variables (-e, the mode's key, the profile's) as a NULL-terminated list that the caller frees with run_env_free.
 */
int run_plan_project(const struct run_request *opts, const struct ak_paths *paths, char ret[static PATH_MAX],
	struct project_id *ret_id, struct ak_err *err);
int run_plan_bring(const struct run_request *opts, const struct ak_paths *paths, const char *project, struct run_mount **ret,
	size_t *ret_n, struct ak_err *err); /* the user's mounts; free them with run_mounts_free */
int run_plan_capture(const struct run_request *opts, char ***ret, struct ak_err *err);
void run_env_free(char **env);

#endif
