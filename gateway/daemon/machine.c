/*
 * The saved guests that the virtual machines of this daemon are restored from: one sealed copy (vmctl/vm.h) for each size of memory, kept for as long as a virtual machine of that
 * size runs here. Every guest maps it privately, so that a page which no guest has written is in memory once.
 */
#include "gateway/daemon/internal.h"

#include "gateway/base/io.h"
#include "gateway/run/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define UNCHECKED_MAX_MS (10 * 60 * 1000)

struct machine {
	LIST_ENTRY(machine) link;
	struct sandbox_vm vm; /* owned; memory < 0: not open */
	uint32_t memory_mb;
	uint64_t checked_ms;
};

static bool wanted(const struct daemon *d, uint32_t memory_mb)
{
	const struct dsb *sb;
	const struct warm *w;
	bool pool = false;

	TAILQ_FOREACH(sb, &d->sandboxes, link) {
		struct sandbox_limits limits = sb->state.limits;
		struct ak_err ignored;
		uint32_t mb = 0;

		if (sb->state.vm && sb->status != DSB_STOPPED && run_vm_limits(&limits, &mb, &ignored) == 0 && mb == memory_mb)
			return true;
	}
	for (int m = 0; m < AK_MODE_NUM; m++)
		pool = pool || (d->pool.modes[m].vm && d->pool.modes[m].min);
	TAILQ_FOREACH(w, &d->pool.all, link)
		pool = pool || w->vm;
	return pool && memory_mb == VM_MEMORY_DEFAULT_MB;
}

static void machine_free(struct machine *m)
{
	LIST_REMOVE(m, link);
	sandbox_vm_done(&m->vm);
	free(m);
}

void machines_sweep(struct daemon *d)
{
	struct machine *m, *next;

	for (m = LIST_FIRST(&d->machines); m; m = next) {
		next = LIST_NEXT(m, link);
		if (!wanted(d, m->memory_mb))
			machine_free(m);
	}
}

void machines_done(struct daemon *d)
{
	while (!LIST_EMPTY(&d->machines))
		machine_free(LIST_FIRST(&d->machines));
}

static struct machine *find(struct daemon *d, uint32_t memory_mb)
{
	struct machine *m;

	LIST_FOREACH(m, &d->machines, link) {
		if (m->memory_mb == memory_mb)
			return m;
	}
	m = calloc(1, sizeof(*m));
	if (m) {
		m->vm = SANDBOX_VM_NONE;
		m->memory_mb = memory_mb;
		LIST_INSERT_HEAD(&d->machines, m, link);
	}
	return m;
}

/* Each has its own offset in the state, which is read. A guest that has taken over its monitor can change the mode of the files, but nothing else of them: undo that. */
static int lend(const struct sandbox_vm *vm, struct sandbox_vm *ret)
{
	*ret = *vm;
	ret->memory = fcntl(vm->memory, F_DUPFD_CLOEXEC, 3);
	ret->kernel = fcntl(vm->kernel, F_DUPFD_CLOEXEC, 3);
	ret->initrd = fcntl(vm->initrd, F_DUPFD_CLOEXEC, 3);
	for (const int *fd = (const int[]){ vm->memory, vm->kernel, vm->initrd, vm->state, -1 }; *fd >= 0; fd++)
		(void)fchmod(*fd, 0777);
	ret->state = ak_reopen(vm->state, O_RDONLY);
	if (ret->memory >= 0 && ret->kernel >= 0 && ret->initrd >= 0 && ret->state >= 0)
		return 0;
	sandbox_vm_done(ret);
	return -EMFILE;
}

/* If another process has locked the templates, because it makes or copies one, what we have is recent enough. */
int machine_lend(struct daemon *d, uint32_t memory_mb, struct sandbox_vm *ret, struct ak_err *err)
{
	struct machine *m = find(d, memory_mb);
	uint64_t now = ak_now_ms();
	int rc;

	if (!m)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = run_vm_saved(d->paths, memory_mb, &m->vm, err);
	if (rc == 0)
		m->checked_ms = now;
	else if (rc == -EWOULDBLOCK && m->vm.memory >= 0 && now - m->checked_ms < UNCHECKED_MAX_MS)
		rc = 0;
	if (rc < 0)
		return rc;
	rc = lend(&m->vm, ret);
	return rc < 0 ? ak_fail_errno(err, -rc, "saved guest") : 0;
}
