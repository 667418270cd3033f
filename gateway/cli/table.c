/* The command table. Parsing, help, completion and the man page check use this table and field/table.c, which has the options. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"

#include <string.h>

const struct cmd cmd_table[] = {
	{ "run", "[CMD [ARGS…]]", "run a command, or the mode's agent, in a temporary sandbox", VERB_RUN, cmd_run, 1, NULL },
	{ "claude", "[ARGS…]", "run Claude Code in its mode; all arguments go to it", VERB_NONE, cmd_agent, 1, NULL },
	{ "codex", "[ARGS…]", "run Codex in its mode", VERB_NONE, cmd_agent, 1, NULL },
	{ "gemini", "[ARGS…]", "run Gemini CLI in its mode", VERB_NONE, cmd_agent, 1, NULL },
	{ "opencode", "[ARGS…]", "run OpenCode in its mode", VERB_NONE, cmd_agent, 1, NULL },
	{ "create", "NAME", "define a persistent sandbox", VERB_CREATE, cmd_create, false, NULL },
	{ "start", "NAME…", "start a persistent sandbox", VERB_START, cmd_start, false, NULL },
	{ "stop", "NAME…", "stop a sandbox; its files and policy stay", VERB_STOP, cmd_stop, false, NULL },
	{ "remove", "NAME…", "remove a sandbox with all its files", VERB_REMOVE, cmd_remove, false, NULL },
	{ "rm", "NAME…", "remove a sandbox with all its files", VERB_REMOVE, cmd_remove, false, "remove" },
	{ "snapshot", "NAME [TAG]", "keep a copy of a sandbox's files, or list and remove such copies", VERB_SNAPSHOT,
		cmd_snapshot, false, NULL },
	{ "restore", "NAME TAG", "restore the files of a snapshot", VERB_RESTORE, cmd_restore, false, NULL },
	{ "fork", "NAME NEW", "make a new sandbox with the files and settings of another", VERB_FORK, cmd_fork, false, NULL },
	{ "list", "", "list the sandboxes and running commands, and past runs with -a", VERB_LIST, cmd_list, false, NULL },
	{ "ls", "", "list the sandboxes and running commands, and past runs with -a", VERB_LIST, cmd_list, false, "list" },
	{ "ps", "", "list the sandboxes and running commands, and past runs with -a", VERB_LIST, cmd_list, false, "list" },
	{ "inspect", "NAME", "print all that is known about a sandbox or a run, as JSON", VERB_PRINT, cmd_inspect, false, NULL },
	{ "logs", "NAME", "show the output of a command that was started in the background", VERB_LOGS, cmd_logs, false, NULL },
	{ "exec", "NAME CMD [ARGS…]", "run a command in a running sandbox", VERB_EXEC, cmd_exec, 2, NULL },
	{ "attach", "NAME", "open a shell in a running sandbox, or reattach to a detached command", VERB_ATTACH, cmd_attach,
		false, NULL },
	{ "cp", "SRC DST", "copy files and folders; one side is NAME:/path", VERB_CP, cmd_cp, false, NULL },
	{ "sandbox create", "NAME", "define a persistent sandbox", VERB_CREATE, cmd_create, false, "create" },
	{ "sandbox start", "NAME…", "start a persistent sandbox", VERB_START, cmd_start, false, "start" },
	{ "sandbox stop", "NAME…", "stop a sandbox; its files and policy stay", VERB_STOP, cmd_stop, false, "stop" },
	{ "sandbox remove", "NAME…", "remove a sandbox with all its files", VERB_REMOVE, cmd_remove, false, "remove" },
	{ "sandbox rm", "NAME…", "remove a sandbox with all its files", VERB_REMOVE, cmd_remove, false, "remove" },
	{ "sandbox list", "", "list the sandboxes and running commands, and past runs with -a", VERB_LIST, cmd_list, false,
		"list" },
	{ "sandbox ls", "", "list the sandboxes and running commands, and past runs with -a", VERB_LIST, cmd_list, false,
		"list" },
	{ "sandbox inspect", "NAME", "print all that is known about a sandbox or a run, as JSON", VERB_PRINT, cmd_inspect, false,
		"inspect" },
	{ "network log", "NAME|--last", "show the network requests of a sandbox and their verdicts", VERB_NETWORK_LOG,
		cmd_network_log, false, NULL },
	{ "network check", "MODE|NAME|FILE HOST[:PORT][/PROTO]", "show the verdict for a destination and the rule behind it",
		VERB_CHECK, cmd_network_check, false, NULL },
	{ "network policy", "NAME", "show or change the policy of a sandbox while it runs", VERB_POLICY_CHANGE,
		cmd_network_policy, false, NULL },
	{ "network publish", "NAME [[ADDR:]PORT[:PORT]…]", "show or change the published ports of a sandbox", VERB_PUBLISH,
		cmd_network_publish, false, NULL },
	{ "network proxy", "NAME", "like network policy, with the option names of Docker sandboxes", VERB_POLICY_PROXY,
		cmd_network_proxy, false, NULL },
	{ "network selftest", "", "run the attack catalogue on this machine, in a private network", VERB_PRINT,
		cmd_network_selftest, false, NULL },
	{ "policy list", "", "list the policies", VERB_PRINT, cmd_policy_list, false, NULL },
	{ "policy show", "NAME", "show a policy as it is enforced", VERB_PRINT, cmd_policy_show, false, NULL },
	{ "policy validate", "FILE", "check a policy file and report errors", VERB_PRINT, cmd_policy_validate, false, NULL },
	{ "audit", "", "show life cycle, exec, file and policy events", VERB_AUDIT, cmd_audit, false, NULL },
	{ "audit verify", "", "check that no audit record was altered, removed or cut off", VERB_AUDIT_VERIFY, cmd_audit_verify,
		false, NULL },
	{ "daemon start", "",
		"start the daemon, which hosts the gateway of persistent sandboxes and pre-builds sandboxes for run",
		VERB_DAEMON_START, cmd_daemon_start, false, NULL },
	{ "daemon stop", "", "stop the daemon; running sandboxes lose their network", VERB_NONE, cmd_daemon_stop, false, NULL },
	{ "daemon status", "", "show the state of the gateway and of the pool of pre-built sandboxes", VERB_PRINT,
		cmd_daemon_status, false, NULL },
	{ "daemon prewarm", "", "pre-build sandboxes of a mode now", VERB_PREWARM, cmd_daemon_prewarm, false, NULL },
	{ "serve", "", "serve the HTTP API", VERB_SERVE, cmd_serve, false, NULL },
	{ "mcp server", "", "serve the Model Context Protocol on stdin and stdout", VERB_MCP_SERVER, cmd_mcp_server, false,
		NULL },
	{ "mcp-server", "", "", VERB_MCP_SERVER, cmd_mcp_server, false, "mcp server" },
	{ "image pull", "IMAGE", "download an image, through a gateway that allows only its registry", VERB_IMAGE_PULL,
		cmd_image_pull, false, NULL },
	{ "image import", "LAYOUT:TAG|docker-archive:FILE|oci-archive:FILE", "import an image from a folder or an archive",
		VERB_IMAGE_IMPORT, cmd_image_import, false, NULL },
	{ "image list", "", "list the local images", VERB_PRINT, cmd_image_list, false, NULL },
	{ "image remove", "IMAGE…", "remove local images", VERB_NONE, cmd_image_remove, false, NULL },
	{ "image prune", "", "remove the local images that no sandbox uses", VERB_NONE, cmd_image_prune, false, NULL },
	{ "agents", "", "list the installed agents and what each still needs", VERB_AGENTS, cmd_agents, false, NULL },
	{ "agents import", "AGENT", "list and copy the sign-in, settings and sessions of an agent from your home",
		VERB_AGENT_MEMORY, cmd_agents_import, false, NULL },
	{ "agents reset", "AGENT", "list and delete the sign-in, settings and sessions that are kept for an agent",
		VERB_AGENT_MEMORY, cmd_agents_reset, false, NULL },
	{ "doctor", "", "check what works on this host, and say how to fix what does not", VERB_DOCTOR, cmd_doctor, false, NULL },
	{ "setup", "", "apply the fixes that doctor suggests, where a program can", VERB_SETUP, cmd_setup, false, NULL },
	{ "trust", "[DIR|FILE]", "let the agentkernel.toml of a project widen what a run may do", VERB_TRUST, cmd_trust, false,
		NULL },
	{ "init", "", "write a commented agentkernel.toml, and the configuration of an MCP client", VERB_INIT, cmd_init, false,
		NULL },
	{ "completion", "bash|zsh|fish", "print a completion script for a shell", VERB_NONE, cmd_completion, false, NULL },
	{ "version", "", "print the version", VERB_PRINT, cmd_version, false, NULL },
	{ "help", "[COMMAND]", "describe a command", VERB_NONE, cmd_help, false, NULL },
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

/* The number of words in NAME if ARGV starts with them, else 0. */
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

/* Edit distance from A to B: insertions, deletions, substitutions and swaps of neighbours. */
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

/* Keep CANDIDATE if it is more similar than the best so far, and similar enough for its length. */
static void consider(const char *typed, const char *candidate, const char *result, const char **best, unsigned *best_distance)
{
	size_t len = strlen(candidate);
	unsigned d = distance(typed, candidate);

	/* Allow fewer edits for short words, which are similar to many others. */
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

	field_each(u, cmd->verb, FIELD_CLI) {
		const struct field *f = &field_table[u->id];

		if (!f->never)
			consider(typed, f->option, f->option, &best, &nearest);
	}
	consider(typed, "help", "help", &best, &nearest);
	return best;
}
