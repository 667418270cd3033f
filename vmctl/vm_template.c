/*
 * The template: a guest that was booted once and saved before it mounted anything. It lies in a folder of its own, named after everything that it depends on; another
 * kernel, QEMU, agent or memory size is another template, and one that is a day old is made anew. It is booted in a namespace sandbox without a network, whose only writable
 * folder of the host is the template's.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/sha256.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KVM_BOOT_MS 10000
#define BOOT_MS 90000 /* software emulation on a busy host */
#define STEP_MS 10
#define PLACE "/tmp/template" /* the folder, inside */
#define FILE_MAX (256u << 20)
#define STAMP_MAX 512
#define TEMPLATE_VERSION 3 /* of the command lines of the monitors, and of the files */

extern const unsigned char vm_guest_start[], vm_guest_end[];

/* ---- its name ---- */

void vm_stamp(struct strbuf *out, const char *path)
{
	struct stat st = { 0 };

	(void)stat(path, &st);
	strbuf_printf(out, "%s %lld %lld\n", path, (long long)st.st_size, (long long)st.st_mtime);
}

static int template_name(const struct vm_kernel *k, const struct vm_shape *shape, char ret[static 40], struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf all = { 0 };
	uint8_t hash[SHA256_SIZE];
	struct sha256 sum;

	strbuf_printf(&all, "%u %u %u %s\n", VM_WIRE_VERSION, TEMPLATE_VERSION, shape->memory_mb, shape->kvm ? "kvm" : "tcg");
	vm_stamp(&all, k->image);
	vm_stamp(&all, vmm_get()->program);
	strbuf_add(&all, vm_guest_start, (size_t)(vm_guest_end - vm_guest_start));
	if (all.failed)
		return ak_fail(err, ENOMEM, "out of memory");
	sha256_init(&sum);
	sha256_add(&sum, all.data, all.len);
	sha256_done(&sum, hash);
	for (int i = 0; i < 16; i++)
		snprintf(ret + 2 * i, 3, "%02x", hash[i]);
	return 0;
}

/* ---- the boot ---- */

struct boot {
	int dir; /* the folder; borrowed */
	struct sandbox *sandbox; /* owned */
	struct vm_talk talk; /* its descriptors are the monitor's standard streams, and ours */
};

static bool alive(void *ctx)
{
	const struct boot *b = ctx;

	return sandbox_poll(b->sandbox) != SANDBOX_ENDED;
}

/* The guest has said HELLO: the file behind its port has a frame. */
static int await_hello(struct boot *b, uint64_t until, struct ak_err *err)
{
	const uint64_t from = ak_now_ms();
	struct stat st;

	while (ak_now_ms() < until) {
		struct pollfd p = { .fd = sandbox_fd(b->sandbox), .events = POLLIN };

		if (fstatat(b->dir, "port", &st, 0) == 0 && st.st_size >= (off_t)VM_HEAD)
			return 0;
		if (!alive(b))
			return ak_fail(err, EIO, "%s ended while the guest booted", vmm_get()->name);
		poll(&p, 1, STEP_MS);
	}
	return ak_fail(err, ETIME, "the guest did not come up within %.1f s", (double)(ak_now_ms() - from) / 1000);
}

/*
 * A tap in a network namespace that nobody else has. The guest learns from the tap what the host can do for it, checksums and segmentation of large packets, and remembers that when it is
 * restored: a guest that was booted without a tap would do everything itself for ever.
 */
static int lone_tap(struct ak_err *err)
{
	int pair[2], tap = -1;
	size_t n = 1;
	char byte;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return ak_fail_errno(err, errno, "socketpair");
	pid = fork();
	if (pid == 0) {
		struct ak_err ignored;

		if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 && gwns_spare_tap(&tap, &ignored) == 0)
			(void)ak_send_fds(pair[1], "t", 1, &tap, 1);
		_exit(0);
	}
	ak_close(pair[1]);
	if (pid < 0 || ak_recv_fds(pair[0], &byte, 1, &tap, &n) != 1 || n != 1)
		tap = ak_fail(
			err, EIO, "cannot make a tap: is the kernel module tun loaded, and /dev/net/tun open to everybody?");
	ak_close(pair[0]);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	return tap;
}

