/* Find the folder around a program that belongs to it: see project/tools.h. */
#include "gateway/project/tools.h"

#include "gateway/base/cleanup.h"
#include "gateway/project/project.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/*
 * Folders that hold whole packages or tool chains, and nothing else. PART is searched in the program's path; MORE components
 * after it belong to the root ("installs/node/20"). The first match counts, so narrow rows come first.
 */
static const struct {
	const char *part;
	unsigned more;
	const char *what;
} roots[] = {
	{ "/.nvm/versions/node/", 1, "Node.js of nvm" },
	{ "/fnm/node-versions/", 1, "Node.js of fnm" },
	{ "/.asdf/installs/", 2, "tool chain of asdf" },
	{ "/.asdf/", 0, "asdf" },
	{ "/mise/installs/", 2, "tool chain of mise" },
	{ "/.pyenv/versions/", 1, "Python of pyenv" },
	{ "/.pyenv/", 0, "pyenv" },
	{ "/.rbenv/versions/", 1, "Ruby of rbenv" },
	{ "/.rbenv/", 0, "rbenv" },
	{ "/.volta/", 0, "volta" },
	{ "/pipx/venvs/", 1, "pipx package" },
	{ "/uv/tools/", 1, "uv tool" },
	{ "/uv/python/", 1, "Python of uv" },
	{ "/.rustup/toolchains/", 1, "Rust tool chain" },
	{ "/.sdkman/candidates/", 2, "tool chain of SDKMAN" },
	{ "/.linuxbrew/", 0, "Homebrew" },
	{ "/.bun/install/global/node_modules/", 0, "global packages of Bun" },
	{ "/yarn/global/node_modules/", 0, "global packages of Yarn" },
	{ "/share/pnpm/", 0, "global packages of pnpm" },
	{ "/lib/node_modules/", 1, "npm package" },
};

/* Files that show that the folder above bin/ is a tool chain. */
static const struct {
	const char *file, *what;
	const char *parts[3];
} markers[] = {
	{ "pyvenv.cfg", "Python environment", { NULL } },
	{ "conda-meta", "conda environment", { NULL } },
	{ "lib/modules", "Java", { NULL } },
	{ "pkg/tool", "Go", { NULL } },
	{ "include/node/node.h", "Node.js", { "lib/node_modules", "include/node" } },
};

bool tools_marker(const char *real, size_t len, const char *what, char ret[static PATH_MAX])
{
	for (size_t i = 0; i < ARRAY_SIZE(markers); i++) {
		if (!strcmp(markers[i].what, what))
			return snprintf(ret, PATH_MAX, "%.*s/%s", (int)len, real, markers[i].file) < PATH_MAX;
	}
	return false;
}

const char *const *tools_parts(const char *what)
{
	for (size_t i = 0; i < ARRAY_SIZE(markers); i++) {
		if (!strcmp(markers[i].what, what) && markers[i].parts[0])
			return markers[i].parts;
	}
	return NULL;
}

/* The length of PATH up to the end of N more components; 0 if there are fewer folders. */
static size_t skip(const char *path, size_t at, unsigned n)
{
	for (; n > 0; n--) {
		size_t len = strcspn(path + at, "/");

		if (!path[at + len] || !len)
			return 0;
		if (path[at] == '@') /* an npm scope is a folder of packages */
			n++;
		at += len + 1;
	}
	return at - 1;
}

static size_t known_root(const char *real, const char **ret_what)
{
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		const char *at = strstr(real, roots[i].part);
		size_t len = at ? skip(real, (size_t)(at - real) + strlen(roots[i].part), roots[i].more) : 0;

		if (len) {
			*ret_what = roots[i].what;
			return len;
		}
	}
	return 0;
}

static size_t marked_root(const char *real, const char **ret_what)
{
	const char *slash = strrchr(real, '/');
	size_t len = (size_t)(slash - real);
	char path[PATH_MAX];

	if (len < 4 || strncmp(slash - 4, "/bin", 4) != 0)
		return 0;
	len -= 4;
	for (size_t i = 0; len && i < ARRAY_SIZE(markers); i++) {
		int n = snprintf(path, sizeof(path), "%.*s/%s", (int)len, real, markers[i].file);

		if (n < (int)sizeof(path) && access(path, F_OK) == 0) {
			*ret_what = markers[i].what;
			return len;
		}
	}
	return 0;
}

size_t tools_package(const char *real, const char **ret_what)
{
	static const char store[] = "/nix/store";

	if (project_inside(real, store)) {
		*ret_what = "Nix packages";
		return sizeof(store) - 1;
	}
	return known_root(real, ret_what);
}

size_t tools_root(const char *real, const char **ret_what)
{
	size_t len = tools_package(real, ret_what);

	return len ? len : marked_root(real, ret_what);
}

bool tools_in_system(const char *path)
{
	static const char *const folders[] = { "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc" };

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
		if (project_inside(path, folders[i]))
			return true;
	}
	return false;
}

bool tools_only_of_system(const char *path)
{
	/* Projects may lie in these two. */
	return tools_in_system(path) && !project_inside(path, "/opt") && !project_inside(path, "/usr/local");
}
