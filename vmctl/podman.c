/*
 * Start of podman, in the sandbox's init: see podman.h.
 *
 * init is root in the sandbox's user namespace and sees the host's tree. Everything that podman writes goes to a tmpfs that hides the host's /tmp from it. podman takes
 * the namespace for that of a user without privileges, which its own second stage would have made, and so does not make another one.
 */
#include "vmctl/podman_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "vmctl/mnt.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLACE "/tmp" /* exists on every host */
/*
 * The container's first process, by descriptor: whoever wrote the container's tree (an image, an earlier run) also decides what a path in it leads to, through links that the
 * runtime and the kernel resolve at different times. The runtime mounts /proc itself and refuses a link in its place.
 */
#define BOX "/proc/self/fd/5"
_Static_assert(PODMAN_FD_INIT == 5, "as in BOX");
#define MONITOR PLACE "/monitor" /* the process id of podman's monitor */
#define ARGS_MAX 80

/* The first process of containers, linked into this program at build time. */
extern const unsigned char podman_box_start[], podman_box_end[];

/* Until our own process drops them: what it takes to write the id maps of its user namespace. */
static const char capabilities[] = "SETUID,SETGID,SETFCAP";

/* ---- what podman finds ---- */

static int write_text(const char *path, const char *text, mode_t mode)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

	return fd < 0 ? -errno : ak_write_all(fd, text, strlen(text));
}

static int make_folders(void)
{
	static const char *const names[] = { "root", "graph", "run", "tmp", "home", "runtime", "sys", "pts" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[32];

		snprintf(path, sizeof(path), PLACE "/%s", names[i]);
		if (mkdir(path, 0700) < 0)
			return -errno;
	}
	return chmod(PLACE "/sys", 0555) < 0 ? -errno : 0;
}

/* Own configuration: the user's and the host's are for containers with podman's network and storage, and may add mounts, hooks and capabilities. */
static int write_settings(void)
{
	int rc = write_text(PLACE "/containers.conf", "[engine]\nhooks_dir = []\n", 0600);

	return rc < 0 ? rc : write_text(PLACE "/storage.conf", "[storage]\ndriver = \"vfs\"\n", 0600);
}

/*
 * Unmount what the root was built on from "/". The runtime unmounts the old root of the container by its path: it would find this instead, and the host's tree would stay mounted in the
 * container.
 */
static int uncover_host(void)
{
	_cleanup_close_ int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return host < 0 ? -errno : mnt_uncover(host);
}

/* The host's /proc names processes by other numbers than podman and its runtime have here. */
static int mount_proc(void)
{
	_cleanup_close_ int proc = mnt_new("proc", NULL, MNT_SAFE | MOUNT_ATTR_NOEXEC);

	return proc < 0 ? proc : mnt_attach(proc, AT_FDCWD, "/proc");
}

/* Mount a tmpfs for all that, and the sandbox's root in it. */
static int make_place(const struct sb_root *root, struct ak_err *err)
{
	static const char *const opts[][2] = { { "size", "64m" }, { "mode", "0755" }, { NULL, NULL } };
	_cleanup_close_ int place = mnt_new("tmpfs", opts, MNT_SAFE), tree = -1, pts = -1;
	int rc = place < 0 ? place : mnt_attach(place, AT_FDCWD, PLACE);

	if (rc == 0)
		rc = make_folders();
	if (rc == 0)
		rc = write_settings();
	if (rc == 0)
		rc = tree = mnt_clone(root->fd, "", true);
	if (rc >= 0)
		rc = mnt_attach(tree, AT_FDCWD, PLACE "/root");
	if (rc == 0)
		rc = pts = mnt_clone(root->fd, "dev/pts", false);
	if (rc >= 0)
		rc = mnt_attach(pts, AT_FDCWD, PLACE "/pts");
	if (rc == 0)
		rc = uncover_host();
	if (rc == 0)
		rc = mount_proc();
	return rc < 0 ? sb_root_failed(err, rc, "a place for podman") : 0;
}

/* ---- the job ---- */

/* Mounts, links and files are in the root already. In the order of podman_init.c's read_job. */
static int pack_job(const struct sb_ctx *ctx, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf pack = { 0 };
	struct sandbox_spec spec = *ctx->spec;
	char uid_map[SB_MAP_MAX], gid_map[SB_MAP_MAX];
	uint64_t streams = 0;
	int fd;

	spec.n_mounts = spec.n_links = 0;
	memset(spec.files, 0, sizeof(spec.files));
	for (int i = 0; i < 3 && spec.argv && !spec.tty; i++)
		streams |= spec.stdio[i] >= 0 ? 1u << i : 0;
	sb_print_maps(&ctx->ids, uid_map, gid_map);
	sb_job_pack(&pack, &spec);
	pack_u64(&pack, streams);
	pack_u64(&pack, spec.isolation);
	pack_u64(&pack, spec.root_inside);
	pack_u64(&pack, spec.image_root != NULL);
	pack_u64(&pack, sb_maps_range(&ctx->ids) ? ctx->ids.n_sub : 0);
	pack_str(&pack, uid_map);
	pack_str(&pack, gid_map);
	fd = pack_seal(&pack);
	return fd < 0 ? ak_fail_errno(err, -fd, "passing the job to the container") : fd;
}

