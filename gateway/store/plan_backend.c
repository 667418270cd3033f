/* What runs the command: see store/plan_parts.h. */
#include "gateway/store/plan_parts.h"

#include "vmctl/podman.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PODMAN_MEMORY_MIN (UINT64_C(32) << 20) /* podman's runtime is killed below about 12 MiB */

int run_request_backend(struct run_request *o, const char *name, struct ak_err *err)
{
	o->vm = !strcmp(name, "vm");
	o->vm_if_fast = !strcmp(name, "auto");
	o->podman = !strcmp(name, "podman");
	return strcmp(name, "docker") ? 0 : podman_instead(err);
}

const char *run_backend_name(bool vm, bool podman)
{
	return vm ? "vm" : podman ? "podman" : "ns";
}

/* What a virtual machine cannot do yet. */
static int plan_vm(const struct run_request *opts, struct ak_err *err)
{
	if (opts->nested)
		return ak_fail(err, EINVAL, "--nested-namespaces: not available with --backend vm");
	return 0;
}

static int plan_podman(struct run_plan *plan, const struct run_request *opts, struct ak_err *err)
{
	int rc;

	if (opts->nested)
		return ak_fail(err, EINVAL, "--nested-namespaces: not with --backend podman; use --backend ns");
	if (opts->limits.memory_bytes && opts->limits.memory_bytes < PODMAN_MEMORY_MIN)
		return ak_fail(err, EINVAL,
			"--memory: at least %uM with --backend podman, which starts the container within the limit",
			(unsigned)(PODMAN_MEMORY_MIN >> 20));
	plan->podman = calloc(1, sizeof(*plan->podman));
	if (!plan->podman)
		return ak_fail(err, ENOMEM, "out of memory");
	rc = podman_find(plan->podman, err);
	return rc < 0 ? ak_err_prefix(err, rc, "--backend podman") : 0;
}

int plan_backend(struct run_plan *plan, const struct run_request *opts, struct ak_err *err)
{
	int rc = opts->vm ? plan_vm(opts, err) : 0;

	plan->vm = opts->vm;
	if (opts->limits.tmp_bytes && (opts->keep || opts->detach))
		run_plan_note(plan, "--tmp: the /tmp of a sandbox that is kept is on disk; --disk limits all its files there");
	if (opts->debug && !opts->vm && !opts->vm_if_fast)
		return ak_fail(err, EINVAL, "--debug: shows the console of a virtual machine; add --backend vm");
	return rc == 0 && opts->podman ? plan_podman(plan, opts, err) : rc;
}
