/*
 * `setup`: apply what a program can apply of what `doctor` advises. Each step says whether it is needed, so a second run does nothing. Steps that change the
 * system need root and --yes; a step that is left is printed with the command that does it.
 */
#include "gateway/doctor/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/base/spawn.h"
#include "gateway/run/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM_MS 600000 /* a package manager may download */

struct setup {
	const struct ak_paths *paths; /* borrowed, like how */
	const struct setup_how *how;
};

struct step {
	const char *what; /* "install the AppArmor profile" */
	const char *by_hand; /* what the user runs when we may not; NULL: the step needs no permission */
	bool (*needed)(const struct setup *s);
	int (*apply)(const struct setup *s, struct ak_err *err);
};

static int run_program(char *const argv[], struct ak_err *err)
{
	_cleanup_free_ char **env = spawn_env();
	char out[DOCTOR_OUT_MAX];
	int rc = env ? doctor_capture(argv, NULL, env, PROGRAM_MS, out, sizeof(out)) : -ENOMEM;

	if (rc == 0)
		return 0;
	out[strcspn(out, "\n")] = '\0';
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", argv[0]);
	return ak_fail(err, EIO, "%s ended with exit code %d: %s", argv[0], rc, out);
}

/* ---- folders ---- */

static bool folders_needed(const struct setup *s)
{
	return access(s->paths->state, F_OK) < 0 || access(s->paths->config, F_OK) < 0;
}

static int folders_apply(const struct setup *s, struct ak_err *err)
{
	char policies[PATH_MAX];
	int rc = ak_path_join(policies, s->paths->config, "policies", NULL);

	if (rc == 0)
		rc = ak_mkdir_p(s->paths->state, 0700);
	if (rc == 0)
		rc = ak_mkdir_p(policies, 0700);
	return rc < 0 ? ak_fail_errno(err, -rc, "cannot create '%s' and '%s'", s->paths->state, policies) : 0;
}

/* ---- AppArmor ---- */

static bool apparmor_needed(const struct setup *s)
{
	return doctor_apparmor_restricts() && access(DOCTOR_APPARMOR_PROFILE, F_OK) < 0;
}

static int apparmor_apply(const struct setup *s, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf text = { 0 };
	char self[PATH_MAX], parser[PATH_MAX], replace[] = "-r", profile[] = DOCTOR_APPARMOR_PROFILE;
	char *argv[] = { parser, replace, profile, NULL };
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	int rc;

	if (n < 0)
		return ak_fail_errno(err, errno, "/proc/self/exe");
	self[n] = '\0';
	strbuf_printf(&text,
		"abi <abi/4.0>,\ninclude <tunables/global>\n\nprofile agentkernel \"%s\" flags=(unconfined) {\n\tuserns,\n}\n",
		self);
	if (text.failed)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = ak_replace_file(AT_FDCWD, DOCTOR_APPARMOR_PROFILE, text.data, text.len, true);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "cannot write '%s'", DOCTOR_APPARMOR_PROFILE);
	if (!spawn_find("apparmor_parser", parser))
		return ak_fail(err, ENOENT, "apparmor_parser was not found; install the package apparmor");
	return run_program(argv, err);
}

/* ---- kernel modules ---- */

static const char *const modules[] = { "nf_tables", "nft_tproxy", "nft_socket", "nft_log", "nfnetlink_log", "veth", "overlay",
	NULL };

static bool modules_needed(const struct setup *s)
{
	char *const none[] = { NULL };
	char out[DOCTOR_OUT_MAX];

	return !doctor_try(none, out);
}

static int modules_apply(const struct setup *s, struct ak_err *err)
{
	char modprobe[PATH_MAX], all[] = "-a", *argv[ARRAY_SIZE(modules) + 2] = { modprobe, all };

	if (!spawn_find("modprobe", modprobe))
		return ak_fail(err, ENOENT, "modprobe was not found; install the package kmod");
	for (size_t i = 0; modules[i]; i++)
		argv[i + 2] = (char *)modules[i];
	return run_program(argv, err);
}

/* ---- packages ---- */

static bool images_needed(const struct setup *s)
{
	char path[PATH_MAX];

	return !spawn_find("skopeo", path) || !spawn_find("newuidmap", path);
}

static int images_apply(const struct setup *s, struct ak_err *err)
{
	char apt[PATH_MAX], install[] = "install", yes[] = "-y", brief[] = "--no-install-recommends", skopeo[] = "skopeo",
			    uidmap[] = "uidmap";
	char *argv[] = { apt, install, yes, brief, skopeo, uidmap, NULL };

	if (!spawn_find("apt-get", apt))
		return ak_fail(
			err, ENOENT, "no apt-get on this system; install skopeo and newuidmap with its own package manager");
	return run_program(argv, err);
}

/* ---- a guest ---- */

static bool vm_needed(const struct setup *s)
{
	return s->how->vm;
}

static int vm_apply(const struct setup *s, struct ak_err *err)
{
	static const struct sandbox_limits standard;
	struct ak_err why;

	(void)run_vm_test(s->paths, true, &why); /* the next call tells the result */
	return run_vm_prepare(s->paths, &standard, false, err);
}

/* ---- the list ---- */

static const struct step steps[] = {
	{ "create the folders for state and policies", NULL, folders_needed, folders_apply },
	{ "allow user namespaces for agentkernel in AppArmor", "sudo agentkernel setup --yes", apparmor_needed, apparmor_apply },
	{ "load the kernel modules that the gateway needs",
		"sudo modprobe -a nf_tables nft_tproxy nft_socket nft_log nfnetlink_log veth overlay", modules_needed,
		modules_apply },
	{ "install the programs for images: skopeo, newuidmap", "sudo apt-get install skopeo uidmap", images_needed,
		images_apply },
	{ "boot a guest for --backend vm and save it", NULL, vm_needed, vm_apply },
};

static void say(const struct setup *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct setup *s, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	s->how->say(line);
}

/* 0 if it is done, 1 if it is left to the user. */
static int one_step(const struct setup *s, const struct step *step, struct ak_err *err)
{
	int rc;

	if (!step->needed(s)) {
		if (step->apply != vm_apply) /* which nobody asked for */
			say(s, "done already: %s", step->what);
		return 0;
	}
	if (s->how->dry_run) {
		say(s, "would %s%s%s", step->what, step->by_hand ? ": " : "", step->by_hand ? step->by_hand : "");
		return 1;
	}
	if (step->by_hand && (geteuid() != 0 || !s->how->yes)) {
		say(s, "left to you: %s: %s", step->what, step->by_hand);
		return 1;
	}
	say(s, "now: %s", step->what);
	rc = step->apply(s, err);
	return rc < 0 ? ak_err_prefix(err, rc, "cannot %s", step->what) : 0;
}

int setup_run(const struct ak_paths *paths, const struct setup_how *how, unsigned *ret_left, struct ak_err *err)
{
	struct setup s = { .paths = paths, .how = how };
	struct ak_err why;
	int result = 0;

	*ret_left = 0;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		int rc = one_step(&s, &steps[i], &why);

		if (rc < 0) { /* the other steps do not depend on it */
			say(&s, "%s", why.text);
			*err = why;
			result = rc;
		} else {
			*ret_left += (unsigned)rc;
		}
	}
	return result;
}