/* ---- podman's command line ---- */

struct args {
	char *argv[ARGS_MAX + 1];
	size_t n;
};

static void add(struct args *a, const char *word)
{
	assert(a->n < ARGS_MAX);
	a->argv[a->n++] = (char *)(uintptr_t)word;
}

static void add_all(struct args *a, const char *const *words)
{
	for (; *words; words++)
		add(a, *words);
}

/* What every sandbox hides of /proc (rootfiles.c), as far as podman does not hide it anyway. */
static const char masks[] =
	"mask=/proc/bus:/proc/driver:/proc/dynamic_debug:/proc/fs:/proc/irq:/proc/key-users:/proc/kallsyms:/proc/sysrq-trigger:/proc/kmsg:"
	"/proc/kpagecount:/proc/kpageflags:/proc/kpagecgroup:/proc/slabinfo:/proc/vmallocinfo:/proc/pagetypeinfo:/proc/mtrr:/proc/vmcore:"
	"/proc/bootconfig:/proc/allocinfo";

static void build_args(struct args *a, const struct sandbox_spec *spec, const char *n_fds)
{
	static const char *const global[] = { "--root", PLACE "/graph", "--runroot", PLACE "/run", "--tmpdir", PLACE "/tmp",
		"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none", "--runtime-flag",
		"root=" PLACE "/runtime/oci", NULL };
	/* The network that podman takes for the host's is the sandbox's: podman runs in it. The terminals are the sandbox's too: podman's own would not be limited (rootfiles.c). */
	static const char *const run[] = { "run", "--rm", "--name", "agentkernel", "--conmon-pidfile", MONITOR, "--network",
		"host", "--dns", "none", "--no-hosts", "--passwd=false", "--log-driver", "none", "--user", "0:0", "--systemd",
		"false", "--http-proxy=false", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--security-opt",
		"seccomp=unconfined", "--security-opt", "label=disable", "--security-opt", masks, "--volume",
		PLACE "/sys:/sys:ro", "--volume", PLACE "/pts:/dev/pts:rw,dev,noexec", NULL };
	static const char *const read_only[] = { "--read-only", "--read-only-tmpfs=false", NULL };
	static const char *const no_cgroups[] = { "--cgroups", "disabled", NULL };

	add(a, spec->podman->program);
	add_all(a, global);
	add(a, "--runtime");
	add(a, spec->podman->runtime);
	add_all(a, run);
	add(a, "--cap-add");
	add(a, capabilities);
	add(a, "--hostname");
	add(a, spec->name);
	add(a, "--preserve-fds");
	add(a, n_fds);
	if (sb_root_read_only(spec))
		add_all(a, read_only);
	if (spec->podman->no_cgroups)
		add_all(a, no_cgroups);
	add(a, "--rootfs");
	add(a, PLACE "/root");
	add(a, BOX);
	a->argv[a->n] = NULL;
}

/* ---- podman's process ---- */

/* Put the N descriptors at 0, 1, 2, … for exec. They have any numbers: move all of them out of the way first. */
static int place_fds(int *fds, int n)
{
	for (int i = 0; i < n; i++) {
		fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 32);
		if (fds[i] < 0)
			return -errno;
	}
	for (int i = 0; i < n; i++) {
		if (dup2(fds[i], i) < 0)
			return -errno;
	}
	return 0;
}

/* A sealed file of the program, so that nobody can change it. */
static int open_box(void)
{
	enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };
	_cleanup_close_ int fd = memfd_create("agentkernel-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int rc = fd < 0 ? -errno : ak_write_all(fd, podman_box_start, (size_t)(podman_box_end - podman_box_start));

	if (rc == 0 && (fchmod(fd, 0555) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0))
		rc = -errno;
	return rc < 0 ? rc : TAKE_FD(fd);
}

