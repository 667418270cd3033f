/* Checks of the machine around the kernel: folders, user ids, programs, agents, and what killed runs left behind. */
#include "gateway/doctor/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/strbuf.h"
#include "gateway/base/spawn.h"
#include "gateway/project/tools.h"
#include "gateway/run/vm.h"
#include "gateway/service/service.h"
#include "gateway/store/agent.h"
#include "gateway/store/runs.h"
#include "vmctl/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FREE_MIN_MB 256

/* ---- folders ---- */

/* The longest existing part of PATH: what does not exist yet will be made there. */
static void existing_part(const char *path, char ret[static PATH_MAX])
{
	snprintf(ret, PATH_MAX, "%s", path);
	while (access(ret, F_OK) < 0) {
		char *slash = strrchr(ret, '/');

		if (!slash || slash == ret) {
			strcpy(ret, "/");
			return;
		}
		*slash = '\0';
	}
}

static bool folder_usable(struct doctor *d, const char *id, const char *path)
{
	char part[PATH_MAX], fix[PATH_MAX + 64];

	existing_part(path, part);
	if (access(part, W_OK | X_OK) == 0)
		return true;
	snprintf(fix, sizeof(fix), "make '%s' writable for your user", part);
	doctor_add(d, id, DOCTOR_FAIL, fix, "cannot write to '%s': %s", part, strerror(errno));
	return false;
}

void doctor_folders(struct doctor *d)
{
	const struct ak_paths *p = d->paths;
	char part[PATH_MAX];
	struct statvfs fs;
	unsigned long long mb;

	if (!folder_usable(d, "state", p->state) || !folder_usable(d, "runtime", p->runtime))
		return;
	existing_part(p->state, part);
	if (statvfs(part, &fs) < 0) {
		doctor_add(d, "state", DOCTOR_WARN, "make the folder readable, or set XDG_STATE_HOME", "%s: %s", part,
			strerror(errno));
		return;
	}
	mb = (unsigned long long)fs.f_bavail * fs.f_frsize >> 20;
	if (mb < FREE_MIN_MB)
		doctor_add(d, "state", DOCTOR_WARN, "free some space: without room for its log a sandbox gets no new connections",
			"%s: only %llu MiB are free", p->state, mb);
	else
		doctor_add(d, "state", DOCTOR_OK, NULL, "%s: writable, %llu MiB free", p->state, mb);
}

/* ---- what killed runs left ---- */

/* A run that is still there, whose process is not, and that has no record of its end. */
static bool was_killed(const struct ak_paths *p, const char *name)
{
	_cleanup_free_ char *text = NULL;
	char dir[PATH_MAX], file[PATH_MAX];
	struct ak_err ignored;

	if (runs_dir(p, name, dir, &ignored) < 0 || ak_path_join(file, dir, "run.jsonl", NULL) < 0 ||
		ak_read_file(AT_FDCWD, file, 4u << 20, &text, NULL) < 0)
		return false;
	return !strstr(text, "\"ended\":\"") && service_ended(p, dir);
}

void doctor_leftovers(struct doctor *d)
{
	_cleanup_free_ struct run_entry *runs = NULL;
	struct ak_err err;
	size_t n = 0, killed = 0;

	if (runs_list(d->paths, &runs, &n, &err) < 0) {
		doctor_add(d, "leftovers", DOCTOR_WARN, "make the folder readable, or set XDG_STATE_HOME",
			"the list of runs cannot be read: %s", err.text);
		return;
	}
	for (size_t i = 0; i < n; i++)
		killed += was_killed(d->paths, runs[i].name);
	if (killed)
		doctor_add(d, "leftovers", DOCTOR_OK, NULL,
			"%zu of %zu recorded runs were killed before they could record their end; their logs stay until they are pruned",
			killed, n);
	else
		doctor_add(d, "leftovers", DOCTOR_OK, NULL, "%zu recorded run%s, none was killed", n, n == 1 ? "" : "s");
}

/* ---- user ids ---- */

static bool has_range(const char *file, const char *user)
{
	_cleanup_free_ char *text = NULL;
	char number[24];
	size_t len = strlen(user);

	snprintf(number, sizeof(number), "%u", (unsigned)getuid());
	if (ak_read_file(AT_FDCWD, file, 1u << 20, &text, NULL) < 0)
		return false;
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		if (!strncmp(line, user, len) && line[len] == ':')
			return true;
		if (!strncmp(line, number, strlen(number)) && line[strlen(number)] == ':')
			return true;
	}
	return false;
}

