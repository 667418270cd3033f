/*
 * The template: a guest that was booted once and saved before it mounted anything. It lies in a folder of its own, named after everything that it depends on; another
 * kernel, QEMU, agent or memory size is another template, and one that is a day old is made anew. It is booted in a namespace sandbox without a network, whose only writable
 * folder of the host is the template's.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define AGE_MAX_S 86400
#define BOOT_MS 90000 /* software emulation on a busy host */
#define SAVE_MS 20000
#define STEP_MS 10
#define PLACE "/tmp/template" /* the folder, inside */
#define FILE_MAX (256u << 20)
#define REPLY_MAX 65536
#define STAMP_MAX 512
#define TEMPLATE_VERSION 1 /* of the command line in vm_qemu.c */

extern const unsigned char vm_guest_start[], vm_guest_end[];

/* ---- its name ---- */

static void stamp(struct strbuf *out, const char *path)
{
	struct stat st = { 0 };

	(void)stat(path, &st);
	strbuf_printf(out, "%s %lld %lld\n", path, (long long)st.st_size, (long long)st.st_mtime);
}

static int template_name(const struct vm_kernel *k, uint32_t memory_mb, char ret[static 40], struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf all = { 0 };
	uint8_t hash[SHA256_SIZE];
	struct sha256 sum;

	strbuf_printf(&all, "%u %u %u\n", VM_WIRE_VERSION, TEMPLATE_VERSION, memory_mb);
	stamp(&all, k->image);
	stamp(&all, VM_QEMU);
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

/* ---- speaking with QEMU ---- */

struct boot {
	int dir; /* the folder; borrowed */
	int to, from; /* owned; QEMU's standard streams */
	struct sandbox *sandbox; /* owned */
	char reply[REPLY_MAX];
	size_t len;
};

static bool alive(struct boot *b)
{
	return sandbox_poll(b->sandbox) != SANDBOX_ENDED;
}

/* Read until TEXT has arrived after offset *AT. */
static int expect(struct boot *b, const char *text, size_t *at, uint64_t until, struct ak_err *err)
{
	for (;;) {
		const char *found;
		struct pollfd p = { .fd = b->from, .events = POLLIN };
		ssize_t n;

		b->reply[b->len] = '\0';
		found = strstr(b->reply + *at, text);
		if (found) {
			*at = (size_t)(found - b->reply) + strlen(text);
			return 0;
		}
		if (strstr(b->reply + *at, "\"error\"") || !alive(b) || ak_now_ms() > until || b->len + 1 >= sizeof(b->reply))
			return ak_fail(
				err, EIO, "QEMU could not save the guest: %.200s", b->reply + (b->len > 200 ? b->len - 200 : 0));
		if (poll(&p, 1, STEP_MS) > 0 && (n = read(b->from, b->reply + b->len, sizeof(b->reply) - 1 - b->len)) > 0)
			b->len += (size_t)n;
	}
}

static int ask(struct boot *b, const char *command, const char *answer, size_t *at, uint64_t until, struct ak_err *err)
{
	int rc = ak_write_all(b->to, command, strlen(command));

	return rc < 0 ? ak_fail_errno(err, -rc, "QEMU's monitor") : expect(b, answer, at, until, err);
}

/* The guest has said HELLO: the file behind its port has a frame. */
static int await_hello(struct boot *b, struct ak_err *err)
{
	uint64_t until = ak_now_ms() + BOOT_MS;
	struct stat st;

	while (ak_now_ms() < until) {
		struct pollfd p = { .fd = sandbox_fd(b->sandbox), .events = POLLIN };

		if (fstatat(b->dir, "port", &st, 0) == 0 && st.st_size >= (off_t)VM_HEAD)
			return 0;
		if (!alive(b))
			return ak_fail(
				err, EIO, "QEMU ended while the guest booted: %.200s", sandbox_result(b->sandbox)->err.text);
		poll(&p, 1, STEP_MS);
	}
	return ak_fail(err, ETIME, "the guest did not come up within %d s", BOOT_MS / 1000);
}

static int save(struct boot *b, struct ak_err *err)
{
	uint64_t until = ak_now_ms() + SAVE_MS;
	size_t at = 0;
	int rc = ask(b, "{\"execute\":\"qmp_capabilities\"}", "\"return\"", &at, until, err);

	if (rc == 0)
		rc = ask(b,
			"{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":[{\"capability\":\"x-ignore-shared\",\"state\":true}]}}",
			"\"return\"", &at, until, err);
	if (rc == 0)
		rc = ask(b, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"exec:cat > state\"}}", "\"return\"", &at, until,
			err);
	while (rc == 0) {
		size_t before = at;

		rc = ask(b, "{\"execute\":\"query-migrate\"}", "\"status\"", &at, until, err);
		if (rc == 0)
			rc = expect(b, "\n", &at, until, err);
		if (rc < 0 || strstr(b->reply + before, "\"completed\""))
			break;
		if (strstr(b->reply + before, "\"failed\""))
			return ak_fail(err, EIO, "QEMU could not save the guest");
		poll(NULL, 0, STEP_MS);
	}
	if (rc == 0)
		rc = ask(b, "{\"execute\":\"quit\"}", "\"return\"", &at, until, err);
	return rc;
}

/* Start QEMU in a sandbox of its own. */
static int start(struct boot *b, const char *path, uint32_t memory_mb, struct ak_err *err)
{
	static struct vm_args args;
	struct vm_machine m = { .memory_mb = memory_mb,
		.kernel = "kernel",
		.initrd = "initrd",
		.memory = "memory",
		.port = -1,
		.monitor = -1,
		.tap = -1 };
	char *const env[] = { (char[]){ "PATH=/usr/bin:/bin" }, (char[]){ "HOME=/tmp" }, NULL };
	struct sandbox_mount mount = { .source = path, .target = PLACE };
	struct sandbox_spec spec = { .name = "template",
		.envp = env,
		.workdir = PLACE,
		.home = "/tmp",
		.mounts = &mount,
		.n_mounts = 1,
		.resolv_conf = "" };
	_cleanup_close_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int in[2], out[2], rc;

	if (pipe2(in, O_CLOEXEC) < 0)
		return ak_fail_errno(err, errno, "pipe");
	b->to = in[1];
	if (pipe2(out, O_CLOEXEC) < 0) {
		ak_close(in[0]);
		return ak_fail_errno(err, errno, "pipe");
	}
	b->from = out[0];
	vm_args_build(&args, &m);
	spec.argv = args.argv;
	spec.stdio[0] = in[0];
	spec.stdio[1] = out[1];
	spec.stdio[2] = null;
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

/* Sizes and times of the files: a template that was cut or changed after it was made is made anew. */
static int describe(int dir, char ret[static STAMP_MAX])
{
	static const char *const names[] = { "kernel", "initrd", "memory", "state" };
	size_t len = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct stat st;

		if (fstatat(dir, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
			return -EINVAL;
		len += (size_t)snprintf(ret + len, STAMP_MAX - len, "%s %lld %lld.%09ld\n", names[i], (long long)st.st_size,
			(long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
	}
	return 0;
}

static int make_in(int dir, const char *path, const struct vm_kernel *k, uint32_t memory_mb, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf initrd = { 0 };
	static struct boot b;
	char stamps[STAMP_MAX];
	int rc = vm_initrd_build(k, &initrd, err);

	b = (struct boot){ .dir = dir, .to = -1, .from = -1 };
	if (rc == 0)
		rc = copy_file(dir, "kernel", k->image, err);
	if (rc == 0 && ak_replace_file(dir, "initrd", initrd.data, initrd.len, false) < 0)
		rc = ak_fail(err, EIO, "cannot write to '%s'", path);
	if (rc == 0)
		rc = start(&b, path, memory_mb, err);
	if (rc == 0)
		rc = await_hello(&b, err);
	if (rc == 0)
		rc = save(&b, err);
	sandbox_free(b.sandbox);
	ak_close(b.to);
	ak_close(b.from);
	if (rc == 0 &&
		(punch_holes(dir) < 0 || describe(dir, stamps) < 0 ||
			ak_replace_file(dir, "complete", stamps, strlen(stamps), false) < 0))
		rc = ak_fail(err, EIO, "cannot complete '%s'", path);
	return rc;
}

static int make(
	int store, const char *store_path, const char *name, const struct vm_kernel *k, uint32_t memory_mb, struct ak_err *err)
{
	char path[PATH_MAX], fresh[48];
	int rc;

	snprintf(fresh, sizeof(fresh), "%s.new", name);
	(void)ak_remove_tree(store, fresh);
	if (snprintf(path, sizeof(path), "%s/%s", store_path, fresh) >= (int)sizeof(path) || mkdirat(store, fresh, 0700) < 0)
		return ak_fail_errno(err, errno, "cannot create '%s'", fresh);
	_cleanup_close_ int dir = openat(store, fresh, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	rc = dir < 0 ? ak_fail_errno(err, errno, "%s", path) : make_in(dir, path, k, memory_mb, err);
	if (rc == 0) {
		(void)ak_remove_tree(store, name);
		if (renameat(store, fresh, store, name) < 0)
			rc = ak_fail_errno(err, errno, "%s", path);
	}
	if (rc < 0)
		(void)ak_remove_tree(store, fresh);
	return rc;
}

static bool usable(int store, const char *name)
{
	_cleanup_close_ int dir = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_free_ char *then = NULL;
	char now[STAMP_MAX];
	struct stat st;

	return dir >= 0 && fstatat(dir, "complete", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
		time(NULL) - st.st_mtime < AGE_MAX_S && describe(dir, now) == 0 &&
		ak_read_file(dir, "complete", STAMP_MAX, &then, NULL) == 0 && !strcmp(then, now);
}

/* ---- opening ---- */

/* A sealed copy: nobody can change what other guests are restored from, and a private mapping of it needs no write access to a file of the host. */
static int seal(int dir, const char *name)
{
	_cleanup_close_ int from = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int to = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;
	off_t at = 0;

	if (from < 0 || to < 0 || fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
		return -errno;
	while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
		off_t end = lseek(from, at, SEEK_HOLE);

		if (lseek(from, at, SEEK_SET) < 0 || lseek(to, at, SEEK_SET) < 0)
			return -errno;
		while (at < end) {
			ssize_t n = copy_file_range(from, NULL, to, NULL, (size_t)(end - at), 0);

			if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP)) {
				static char block[1 << 20];

				n = pread(
					from, block, sizeof(block) < (size_t)(end - at) ? sizeof(block) : (size_t)(end - at), at);
				if (n > 0 && pwrite(to, block, (size_t)n, at) != n)
					return -EIO;
			}
			if (n <= 0)
				return n < 0 ? -errno : -EIO;
			at += n;
			if (lseek(from, at, SEEK_SET) < 0 || lseek(to, at, SEEK_SET) < 0)
				return -errno;
		}
	}
	if (lseek(to, 0, SEEK_SET) < 0 || fcntl(to, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
		return -errno;
	return TAKE_FD(to);
}

void sandbox_vm_done(struct sandbox_vm *vm)
{
	vm->memory = ak_close(vm->memory);
	vm->state = ak_close(vm->state);
	vm->kernel = ak_close(vm->kernel);
	vm->initrd = ak_close(vm->initrd);
}

static int open_files(int store, const char *name, struct sandbox_vm *vm)
{
	_cleanup_close_ int dir = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (dir < 0)
		return -errno;
	vm->memory = seal(dir, "memory");
	vm->state = seal(dir, "state");
	vm->kernel = seal(dir, "kernel");
	vm->initrd = seal(dir, "initrd");
	return vm->memory < 0 || vm->state < 0 || vm->kernel < 0 || vm->initrd < 0 ? -EIO : 0;
}

int vm_requirements(char *ret_kernel, size_t size, struct ak_err *err)
{
	struct vm_kernel k;
	int rc;

#ifndef __x86_64__
	return ak_fail(err, EOPNOTSUPP, "works on x86_64 only");
#endif
	if (access(VM_QEMU, X_OK) < 0)
		return ak_fail(err, ENOENT, "QEMU was not found; install it (Debian: qemu-system-x86)");
	rc = vm_kernel_find(&k, err);
	if (rc == 0)
		snprintf(ret_kernel, size, "%s", k.release);
	return rc;
}

int vm_open(const char *dir, uint32_t memory_mb, void (*say)(const char *line), struct sandbox_vm *ret, struct ak_err *err)
{
	_cleanup_close_ int store = -1, lock = -1;
	struct vm_kernel kernel;
	char name[40], real[PATH_MAX];
	int rc;

	*ret = (struct sandbox_vm){ -1, -1, -1, -1, memory_mb };
	rc = vm_requirements(name, sizeof(name), err);
	if (rc == 0)
		rc = vm_kernel_find(&kernel, err);
	if (rc == 0)
		rc = template_name(&kernel, memory_mb, name, err);
	if (rc < 0)
		return rc;
	rc = ak_mkdir_p(dir, 0700);
	if (rc == 0 && !realpath(dir, real)) /* a home may be a link, but nothing below a link is mounted */
		rc = -errno;
	store = rc < 0 ? -1 : open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* Whoever comes first makes it, the others wait. */
	lock = store < 0 ? -1 : openat(store, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX) < 0)
		return ak_fail_errno(err, rc < 0 ? -rc : errno, "%s", dir);
	if (!usable(store, name)) {
		if (say)
			say("preparing the virtual machine: booting a guest once, so that later starts are fast");
		rc = make(store, real, name, &kernel, memory_mb, err);
		if (rc < 0)
			return ak_err_prefix(err, rc, "virtual machine");
	}
	rc = open_files(store, name, ret);
	if (rc < 0) {
		sandbox_vm_done(ret);
		return ak_fail_errno(err, -rc, "reading the saved guest in '%s/%s'", dir, name);
	}
	return 0;
}
