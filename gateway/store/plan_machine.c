/* What a command expects of the machine that it runs on, as far as it depends on the caller: see store/plan_parts.h. */
#include "gateway/store/plan_parts.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/project/gitconf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where programs look for certificate authorities. A file that every sandbox sees may be named inside as well. */
static const char *const authorities_env[] = { "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
	"CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "CODEX_CA_CERTIFICATE" };
static const char *const authorities[] = { "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem",
	"/etc/pki/ca-trust", "/usr", "/opt" };

/* Whether every sandbox sees PATH, a file or folder of certificates. */
static bool is_shown_authority(const char *path)
{
	bool shown = false;

	for (size_t i = 0; i < ARRAY_SIZE(authorities) && !shown; i++)
		shown = project_inside(path, authorities[i]);
	return shown && !strstr(path, "/../");
}

int plan_authorities(struct run_plan *plan)
{
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(authorities_env) && rc == 0; i++) {
		const char *value = getenv(authorities_env[i]);

		if (value && is_shown_authority(value))
			rc = plan_env_setf(plan, authorities_env[i], value, PLAN_FROM_AUTHORITIES);
	}
	return rc;
}

static bool has_variable(const struct run_plan *plan, const char *key)
{
	for (size_t i = 0; i < plan->n_env; i++) {
		if (!strncmp(plan->env[i], key, strlen(key)))
			return true;
	}
	return false;
}

/* Agents write commands for bash. Some take $SHELL, some the shell of /etc/passwd, which is made from it. */
int plan_machine(struct run_plan *plan)
{
	bool locale = has_variable(plan, "LANG=") || has_variable(plan, "LC_ALL=") || has_variable(plan, "LC_CTYPE=");
	int rc;

	if (plan->image)
		return 0;
	rc = plan_env_set(plan, access("/bin/bash", X_OK) == 0 ? "SHELL=/bin/bash" : "SHELL=/bin/sh", PLAN_FROM_SANDBOX);

	return rc < 0 || locale ? rc : plan_env_set(plan, "LANG=C.UTF-8", PLAN_FROM_SANDBOX);
}

void plan_add_file(struct run_plan *plan, const char *path, const char *text, const char *why)
{
	assert(plan->n_files < SANDBOX_FILES_MAX);
	plan->files_why[plan->n_files] = why;
	plan->files[plan->n_files++] = (struct sandbox_file){ .path = path, .text = text };
}

/* ---- git ---- */

static const char *const git_env[] = { "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL" };

struct git_identity {
	char name[256], email[256]; /* "" if unknown */
};

static void take_value(const char *file, const char *key, char ret[static 256])
{
	_cleanup_free_ char *text = strdup(file);
	const char *value = text ? gitconf_value(text, "user", key) : NULL;

	if (value && strlen(value) < 256)
		memcpy(ret, value, strlen(value) + 1);
}

/* Later files win. Links are followed: many people keep this file elsewhere. */
static void read_identity(const char *path, struct git_identity *id)
{
	_cleanup_free_ char *text = gitconf_read(AT_FDCWD, path, 0, GITCONF_MAX);

	if (text) {
		take_value(text, "name", id->name);
		take_value(text, "email", id->email);
	}
}

static void find_identity(struct git_identity *id)
{
	const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME"), *only = getenv("GIT_CONFIG_GLOBAL");
	char path[PATH_MAX];

	if (only) {
		read_identity(only, id);
		return;
	}
	if (config && config[0] == '/' ? ak_path_join(path, config, "git/config", NULL) == 0
				       : home && ak_path_join(path, home, ".config/git/config", NULL) == 0)
		read_identity(path, id);
	if (home && ak_path_join(path, home, ".gitconfig", NULL) == 0)
		read_identity(path, id);
}

/* "KEY = "VALUE"" in git's own quoting. A value with control characters is left out. */
static void put_value(struct strbuf *out, const char *key, const char *value)
{
	if (!value[0])
		return;
	for (const char *p = value; *p; p++) {
		if ((unsigned char)*p < ' ' || *p == 127)
			return;
	}
	strbuf_printf(out, "\t%s = \"", key);
	for (const char *p = value; *p; p++) {
		if (*p == '"' || *p == '\\')
			strbuf_putc(out, '\\');
		strbuf_putc(out, *p);
	}
	strbuf_puts(out, "\"\n");
}

int plan_git(struct run_plan *plan, bool with_env)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct git_identity id = { "", "" };
	int rc = 0;

	if (!plan->project[0])
		return 0;
	for (size_t i = 0; with_env && i < ARRAY_SIZE(git_env) && rc == 0; i++) {
		const char *value = getenv(git_env[i]);

		rc = value ? plan_env_setf(plan, git_env[i], value, PLAN_FROM_GIT) : 0;
	}
	find_identity(&id);
	strbuf_puts(&out, "[safe]\n\tdirectory = *\n[user]\n");
	put_value(&out, "name", id.name);
	put_value(&out, "email", id.email);
	if (out.failed)
		return -ENOMEM;
	assert(out.len < sizeof(plan->gitconfig));
	memcpy(plan->gitconfig, out.data, out.len + 1);
	plan_add_file(plan, "/etc/gitconfig", plan->gitconfig,
		"your name and e-mail address for git, and nothing else of your configuration");
	return rc;
}