static _Noreturn void exec_podman(const struct sb_ctx *ctx, int job, int ready, int log)
{
	const struct sandbox_spec *spec = ctx->spec;
	int fds[PODMAN_FD_STREAMS + 3] = { open("/dev/null", O_RDWR | O_CLOEXEC), log, log, ctx->ctl, job, open_box(), ready },
				    n = PODMAN_FD_STREAMS, rc;
	char count[16], uid[64], gid[64];
	char *env[] = { (char[]){ "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" },
		(char[]){ "HOME=" PLACE "/home" }, (char[]){ "TMPDIR=" PLACE "/tmp" },
		(char[]){ "XDG_RUNTIME_DIR=" PLACE "/runtime" }, (char[]){ "CONTAINERS_CONF=" PLACE "/containers.conf" },
		(char[]){ "CONTAINERS_STORAGE_CONF=" PLACE "/storage.conf" }, (char[]){ "_CONTAINERS_USERNS_CONFIGURED=done" },
		uid, gid, NULL };
	struct args args = { .n = 0 };
	sigset_t none;

	for (int i = 0; i < 3 && spec->argv && !spec->tty; i++) {
		if (spec->stdio[i] >= 0)
			fds[n++] = spec->stdio[i];
	}
	snprintf(count, sizeof(count), "%d", n - PODMAN_FD_CTL);
	snprintf(uid, sizeof(uid), "_CONTAINERS_ROOTLESS_UID=%u", (unsigned)ctx->ids.outer_uid);
	snprintf(gid, sizeof(gid), "_CONTAINERS_ROOTLESS_GID=%u", (unsigned)ctx->ids.outer_gid);
	build_args(&args, spec, count);
	rc = place_fds(fds, n);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (rc == 0 && chdir("/") == 0)
		execve(spec->podman->program, args.argv, env);
	dprintf(fds[1], "Error: cannot run '%s': %s\n", spec->podman->program, strerror(rc < 0 ? -rc : errno));
	_exit(127);
}

/* The last line of podman's output, without "Error: ". */
static void explain(int log, struct ak_err *err)
{
	char text[2048], *line;
	off_t size = lseek(log, 0, SEEK_END), most = sizeof(text) - 1;
	ssize_t n = pread(log, text, (size_t)most, size > most ? size - most : 0);

	text[n > 0 ? n : 0] = '\0';
	while (n > 0 && isspace((unsigned char)text[n - 1]))
		text[--n] = '\0';
	line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	ak_fail(err, EIO, "podman could not start the container: %.300s",
		!strncmp(line, "Error: ", 7) ? line + 7
			: line[0]	     ? line
					     : "it said nothing");
}

/*
 * The container runs: podman and its monitor could only tidy up what the kernel tidies up anyway. They and this process have all capabilities in the sandbox's user namespace; from now on
 * nobody has. The container's first process becomes our child.
 */
static int shed_helpers(pid_t podman, struct ak_err *err)
{
	static const struct sandbox_spec nothing = { .isolation = SANDBOX_STRICT };
	const struct sb_ctx bare = { .spec = &nothing };
	_cleanup_free_ char *text = NULL;
	int rc = ak_read_file(AT_FDCWD, MONITOR, 32, &text, NULL), monitor = rc < 0 ? 0 : atoi(text);

	if (monitor <= 1)
		return ak_fail(err, EIO, "podman's monitor did not tell its process id");
	kill(podman, SIGKILL);
	kill(monitor, SIGKILL);
	return sb_confine_caps(&bare, err);
}

/* Until nobody is left but us. */
static void await_all(void)
{
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

static int start(struct sb_ctx *ctx, struct sb_root *root, int log, int ready, pid_t *ret_pid, struct ak_err *err)
{
	_cleanup_close_ int job = -1;
	int rc = sb_root_job(root, err);

	if (rc == 0)
		rc = make_place(root, err);
	sb_root_done(root);
	if (rc == 0)
		rc = job = pack_job(ctx, err);
	if (rc < 0)
		return rc;
	*ret_pid = fork();
	if (*ret_pid == 0)
		exec_podman(ctx, job, ready, log);
	return *ret_pid < 0 ? ak_fail_errno(err, errno, "fork") : 0;
}

/* The caller learns of the end from the container's first process, or from the end of the control socket when this process ends. */
_Noreturn void sb_podman_main(struct sb_ctx *ctx, struct sb_root *root)
{
	int log = memfd_create("podman", MFD_CLOEXEC), ready[2], rc;
	struct ak_err err;
	pid_t podman = 0;
	char byte;

	if (log < 0 || pipe2(ready, O_CLOEXEC) < 0)
		rc = ak_fail_errno(&err, errno, "pipe");
	else
		rc = start(ctx, root, log, ready[1], &podman, &err);
	if (rc < 0)
		sb_child_fail(ctx->ctl, 125, &err);
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ak_close(ready[1]);
	for (int i = 0; i < 3 && ctx->spec->argv && !ctx->spec->tty; i++) {
		if (ctx->spec->stdio[i] != ctx->ctl)
			ak_close(ctx->spec->stdio[i]); /* only the command keeps them open */
	}
	if (read(ready[0], &byte, 1) != 1) {
		explain(log, &err);
		sb_child_fail(ctx->ctl, 125, &err);
	}
	if (shed_helpers(podman, &err) < 0)
		sb_child_fail(ctx->ctl, 125, &err);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* again: a change of credentials clears it */
	await_all();
	_exit(0);
}
