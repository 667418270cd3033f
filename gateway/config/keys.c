/* The keys of agentkernel.toml. See config/config.h. */
#include "gateway/config/config.h"

#define TMP_DEFAULT_MB 512
#define OUTPUT_DEFAULT_MB 16
#define AGENTS "claude|gemini|codex|opencode"

/* Formatted by hand, one key per row. */
/* clang-format off */
const struct config_key config_keys[] = {
	{ "sandbox", "name", CONFIG_TEXT, CONFIG_NARROWS, FIELD_NAME, .help = "name of the sandbox that `create` makes when no name is given" },
	{ "sandbox", "base_image", CONFIG_TEXT, CONFIG_WIDENS, FIELD_IMAGE, .help = "root file system from an image (--image)" },
	{ "sandbox", "backend", CONFIG_TEXT, CONFIG_WIDENS_TO, FIELD_BACKEND, .wide = "podman", .help = "what runs the command: ns, vm, auto or podman (--backend)" },
	{ "agent", "preferred", CONFIG_TEXT, CONFIG_PICKS_AGENT, -1, .choices = AGENTS, .help = "the agent that `run` starts when no command is given" },
	{ "agent", "compatibility_mode", CONFIG_TEXT, CONFIG_WIDENS_UNLESS, FIELD_MODE, .wide = "native",
		.help = "network policy, mounts and isolation (--compatibility-mode)" },
	{ "resources", "vcpus", CONFIG_NUMBER, CONFIG_NARROWS, FIELD_VCPUS, .unit = "", .help = "processor limit (--vcpus)" },
	{ "resources", "memory_mb", CONFIG_NUMBER, CONFIG_WIDENS_GUEST, FIELD_MEMORY, .unit = "M", .limit = VM_MEMORY_DEFAULT_MB, .help = "memory limit in MiB (--memory)" },
	{ "resources", "pids", CONFIG_NUMBER, CONFIG_WIDENS_ABOVE, FIELD_PIDS, .unit = "", .limit = SANDBOX_PIDS_DEFAULT, .help = "process limit (--pids)" },
	{ "resources", "tmp_mb", CONFIG_NUMBER, CONFIG_WIDENS_ABOVE, FIELD_TMP, .unit = "M", .limit = TMP_DEFAULT_MB, .help = "size of /tmp in MiB (--tmp)" },
	{ "resources", "disk_mb", CONFIG_NUMBER, CONFIG_NARROWS, FIELD_DISK, .unit = "M", .help = "limit in MiB of the files that a persistent or kept sandbox has on disk (--disk)" },
	{ "resources", "output_mb", CONFIG_NUMBER, CONFIG_WIDENS_ABOVE, FIELD_OUTPUT, .unit = "M", .limit = OUTPUT_DEFAULT_MB, .help = "how much of the output of `run --json` and `run --detach` is kept, in MiB (--output-limit)" },
	{ "resources", "timeout", CONFIG_DURATION, CONFIG_WIDENS_LATER, FIELD_TIMEOUT, .help = "end the command of a `run` after this long (--timeout)" },
	{ "security", "profile", CONFIG_TEXT, CONFIG_WIDENS_TO, FIELD_PROFILE, .wide = "permissive", .help = "how much of the host it may use (--profile)" },
	{ "security", "network", CONFIG_FLAG, CONFIG_NARROWS, FIELD_NETWORK, .help = "false: no network at all (--no-network)" },
	{ "network", "allow", CONFIG_LIST, CONFIG_WIDENS, FIELD_ALLOW_HOST, .help = "hosts to allow (--allow-host)" },
	{ "network", "deny", CONFIG_LIST, CONFIG_NARROWS, FIELD_BLOCK_HOST, .help = "hosts to deny (--block-host)" },
	{ "network", "allow_cidr", CONFIG_LIST, CONFIG_WIDENS, FIELD_ALLOW_CIDR, .help = "address ranges to allow, private ones too (--allow-cidr)" },
	{ "network", "deny_cidr", CONFIG_LIST, CONFIG_NARROWS, FIELD_BLOCK_CIDR, .help = "address ranges to deny (--block-cidr)" },
	{ "network", "policies", CONFIG_LIST, CONFIG_WIDENS, FIELD_ADD_POLICY, .help = "names of installed policies whose rules are added (--policy)" },
	{ "network", "groups", CONFIG_LIST, CONFIG_WIDENS, FIELD_ALLOW_GROUP, .help = "groups of hosts to allow (--allow-group)" },
	{ "security.domains", "allow", CONFIG_LIST, CONFIG_WIDENS, FIELD_ALLOW_HOST, .help = "older spelling of [network] allow" },
	{ "security.domains", "block", CONFIG_LIST, CONFIG_NARROWS, FIELD_BLOCK_HOST, .help = "older spelling of [network] deny" },
	{ "security.domains", "allowlist_only", CONFIG_FLAG, CONFIG_NARROWS, FIELD_DEFAULT,
		.help = "true: deny every host that no rule allows; false changes nothing" },
	{ "env", "*", CONFIG_VARIABLE, CONFIG_WIDENS, FIELD_ENV, .help = "a variable inside: its value, or true for the value from your environment (--env)" },
	{ "publish", "ports", CONFIG_LIST, CONFIG_WIDENS, FIELD_PUBLISH, .help = "ports of the host that lead inside, [ADDR:]PORT[:PORT] (--publish)" },
	{ "", "mounts", CONFIG_MOUNTS, CONFIG_WIDENS, FIELD_MOUNT, .help = "files and folders of the host that are shown inside (--mount)" },
	{ "daemon", "min_warm", CONFIG_NUMBER, CONFIG_NARROWS, -1, .max = 128, .help = "pre-built sandboxes that the daemon keeps for each mode" },
	{ "daemon", "max_warm", CONFIG_NUMBER, CONFIG_NARROWS, -1, .max = 128, .help = "the most that it keeps for each mode" },
	{ "daemon.agents.*", "min_warm", CONFIG_NUMBER, CONFIG_NARROWS, -1, .max = 128, .help = "the same for one mode" },
	{ "daemon.agents.*", "backend", CONFIG_TEXT, CONFIG_NARROWS, -1, .choices = "ns|vm", .help = "keep them in namespaces (ns) or in virtual machines (vm)" },
	{ "daemon.agents.*", "runtime", CONFIG_TEXT, CONFIG_NARROWS, -1, .help = "a label; sandboxes that are kept ready use the host's own programs" },
	{ 0 },
};
/* clang-format on */
