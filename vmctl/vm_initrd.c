/*
 * The guest's initramfs, in the kernel's "newc" cpio format: our agent as /init, and modules numbered in the order in which they must be loaded.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULES "/lib/modules"
#define DEP_MAX (8u << 20)
#define MODULE_MAX (16u << 20)
#define LOADED_MAX 32

/* The agent, linked into this program at build time. */
extern const unsigned char vm_guest_start[], vm_guest_end[];

/* ---- kernel ---- */

static int compare_versions(const char *a, const char *b)
{
	return strverscmp(a, b);
}

int vm_kernel_find(struct vm_kernel *ret, struct ak_err *err)
{
	static const char prefix[] = "vmlinuz-";
	DIR *d = opendir("/boot");
	char path[PATH_MAX];
	bool unreadable = false;

	ret->release[0] = '\0';
	for (const struct dirent *e; d && (e = readdir(d));) {
		const char *release = e->d_name + sizeof(prefix) - 1;

		if (strncmp(e->d_name, prefix, sizeof(prefix) - 1) != 0 || strlen(release) >= sizeof(ret->release) ||
			strstr(release, "cloud"))
			continue;
		snprintf(path, sizeof(path), MODULES "/%s/modules.dep", release);
		if (access(path, R_OK) < 0 || (ret->release[0] && compare_versions(release, ret->release) <= 0))
			continue;
		snprintf(path, sizeof(path), "/boot/%s%s", prefix, release);
		if (access(path, R_OK) < 0) {
			unreadable = true;
			continue;
		}
		snprintf(ret->release, sizeof(ret->release), "%s", release);
		snprintf(ret->image, sizeof(ret->image), "/boot/%s%s", prefix, ret->release);
	}
	if (d)
		closedir(d);
	if (ret->release[0])
		return 0;
	if (unreadable)
		return ak_fail(err, EACCES, "only root can read the kernels in /boot; as root: chmod a+r /boot/vmlinuz-*");
	return ak_fail(
		err, ENOENT, "no kernel for the guest in /boot; install the generic kernel package (Debian: linux-image-amd64)");
}

/* ---- cpio ---- */

static void pad(struct strbuf *out)
{
	while (out->len % 4 && !out->failed)
		strbuf_add(out, "", 1);
}

static void add_file(struct strbuf *out, const char *name, unsigned mode, const void *data, size_t len)
{
	strbuf_printf(out, "070701%08x%08x%08x%08x%08x%08x%08zx%08x%08x%08x%08x%08zx%08x", 0u, mode, 0u, 0u, 1u, 0u, len, 0u, 0u,
		0u, 0u, strlen(name) + 1, 0u);
	strbuf_add(out, name, strlen(name) + 1);
	pad(out);
	strbuf_add(out, data, len);
	pad(out);
}

/* ---- modules ---- */

struct loader {
	const struct vm_kernel *kernel;
	const char *dep; /* modules.dep */
	char *loaded[LOADED_MAX]; /* owned */
	unsigned n;
};

/* The line of modules.dep for the module NAME ("9p"), or NULL if the kernel has it built in. */
static const char *dep_line(const char *dep, const char *name)
{
	size_t len = strlen(name);

	for (const char *line = dep; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		size_t path = strcspn(line, ":");
		const char *base = line + path;

		while (base > line && base[-1] != '/')
			base--;
		if (!strncmp(base, name, len) && !strncmp(base + len, ".ko", 3))
			return line;
	}
	return NULL;
}

static int add_module(struct loader *l, struct strbuf *out, const char *path, size_t len, struct ak_err *err)
{
	_cleanup_free_ char *data = NULL;
	char file[PATH_MAX], name[80];
	size_t size;
	int rc;

	for (unsigned i = 0; i < l->n; i++) {
		if (strlen(l->loaded[i]) == len && !memcmp(l->loaded[i], path, len))
			return 0;
	}
	if (l->n == LOADED_MAX || !(l->loaded[l->n] = strndup(path, len)))
		return ak_fail(err, ENOMEM, "out of memory");
	if (len < 3 || memcmp(path + len - 3, ".ko", 3) != 0)
		return ak_fail(
			err, EOPNOTSUPP, "the kernel's modules are compressed (%.*s), which is not supported", (int)len, path);
	snprintf(file, sizeof(file), MODULES "/%s/%.*s", l->kernel->release, (int)len, path);
	rc = ak_read_file(AT_FDCWD, file, MODULE_MAX, &data, &size);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", file);
	snprintf(name, sizeof(name), "modules/%02u.ko", l->n++);
	add_file(out, name, 0100644, data, size);
	return 0;
}

/* The line names the module, then what it needs, the nearest first: add them in the opposite order. */
static int add_with_needs(struct loader *l, struct strbuf *out, const char *name, struct ak_err *err)
{
	const char *line = dep_line(l->dep, name);
	size_t path, end;

	if (!line)
		return 0;
	path = strcspn(line, ":");
	end = strcspn(line, "\n");
	while (end > path + 1) {
		size_t start = end;
		int rc;

		while (line[start - 1] != ' ')
			start--;
		rc = add_module(l, out, line + start, end - start, err);
		if (rc < 0)
			return rc;
		end = start - 1;
	}
	return add_module(l, out, line, path, err);
}

int vm_initrd_build(const struct vm_kernel *k, struct strbuf *out, struct ak_err *err)
{
	static const char *const names[] = { "virtio_mmio", "virtio_console", "virtio_net", "9pnet_virtio", "9p" };
	struct loader l = { .kernel = k };
	_cleanup_free_ char *dep = NULL;
	char path[PATH_MAX];
	int rc;

	snprintf(path, sizeof(path), MODULES "/%s/modules.dep", k->release);
	rc = ak_read_file(AT_FDCWD, path, DEP_MAX, &dep, NULL);
	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", path);
	l.dep = dep;
	add_file(out, "init", 0100755, vm_guest_start, (size_t)(vm_guest_end - vm_guest_start));
	add_file(out, "modules", 040755, "", 0);
	for (size_t i = 0; i < ARRAY_SIZE(names) && rc == 0; i++)
		rc = add_with_needs(&l, out, names[i], err);
	for (unsigned i = 0; i < l.n; i++)
		free(l.loaded[i]);
	if (rc < 0)
		return rc;
	add_file(out, "TRAILER!!!", 0, "", 0);
	return out->failed ? ak_fail(err, ENOMEM, "out of memory") : 0;
}