void doctor_ids(struct doctor *d)
{
	const struct passwd *pw = getpwuid(getuid());
	const char *user = pw ? pw->pw_name : "";
	char path[PATH_MAX], fix[256];

	if (getuid() == 0) {
		doctor_add(d, "ids", DOCTOR_OK, NULL, "root lends each sandbox ids that own nothing on this host");
		return;
	}
	if (!has_range("/etc/subuid", user) || !has_range("/etc/subgid", user)) {
		snprintf(
			fix, sizeof(fix), "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %.64s", user);
		doctor_add(d, "ids", DOCTOR_WARN, fix,
			"your user has no range in /etc/subuid and /etc/subgid: a sandbox has one user id");
	} else if (!spawn_find("newuidmap", path)) {
		doctor_add(
			d, "ids", DOCTOR_WARN, "install the package uidmap", "newuidmap is missing: a sandbox has one user id");
	} else {
		doctor_add(d, "ids", DOCTOR_OK, NULL, "ranges of user and group ids, and newuidmap");
	}
}

/* ---- programs ---- */

static void find_programs(struct doctor *d, const char *id, const char *const names[], const char *what, const char *fix)
{
	_cleanup_strbuf_ struct strbuf missing = { 0 };
	char path[PATH_MAX];

	for (; *names; names++) {
		if (!spawn_find(*names, path))
			strbuf_printf(&missing, "%s%s", missing.len ? ", " : "", *names);
	}
	if (missing.len)
		doctor_add(d, id, DOCTOR_WARN, fix, "%s: not found: %s", what, missing.data);
	else
		doctor_add(d, id, DOCTOR_OK, NULL, "%s: found", what);
}

void doctor_programs(struct doctor *d)
{
	static const char *const images[] = { "skopeo", "gzip", NULL };

	find_programs(d, "images", images, "programs for images", "install the packages skopeo and gzip");
}

void doctor_kvm(struct doctor *d)
{
	char kernel[64];
	struct ak_err err = { "" };
	int rc = doctor_kvm_guest(&err);
	bool whole = false;

	if (rc == 0 && vm_requirements(kernel, sizeof(kernel), &(struct ak_err){ "" }) == 0) {
		whole = true;
		rc = run_vm_test(d->paths, false, &err);
	}
	if (rc == 0)
		doctor_add(d, "kvm", DOCTOR_OK, NULL, "%s",
			whole ? "hardware virtualisation runs a guest; --backend auto is vm"
			      : "a tiny guest runs; whether a whole kernel does was not tried, because QEMU or a kernel is missing");
	else if (rc == -ENOENT)
		doctor_add(d, "kvm", DOCTOR_WARN,
			"enable virtualisation in the firmware and load the module kvm_intel or kvm_amd",
			"no hardware virtualisation: /dev/kvm does not exist");
	else if (rc == -EACCES || rc == -EPERM)
		doctor_add(d, "kvm", DOCTOR_WARN,
			"add your user to the group kvm (as root 'usermod -aG kvm NAME') and log in again", "%s", err.text);
	else
		doctor_add(d, "kvm", DOCTOR_WARN, "inside a virtual machine, enable nested virtualisation on its host",
			"hardware virtualisation does not run a guest: %s; --backend vm emulates one in software, --backend auto is ns",
			err.text);
}

void doctor_vm(struct doctor *d)
{
	char kernel[64];
	struct ak_err err;

	if (vm_requirements(kernel, sizeof(kernel), &err) == 0)
		doctor_add(d, "vm", DOCTOR_OK, NULL,
			"--backend vm: QEMU and the kernel %s are there; 'agentkernel setup --vm' boots a guest", kernel);
	else
		doctor_add(d, "vm", DOCTOR_WARN,
			"install QEMU and the generic kernel package (Debian: qemu-system-x86 and linux-image-amd64)",
			"--backend vm: %s", err.text);
}

void doctor_agents(struct doctor *d)
{
	_cleanup_strbuf_ struct strbuf found = { 0 };
	char path[PATH_MAX];

	for (size_t i = 0; i < AGENTS_NUM; i++) {
		if (tools_look_up(getenv("PATH"), agents[i].name, path))
			strbuf_printf(&found, "%s%s", found.len ? ", " : "", agents[i].title);
	}
	if (found.len)
		doctor_add(d, "agents", DOCTOR_OK, NULL, "on your PATH: %s", found.data);
	else
		doctor_add(
			d, "agents", DOCTOR_WARN, "'agentkernel agents' tells how to install each", "no agent is on your PATH");
}
