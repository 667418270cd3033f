/* `image pull`: skopeo behind our own gateway. See service/service.h. */
#include "gateway/service/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/say.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define CA_INSIDE "/image/ca.pem"
#define AUTH_INSIDE "/image/auth.json"
#define RULES_MAX 16

/*
 * Hosts that a registry needs besides its own name: where it sends clients to sign in, and where its layers lie. Registries choose the
 * latter themselves; a new one shows as a denied name in the log of the pull, and --allow-host adds it.
 */
static const struct {
	const char *registry;
	const char *hosts[5];
} known[] = {
	{ "docker.io",
		{ "registry-1.docker.io", "auth.docker.io", "index.docker.io", "production.cloudflare.docker.com",
			"*.r2.cloudflarestorage.com" } },
	{ "ghcr.io", { "pkg-containers.githubusercontent.com" } },
	{ "quay.io", { "*.quay.io", "quayio-production-s3.s3.amazonaws.com" } },
	{ "mcr.microsoft.com", { "*.data.mcr.microsoft.com" } },
	{ "gcr.io", { "storage.googleapis.com" } },
	{ "public.ecr.aws", { "d5l0dvt14r5h8.cloudfront.net", "d2glxqk2uabbnd.cloudfront.net" } },
};

static void add_rule(struct run_request *o, enum policy_edit_op op, const char *text)
{
	if (o->n_edits < PLAN_LIST_MAX)
		o->edits[o->n_edits++] = (struct policy_edit){ op, text };
}

/* Deny everything but the registry. PORTED holds "host:443" for each known host; the registry's own name may have a port already. */
static void add_rules(struct run_request *o, const struct image_ref *ref, const struct service_image *how,
	char ported[RULES_MAX][IMAGE_NAME_MAX])
{
	size_t n = 0;

	add_rule(o, POLICY_EDIT_DEFAULT, "deny");
	snprintf(ported[n], IMAGE_NAME_MAX, "%.240s%s", ref->registry, strchr(ref->registry, ':') ? "" : ":443");
	add_rule(o, POLICY_EDIT_ALLOW_HOST, ported[n++]);
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		for (size_t j = 0;
			!strcmp(known[i].registry, ref->registry) && j < ARRAY_SIZE(known[i].hosts) && known[i].hosts[j]; j++) {
			snprintf(ported[n], IMAGE_NAME_MAX, "%s:443", known[i].hosts[j]);
			add_rule(o, POLICY_EDIT_ALLOW_HOST, ported[n++]);
		}
	}
	for (size_t i = 0; i < how->n_edits; i++)
		add_rule(o, how->edits[i].op, how->edits[i].text);
}

/* A file of the user that skopeo may read. */
static int add_file(struct sandbox_mount *m, const char *path, const char *target, char real[static PATH_MAX], const char *option,
	struct ak_err *err)
{
	struct stat st;

