/* Checks of the kernel: its version, namespaces with the gateway's sockets in them, Landlock, and real sandboxes. */
#include "gateway/doctor/internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/paths.h"
#include "vmctl/gwns.h"
#include "vmctl/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define KERNEL_MAJOR 5
#define KERNEL_MINOR 15

void doctor_kernel(struct doctor *d)
{
	unsigned major = 0, minor = 0;
	struct utsname u;

	if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2) {
		doctor_add(d, "kernel", DOCTOR_WARN, "use Linux 5.15 or later", "the kernel does not tell its version");
		return;
	}
	if (major < KERNEL_MAJOR || (major == KERNEL_MAJOR && minor < KERNEL_MINOR))
		doctor_add(
			d, "kernel", DOCTOR_FAIL, "update the kernel to Linux 5.15 or later", "Linux %s is too old", u.release);
	else
		doctor_add(d, "kernel", DOCTOR_OK, NULL, "Linux %s on %s", u.release, u.machine);
}

bool doctor_apparmor_restricts(void)
{
	_cleanup_free_ char *text = NULL;

	return ak_read_file(AT_FDCWD, DOCTOR_APPARMOR_SYSCTL, 16, &text, NULL) == 0 && text[0] == '1';
}

static const char *namespaces_fix(void)
{
	if (doctor_apparmor_restricts() && access(DOCTOR_APPARMOR_PROFILE, F_OK) < 0)
		return "AppArmor restricts user namespaces on this system: 'sudo agentkernel setup --yes' installs a profile for agentkernel";
	return "allow user and network namespaces; in a container, the container's runtime must allow them";
}

void doctor_namespaces(struct doctor *d)
{
	struct gwns ns = { .user_ns = -1, .net_ns = -1 };
	struct ak_err err;

	if (gwns_spawn(-1, -1, &ns, &err) < 0) {
		doctor_add(d, "namespaces", DOCTOR_FAIL, namespaces_fix(), "%s", err.text);
		return;
	}
	ak_close(ns.user_ns);
	ak_close(ns.net_ns);
	for (size_t i = 0; i < GWNS_FD_NUM; i++)
		ak_close(ns.fds[i]);
	doctor_add(d, "namespaces", DOCTOR_OK, NULL, "user and network namespaces work%s",
		sandbox_is_host_root() ? " (as root)" : " without root");
}

void doctor_landlock(struct doctor *d)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	if (abi > 0)
		doctor_add(d, "landlock", DOCTOR_OK, NULL, "Landlock ABI %ld", abi);
	else
		doctor_add(d, "landlock", DOCTOR_WARN, "add landlock to the kernel's lsm= parameter",
			"the kernel has no Landlock: one layer of isolation is missing");
}

/* ---- real sandboxes ---- */

/* systemd delegates groups to services and scopes only: to the user's manager, not to the slice above it. */
static const char *limits_fix(void)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	char bus[PATH_MAX];

	if (geteuid() == 0)
		return "make the control groups below /sys/fs/cgroup writable; in a container, its runtime must delegate them";
	if (access("/run/systemd/system", F_OK) < 0)
		return "no systemd runs here that could give your user a control group: root must delegate one, see cgroups(7)";
	if (!runtime || ak_path_join(bus, runtime, "bus", NULL) < 0 || access(bus, F_OK) < 0)
		return "log in by ssh or on the console, not with su; or as root 'loginctl enable-linger NAME', and set XDG_RUNTIME_DIR=/run/user/UID";
	return "as root, write the lines [Service] and Delegate=yes to /etc/systemd/system/user@.service.d/delegate.conf, run 'systemctl daemon-reload', and log in again";
}

static void check_limits(struct doctor *d, char *notes)
{
	if (notes[0])
		doctor_add(d, "limits", DOCTOR_WARN, limits_fix(), "%s; --pids, --tmp and --timeout work", notes);
	else
		doctor_add(d, "limits", DOCTOR_OK, NULL, "memory, processor and process limits work");
}

void doctor_sandbox(struct doctor *d)
{
	static char profile[] = "--profile", moderate[] = "moderate", no_network[] = "--no-network", memory[] = "--memory",
		    mb[] = "256M", cpus[] = "--vcpus", one[] = "1";
	char *const plain[] = { profile, moderate, no_network, NULL }, *const net[] = { profile, moderate, NULL },
		    *const limits[] = { profile, moderate, no_network, memory, mb, cpus, one, NULL };
	char out[DOCTOR_OUT_MAX];

	if (!doctor_try(plain, out)) {
		doctor_add(d, "sandbox", DOCTOR_FAIL, namespaces_fix(), "no sandbox can be started: %s", out);
		return;
	}
	doctor_add(d, "sandbox", DOCTOR_OK, NULL, "a sandbox starts");
	if (doctor_try(net, out))
		doctor_add(d, "gateway", DOCTOR_OK, NULL, "a sandbox with a network starts: nftables, TPROXY and NFLOG work");
	else
		doctor_add(d, "gateway", DOCTOR_FAIL,
			"the kernel needs nf_tables, nft_tproxy, nft_socket, nft_log, nfnetlink_log and veth; as root 'agentkernel setup' loads the modules",
			"no sandbox with a network can be started: %s", out);
	if (doctor_try(limits, out))
		check_limits(d, out);
	else
		doctor_add(d, "limits", DOCTOR_WARN, limits_fix(), "a sandbox with limits does not start: %s", out);
}
