/* The commands and their options: the one list that parsing, help, completion and the man page check are made from. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"

#include <string.h>

#define MODES "claude|codex|gemini|native"
#define OPT_JSON                                                                                                                 \
	{                                                                                                                        \
		.name = "json", .help = "print JSON, not a table"                                                                \
	}
#define OPT_RULES                                                                                                                \
	{ .name = "allow-host", .arg = "HOST[:PORT]", .help = "allow a host on top of the policy", .repeat = true },             \
		{ .name = "block-host", .arg = "HOST[:PORT]", .help = "deny a host on top of the policy", .repeat = true },      \
		{ .name = "allow-cidr", .arg = "CIDR", .help = "allow a range of addresses, private ones too", .repeat = true }, \
	{                                                                                                                        \
		.name = "block-cidr", .arg = "CIDR", .help = "deny a range of addresses", .repeat = true                         \
	}

static const struct cmd_opt run_request[] = {
	{ .name = "compatibility-mode", .arg = MODES, .help = "whose network and files the command gets (native)" },
	{ .name = "profile", .arg = "permissive|moderate|restrictive", .help = "how much of the host it may use (moderate)" },
	{ .name = "no-network", .help = "no network at all" },
	{ .name = "image", .arg = "IMAGE", .help = "root file system from an image", .missing = "*" },
	{ .name = "keep", .help = "keep the sandbox's files and print its name" },
	{ .name = "config", .arg = "FILE", .help = "settings of the project", .missing = "*" },
	{ .name = "backend",
		.arg = "ns|vm|podman|docker",
		.help = "what the sandbox is made of; only ns in this version",
		.missing = "vm|podman|docker" },
	{ .name = "dir", .arg = "DIR", .help = "the project (the current folder)" },
	{ .name = "allow-broad-dir", .help = "with --dir: also a folder such as /tmp or the whole home" },
	{ .name = "project-writable", .help = "let it change files of the project that your tools run later" },
	{ .name = "env",
		.letter = 'e',
		.arg = "K=V",
		.help = "set a variable inside; K alone passes yours on",
		.repeat = true,
		.secret = true },
	{ .name = "workdir", .letter = 'w', .arg = "DIR", .help = "start the command in this folder" },
	{ .name = "timeout", .arg = "DURATION", .help = "end it after this long (30s, 10m, 1h30m)" },
	{ .name = "memory", .arg = "SIZE", .help = "memory limit (512M, 2G)" },
	{ .name = "vcpus", .arg = "N", .help = "processor limit" },
	{ .name = "pids", .arg = "N", .help = "process limit" },
	{ .name = "nested-namespaces", .help = "let it make user namespaces of its own (never for root or in codex mode)" },
	OPT_RULES,
	{ .name = "pass-api-key", .help = "pass on the API key variable of the mode" },
	{ .name = "interactive", .letter = 'i', .help = "pass stdin on (the default)" },
	{ .name = "tty", .letter = 't', .help = "give the command a terminal" },
	{ .name = "quiet", .help = "no lines of our own on stderr, except errors" },
	{ .name = "json", .help = "print the result as one JSON object" },
	{ 0 },
};

static const struct cmd_opt create_opts[] = {
	{ .name = "dir", .arg = "DIR", .help = "the project (the current folder, where the mode or profile mounts it)" },
	{ .name = "allow-broad-dir", .help = "with --dir: also a folder such as /tmp or the whole home" },
	{ .name = "project-writable", .help = "let it change files of the project that your tools run later" },
	{ .name = "compatibility-mode", .arg = MODES, .help = "whose network and files it gets (native)" },
	{ .name = "profile", .arg = "permissive|moderate|restrictive", .help = "how much of the host it may use (moderate)" },
	{ .name = "no-network", .help = "no network at all" },
	{ .name = "image", .arg = "IMAGE", .help = "root file system from an image", .missing = "*" },
	{ .name = "config", .arg = "FILE", .help = "settings of the project", .missing = "*" },
	{ .name = "backend",
		.arg = "ns|vm|podman|docker",
		.help = "what the sandbox is made of; only ns in this version",
		.missing = "vm|podman|docker" },
	{ .name = "vcpus", .arg = "N", .help = "processor limit" },
	{ .name = "memory", .arg = "SIZE", .help = "memory limit (512M, 2G)" },
	{ .name = "pids", .arg = "N", .help = "process limit" },
	{ .name = "nested-namespaces", .help = "let it make user namespaces of its own (never for root or in codex mode)" },
	{ .name = "env",
		.letter = 'e',
		.arg = "K=V",
		.help = "set a variable inside; K alone keeps the value yours has now",
		.repeat = true,
		.secret = true },
	OPT_RULES,
	{ .name = "mcp", .help = "open it, as it is now, to MCP servers of its project" },
	{ .name = "json", .help = "print what was created as one JSON object" },
	{ 0 },
};

static const struct cmd_opt start_opts[] = {
	{ .name = "accept-dir", .help = "take the folder that is at the project's path now" },
	{ 0 },
};

static const struct cmd_opt remove_opts[] = {
	{ .name = "force", .letter = 'f', .help = "also when it is running or damaged" },
	{ 0 },
};

static const struct cmd_opt list_opts[] = { { .name = "quiet", .letter = 'q', .help = "only the names" }, OPT_JSON, { 0 } };

static const struct cmd_opt exec_opts[] = {
	{ .name = "env",
		.letter = 'e',
		.arg = "K=V",
		.help = "set a variable inside; K alone passes yours on",
		.repeat = true,
		.secret = true },
	{ .name = "workdir", .letter = 'w', .arg = "DIR", .help = "start the command in this folder" },
	{ .name = "tty", .letter = 't', .help = "give the command a terminal; Ctrl-P Ctrl-Q leaves it running" },
	{ .name = "interactive", .letter = 'i', .help = "pass stdin on (the default)" },
	{ .name = "timeout", .arg = "DURATION", .help = "end the command after this long (30s, 10m, 1h30m)" },
	{ .name = "quiet", .help = "no lines of our own on stderr, except errors" },
	{ 0 },
};

static const struct cmd_opt attach_opts[] = {
	{ .name = "new", .help = "a new shell, even when a command was left running" },
	{ .name = "env",
		.letter = 'e',
		.arg = "K=V",
		.help = "set a variable inside; K alone passes yours on",
		.repeat = true,
		.secret = true },
	{ .name = "workdir", .letter = 'w', .arg = "DIR", .help = "start the shell in this folder" },
	{ 0 },
};

static const struct cmd_opt cp_opts[] = {
	{ .name = "recursive", .letter = 'r', .help = "folders with all in them (the default)" }, { 0 }
};

#define OPT_LIVE                                                                                                                 \
	{ .name = "remove", .arg = "RULE", .help = "take a rule back", .repeat = true },                                         \
		{ .name = "reset", .help = "take all changes back: the policy of the mode" },                                    \
		{ .name = "for", .arg = "DURATION", .help = "the new rules end by themselves after this long" },                 \
		{ .name = "mcp", .help = "MCP servers that may use the sandbox may do so with this policy" },                    \
	{                                                                                                                        \
		.name = "watch", .arg = "FILE",                                                                                  \
		.help = "keep the rules of a policy file in force as it changes, until interrupted"                              \
	}

static const struct cmd_opt network_policy_opts[] = {
	{ .name = "default", .arg = "allow|deny", .help = "what happens to what no rule names" },
	OPT_RULES,
	OPT_LIVE,
	OPT_JSON,
	{ 0 },
};

static const struct cmd_opt network_proxy_opts[] = {
	{ .name = "policy", .arg = "allow|deny", .help = "what happens to what no rule names" },
	OPT_RULES,
	OPT_LIVE,
	OPT_JSON,
	{ 0 },
};

static const struct cmd_opt daemon_start_opts[] = {
	{ .name = "foreground", .help = "stay in the foreground, for a service manager" }, { 0 }
};

static const struct cmd_opt daemon_prewarm_opts[] = {
	{ .name = "mode", .arg = MODES, .help = "the mode to prepare sandboxes for" },
	{ .name = "count", .arg = "N", .help = "how many (1)" },
	{ 0 },
};

static const struct cmd_opt network_log_opts[] = {
	{ .name = "last", .help = "the newest run" },
	{ .name = "follow", .letter = 'f', .help = "go on until the sandbox ends" },
	{ .name = "denied", .help = "only what was denied" },
	{ .name = "allowed", .help = "only what was allowed" },
	{ .name = "since", .arg = "TIME", .help = "only newer records: 10m, 1h30m or an RFC 3339 time" },
	{ .name = "limit", .letter = 'n', .arg = "N", .help = "only the last N lines" },
	{ .name = "json", .help = "print the records, one JSON object a line" },
	{ .name = "summary", .help = "totals and the most frequent destinations, rules and reasons" },
	{ 0 },
};

static const struct cmd_opt network_check_opts[] = { OPT_JSON, OPT_RULES, { 0 } };

static const struct cmd_opt audit_opts[] = {
	{ .name = "sandbox", .arg = "NAME", .help = "only events of one sandbox" },
	{ .name = "since", .arg = "TIME", .help = "only newer events: 10m, 1h30m or an RFC 3339 time" },
	{ .name = "follow", .letter = 'f', .help = "go on until interrupted" },
	{ .name = "json", .help = "print the records, one JSON object a line" },
	{ 0 },
};

static const struct cmd_opt audit_verify_opts[] = {
	{ .name = "key-file", .arg = "FILE", .help = "check MACs with this key, a copy of audit.key that was kept elsewhere" },
	OPT_JSON,
	{ 0 },
};

static const struct cmd_opt mcp_server_opts[] = {
	{ .name = "compatibility-mode",
		.arg = MODES,
		.help = "a mode that calls may choose; the first is their default (claude)",
		.repeat = true },
	{ .name = "profile",
		.arg = "permissive|moderate|restrictive",
		.help = "the widest profile that calls may choose (moderate)" },
	{ .name = "no-network", .help = "no network in any call" },
	{ .name = "dir",
		.arg = "DIR",
		.help = "the project, mounted in every sandbox (the current folder, where the mode mounts it)" },
	{ .name = "keep", .help = "sandboxes that calls create stay when the server ends" },
	OPT_RULES,
	{ 0 },
};

static const struct cmd_opt init_opts[] = {
	{ .name = "plugin",
		.arg = "claude|codex|gemini|opencode|mcp",
		.help = "also the files by which this client finds our MCP server" },
	{ .name = "dry-run", .help = "print what would be written, and write nothing" },
	{ .name = "force", .help = "replace files that are there already" },
	{ 0 },
};

static const struct cmd_opt json_opts[] = { OPT_JSON, { 0 } };
static const struct cmd_opt no_opts[] = { { 0 } };

static const struct cmd_opt serve_opts[] = {
	{ .name = "host",
		.arg = "ADDRESS",
		.help = "listen here (127.0.0.1 and ::1); others than loopback need a key",
		.repeat = true },
	{ .name = "port", .arg = "PORT", .help = "listen on this port (18888); 0 is any that is free" },
	{ .name = "api-key-file",
		.arg = "FILE",
		.help = "keys that clients must know, one a line, besides AGENTKERNEL_API_KEY",
		.repeat = true },
	{ .name = "server-name", .arg = "NAME", .help = "a further name that clients may reach it by", .repeat = true },
	{ 0 },
};

const struct cmd cmd_table[] = {
	{ "run", "CMD [ARGS…]", "run a command in a temporary sandbox", run_request, cmd_run, true, NULL },
	{ "create", "NAME", "define a persistent sandbox", create_opts, cmd_create, false, NULL },
	{ "start", "NAME…", "start a persistent sandbox", start_opts, cmd_start, false, NULL },
	{ "stop", "NAME…", "stop one; its files and policy stay", no_opts, cmd_stop, false, NULL },
	{ "remove", "NAME…", "remove one with all its files", remove_opts, cmd_remove, false, NULL },
	{ "list", "", "the persistent sandboxes", list_opts, cmd_list, false, NULL },
	{ "exec", "NAME CMD [ARGS…]", "run a command in a running sandbox", exec_opts, cmd_exec, true, NULL },
	{ "attach", "NAME", "a shell in a running sandbox, or the command that was left there", attach_opts, cmd_attach, false,
		NULL },
	{ "cp", "SRC DST", "copy files and folders; one side is NAME:/path", cp_opts, cmd_cp, false, NULL },
	{ "sandbox create", "NAME", "define a persistent sandbox", create_opts, cmd_create, false, "create" },
	{ "sandbox start", "NAME…", "start a persistent sandbox", start_opts, cmd_start, false, "start" },
	{ "sandbox stop", "NAME…", "stop one; its files and policy stay", no_opts, cmd_stop, false, "stop" },
	{ "sandbox remove", "NAME…", "remove one with all its files", remove_opts, cmd_remove, false, "remove" },
	{ "sandbox list", "", "the persistent sandboxes", list_opts, cmd_list, false, "list" },
	{ "network log", "NAME|--last", "what a sandbox's network was asked for, and what became of it", network_log_opts,
		cmd_network_log, false, NULL },
	{ "network check", "MODE|NAME|FILE HOST[:PORT][/PROTO]", "the verdict for a destination, and the rule that gives it",
		network_check_opts, cmd_network_check, false, NULL },
	{ "network policy", "NAME", "show or change the policy of a sandbox while it runs", network_policy_opts,
		cmd_network_policy, false, NULL },
	{ "network proxy", "NAME", "the same, in the words of Docker's sandboxes", network_proxy_opts, cmd_network_proxy, false,
		NULL },
	{ "network selftest", "", "try the attack catalogue on this machine, in a private Internet", json_opts,
		cmd_network_selftest, false, NULL },
	{ "policy list", "", "the policies that exist", json_opts, cmd_policy_list, false, NULL },
	{ "policy show", "NAME", "a policy as it is enforced", json_opts, cmd_policy_show, false, NULL },
	{ "policy validate", "FILE", "check a policy file and name what is wrong", json_opts, cmd_policy_validate, false, NULL },
	{ "audit", "", "life cycle, exec, file and policy events", audit_opts, cmd_audit, false, NULL },
	{ "audit verify", "", "check that no audit record was altered, removed or cut off", audit_verify_opts, cmd_audit_verify,
		false, NULL },
	{ "daemon start", "", "start the daemon: gateway of persistent sandboxes, and warm ones for run", daemon_start_opts,
		cmd_daemon_start, false, NULL },
	{ "daemon stop", "", "end it; running sandboxes go on without a network", no_opts, cmd_daemon_stop, false, NULL },
	{ "daemon status", "", "pool, hits and misses, and the gateway's health", json_opts, cmd_daemon_status, false, NULL },
	{ "daemon prewarm", "", "prepare sandboxes of a mode now", daemon_prewarm_opts, cmd_daemon_prewarm, false, NULL },
	{ "serve", "", "serve the HTTP API", serve_opts, cmd_serve, false, NULL },
	{ "mcp server", "", "serve the Model Context Protocol on stdin and stdout", mcp_server_opts, cmd_mcp_server, false,
		NULL },
	{ "mcp-server", "", "", mcp_server_opts, cmd_mcp_server, false, "mcp server" },
	{ "agents", "", "the agents that are installed, and whether their API key is set", json_opts, cmd_agents, false, NULL },
	{ "init", "", "write a commented agentkernel.toml, and the files of a client", init_opts, cmd_init, false, NULL },
	{ "completion", "bash|zsh|fish", "print a completion script for a shell", no_opts, cmd_completion, false, NULL },
	{ "version", "", "print the version", json_opts, cmd_version, false, NULL },
	{ "help", "[COMMAND]", "describe a command", no_opts, cmd_help, false, NULL },
	{ 0 },
};

const struct cmd *cmd_row(const char *name)
{
	for (const struct cmd *c = cmd_table; c->name; c++) {
		if (!strcmp(c->name, name))
			return c->alias_of ? cmd_row(c->alias_of) : c;
	}
	return NULL;
}

/* How many words NAME has when ARGV starts with them; else 0. */
static int match_words(const char *name, int argc, char **argv)
{
	int words = 0;

	while (words < argc) {
		size_t len = strlen(argv[words]);

		if (strncmp(name, argv[words], len) != 0 || (name[len] != ' ' && name[len] != '\0'))
			return 0;
		words++;
		if (!name[len])
			return words;
		name += len + 1;
	}
	return 0;
}

