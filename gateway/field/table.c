/* The field table, and which fields each verb takes. See field/field.h. */
#include "gateway/field/internal.h"

#include "gateway/base/cleanup.h"

#include <string.h>

#define MODES "claude|codex|gemini|native|opencode"
#define PROFILES "permissive|moderate|restrictive"
#define PATH_BYTES 4095
#define RULE_BYTES 300
#define POLICIES_MAX 32
#define TIME_BYTES 64
#define LONGEST_MS (366ull * 86400 * 1000) /* the limit of the daemon and the supervisors */

#define AT(member) .at = offsetof(struct run_request, member)
#define MORE_CLI(text) .more[FIELD_CLI] = (text)
#define MORE_HTTP(text) .more[FIELD_HTTP] = (text), .more[FIELD_QUERY] = (text)
#define MORE_MCP(text) .more[FIELD_MCP] = (text)
#define RULES(name_, option_, arg_, help_)                                                                                       \
	{                                                                                                                        \
		.name = name_, .option = option_, .kind = KIND_RULES, .arg = arg_, .max = PLAN_LIST_MAX, .help = help_,          \
		.set = field_add_rule                                                                                            \
	}

/* Formatted by hand, one field per row. */
/* clang-format off */
const struct field field_table[FIELD_NUM] = {
	[FIELD_COMMAND] = { .name = "command", .kind = KIND_STRINGS, .min = 1, .max = 4096,
		.help = "the program and its arguments, one string each; no shell is involved",
		MORE_MCP(": for pipes or globs use [\"sh\", \"-c\", \"...\"]") },
	[FIELD_MODE] = { .name = "compatibility_mode", .option = "compatibility-mode", .alias = "mode", .letter = 'm', .kind = KIND_MODE, .choices = MODES,
		.arg = MODES "|POLICY", .help = "network policy and files of the sandbox; the name of any installed policy works too", .set = field_set_mode, MORE_CLI(" (native)"), MORE_HTTP(" (native)"),
		MORE_MCP("; only modes that the user started this server with can be chosen; leave it out for the default") },
	[FIELD_PROFILE] = { .name = "profile", .option = "profile", .kind = KIND_CHOICE, .choices = PROFILES,
		.help = "how much of the host the command may use", .set = field_set_profile, MORE_CLI(" (moderate)"), MORE_HTTP(" (moderate)"),
		MORE_MCP("; never more than this server was started with; restrictive has no network") },
	[FIELD_NETWORK] = { .name = "network", .option = "no-network", .kind = KIND_BOOL, .negated = true, .help = "no network at all",
		.set = field_set_network, MORE_HTTP("; true changes nothing, the policy decides"), MORE_MCP("; true changes nothing, the policy decides") },
	[FIELD_AGENT_STATE] = { .name = "agent_state", .option = "agent-state", .kind = KIND_CHOICE, .choices = "shared|project|none",
		.help = "where the agent keeps its sign-in, settings and sessions: one folder for all projects, one for this project, or nowhere", .set = field_set_agent_state,
		MORE_CLI(" (shared when you start an agent by its name, else none)"), MORE_HTTP(" (default none)") },
	[FIELD_EXPLAIN] = { .option = "explain", .kind = KIND_BOOL, .help = "print every mount, variable and rule with its reason, and run nothing", AT(explain) },
	[FIELD_IMAGE] = { .name = "image", .option = "image", .kind = KIND_TEXT, .arg = "IMAGE", .min = 1, .max = 223,
		.help = "use a local image (see image pull, image import) as the root file system, not the host's own programs", .set = field_set_image },
	[FIELD_IMAGE_NAME] = { .option = "name", .kind = KIND_TEXT, .arg = "NAME", .min = 1, .max = 223, .help = "store it under this name" },
	[FIELD_MAX_SIZE] = { .option = "max-size", .kind = KIND_SIZE, .min = 1 << 20, .max = 1ull << 50,
		.help = "refuse an image that unpacks to more than this; 16G unless given" },
	[FIELD_CA_FILE] = { .option = "ca-file", .kind = KIND_TEXT, .arg = "FILE", .min = 1, .max = PATH_BYTES,
		.help = "trust the certificate authorities in this file, instead of the system's" },
	[FIELD_AUTH_FILE] = { .option = "auth-file", .kind = KIND_TEXT, .arg = "FILE", .min = 1, .max = PATH_BYTES,
		.help = "credentials for the registry, such as ~/.docker/config.json" },
	[FIELD_KEEP] = { .name = "keep", .option = "keep", .kind = KIND_BOOL, .help = "keep the sandbox, stopped, when the command ends", AT(keep), MORE_CLI(", and print its name") },
	[FIELD_DETACH] = { .option = "detach", .letter = 'd', .kind = KIND_BOOL, .help = "run the command in the background and print its name", AT(detach) },
	[FIELD_RUN_NAME] = { .name = "name", .option = "name", .kind = KIND_NAME, .help = "name of the sandbox (default: run- and 8 hex digits)", .set = field_set_name },
	[FIELD_CONFIG] = { .option = "config", .kind = KIND_TEXT, .arg = "FILE", .min = 1, .max = PATH_BYTES,
		.help = "read settings from this file (default: the project's agentkernel.toml)", AT(config) },
	[FIELD_BACKEND] = { .name = "backend", .option = "backend", .kind = KIND_CHOICE, .choices = "ns|vm|auto|podman|docker",
		.help = "what isolates the command: namespaces (ns, the default), a virtual machine (vm), a podman container (podman), or vm if hardware virtualisation works, else ns (auto); docker is not supported", .set = field_set_backend },
	[FIELD_DEBUG] = { .option = "debug", .kind = KIND_BOOL, .help = "with --backend vm: show the console of the guest on stderr", AT(debug) },
	[FIELD_DIR] = { .name = "dir", .option = "dir", .kind = KIND_DIR, .min = 1, .max = PATH_BYTES, .help = "the project folder on the host", AT(dir),
		MORE_CLI(" (the current folder, where the mode or profile mounts it)") },
	[FIELD_BROAD_DIR] = { .option = "allow-broad-dir", .kind = KIND_BOOL, .help = "with --dir or --mount: accept a broad folder such as /tmp or the whole home", AT(allow_broad_dir) },
	[FIELD_PROJECT_WRITABLE] = { .option = "project-writable", .kind = KIND_BOOL,
		.help = "let the command change project files that your own tools run later", AT(project_writable) },
	[FIELD_MOUNT] = { .name = "mounts", .option = "mount", .kind = KIND_MOUNTS, .arg = "SRC[:DST][:ro|rw]", .max = RUN_MOUNTS_MAX,
		.help = "mount a file or folder of the host, read-only unless rw is given", .set = field_add_mount,
		MORE_HTTP("; each {source, target?, mode?}") },
	[FIELD_TOOL] = { .name = "tools", .option = "tool", .kind = KIND_RULES, .arg = "PROGRAM", .max = RUN_TOOLS_MAX,
		.help = "also mount this program from your PATH, wherever it is installed", .set = field_add_tool },
	[FIELD_ENV] = { .name = "env", .option = "env", .letter = 'e', .kind = KIND_VARIABLES, .secret = true, .max = PLAN_LIST_MAX, .help = "set a variable inside",
		.set = field_add_variable, MORE_CLI("; K alone passes on the value from your environment"), MORE_HTTP("; an object, or an array of K=V strings") },
	[FIELD_ENV_FILE] = { .option = "env-file", .kind = KIND_TEXT, .arg = "FILE", .min = 1, .repeat = true, .set = field_add_env_file,
		.help = "set the variables of a file, one K=V per line; --env overrides it" },
	[FIELD_WORKDIR] = { .name = "workdir", .option = "workdir", .letter = 'w', .kind = KIND_PATH, .arg = "DIR", .min = 1, .max = PATH_BYTES,
		.help = "start the command in this folder of the sandbox", AT(workdir) },
	[FIELD_CWD] = { .name = "cwd", .kind = KIND_PATH, .min = 1, .max = PATH_BYTES, .help = "start the command in this folder of the sandbox", AT(workdir),
		MORE_HTTP("; in a mode that mounts the project, the project folder"), MORE_MCP("; by default the project, or the home folder") },
	[FIELD_TIMEOUT] = { .name = "timeout_ms", .option = "timeout", .kind = KIND_DURATION, .min = 1, .max = LONGEST_MS,
		.help = "end the command after this long", AT(timeout_ms), MORE_MCP("; 30000 unless given") },
	[FIELD_MEMORY] = { .name = "memory_mb", .option = "memory", .kind = KIND_SIZE, .min = 4ull << 20, .max = 16ull << 40, .help = "memory limit",
		AT(limits.memory_bytes) },
	[FIELD_VCPUS] = { .name = "vcpus", .option = "vcpus", .kind = KIND_COUNT, .min = 1, .max = 1024, .help = "processor limit", .set = field_set_vcpus },
	[FIELD_PIDS] = { .name = "pids", .option = "pids", .kind = KIND_COUNT, .min = 1, .max = 1u << 22, .help = "process limit", .set = field_set_pids },
	[FIELD_TMP] = { .name = "tmp_mb", .option = "tmp", .kind = KIND_SIZE, .min = 1ull << 20, .max = 1ull << 40, .help = "size of /tmp; 512M unless given", AT(limits.tmp_bytes) },
	[FIELD_DISK] = { .name = "disk_mb", .option = "disk", .kind = KIND_SIZE, .min = 1ull << 20, .max = 1ull << 50,
		.help = "limit of the files that a sandbox keeps on disk, without project and mounts; no limit unless given", AT(limits.disk_bytes) },
	[FIELD_OUTPUT] = { .option = "output-limit", .kind = KIND_SIZE, .min = 1024, .max = 1ull << 30,
		.help = "with --json or --detach: keep so much of the output (of each stream with --json); 16M unless given", AT(output_bytes) },
	[FIELD_OUTPUT_BYTES] = { .name = "output_limit_bytes", .kind = KIND_COUNT, .min = 1024, .max = FIELD_OUTPUT_MAX,
		.help = "cut stdout, stderr and output after so many bytes, as they are in JSON, and set truncated; 8388608 unless given", AT(output_bytes) },
	[FIELD_OUTPUT_SHOWN] = { .name = "output_limit_bytes", .kind = KIND_COUNT, .min = 1024, .max = FIELD_SHOWN_MAX,
		.help = "show so many bytes of each stream, both ends of a longer one; 65536 unless given", AT(output_bytes) },
	[FIELD_NESTED] = { .option = "nested-namespaces", .kind = KIND_BOOL,
		.help = "let the command create user namespaces (not for root, nor in codex mode)", AT(nested) },
	[FIELD_ALLOW_HOST] = RULES("allow", "allow-host", "HOST[:PORT]", "allow a host"),
	[FIELD_BLOCK_HOST] = RULES("deny", "block-host", "HOST[:PORT]", "deny a host"),
	[FIELD_ALLOW_CIDR] = RULES("allow_cidr", "allow-cidr", "CIDR", "allow a range of addresses, private ones too"),
	[FIELD_BLOCK_CIDR] = RULES("deny_cidr", "block-cidr", "CIDR", "deny a range of addresses"),
	[FIELD_PUBLISH] = { .name = "publish", .option = "publish", .letter = 'p', .kind = KIND_RULES, .arg = "[ADDR:]PORT[:PORT]", .max = AK_PUBLISH_MAX,
		.help = "connect a port of the host (on 127.0.0.1 unless given; 0 picks a free one) to a port on the sandbox's own loopback",
		.set = field_add_publish },
	[FIELD_ADD_POLICY] = { .name = "policies", .option = "policy", .kind = KIND_POLICIES, .arg = "NAME|FILE", .max = POLICIES_MAX, .set = field_add_rule,
		.help = "add the rules of another policy; everything else is denied unless all of them allow it" },
	[FIELD_ALLOW_GROUP] = { .name = "allow_groups", .option = "allow-group", .kind = KIND_POLICIES, .arg = "NAME", .max = POLICIES_MAX, .set = field_add_rule,
		.help = "allow the hosts of a group, such as source-hosting" },
	[FIELD_UNPUBLISH] = { .name = "remove", .option = "remove", .kind = KIND_RULES, .arg = "[ADDR:]PORT", .max = AK_PUBLISH_MAX,
		.help = "close a published port, written as it is shown, and cut its connections" },
	[FIELD_PASS_API_KEY] = { .option = "pass-api-key", .kind = KIND_BOOL, .help = "pass on the API key variable of the mode", AT(pass_api_key) },
	[FIELD_INTERACTIVE] = { .option = "interactive", .letter = 'i', .kind = KIND_BOOL, .help = "pass stdin on (the default)" },
	[FIELD_TTY] = { .option = "tty", .letter = 't', .kind = KIND_BOOL, .help = "give the command a terminal of its own (the default at a terminal)", AT(tty) },
	[FIELD_TTY_LEAVE] = { .option = "tty", .letter = 't', .kind = KIND_BOOL,
		.help = "give the command a terminal of its own (the default at a terminal); Ctrl-P Ctrl-Q leaves it running", AT(tty) },
	[FIELD_NO_TTY] = { .option = "no-tty", .letter = 'T', .kind = KIND_BOOL, .help = "connect the command directly to stdin, stdout and stderr", AT(no_tty) },
	[FIELD_QUIET] = { .option = "quiet", .kind = KIND_BOOL, .help = "print no messages of agentkernel on stderr, except errors", AT(quiet) },
	[FIELD_JSON_RESULT] = { .option = "json", .kind = KIND_BOOL, .help = "print the result as one JSON object", AT(json) },
	[FIELD_FAST] = { .name = "fast", .kind = KIND_BOOL, .help = "false: never use a pre-built sandbox; policy and limits are the same either way", .set = field_set_fast },
	[FIELD_SUDO] = { .name = "sudo", .kind = KIND_BOOL, .never = "a sandbox's user is chosen when it is made", .help = "run the command as root" },
	[FIELD_COMMANDS] = { .name = "commands", .kind = KIND_RUNS, .min = 1, .max = 256, .help = "what to run, each as for /run" },

	[FIELD_NAME] = { .name = "name", .kind = KIND_NAME, .help = "name of the sandbox: 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit at both ends" },
	[FIELD_OPEN_TO_MCP] = { .option = "mcp", .kind = KIND_BOOL, .help = "let MCP servers of its project use the sandbox as it is defined now", AT(mcp) },
	[FIELD_START] = { .name = "start", .option = "start", .kind = KIND_BOOL, .help = "start the sandbox at once", MORE_MCP(" (true)") },
	[FIELD_ALL] = { .option = "all", .kind = KIND_BOOL, .help = "all sandboxes" },
	[FIELD_LIST_ALL] = { .option = "all", .letter = 'a', .kind = KIND_BOOL, .help = "also past runs, and kept ones that are stopped" },
	[FIELD_COLOR] = { .option = "color", .kind = KIND_CHOICE, .choices = "auto|always|never", .help = "colours (auto: on a terminal)" },
	[FIELD_UTC] = { .option = "utc", .kind = KIND_BOOL, .help = "print times in UTC, not in local time" },
	[FIELD_ACCEPT_DIR] = { .option = "accept-dir", .kind = KIND_BOOL, .help = "accept that the project or a mount is not the same folder as before" },
	[FIELD_FORCE] = { .name = "force", .option = "force", .letter = 'f', .kind = KIND_BOOL, .help = "remove the sandbox even if it is running or damaged" },
	[FIELD_NAMES_ONLY] = { .option = "quiet", .letter = 'q', .kind = KIND_BOOL, .help = "print only the names" },
	[FIELD_NEW_SHELL] = { .option = "new", .kind = KIND_BOOL, .help = "open a new shell even when a detached command is running" },
	[FIELD_RECURSIVE] = { .option = "recursive", .letter = 'r', .kind = KIND_BOOL, .help = "copy folders with their contents (the default)" },
	[FIELD_JSON] = { .option = "json", .kind = KIND_BOOL, .help = "print JSON, not a table", AT(json) },

	[FIELD_DEFAULT] = { .name = "default", .option = "default", .kind = KIND_CHOICE, .choices = "allow|deny",
		.help = "what happens to destinations that no rule names", .set = field_add_rule },
	[FIELD_PROXY_POLICY] = { .option = "policy", .kind = KIND_CHOICE, .choices = "allow|deny",
		.help = "what happens to destinations that no rule names", .set = field_add_rule },
	[FIELD_REMOVE_RULE] = RULES("remove", "remove", "RULE", "remove a rule, written as it was added"),
	[FIELD_RESET] = { .name = "reset", .option = "reset", .kind = KIND_BOOL, .help = "first undo all earlier changes, back to the policy of the mode", AT(reset) },
	[FIELD_FOR] = { .name = "for_ms", .option = "for", .kind = KIND_DURATION, .min = 1, .max = LONGEST_MS,
		.help = "the new rules expire after this long", AT(for_ms) },
	[FIELD_CHANGE_MCP] = { .option = "mcp", .kind = KIND_BOOL, .help = "let MCP servers that may use the sandbox use it with this policy", AT(mcp) },
	[FIELD_WATCH] = { .option = "watch", .kind = KIND_TEXT, .arg = "FILE", .min = 1,
		.help = "apply the rules of a policy file, and again whenever it changes, until interrupted" },
	[FIELD_SHOW] = { .option = "show", .kind = KIND_BOOL, .help = "print the whole policy after the change" },
	[FIELD_POLICY] = { .name = "policy", .kind = KIND_TEXT, .min = 1, .max = PATH_BYTES,
		.help = "a mode (codex), a sandbox that these tools may use, or a .json file of the project" },
	[FIELD_TARGET] = { .name = "target", .kind = KIND_TEXT, .min = 1, .max = RULE_BYTES, .help = "host[:port][/proto], such as api.example.com:443/tcp" },

	[FIELD_LAST] = { .option = "last", .kind = KIND_BOOL, .help = "show the newest run" },
	[FIELD_FOLLOW] = { .name = "follow", .option = "follow", .letter = 'f', .kind = KIND_BOOL, .help = "continue until the sandbox ends",
		MORE_HTTP(", as an event stream") },
	[FIELD_FOLLOW_ALL] = { .option = "follow", .letter = 'f', .kind = KIND_BOOL, .help = "continue until interrupted" },
	[FIELD_DENIED] = { .name = "denied", .option = "denied", .kind = KIND_BOOL, .help = "only what was denied" },
	[FIELD_ALLOWED] = { .name = "allowed", .option = "allowed", .kind = KIND_BOOL, .help = "only what was allowed" },
	[FIELD_SINCE] = { .name = "since", .option = "since", .kind = KIND_TIME, .min = 1, .max = TIME_BYTES,
		.help = "only newer records: 10m, 1h30m or an RFC 3339 time" },
	[FIELD_LIMIT_LINES] = { .option = "limit", .letter = 'n', .kind = KIND_COUNT, .min = 1, .max = 10000000, .help = "only the last N lines" },
	[FIELD_LIMIT_RECORDS] = { .name = "limit", .kind = KIND_COUNT, .min = 1, .max = FIELD_RECORDS_MAX, .help = "only the last N records (1000)" },
	[FIELD_LIMIT_ROWS] = { .name = "limit", .kind = KIND_COUNT, .min = 1, .max = 1000, .help = "only the last N rows (100)" },
	[FIELD_JSON_LINES] = { .option = "json", .kind = KIND_BOOL, .help = "print the records, one JSON object a line" },
	[FIELD_SUMMARY] = { .option = "summary", .kind = KIND_BOOL, .help = "totals and the most frequent destinations, rules and reasons" },
	[FIELD_LOG_NAME] = { .name = "name", .kind = KIND_NAME, .help = "a sandbox, or the name that sandbox_run gave as \"sandbox\"" },
	[FIELD_SANDBOX] = { .name = "sandbox", .option = "sandbox", .kind = KIND_NAME, .help = "only events of one sandbox" },
	[FIELD_STREAM] = { .name = "stream", .kind = KIND_CHOICE, .choices = "stdout|stderr", .help = "only this stream" },
	[FIELD_KEY_FILE] = { .option = "key-file", .kind = KIND_TEXT, .arg = "FILE", .min = 1,
		.help = "check the MACs with this key, a copy of audit.key kept elsewhere" },

	[FIELD_PATH] = { .name = "path", .kind = KIND_PATH, .min = 1, .max = PATH_BYTES, .help = "absolute path of a file in the sandbox" },
	[FIELD_CONTENT] = { .name = "content", .kind = KIND_TEXT, .help = "the whole file; missing folders are created, an existing file is replaced" },
	[FIELD_ENCODING] = { .name = "encoding", .kind = KIND_CHOICE, .choices = "utf8|base64", .help = "encoding of the content (utf8); use base64 for binary data" },
	[FIELD_FILES] = { .name = "files", .kind = KIND_TEXTS, .min = 1, .max = 4096, .help = "path → content" },
	[FIELD_OFFSET] = { .name = "offset", .kind = KIND_COUNT, .max = 1ull << 50, .help = "start at this byte (0)" },
	[FIELD_READ_LIMIT] = { .name = "limit", .kind = KIND_COUNT, .min = 1, .max = FIELD_READ_MAX, .help = "read at most this many bytes (65536)" },

	[FIELD_FOREGROUND] = { .option = "foreground", .kind = KIND_BOOL, .help = "stay in the foreground, for a service manager" },
	[FIELD_POOL_MODE] = { .option = "mode", .alias = "compatibility-mode", .letter = 'm', .kind = KIND_CHOICE, .choices = MODES, .help = "the mode to prepare sandboxes for" },
	[FIELD_POOL_COUNT] = { .option = "count", .kind = KIND_COUNT, .min = 1, .max = 256, .help = "how many (1)" },
	[FIELD_POOL_BACKEND] = { .option = "backend", .kind = KIND_CHOICE, .choices = "ns|vm", .help = "in namespaces (ns, the default) or virtual machines (vm); replaces pre-built ones of the other kind" },
	[FIELD_CEILING_MODE] = { .option = "compatibility-mode", .alias = "mode", .letter = 'm', .kind = KIND_MODE, .choices = MODES, .arg = MODES "|POLICY",
		.repeat = true, .help = "a mode or installed policy that calls may choose; the first is their default (claude)" },
	[FIELD_CEILING_PROFILE] = { .option = "profile", .kind = KIND_CHOICE, .choices = PROFILES,
		.help = "the widest profile that calls may choose (moderate)", .set = field_set_profile },
	[FIELD_CEILING_NO_NETWORK] = { .option = "no-network", .kind = KIND_BOOL, .help = "no network in any call", AT(no_network) },
	[FIELD_CEILING_DIR] = { .option = "dir", .kind = KIND_DIR, .min = 1, .max = PATH_BYTES,
		.help = "the project, mounted in every sandbox (the current folder, where the mode mounts it)", AT(dir) },
	[FIELD_CEILING_KEEP] = { .option = "keep", .kind = KIND_BOOL, .help = "keep the sandboxes that calls create when the server ends", AT(keep) },
	[FIELD_HOST] = { .option = "host", .kind = KIND_TEXT, .arg = "ADDRESS", .min = 1, .repeat = true,
		.help = "listen on this address (127.0.0.1 and ::1); any but loopback needs a key" },
	[FIELD_PORT] = { .option = "port", .kind = KIND_COUNT, .arg = "PORT", .max = 65535, .help = "listen on this port (18888); 0 picks a free one" },
	[FIELD_API_KEY_FILE] = { .option = "api-key-file", .kind = KIND_TEXT, .arg = "FILE", .min = 1, .repeat = true,
		.help = "API keys that clients may use, one per line, besides AGENTKERNEL_API_KEY" },
	[FIELD_SERVER_NAME] = { .option = "server-name", .kind = KIND_TEXT, .arg = "NAME", .min = 1, .repeat = true,
		.help = "also accept this name in the Host header" },
	[FIELD_PLUGIN] = { .option = "plugin", .kind = KIND_CHOICE, .choices = "claude|codex|gemini|opencode|mcp",
		.help = "also write the configuration by which this client finds the MCP server" },
	[FIELD_CHECK] = { .option = "check", .kind = KIND_BOOL, .help = "also start each agent in its mode and ask for its version" },
	[FIELD_DRY_RUN] = { .option = "dry-run", .kind = KIND_BOOL, .help = "print what would be done, and change nothing" },
	[FIELD_VM] = { .option = "vm", .kind = KIND_BOOL, .help = "also boot a guest for --backend vm and save it, so that the first use is fast" },
	[FIELD_OFFLINE] = { .option = "offline", .kind = KIND_BOOL, .help = "send nothing to the network" },
	[FIELD_YES] = { .option = "yes", .letter = 'y', .kind = KIND_BOOL, .help = "do not ask, even before changes to the system" },
	[FIELD_ASSENT] = { .option = "yes", .letter = 'y', .kind = KIND_BOOL, .help = "do not ask" },
	[FIELD_TRUST_LIST] = { .option = "list", .kind = KIND_BOOL, .help = "list the files that you trust" },
	[FIELD_REVOKE] = { .option = "revoke", .kind = KIND_BOOL, .help = "stop trusting the file" },
	[FIELD_WRITTEN] = { .option = "written", .kind = KIND_BOOL, .help = "list the folders that a sandbox could write" },
	[FIELD_FORGET] = { .option = "forget", .kind = KIND_BOOL,
		.help = "let programs and links in such a folder count as your own again" },
	[FIELD_SNAPSHOT_LIST] = { .option = "list", .kind = KIND_BOOL, .help = "list its snapshots and their sizes" },
	[FIELD_SNAPSHOT_REMOVE] = { .option = "remove", .kind = KIND_BOOL, .help = "remove a snapshot" },
	[FIELD_TAG] = { .name = "tag", .kind = KIND_NAME, .help = "the snapshot" },
	[FIELD_TAG_NEW] = { .name = "tag", .kind = KIND_NAME, .help = "name of the snapshot; made from the time unless given" },
	[FIELD_TAG_FROM] = { .name = "tag", .option = "tag", .kind = KIND_TEXT, .arg = "TAG", .min = 1, .max = 63, .help = "take the files of this snapshot, not the current ones" },
	[FIELD_STOP_FIRST] = { .name = "stop", .option = "stop", .kind = KIND_BOOL, .help = "if the sandbox is running, stop it for the copy and start it again" },
	[FIELD_FORK_NAME] = { .name = "name", .kind = KIND_NAME, .help = "name of the new sandbox" },
	[FIELD_REPLACE] = { .option = "force", .kind = KIND_BOOL, .help = "replace existing files" },
};

