/* The commands and their options: the one list that parsing, help, completion and the man page check are made from. */
#include "gateway/cmd.h"

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

static const struct cmd_opt run_opts[] = {
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
	{ .name = "env", .letter = 'e', .arg = "K=V", .help = "set a variable inside, or pass K on", .repeat = true },
	{ .name = "workdir", .letter = 'w', .arg = "DIR", .help = "start the command in this folder" },
	{ .name = "timeout", .arg = "DURATION", .help = "end it after this long (30s, 10m, 1h30m)" },
	{ .name = "memory", .arg = "SIZE", .help = "memory limit (512M, 2G)" },
	{ .name = "vcpus", .arg = "N", .help = "processor limit" },
	{ .name = "pids", .arg = "N", .help = "process limit" },
	OPT_RULES,
	{ .name = "pass-api-key", .help = "pass on the API key variable of the mode" },
	{ .name = "interactive", .letter = 'i', .help = "pass stdin on (the default)" },
	{ .name = "tty", .letter = 't', .help = "give the command a terminal" },
	{ .name = "quiet", .help = "no lines of our own on stderr, except errors" },
	{ .name = "json", .help = "print the result as one JSON object" },
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

static const struct cmd_opt json_opts[] = { OPT_JSON, { 0 } };
static const struct cmd_opt no_opts[] = { { 0 } };

const struct cmd cmd_table[] = {
	{ "run", "CMD [ARGS…]", "run a command in a temporary sandbox", run_opts, cmd_run, true, NULL },
	{ "network log", "NAME|--last", "what a sandbox's network was asked for, and what became of it", network_log_opts,
		cmd_network_log, false, NULL },
	{ "network check", "MODE|NAME|FILE HOST[:PORT][/PROTO]", "the verdict for a destination, and the rule that gives it",
		network_check_opts, cmd_network_check, false, NULL },
	{ "policy list", "", "the policies that exist", json_opts, cmd_policy_list, false, NULL },
	{ "policy show", "NAME", "a policy as it is enforced", json_opts, cmd_policy_show, false, NULL },
	{ "policy validate", "FILE", "check a policy file and name what is wrong", json_opts, cmd_policy_validate, false, NULL },
	{ "audit", "", "life cycle, exec, file and policy events", audit_opts, cmd_audit, false, NULL },
	{ "audit verify", "", "check the hash chains of all audit files", json_opts, cmd_audit_verify, false, NULL },
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
