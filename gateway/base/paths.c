/* The folders of this program: see base/paths.h. Every `run` executes this, so it makes few system calls. */
#include "gateway/base/paths.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int ak_path_join(char buf[static PATH_MAX], const char *dir, const char *a, const char *b)
{
	int n = snprintf(buf, PATH_MAX, "%s/%s%s%s", dir, a, b ? "/" : "", b ? b : "");

	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* The XDG base directory specification says to ignore relative paths. */
static const char *absolute_env(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] == '/' ? value : NULL;
}

static const char *home_dir(void)
{
	const char *home = absolute_env("HOME");
	const struct passwd *pw;

	if (home)
		return home;
	pw = getpwuid(geteuid());
	return pw && pw->pw_dir && pw->pw_dir[0] == '/' ? pw->pw_dir : NULL;
}

/* $XDG_NAME/agentkernel, or HOME/FALLBACK/agentkernel. */
static int user_dir(const char *xdg, const char *fallback, char ret[static PATH_MAX], struct ak_err *err)
{
	const char *base = absolute_env(xdg), *home = base ? NULL : home_dir();
	int rc;

	if (!base && !home)
		return ak_fail(err, ENOENT, "no home folder: set HOME or %s", xdg);
	rc = base ? ak_path_join(ret, base, "agentkernel", NULL) : ak_path_join(ret, home, fallback, "agentkernel");
	return rc < 0 ? ak_fail(err, ENAMETOOLONG, "%s: path too long", base ? xdg : "HOME") : 0;
}

/* Do not put our sockets into another user's runtime folder, which sudo or su may leave in the environment. */
static bool own_dir(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

static int user_runtime(struct ak_paths *p)
{
	const char *xdg = absolute_env("XDG_RUNTIME_DIR");
	char dir[64];

	if (xdg && own_dir(xdg))
		return ak_path_join(p->runtime, xdg, "agentkernel", NULL);
	snprintf(dir, sizeof(dir), "/run/user/%u", (unsigned)geteuid());
	if (own_dir(dir))
		return ak_path_join(p->runtime, dir, "agentkernel", NULL);
	return ak_path_join(p->runtime, p->state, "run", NULL);
}

static int state_and_runtime(struct ak_paths *p, struct ak_err *err)
{
	int rc;

	if (geteuid() == 0 && !absolute_env("XDG_STATE_HOME")) {
		strcpy(p->state, "/var/lib/agentkernel");
		strcpy(p->runtime, "/run/agentkernel");
		return 0;
	}
	rc = user_dir("XDG_STATE_HOME", ".local/state", p->state, err);
	if (rc < 0)
		return rc;
	rc = user_runtime(p);
	return rc < 0 ? ak_fail(err, ENAMETOOLONG, "XDG_RUNTIME_DIR: path too long") : 0;
}

static bool has(const char *dir, const char *a, const char *b)
{
	char path[PATH_MAX];

	return ak_path_join(path, dir, a, b) == 0 && access(path, F_OK) == 0;
}

/* Cut the last part off DIR; false at the root. */
static bool parent(char *dir)
{
	char *slash = strrchr(dir, '/');

	if (!slash || slash == dir)
		return false;
	*slash = '\0';
	return true;
}

static bool data_beside_program(char ret[static PATH_MAX])
{
	char dir[PATH_MAX], share[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	bool build_tree;

	if (n <= 0)
		return false;
	dir[n] = '\0';
	if (!parent(dir))
		return false;
	/* The program's own folder is as trusted as the program; its parent only if this is a build tree. */
	build_tree = has(dir, "CMakeCache.txt", NULL);
	if (!parent(dir))
		return false;
	if (build_tree && has(dir, "policies", "native.json")) {
		memcpy(ret, dir, strlen(dir) + 1);
		return true;
	}
	if (ak_path_join(share, dir, "share", "agentkernel") < 0 || !has(share, "policies", NULL))
		return false;
	memcpy(ret, share, strlen(share) + 1);
	return true;
}

static int data_dir(struct ak_paths *p, struct ak_err *err)
{
	const char *set = getenv("AGENTKERNEL_DATA_DIR");

	if (!set || !set[0]) {
		if (!data_beside_program(p->data))
			strcpy(p->data, AK_DATA_DIR);
		return 0;
	}
	if (set[0] != '/' || strlen(set) >= sizeof(p->data))
		return ak_fail(err, EINVAL, "AGENTKERNEL_DATA_DIR: '%.200s' must be an absolute path", set);
	strcpy(p->data, set);
	return 0;
}

int ak_paths_init(struct ak_paths *ret, struct ak_err *err)
{
	int rc = state_and_runtime(ret, err);

	if (rc < 0)
		return rc;
	if (geteuid() == 0 && !absolute_env("XDG_CONFIG_HOME") && !absolute_env("HOME"))
		strcpy(ret->config, AK_SYSTEM_CONFIG); /* root without a home folder: a system service */
	else
		rc = user_dir("XDG_CONFIG_HOME", ".config", ret->config, err);
	return rc < 0 ? rc : data_dir(ret, err);
}

static bool alnum(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool ak_sandbox_name_ok(const char *name)
{
	size_t len = strlen(name);

	if (len < 1 || len >= AK_NAME_MAX || !alnum(name[0]) || !alnum(name[len - 1]))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (!alnum(name[i]) && name[i] != '_' && name[i] != '-')
			return false;
	}
	return true;
}