_Static_assert(FIELD_NUM <= RUN_FIELDS_MAX, "run_request.given has room for every field");

/* ---- verbs ---- */

#define C (1u << FIELD_CLI)
#define H (1u << FIELD_HTTP)
#define Q (1u << FIELD_QUERY)
#define M (1u << FIELD_MCP)
#define MUST FIELD_REQUIRED
#define USES(...) (const struct field_use[]){ __VA_ARGS__, { .fronts = 0 } }
#define USE_RULES(fronts) { FIELD_ALLOW_HOST, fronts }, { FIELD_BLOCK_HOST, fronts }, { FIELD_ALLOW_CIDR, fronts }, { FIELD_BLOCK_CIDR, fronts }
#define USE_POLICIES(fronts) { FIELD_ADD_POLICY, fronts }, { FIELD_ALLOW_GROUP, fronts }

static const struct field_use *const verbs[VERB_NUM] = {
	[VERB_NONE] = (const struct field_use[]){ { .fronts = 0 } },
	[VERB_RUN] = USES(
		{ FIELD_COMMAND, H | M | MUST },
		{ FIELD_MODE, C | H | M }, { FIELD_PROFILE, C | H | M }, { FIELD_NETWORK, C | H | M }, { FIELD_IMAGE, C | H | M },
		{ FIELD_KEEP, C | H }, { FIELD_RUN_NAME, C | H }, { FIELD_DETACH, C }, { FIELD_CONFIG, C }, { FIELD_BACKEND, C | H | M }, { FIELD_DEBUG, C }, { FIELD_DIR, C }, { FIELD_BROAD_DIR, C },
		{ FIELD_PROJECT_WRITABLE, C }, { FIELD_MOUNT, C | H }, { FIELD_TOOL, C | H }, { FIELD_AGENT_STATE, C | H }, { FIELD_EXPLAIN, C }, { FIELD_ENV, C | H | M }, { FIELD_ENV_FILE, C }, { FIELD_WORKDIR, C }, { FIELD_CWD, H | M }, { FIELD_TIMEOUT, C | H | M },
		{ FIELD_MEMORY, C | H | M }, { FIELD_VCPUS, C | H | M }, { FIELD_PIDS, C | H | M }, { FIELD_TMP, C | H }, { FIELD_DISK, C | H }, { FIELD_OUTPUT, C }, { FIELD_OUTPUT_BYTES, H }, { FIELD_OUTPUT_SHOWN, M }, { FIELD_NESTED, C }, USE_RULES(C | H),
		USE_POLICIES(C | H), { FIELD_PUBLISH, C | H }, { FIELD_PASS_API_KEY, C }, { FIELD_INTERACTIVE, C }, { FIELD_TTY, C }, { FIELD_NO_TTY, C }, { FIELD_QUIET, C }, { FIELD_JSON_RESULT, C }, { FIELD_FAST, H }),
	[VERB_BATCH] = USES({ FIELD_COMMANDS, H | MUST }),
	[VERB_CREATE] = USES(
		{ FIELD_NAME, H | M | MUST },
		{ FIELD_DIR, C | H }, { FIELD_BROAD_DIR, C }, { FIELD_PROJECT_WRITABLE, C }, { FIELD_MOUNT, C | H }, { FIELD_TOOL, C | H },
		{ FIELD_MODE, C | H | M }, { FIELD_PROFILE, C | H | M }, { FIELD_NETWORK, C | H | M }, { FIELD_IMAGE, C | H | M }, { FIELD_CONFIG, C },
		{ FIELD_BACKEND, C | H | M }, { FIELD_VCPUS, C | H | M }, { FIELD_MEMORY, C | H | M }, { FIELD_PIDS, C | H | M }, { FIELD_DISK, C | H | M }, { FIELD_NESTED, C },
		{ FIELD_ENV, C | H | M }, { FIELD_ENV_FILE, C }, USE_RULES(C | H), USE_POLICIES(C | H), { FIELD_PUBLISH, C | H }, { FIELD_OPEN_TO_MCP, C }, { FIELD_START, C | M }, { FIELD_JSON_RESULT, C }),
	[VERB_START] = USES({ FIELD_NAME, M | MUST }, { FIELD_ALL, C }, { FIELD_ACCEPT_DIR, C }, { FIELD_DISK, C }),
	[VERB_STOP] = USES({ FIELD_NAME, M | MUST }, { FIELD_ALL, C }),
	[VERB_REMOVE] = USES({ FIELD_NAME, M | MUST }, { FIELD_ALL, C }, { FIELD_FORCE, C | M }),
	[VERB_SNAPSHOT] = USES({ FIELD_TAG_NEW, H }, { FIELD_STOP_FIRST, C | H }, { FIELD_SNAPSHOT_LIST, C }, { FIELD_SNAPSHOT_REMOVE, C }, { FIELD_JSON, C }),
	[VERB_RESTORE] = USES({ FIELD_TAG, H | MUST }, { FIELD_STOP_FIRST, C | H }),
	[VERB_FORK] = USES({ FIELD_FORK_NAME, H | MUST }, { FIELD_TAG_FROM, C | H }, { FIELD_STOP_FIRST, C | H }),
	[VERB_LIST] = USES({ FIELD_LIST_ALL, C }, { FIELD_NAMES_ONLY, C }, { FIELD_JSON, C }, { FIELD_COLOR, C }),
	[VERB_EXEC] = USES(
		{ FIELD_NAME, M | MUST }, { FIELD_COMMAND, H | M | MUST },
		{ FIELD_ENV, C | H | M }, { FIELD_ENV_FILE, C }, { FIELD_WORKDIR, C | H }, { FIELD_CWD, M }, { FIELD_TTY_LEAVE, C }, { FIELD_NO_TTY, C }, { FIELD_INTERACTIVE, C }, { FIELD_TIMEOUT, C | H | M },
		{ FIELD_OUTPUT_BYTES, H }, { FIELD_OUTPUT_SHOWN, M }, { FIELD_QUIET, C }, { FIELD_SUDO, H }),
	[VERB_ATTACH] = USES({ FIELD_NEW_SHELL, C }, { FIELD_ENV, C }, { FIELD_WORKDIR, C }),
	[VERB_CP] = USES({ FIELD_RECURSIVE, C }),
	[VERB_LOGS] = USES({ FIELD_FOLLOW, C }),
	[VERB_FILE_READ] = USES({ FIELD_NAME, M | MUST }, { FIELD_PATH, M | MUST }, { FIELD_OFFSET, M }, { FIELD_READ_LIMIT, M }),
	[VERB_FILE_WRITE] = USES({ FIELD_NAME, M | MUST }, { FIELD_PATH, M | MUST }, { FIELD_CONTENT, H | M | MUST }, { FIELD_ENCODING, H | M }),
	[VERB_FILES_WRITE] = USES({ FIELD_FILES, H | MUST }),
	[VERB_DETACHED_LOGS] = USES({ FIELD_STREAM, Q }),
	[VERB_PUBLISH] = USES({ FIELD_PUBLISH, H }, { FIELD_UNPUBLISH, C | H }, { FIELD_JSON, C }),
	[VERB_POLICY_CHANGE] = USES(
		{ FIELD_DEFAULT, C | H }, USE_RULES(C | H), { FIELD_ALLOW_GROUP, C | H }, { FIELD_REMOVE_RULE, C | H }, { FIELD_RESET, C | H }, { FIELD_FOR, C | H }, { FIELD_CHANGE_MCP, C },
		{ FIELD_WATCH, C }, { FIELD_SHOW, C }, { FIELD_JSON, C }),
	[VERB_POLICY_PROXY] = USES(
		{ FIELD_PROXY_POLICY, C }, USE_RULES(C), { FIELD_ALLOW_GROUP, C }, { FIELD_REMOVE_RULE, C }, { FIELD_RESET, C }, { FIELD_FOR, C }, { FIELD_CHANGE_MCP, C },
		{ FIELD_WATCH, C }, { FIELD_SHOW, C }, { FIELD_JSON, C }),
	[VERB_POLICY_PUT] = USES({ FIELD_DEFAULT, H }, USE_RULES(H)),
	[VERB_CHECK] = USES({ FIELD_POLICY, M | MUST }, { FIELD_TARGET, H | M | MUST }, { FIELD_JSON, C }, USE_RULES(C), USE_POLICIES(C)),
	[VERB_NETWORK_LOG] = USES(
		{ FIELD_LOG_NAME, M | MUST }, { FIELD_LAST, C }, { FIELD_FOLLOW, C | Q }, { FIELD_DENIED, C | Q | M }, { FIELD_ALLOWED, C | Q },
		{ FIELD_SINCE, C | Q | M }, { FIELD_LIMIT_LINES, C }, { FIELD_LIMIT_RECORDS, Q }, { FIELD_LIMIT_ROWS, M }, { FIELD_JSON_LINES, C },
		{ FIELD_SUMMARY, C }, { FIELD_UTC, C }, { FIELD_COLOR, C }),
	[VERB_AUDIT] = USES({ FIELD_SANDBOX, C | Q }, { FIELD_SINCE, C | Q }, { FIELD_LIMIT_LINES, C }, { FIELD_FOLLOW_ALL, C }, { FIELD_JSON_LINES, C },
		{ FIELD_UTC, C }, { FIELD_COLOR, C }),
	[VERB_AUDIT_LOGS] = USES({ FIELD_SINCE, Q }, { FIELD_LIMIT_RECORDS, Q }),
	[VERB_AUDIT_VERIFY] = USES({ FIELD_KEY_FILE, C }, { FIELD_JSON, C }),
	[VERB_AGENTS] = USES({ FIELD_CHECK, C }, { FIELD_JSON, C }, { FIELD_COLOR, C }),
	[VERB_AGENT_MEMORY] = USES({ FIELD_ASSENT, C }),
	[VERB_IMAGE_PULL] = USES({ FIELD_MAX_SIZE, C }, { FIELD_ALLOW_HOST, C }, { FIELD_ALLOW_CIDR, C }, { FIELD_CA_FILE, C }, { FIELD_AUTH_FILE, C }),
	[VERB_IMAGE_IMPORT] = USES({ FIELD_IMAGE_NAME, C }, { FIELD_MAX_SIZE, C }),
	[VERB_PRINT] = USES({ FIELD_JSON, C }, { FIELD_COLOR, C }),
	[VERB_DAEMON_START] = USES({ FIELD_FOREGROUND, C }),
	[VERB_PREWARM] = USES({ FIELD_POOL_MODE, C }, { FIELD_POOL_COUNT, C }, { FIELD_POOL_BACKEND, C }),
	[VERB_MCP_SERVER] = USES(
		{ FIELD_CEILING_MODE, C }, { FIELD_CEILING_PROFILE, C }, { FIELD_CEILING_NO_NETWORK, C }, { FIELD_CEILING_DIR, C }, { FIELD_CEILING_KEEP, C },
		USE_RULES(C), USE_POLICIES(C)),
	[VERB_SERVE] = USES({ FIELD_HOST, C }, { FIELD_PORT, C }, { FIELD_API_KEY_FILE, C }, { FIELD_SERVER_NAME, C }),
	[VERB_DOCTOR] = USES({ FIELD_OFFLINE, C }, { FIELD_JSON, C }),
	[VERB_SETUP] = USES({ FIELD_VM, C }, { FIELD_DRY_RUN, C }, { FIELD_YES, C }),
	[VERB_TRUST] = USES({ FIELD_ASSENT, C }, { FIELD_TRUST_LIST, C }, { FIELD_REVOKE, C }, { FIELD_WRITTEN, C }, { FIELD_FORGET, C },
		{ FIELD_JSON, C }),
	[VERB_INIT] = USES({ FIELD_PLUGIN, C }, { FIELD_DRY_RUN, C }, { FIELD_REPLACE, C }),
};
/* clang-format on */

