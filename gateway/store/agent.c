/* The agents that we know: see store/agent.h. */
#include "gateway/store/agent.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define READ_ONLY "its program is read-only inside: update it outside"

const struct agent agents[AGENTS_NUM] = {
	{
		.name = "claude",
		.title = "Claude Code",
		.mode = AK_MODE_CLAUDE,
		.keys = { "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN" },
		.state = { ".claude" },
		.import = { ".claude.json", ".claude/.claude.json" },
		.signed_in = { ".claude/.credentials.json" },
		.install = "npm install -g @anthropic-ai/claude-code",
		/* By default its settings are a single file of the home, which it replaces by renaming: a mounted file cannot be replaced. */
		.env = { { "CLAUDE_CONFIG_DIR=~/.claude", "all that it keeps is in one folder" },
			{ "DISABLE_AUTOUPDATER=1", READ_ONLY } },
		.file = "/etc/claude-code/managed-settings.json",
		.file_text = "{\"sandbox\":{\"enabled\":false}}\n",
		.file_why = "turns off its own sandbox, which needs namespaces and cannot start inside this one",
	},
	{
		.name = "gemini",
		.title = "Gemini CLI",
		.mode = AK_MODE_GEMINI,
		.keys = { "GEMINI_API_KEY", "GOOGLE_API_KEY" },
		.state = { ".gemini" },
		.signed_in = { ".gemini/oauth_creds.json", ".gemini/gemini-credentials.json", ".gemini/.env" },
		.install = "npm install -g @google/gemini-cli",
		.env = { { "SANDBOX=agentkernel", "tells it that it is in a sandbox, so that it starts none of its own" } },
	},
	{
		.name = "codex",
		.title = "Codex",
		.mode = AK_MODE_CODEX,
		.keys = { "OPENAI_API_KEY", "CODEX_API_KEY" },
		.state = { ".codex" },
		.signed_in = { ".codex/auth.json" },
		.key_login = "login --with-api-key",
		.install = "npm install -g @openai/codex",
		.file = "/etc/codex/config.toml",
		.file_text = "# Written by agentkernel: this sandbox takes the place of Codex's own, which needs namespaces.\n"
			     "sandbox_mode = \"danger-full-access\"\n"
			     "check_for_update_on_startup = false\n",
		.file_why = "turns off its own sandbox, which needs namespaces and cannot start inside this one, and its updates",
	},
	{
		.name = "opencode",
		.title = "OpenCode",
		.mode = AK_MODE_OPENCODE,
		.keys = { "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENCODE_API_KEY" },
		.state = { ".config/opencode", ".local/share/opencode", ".local/state/opencode" },
		.signed_in = { ".local/share/opencode/auth.json" },
		.install = "npm install -g opencode-ai",
		.settle = { "session", "list" },
		.env = { { "OPENCODE_DISABLE_AUTOUPDATE=1", READ_ONLY } },
	},
};

const struct agent *agent_named(const char *name)
{
	for (size_t i = 0; i < AGENTS_NUM; i++) {
		if (!strcmp(agents[i].name, name))
			return &agents[i];
	}
	return NULL;
}

const struct agent *agent_of_command(const char *argv0)
{
	const char *slash = strrchr(argv0, '/');

	return agent_named(slash ? slash + 1 : argv0);
}

const struct agent *agent_of_mode(enum ak_mode mode)
{
	for (size_t i = 0; i < AGENTS_NUM; i++) {
		if (agents[i].mode == mode)
			return &agents[i];
	}
	return NULL;
}

const char *agent_env_why(const char *pair)
{
	size_t key = strcspn(pair, "=") + 1;

	for (size_t i = 0; i < AGENTS_NUM; i++) {
		for (size_t k = 0; k < ARRAY_SIZE(agents[i].env); k++) {
			const struct agent_env *e = &agents[i].env[k];

			if (e->pair && !strncmp(e->pair, pair, key))
				return e->why;
		}
	}
	return "";
}

int agent_state_dir(const struct ak_paths *paths, const struct agent *a, const char *project, char ret[static PATH_MAX])
{
	char dir[PATH_MAX], hex[SHA256_HEX], name[AK_NAME_MAX + 32];
	uint8_t digest[SHA256_SIZE];
	struct sha256 hash;
	int rc = ak_path_join(dir, paths->state, "agents", NULL);

	if (rc < 0)
		return rc;
	if (!project)
		return ak_path_join(ret, dir, a->name, "shared");
	sha256_init(&hash);
	sha256_add(&hash, project, strlen(project));
	sha256_done(&hash, digest);
	sha256_hex(digest, hex);
	snprintf(name, sizeof(name), "project-%.16s", hex);
	return ak_path_join(ret, dir, a->name, name);
}

int agent_state_open(const struct ak_paths *paths, const struct agent *a, const char *dir, const char *folder, struct ak_err *err)
{
	char path[PATH_MAX];
	_cleanup_close_ int state = -1;
	int rc = ak_path_join(path, dir + strlen(paths->state), folder, NULL), fd;

	if (rc == 0)
		rc = ak_mkdir_p(paths->state, 0700);
	if (rc == 0 && (state = open(paths->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		rc = -errno;
	fd = rc < 0 ? rc : ak_open_below(state, path, 0700);
	if (fd == -ELOOP)
		return ak_fail(err, ELOOP,
			"'%s/%s': it, or a folder above it, is a symbolic link, so a sandbox would write what it leads to; 'agentkernel agents reset %s' removes the link",
			dir, folder, a->name);
	return fd < 0 ? ak_fail_errno(err, -fd, "the agent's folder '%s/%s'", dir, folder) : fd;
}
