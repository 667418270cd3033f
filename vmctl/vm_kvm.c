/*
 * Does hardware virtualisation run a guest? That /dev/kvm opens does not show it: nested virtualisation may be broken, and a guest then hangs. So boot one, with a short limit,
 * and keep the result for as long as kernel, QEMU and guest kernel stay the same.
 */
#include "vmctl/vm_internal.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define TEST_MS 1700 /* from the first file to the agent's first words; hardware needs a third of it */
#define TEST_MB 128u
#define BAD_AGE_S 86400
#define RESULT "kvm"
#define RESULT_MAX 1024

static int describe(const struct vm_kernel *k, struct strbuf *out)
{
	struct utsname un;

	if (uname(&un) < 0)
		return -errno;
	strbuf_printf(out, "%s\n", un.release);
	vm_stamp(out, vmm_get()->program);
	vm_stamp(out, k->image);
	return out->failed ? -ENOMEM : 0;
}

/* 1: it runs, 0: not known, -EIO: it does not, with the reason. */
static int recall(int store, const struct strbuf *key, struct ak_err *why)
{
	_cleanup_free_ char *text = NULL;
	struct stat st;
	const char *result;

	if (fstatat(store, RESULT, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
		ak_read_file(store, RESULT, RESULT_MAX, &text, NULL) < 0 || strncmp(text, key->data, key->len) != 0)
		return 0;
	result = text + key->len;
	if (!strcmp(result, "runs\n"))
		return 1;
	if (!strcmp(result, "") || time(NULL) - st.st_mtime >= BAD_AGE_S)
		return 0;
	return ak_fail(why, EIO, "%.*s", (int)strcspn(result, "\n"), result);
}

static void keep(int store, struct strbuf *key, const char *result)
{
	strbuf_printf(key, "%.400s\n", result);
	if (!key->failed)
		(void)ak_replace_file(store, RESULT, key->data, key->len, false);
}

void vm_kvm_failed(int store, const struct vm_kernel *k, const struct ak_err *why)
{
	_cleanup_strbuf_ struct strbuf key = { 0 };

	if (describe(k, &key) == 0)
		keep(store, &key, why->text);
}

/* The result, and its KEY unless there is nothing to test: 0 if it runs, -ENODATA if that is not known, or the reason. */
static int look_up(int store, const struct vm_kernel *k, struct strbuf *key, struct ak_err *why)
{
	int rc;

	/* Not kept: a module can be loaded, and a user added to the group. */
	if (access("/dev/kvm", R_OK | W_OK) < 0)
		return ak_fail_errno(why, errno, "/dev/kvm");
	rc = describe(k, key);
	if (rc < 0)
		return ak_fail_errno(why, -rc, "kernel release");
	rc = recall(store, key, why);
	return rc == 0 ? ak_fail(why, ENODATA, "hardware virtualisation was not tested yet") : rc < 0 ? rc : 0;
}

int vm_kvm_recall(int store, const struct vm_kernel *k, struct ak_err *why)
{
	_cleanup_strbuf_ struct strbuf key = { 0 };

	return look_up(store, k, &key, why);
}

int vm_kvm_check(int store, const char *store_path, const struct vm_kernel *k, bool again, struct ak_err *why)
{
	const struct vm_shape shape = { .memory_mb = TEST_MB, .kvm = true };
	_cleanup_strbuf_ struct strbuf key = { 0 };
	uint64_t until = ak_now_ms() + TEST_MS;
	int rc = look_up(store, k, &key, why);

	if (!key.len || (!again && rc != -ENODATA))
		return rc;
	rc = vm_boot_test(store, store_path, k, &shape, until, why);
	keep(store, &key, rc == 0 ? "runs" : why->text);
	return rc;
}