const struct field_use *field_next(enum field_verb verb, enum field_front front, const struct field_use *u)
{
	for (u = u ? u + 1 : verbs[verb]; u->fronts; u++) {
		if (u->fronts & 1u << front)
			return u;
	}
	return NULL;
}

static bool is_word(const char *word, const char *text, size_t len)
{
	return word && strlen(word) == len && !memcmp(word, text, len);
}

const struct field_use *field_find(enum field_verb verb, enum field_front front, const char *name, size_t len)
{
	field_each(u, verb, front) {
		const char *own = field_name(&field_table[u->id], front);

		if (is_word(own, name, len) || (front == FIELD_CLI && is_word(field_table[u->id].alias, name, len)))
			return u;
	}
	return NULL;
}

const char *field_name(const struct field *f, enum field_front front)
{
	return front == FIELD_CLI ? f->option : f->name;
}

const char *field_arg(const struct field *f)
{
	static const char *const args[KIND_NUM] = {
		[KIND_TEXT] = "TEXT",
		[KIND_NAME] = "NAME",
		[KIND_PATH] = "PATH",
		[KIND_DIR] = "DIR",
		[KIND_COUNT] = "N",
		[KIND_SIZE] = "SIZE",
		[KIND_DURATION] = "DURATION",
		[KIND_TIME] = "TIME",
		[KIND_VARIABLES] = "K=V",
	};

	return f->arg ? f->arg : f->kind == KIND_CHOICE ? f->choices : args[f->kind];
}