const struct cmd *cmd_match(int argc, char **argv, int *ret_words)
{
	const struct cmd *best = NULL;
	int best_words = 0;

	for (const struct cmd *c = cmd_table; c->name; c++) {
		int words = match_words(c->name, argc, argv);

		if (words > best_words) {
			best_words = words;
			best = c;
		}
	}
	if (best)
		*ret_words = best_words;
	return best && best->alias_of ? cmd_row(best->alias_of) : best;
}

bool cmd_is_group(const char *name)
{
	size_t len = strlen(name);

	for (const struct cmd *c = cmd_table; c->name; c++) {
		if (!strncmp(c->name, name, len) && c->name[len] == ' ')
			return true;
	}
	return false;
}

#define NEAR_MAX 48

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* How many letters to insert, delete, change or swap with their neighbour to get from A to B. */
static unsigned distance(const char *a, const char *b)
{
	unsigned rows[3][NEAR_MAX + 1];
	size_t la = strlen(a), lb = strlen(b);
	unsigned *before = rows[0], *prev = rows[1], *cur = rows[2];

	if (la > NEAR_MAX || lb > NEAR_MAX)
		return NEAR_MAX;
	for (unsigned j = 0; j <= lb; j++)
		prev[j] = j;
	for (size_t i = 1; i <= la; i++) {
		unsigned *t = before;

		cur[0] = (unsigned)i;
		for (size_t j = 1; j <= lb; j++) {
			cur[j] = min3(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < cur[j])
				cur[j] = before[j - 2] + 1;
		}
		before = prev;
		prev = cur;
		cur = t;
	}
	return prev[lb];
}

