/* Examples for the help text of each command: a line each, without the program's name. A test parses every one of them. */
#include "gateway/cli/cmd.h"

#include <string.h>

static const struct {
	const char *command;
	const char *lines[4]; /* NULL-terminated */
} table[] = {
	{ "run",
		{ "run -m codex -- npm test", "run -m claude --allow-host api.example.com -- make",
			"run --no-network --timeout 30s -- python3 untrusted.py" } },
	{ "claude", { "claude", "claude -p 'explain this repository'" } },
	{ "codex", { "codex", "codex exec 'fix the failing test'" } },
	{ "gemini", { "gemini", "gemini -p 'summarise the README'" } },
	{ "opencode", { "opencode", "opencode run 'add a test for the parser'" } },
	{ "create", { "create web -m claude --dir ~/src/web", "create db --memory 1G --vcpus 2 --start" } },
	{ "start", { "start web", "start --all" } },
	{ "stop", { "stop web", "stop --all" } },
	{ "remove", { "remove web", "remove --force --all" } },
	{ "snapshot", { "snapshot web before-upgrade", "snapshot --list web", "snapshot --remove web before-upgrade" } },
	{ "restore", { "restore web before-upgrade", "restore --stop web before-upgrade" } },
	{ "fork", { "fork web web2", "fork web web2 --tag before-upgrade" } },
	{ "list", { "list", "list -a", "list --json" } },
	{ "inspect", { "inspect web", "inspect run-5f0c" } },
	{ "logs", { "logs run-5f0c", "logs --follow run-5f0c" } },
	{ "exec", { "exec web -- npm test", "exec -it web bash", "exec -e TOKEN --timeout 5m web -- ./deploy" } },
	{ "attach", { "attach web", "attach --new web" } },
	{ "cp", { "cp web:/tmp/report.html .", "cp ./data web:/srv", "cp web:/srv -" } },
	{ "network log", { "network log --last", "network log web --denied --since 10m", "network log web --follow --json" } },
	{ "network check",
		{ "network check codex pypi.org", "network check web api.example.com:443",
			"network check ./mine.json 10.1.2.3:5432" } },
	{ "network policy",
		{ "network policy web", "network policy web --allow-host api.example.com --for 10m",
			"network policy web --remove api.example.com" } },
	{ "network publish",
		{ "network publish web 8080", "network publish web 127.0.0.1:8080:80", "network publish web --remove 8080" } },
	{ "network proxy", { "network proxy web --policy deny", "network proxy web --policy deny --allow-host pypi.org" } },
	{ "network selftest", { "network selftest", "network selftest --json" } },
	{ "policy list", { "policy list", "policy list --json" } },
	{ "policy show", { "policy show codex", "policy show package-registries --json" } },
	{ "policy validate", { "policy validate mine.json", "policy validate ~/.config/agentkernel/policies/mine.json" } },
	{ "audit", { "audit --since 1h", "audit --sandbox web -n 20", "audit --follow" } },
	{ "audit verify", { "audit verify", "audit verify --key-file /media/usb/audit.key" } },
	{ "daemon start", { "daemon start", "daemon start --foreground" } },
	{ "daemon stop", { "daemon stop", "daemon stop --help" } },
	{ "daemon status", { "daemon status", "daemon status --json" } },
	{ "daemon prewarm",
		{ "daemon prewarm --mode codex", "daemon prewarm --mode claude --count 4",
			"daemon prewarm --mode codex --backend vm" } },
	{ "serve", { "serve", "serve --port 18889" } },
	{ "mcp server", { "mcp server", "mcp server -m claude --dir ~/src/web" } },
	{ "image pull", { "image pull python:3.12-alpine", "image pull ghcr.io/owner/name:tag" } },
	{ "image import", { "image import ./layout:latest", "image import docker-archive:image.tar" } },
	{ "image list", { "image list", "image list --json" } },
	{ "image remove", { "image remove python:3.12-alpine", "image remove alpine:3.20 node:22-alpine" } },
	{ "image prune", { "image prune", "image prune --help" } },
	{ "agents", { "agents", "agents --check" } },
	{ "agents import", { "agents import claude", "agents import codex" } },
	{ "agents reset", { "agents reset claude", "agents reset codex" } },
	{ "doctor", { "doctor", "doctor --offline --json" } },
	{ "setup", { "setup --dry-run", "setup --vm" } },
	{ "trust", { "trust ~/src/web", "trust --list", "trust --forget ~/src/old" } },
	{ "init", { "init", "init --plugin claude" } },
	{ "completion", { "completion bash", "completion zsh", "completion fish" } },
	{ "version", { "version", "version --json" } },
	{ "help", { "help run", "help network log" } },
};

const char *const *cmd_examples(const char *command)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (!strcmp(table[i].command, command))
			return table[i].lines;
	}
	return NULL;
}