bool field_repeats(const struct field *f)
{
	return f->repeat || f->kind == KIND_RULES || f->kind == KIND_POLICIES || f->kind == KIND_VARIABLES ||
		f->kind == KIND_MOUNTS;
}

bool field_is_word(const char *choices, const char *word)
{
	size_t len = strlen(word);

	while (choices) {
		size_t n = strcspn(choices, "|");

		if (n == len && !memcmp(choices, word, n))
			return true;
		choices = choices[n] ? choices + n + 1 : NULL;
	}
	return false;
}

void field_choices(const struct field *f, void (*fn)(void *ctx, const char *word, size_t len), void *ctx)
{
	for (const char *p = f->choices; p;) {
		size_t n = strcspn(p, "|");

		fn(ctx, p, n);
		p = p[n] ? p + n + 1 : NULL;
	}
}

void field_words(struct strbuf *out, const struct field *f, enum field_front front)
{
	static const char *const units[KIND_NUM][2] = {
		[KIND_SIZE] = { " (512M, 2G)", ", in MiB" },
		[KIND_DURATION] = { " (30s, 10m, 1h30m)", ", in milliseconds" },
	};
	const char *unit = units[f->kind][front != FIELD_CLI];

	strbuf_printf(out, "%s%s%s%s%s", f->negated && front != FIELD_CLI ? "false: " : "", f->help, unit ? unit : "",
		f->never ? "; must be false" : "", f->more[front] ? f->more[front] : "");
}