/* Start the monitor in a sandbox of its own. */
static int start(struct boot *b, const char *path, const struct vm_shape *shape, struct ak_err *err)
{
	static struct vm_args args;
	struct vm_machine m = { .memory_mb = shape->memory_mb,
		.kvm = shape->kvm,
		.kernel = "kernel",
		.initrd = "initrd",
		.memory = "memory",
		.root = "/",
		.usr = "/usr",
		.port = -1,
		.monitor = -1,
		.console = -1,
		.tap = 2 }; /* a sandbox's command inherits the standard streams only */
	char *const env[] = { (char[]){ "PATH=/usr/bin:/bin" }, (char[]){ "HOME=/tmp" }, NULL };
	struct sandbox_mount mount = { .source = path, .target = PLACE };
	struct sandbox_spec spec = { .name = "template",
		.envp = env,
		.workdir = PLACE,
		.home = "/tmp",
		.mounts = &mount,
		.n_mounts = 1,
		.kvm = shape->kvm,
		.resolv_conf = "" };
	_cleanup_close_ int tap = lone_tap(err);
	int in[2], out[2], rc;

	if (tap < 0)
		return tap;
	if (pipe2(in, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	b->talk.to = in[1];
	if (pipe2(out, O_CLOEXEC) < 0) {
		ak_close(in[0]);
		return ak_fail_errno(err, errno, "pipe");
	}
	b->talk.from = out[0];
	vmm_get()->args(&args, &m);
	spec.argv = args.argv;
	spec.stdio[0] = in[0];
	spec.stdio[1] = out[1];
	spec.stdio[2] = tap;
	rc = sandbox_start(&spec, -1, &b->sandbox, err);
	ak_close(in[0]);
	ak_close(out[1]);
	while (rc == 0) {
		struct pollfd p = { .fd = sandbox_fd(b->sandbox), .events = POLLIN };
		enum sandbox_state state = sandbox_poll(b->sandbox);

		if (state == SANDBOX_READY)
			return sandbox_go(b->sandbox, err);
		if (state == SANDBOX_ENDED)
			return ak_fail(err, EIO, "%s", sandbox_result(b->sandbox)->err.text);
		poll(&p, 1, -1);
	}
	return rc;
}

/* ---- files ---- */

static int copy_file(int dir, const char *name, const char *from, struct ak_err *err)
{
	_cleanup_free_ char *data = NULL;
	size_t len;
	int rc = ak_read_file(AT_FDCWD, from, FILE_MAX, &data, &len);

	if (rc == 0)
		rc = ak_replace_file(dir, name, data, len, false);
	return rc < 0 ? ak_fail_errno(err, -rc, "%s", from) : 0;
}

/* Pages that hold only zeros become holes: they cost neither disk nor time at a restore. */
static int punch_holes(int dir)
{
	static const char zeros[65536];
	static char block[sizeof(zeros)];
	_cleanup_close_ int fd = openat(dir, "memory", O_RDWR | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	for (off_t at = 0; at < st.st_size; at += (off_t)sizeof(block)) {
		off_t data = lseek(fd, at, SEEK_DATA);

		if (data < 0)
			break;
		at = data - data % (off_t)sizeof(block);
		if (pread(fd, block, sizeof(block), at) != (ssize_t)sizeof(block))
			break;
		for (size_t page = 0; page < sizeof(block); page += 4096) {
			if (!memcmp(block + page, zeros, 4096))
				(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at + (off_t)page, 4096);
		}
	}
	return 0;
}

/*
 * The file "complete": sizes and times of the others, and then one checksum of their contents. A template that was cut, changed or damaged after it was made is made anew.
 */
static const char *const files[] = { "kernel", "initrd", "memory", "state" };

static int describe(int dir, char ret[static STAMP_MAX])
{
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct stat st;

		if (fstatat(dir, files[i], &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
			return -EINVAL;
		len += (size_t)snprintf(ret + len, STAMP_MAX - len, "%s %lld %lld.%09ld\n", files[i], (long long)st.st_size,
			(long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	}
	return (int)len;
}

static int complete(int dir)
{
	char text[STAMP_MAX];
	uint64_t sum = 0;
	int len = describe(dir, text), rc = len < 0 ? len : 0;

	for (size_t i = 0; i < ARRAY_SIZE(files) && rc == 0; i++)
		rc = vm_sum(dir, files[i], &sum);
	if (rc < 0)
		return rc;
	len += snprintf(text + len, sizeof(text) - (size_t)len, "%016" PRIx64 "\n", sum);
	return ak_replace_file(dir, "complete", text, (size_t)len, false);
}

/* Boot a guest to its agent's first words, until UNTIL_MS at the latest. Free B with boot_end, also after a failure. */
static int boot(struct boot *b, const char *path, const struct vm_kernel *k, const struct vm_shape *shape, uint64_t until_ms,
	struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf initrd = { 0 };
	int rc = vm_initrd_build(k, &initrd, err);

	if (rc == 0)
		rc = copy_file(b->dir, "kernel", k->image, err);
	if (rc == 0 && (rc = ak_replace_file(b->dir, "initrd", initrd.data, initrd.len, false)) < 0)
		rc = ak_fail_errno(err, -rc, "cannot write to '%s'", path);
	if (rc == 0)
		rc = start(b, path, shape, err);
	return rc < 0 ? rc : await_hello(b, until_ms, err);
}

static void boot_end(struct boot *b)
{
	sandbox_free(b->sandbox);
	ak_close(b->talk.to);
	ak_close(b->talk.from);
}

static int make_in(int dir, const char *path, const struct vm_kernel *k, const struct vm_shape *shape, struct ak_err *err)
{
	static struct boot b;
	int rc;

	b = (struct boot){ .dir = dir, .talk = { .to = -1, .from = -1, .alive = alive, .ctx = &b } };
	rc = boot(&b, path, k, shape, ak_now_ms() + (shape->kvm ? KVM_BOOT_MS : BOOT_MS), err);
	if (rc == 0)
		rc = vmm_get()->save(&b.talk, err);
	if (rc == 0)
		rc = vmm_get()->quit(&b.talk, err);
	boot_end(&b);
	if (rc == 0 && (punch_holes(dir) < 0 || complete(dir) < 0))
		rc = ak_fail(err, EIO, "cannot complete '%s'", path);
	return rc;
}

int vm_boot_test(int store, const char *store_path, const struct vm_kernel *k, const struct vm_shape *shape, uint64_t until_ms,
	struct ak_err *err)
{
	static const char name[] = "test.new";
	static struct boot b;
	char path[PATH_MAX];
	int rc = 0;

	(void)ak_remove_tree(store, name);
	if (snprintf(path, sizeof(path), "%s/%s", store_path, name) >= (int)sizeof(path) || mkdirat(store, name, 0700) < 0)
		return ak_fail_errno(err, errno, "cannot create '%s'", name);
	_cleanup_close_ int dir = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	b = (struct boot){ .dir = dir, .talk = { .to = -1, .from = -1, .alive = alive, .ctx = &b } };
	rc = dir < 0 ? ak_fail_errno(err, errno, "%s", path) : boot(&b, path, k, shape, until_ms, err);
	boot_end(&b);
	(void)ak_remove_tree(store, name);
	return rc;
}

static int make(int store, const char *store_path, const char *name, const struct vm_kernel *k, const struct vm_shape *shape,
	struct ak_err *err)
{
	char path[PATH_MAX], fresh[48];
	int rc;

	snprintf(fresh, sizeof(fresh), "%s.new", name);
	(void)ak_remove_tree(store, fresh);
	if (snprintf(path, sizeof(path), "%s/%s", store_path, fresh) >= (int)sizeof(path) || mkdirat(store, fresh, 0700) < 0)
		return ak_fail_errno(err, errno, "cannot create '%s'", fresh);
	_cleanup_close_ int dir = openat(store, fresh, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	rc = dir < 0 ? ak_fail_errno(err, errno, "%s", path) : make_in(dir, path, k, shape, err);
	if (rc == 0) {
		(void)ak_remove_tree(store, name);
		if (renameat(store, fresh, store, name) < 0)
			rc = ak_fail_errno(err, errno, "%s", path);
	}
	if (rc < 0)
		(void)ak_remove_tree(store, fresh);
	vm_prune(store, name);
	return rc;
}

/* Whether it may be tried; *RET_SUM is the checksum that its files must have. */
static bool usable(int store, const char *name, uint64_t *ret_sum)
{
	_cleanup_close_ int dir = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_free_ char *then = NULL;
	char now[STAMP_MAX];
	struct stat st;
	int len;

	if (dir < 0 || fstatat(dir, "complete", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
		time(NULL) - st.st_mtime >= VM_AGE_MAX_S)
		return false;
	len = describe(dir, now);
	return len > 0 && ak_read_file(dir, "complete", STAMP_MAX, &then, NULL) == 0 && !strncmp(then, now, (size_t)len) &&
		sscanf(then + len, "%16" SCNx64, ret_sum) == 1;
}

/* ---- opening ---- */

void sandbox_vm_done(struct sandbox_vm *vm)
{
	vm->memory = ak_close(vm->memory);
	vm->state = ak_close(vm->state);
	vm->kernel = ak_close(vm->kernel);
	vm->initrd = ak_close(vm->initrd);
}

/* -EBADMSG: the files are not what they were when the template was made. */
static int open_files(int store, const char *name, uint64_t sum, struct sandbox_vm *vm)
{
	_cleanup_close_ int dir = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct sandbox_vm fresh = SANDBOX_VM_NONE;
	int *const fds[] = { &fresh.kernel, &fresh.initrd, &fresh.memory, &fresh.state };
	uint64_t got = 0;
	int rc = dir < 0 ? -errno : 0;

	if (vm->memory >= 0 && vm->sum == sum && !strcmp(vm->name, name))
		return 0;
	static_assert(ARRAY_SIZE(fds) == ARRAY_SIZE(files), "in the same order");
	for (size_t i = 0; i < ARRAY_SIZE(files) && rc == 0; i++) {
		*fds[i] = vm_seal(dir, files[i], &got);
		rc = *fds[i] < 0 ? *fds[i] : 0;
	}
	if (rc == 0 && got != sum)
		rc = -EBADMSG;
	if (rc == 0)
		(void)futimens(dir, NULL); /* its last use, for vm_prune */
	if (rc < 0) {
		sandbox_vm_done(&fresh);
		return rc;
	}
	sandbox_vm_done(vm);
	*vm = fresh;
	vm->sum = sum;
	snprintf(vm->name, sizeof(vm->name), "%s", name);
	return 0;
}

int vm_requirements(char *ret_kernel, size_t size, struct ak_err *err)
{
	struct vm_kernel k;
	int rc;

#ifndef __x86_64__
	return ak_fail(err, EOPNOTSUPP, "works on x86_64 only");
#endif
	if (access(vmm_get()->program, X_OK) < 0)
		return ak_fail(err, ENOENT, "QEMU was not found; install it (Debian: qemu-system-x86)");
	rc = vm_kernel_find(&k, err);
	if (rc == 0)
		snprintf(ret_kernel, size, "%s", k.release);
	return rc;
}

/* Open and lock the folder of templates: whoever comes first makes one, the others wait, unless they do not want to. */
static int open_store(const char *dir, bool wait, char real[static PATH_MAX], int *ret_store, int *ret_lock, struct ak_err *err)
{
	_cleanup_close_ int store = -1, lock = -1;
	int rc = ak_mkdir_p(dir, 0700);

	if (rc == 0 && !realpath(dir, real)) /* a home may be a link, but nothing below a link is mounted */
		rc = -errno;
	store = rc < 0 ? -1 : open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lock = store < 0 ? -1 : openat(store, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, wait ? LOCK_EX : LOCK_EX | LOCK_NB) < 0)
		return ak_fail_errno(err, rc < 0 ? -rc : errno, "%s", dir);
	*ret_store = TAKE_FD(store);
	*ret_lock = TAKE_FD(lock);
	return 0;
}

static int find_kernel(struct vm_kernel *ret, struct ak_err *err)
{
	char release[64];
	int rc = vm_requirements(release, sizeof(release), err);

	return rc < 0 ? rc : vm_kernel_find(ret, err);
}

int vm_kvm_test(const char *dir, bool again, struct ak_err *why)
{
	_cleanup_close_ int store = -1, lock = -1;
	struct vm_kernel kernel;
	char real[PATH_MAX];
	int rc = find_kernel(&kernel, why);

	if (rc == 0)
		rc = open_store(dir, true, real, &store, &lock, why);
	return rc < 0 ? rc : vm_kvm_check(store, real, &kernel, again, why);
}

static void warn(void (*say)(const char *line), const char *why)
{
	char line[AK_ERR_MAX + 128];

	snprintf(line, sizeof(line), "no hardware virtualisation (%s): the guest is emulated in software, which is slow", why);
	if (say)
		say(line);
}

/* Open the template of SHAPE; if there is none, or it is damaged, make it first, if MAKE_IT. */
static int provide(int store, const char *real, const struct vm_kernel *k, const struct vm_shape *shape, bool make_it,
	void (*say)(const char *line), struct sandbox_vm *vm, struct ak_err *err)
{
	uint64_t sum = 0;
	char name[40];
	int rc = template_name(k, shape, name, err), opened;

	if (rc < 0)
		return rc;
	opened = usable(store, name, &sum) ? open_files(store, name, sum, vm) : -EBADMSG;
	if (opened == -EBADMSG && make_it) {
		if (say)
			say("preparing the virtual machine: booting a guest once, so that later starts are fast");
		rc = make(store, real, name, k, shape, err);
		if (rc < 0)
			return rc;
		opened = usable(store, name, &sum) ? open_files(store, name, sum, vm) : -EBADMSG;
	} else if (opened == -EBADMSG) {
		return ak_fail(err, ENOENT, "no guest is saved; 'agentkernel setup --vm' makes one");
	}
	if (opened < 0)
		return ak_fail_errno(err, -opened, "reading the saved guest in '%s/%s'", real, name);
	vm->memory_mb = shape->memory_mb;
	vm->kvm = shape->kvm;
	return 0;
}

static int open_template(const char *dir, uint32_t memory_mb, bool make_it, void (*say)(const char *line), struct sandbox_vm *vm,
	struct ak_err *err)
{
	_cleanup_close_ int store = -1, lock = -1;
	struct vm_shape shape = { .memory_mb = memory_mb };
	struct vm_kernel kernel;
	struct ak_err why;
	char real[PATH_MAX];
	int rc = find_kernel(&kernel, err);

	if (rc == 0)
		rc = open_store(dir, make_it, real, &store, &lock, err);
	if (rc < 0)
		return rc;
	rc = make_it ? vm_kvm_check(store, real, &kernel, false, &why) : vm_kvm_recall(store, &kernel, &why);
	if (rc == -ENODATA)
		return ak_fail(err, ENOENT, "%s", why.text);
	shape.kvm = rc == 0;
	if (shape.kvm) {
		rc = provide(store, real, &kernel, &shape, make_it, say, vm, &why);
		if (rc == 0)
			return 0;
		if (!make_it)
			return ak_fail(err, ENOENT, "%s", why.text);
		vm_kvm_failed(store, &kernel, &why);
		shape.kvm = false;
	}
	warn(say, why.text);
	rc = provide(store, real, &kernel, &shape, make_it, say, vm, err);
	return rc < 0 ? ak_err_prefix(err, rc, "virtual machine") : 0;
}

int vm_open(const char *dir, uint32_t memory_mb, void (*say)(const char *line), struct sandbox_vm *ret, struct ak_err *err)
{
	*ret = SANDBOX_VM_NONE;
	return open_template(dir, memory_mb, true, say, ret, err);
}

int vm_open_saved(const char *dir, uint32_t memory_mb, struct sandbox_vm *vm, struct ak_err *err)
{
	return open_template(dir, memory_mb, false, NULL, vm, err);
}