	if (!realpath(path, real) || stat(real, &st) < 0)
		return ak_fail(err, EINVAL, "--%s '%s': %s", option, path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return ak_fail(err, EINVAL, "--%s '%s': not a file", option, path);
	*m = (struct sandbox_mount){ .source = real, .target = target, .readonly = true, .dev = st.st_dev, .ino = st.st_ino };
	return 0;
}

struct pull {
	struct run_request o;
	struct sandbox_mount mounts[3];
	char skopeo[PATH_MAX], layout[PATH_MAX], ca[PATH_MAX], auth[PATH_MAX], from[IMAGE_NAME_MAX + 16];
	char ported[RULES_MAX][IMAGE_NAME_MAX];
	char *argv[12];
};

static void add_word(struct pull *p, size_t *n, const char *word)
{
	p->argv[(*n)++] = (char *)(uintptr_t)word;
}

static int prepare(struct pull *p, const struct image_work *w, const struct image_ref *ref, const struct service_image *how,
	struct ak_err *err)
{
	char name[IMAGE_NAME_MAX];
	size_t n = 0, m = 0;
	int rc = ak_path_join(p->layout, w->path, "layout", NULL);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", w->path);
	p->mounts[m++] = (struct sandbox_mount){ .source = p->layout, .target = IMAGE_BOX_LAYOUT };
	image_ref_print(ref, name);
	snprintf(p->from, sizeof(p->from), "docker://%s", name);
	add_word(p, &n, p->skopeo);
	add_word(p, &n, "--insecure-policy");
	add_word(p, &n, "copy");
	if (how->auth_file) {
		rc = add_file(&p->mounts[m++], how->auth_file, AUTH_INSIDE, p->auth, "auth-file", err);
		add_word(p, &n, "--src-authfile=" AUTH_INSIDE);
	}
	if (rc == 0 && how->ca_file) {
		rc = add_file(&p->mounts[m++], how->ca_file, CA_INSIDE, p->ca, "ca-file", err);
		p->o.env[p->o.n_env++] = "SSL_CERT_FILE=" CA_INSIDE;
	}
	add_word(p, &n, p->from);
	add_word(p, &n, "oci:" IMAGE_BOX_LAYOUT ":image");
	p->o.env[p->o.n_env++] = "TMPDIR=/tmp";
	p->o.mode = AK_MODE_NATIVE;
	p->o.profile = AK_PROFILE_MODERATE;
	p->o.workdir = "/tmp";
	p->o.cold = p->o.quiet = true;
	p->o.tty = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
	p->o.argv = p->argv;
	p->o.own_mounts = p->mounts;
	p->o.n_own_mounts = m;
	add_rules(&p->o, ref, how, p->ported);
	return rc;
}

/* A registry may send more than it said: no file of the layout becomes larger than the whole image may be. */
static void limit_files(uint64_t max_bytes)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_FSIZE, &lim) == 0 && (lim.rlim_cur == RLIM_INFINITY || lim.rlim_cur > max_bytes)) {
		lim.rlim_cur = max_bytes;
		(void)setrlimit(RLIMIT_FSIZE, &lim);
	}
}

/* skopeo prints its progress on standard output, where our caller expects the name alone. */
static int run_skopeo(const struct ak_paths *paths, const struct pull *p, struct ak_err *err)
{
	_cleanup_close_ int out = dup(STDOUT_FILENO);
	struct run_report report;
	int rc;

	if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return ak_fail_errno(err, errno, "standard output");
	rc = service_run(&p->o, paths, &report, err);
	(void)dup2(out, STDOUT_FILENO);
	if (rc == 0 && report.outcome.exit_code != 0)
		rc = ak_fail(err, EIO, "skopeo ended with exit code %d", report.outcome.exit_code);
	if (rc < 0 && report.outcome.net.denied)
		ak_say("%llu network request%s denied: the policy of a pull allows only the registry; see 'agentkernel network log %s', and add what is missing with "
		       "--allow-host",
			(unsigned long long)report.outcome.net.denied, report.outcome.net.denied == 1 ? " was" : "s were",
			report.name);
	run_report_done(&report);
	return rc;
}

static int pull_now(const struct ak_paths *paths, const struct image_ref *ref, const char *name, const struct service_image *how,
	struct ak_err *err)
{
	static struct pull p; /* large */
	struct image_work w;
	int rc = image_work_begin(paths, &w, err);

	if (rc < 0)
		return rc;
	memset(&p, 0, sizeof(p));
	limit_files(how->max_bytes ? how->max_bytes : IMAGE_BYTES_DEFAULT);
	rc = service_image_tools(p.skopeo, err);
	if (rc == 0)
		rc = prepare(&p, &w, ref, how, err);
	if (rc == 0)
		rc = run_skopeo(paths, &p, err);
	if (rc == 0)
		rc = service_image_finish(paths, &w, name, how->max_bytes, err);
	image_work_end(&w);
	return rc;
}

int service_image_pull(const struct ak_paths *paths, const char *text, const struct service_image *how,
	char ret[static IMAGE_NAME_MAX], struct ak_err *err)
{
	_cleanup_close_ int lock = -1;
	uint64_t began_us = ak_wall_us(), last_us = 0;
	char skopeo[PATH_MAX];
	struct image_ref ref;
	int rc = image_ref_parse(text, &ref, err);

	if (rc == 0)
		rc = service_image_tools(skopeo, err);
	if (rc < 0)
		return rc;
	image_ref_print(&ref, ret);
	lock = image_name_lock(paths, ret, &last_us, err);
	if (lock < 0)
		return lock;
	/* While we waited for the lock, another process has pulled it. */
	if (last_us > began_us)
		return 0;
	rc = pull_now(paths, &ref, ret, how, err);
	return rc < 0 ? ak_err_prefix(err, rc, "%s", ret) : 0;
}