/* Keep CANDIDATE when it is nearer than what was found so far, and near enough for its length. */
static void consider(const char *typed, const char *candidate, const char *result, const char **best, unsigned *best_distance)
{
	size_t len = strlen(candidate);
	unsigned d = distance(typed, candidate);

	/* A short word is soon near to anything. */
	if (d < *best_distance && d <= (len < 5 ? 1u : len < 9 ? 2u : 3u)) {
		*best_distance = d;
		*best = result;
	}
}

const char *cmd_suggest(const char *typed)
{
	const char *best = NULL;
	unsigned nearest = NEAR_MAX;

	for (const struct cmd *c = cmd_table; c->name; c++) {
		const char *space = strrchr(c->name, ' ');

		consider(typed, c->name, c->name, &best, &nearest);
		if (space) /* "log" for "network log" */
			consider(typed, space + 1, c->name, &best, &nearest);
	}
	return best;
}

const char *cmd_suggest_opt(const struct cmd *cmd, const char *typed)
{
	const char *best = NULL;
	unsigned nearest = NEAR_MAX;

	for (const struct cmd_opt *o = cmd->opts; o->name; o++) {
		if (!o->missing || strcmp(o->missing, "*") != 0)
			consider(typed, o->name, o->name, &best, &nearest);
	}
	consider(typed, "help", "help", &best, &nearest);
	return best;
}
