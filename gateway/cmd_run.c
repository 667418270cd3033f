/* `agentkernel run`: from words to options, and from the result to an exit code. */
#include "gateway/cmd.h"
#include "gateway/run.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- one function for each option that takes a value ---- */

static int set_mode(struct run_opts *o, const char *v, struct ak_err *err)
{
	return ak_mode_parse(v, &o->mode, err);
}

static int set_profile(struct run_opts *o, const char *v, struct ak_err *err)
{
	return ak_profile_parse(v, &o->profile, err);
}

static int set_dir(struct run_opts *o, const char *v, struct ak_err *err)
{
	(void)err;
	o->dir = v;
	return 0;
}

static int set_workdir(struct run_opts *o, const char *v, struct ak_err *err)
{
	(void)err;
	o->workdir = v;
	return 0;
}

static int add_env(struct run_opts *o, const char *v, struct ak_err *err)
{
	if (o->n_env == PLAN_LIST_MAX)
		return ak_fail(err, E2BIG, "more than %d variables", PLAN_LIST_MAX);
	o->env[o->n_env++] = v;
	return 0;
}

static int set_timeout(struct run_opts *o, const char *v, struct ak_err *err)
{
	unsigned long long ms;
	int rc = ak_parse_duration(v, &ms, err);

	if (rc == 0 && ms == 0)
		rc = ak_fail(err, EINVAL, "'%s': must be more than 0", v);
	if (rc == 0)
		o->timeout_ms = ms;
	return rc;
}

static int set_memory(struct run_opts *o, const char *v, struct ak_err *err)
{
	unsigned long long bytes;
	int rc = ak_parse_size(v, &bytes, err);

	if (rc == 0 && bytes < 4u << 20)
		rc = ak_fail(err, EINVAL, "'%s': must be at least 4M", v);
	if (rc == 0)
		o->limits.memory_bytes = bytes;
	return rc;
}

static int set_count(const char *v, unsigned long long max, uint32_t scale, uint32_t *ret, struct ak_err *err)
{
	unsigned long long n;
	int rc = ak_parse_count(v, 1, max, &n, err);

	if (rc == 0)
		*ret = (uint32_t)n * scale;
	return rc;
}

static int set_vcpus(struct run_opts *o, const char *v, struct ak_err *err)
{
	return set_count(v, 1024, 1000, &o->limits.cpus_milli, err);
}

static int set_pids(struct run_opts *o, const char *v, struct ak_err *err)
{
	return set_count(v, 1u << 22, 1, &o->limits.pids, err);
}

static int set_backend(struct run_opts *o, const char *v, struct ak_err *err)
{
	(void)o;
	return strcmp(v, "ns") ? ak_fail(err, ENOTSUP, "'%s' is not there yet; ns is", v) : 0;
}

static int add_edit(struct run_opts *o, enum policy_edit_op op, const char *v, struct ak_err *err)
{
	if (o->n_edits == PLAN_LIST_MAX)
		return ak_fail(err, E2BIG, "more than %d rules; put them in a policy file", PLAN_LIST_MAX);
	o->edits[o->n_edits++] = (struct policy_edit){ op, v };
	return 0;
}

static int add_allow_host(struct run_opts *o, const char *v, struct ak_err *err)
{
	return add_edit(o, POLICY_EDIT_ALLOW_HOST, v, err);
}

static int add_block_host(struct run_opts *o, const char *v, struct ak_err *err)
{
	return add_edit(o, POLICY_EDIT_BLOCK_HOST, v, err);
}

static int add_allow_cidr(struct run_opts *o, const char *v, struct ak_err *err)
{
	return add_edit(o, POLICY_EDIT_ALLOW_CIDR, v, err);
}

static int add_block_cidr(struct run_opts *o, const char *v, struct ak_err *err)
{
	return add_edit(o, POLICY_EDIT_BLOCK_CIDR, v, err);
}

static const struct {
	const char *name;
	int (*set)(struct run_opts *o, const char *value, struct ak_err *err);
} values[] = {
	{ "compatibility-mode", set_mode }, { "profile", set_profile }, { "dir", set_dir }, { "workdir", set_workdir }, { "env", add_env },
	{ "timeout", set_timeout }, { "memory", set_memory }, { "vcpus", set_vcpus }, { "pids", set_pids }, { "backend", set_backend },
	{ "allow-host", add_allow_host }, { "block-host", add_block_host }, { "allow-cidr", add_allow_cidr }, { "block-cidr", add_block_cidr },
};

static int set_flag(struct run_opts *o, const char *name)
{
	const struct {
		const char *name;
		bool *flag;
	} flags[] = {
		{ "no-network", &o->no_network }, { "keep", &o->keep }, { "pass-api-key", &o->pass_api_key },
		{ "tty", &o->tty }, { "quiet", &o->quiet }, { "json", &o->json },
	};

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		if (!strcmp(flags[i].name, name)) {
			*flags[i].flag = true;
			return 0;
		}
	}
	return 0; /* --interactive: standard input is passed through as it is */
}

static int set_option(struct run_opts *o, const struct cmd_opt *opt, const char *value, struct ak_err *err)
{
	if (!opt->arg)
		return set_flag(o, opt->name);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (!strcmp(values[i].name, opt->name)) {
			int rc = values[i].set(o, value, err);

			return rc < 0 ? ak_err_prefix(err, rc, "--%s", opt->name) : 0;
		}
	}
	return ak_fail(err, ENOTSUP, "--%s is not there yet", opt->name);
}

/* 0, or the exit code to end with: -1 for "help was printed". */
static int parse(int argc, char **argv, struct run_opts *o)
{
	struct cmd_args args;
	struct ak_err err;
	const char *value;
	int i;

	cmd_args_init(&args, cmd_row("run"), argc, argv);
	while ((i = cmd_next(&args, &value)) >= 0) {
		if (set_option(o, &args.cmd->opts[i], value, &err) < 0) {
			ak_say("%s", err.text);
			return AK_EXIT_USAGE;
		}
	}
	if (i == CMD_HELP)
		return -1;
	if (i == CMD_BAD)
		return AK_EXIT_USAGE;
	if (i == CMD_END) {
		ak_say("run: which command? For example: agentkernel run --compatibility-mode codex -- npm test");
		return AK_EXIT_USAGE;
	}
	o->argv = argv + args.at - 1;
	if (o->tty && o->json) {
		ak_say("run: --tty and --json exclude each other");
		return AK_EXIT_USAGE;
	}
	return 0;
}

/* A program started with a closed 0, 1 or 2 must not get one of our descriptors as its standard stream. */
static void fill_standard_streams(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd < 3 && fcntl(fd, F_SETFD, 0) == 0);
	if (fd >= 3)
		ak_close(fd);
}

static void print_json(const struct run_result *r)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	const struct run_outcome *o = &r->outcome;

	strbuf_printf(&out, "{\"sandbox\":\"%s\",\"exit_code\":%d,\"timed_out\":%s,\"out_of_memory\":%s,\"start_us\":%llu,\"duration_ms\":%llu",
		r->name, o->exit_code, o->timed_out ? "true" : "false", o->out_of_memory ? "true" : "false", (unsigned long long)o->start_us,
		(unsigned long long)o->duration_ms);
	strbuf_puts(&out, ",\"stdout\":");
	strbuf_json_utf8(&out, r->out ? r->out : "", r->out ? r->out_len : 0);
	strbuf_puts(&out, ",\"stderr\":");
	strbuf_json_utf8(&out, r->err ? r->err : "", r->err ? r->err_len : 0);
	if (r->out_cut || r->err_cut)
		strbuf_puts(&out, ",\"truncated\":true");
	strbuf_printf(&out, ",\"network\":{\"allowed\":%llu,\"denied\":%llu}}\n", (unsigned long long)o->net.allowed,
		(unsigned long long)o->net.denied);
	if (!out.failed)
		(void)ak_write_all(STDOUT_FILENO, out.data, out.len);
}

static void print_closing_lines(const struct run_opts *o, const struct run_result *r)
{
	unsigned long long denied = r->outcome.net.denied;

	if (o->keep)
		ak_say("kept as %s", r->name);
	if (denied > 0 && !o->quiet)
		ak_say("%llu network request%s denied; see: agentkernel network log %s", denied, denied == 1 ? " was" : "s were", r->name);
}

int cmd_run(int argc, char **argv)
{
	struct run_opts opts = { .mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE };
	struct run_result result;
	struct ak_paths paths;
	struct ak_err err;
	int rc = parse(argc, argv, &opts);

	if (rc != 0)
		return rc < 0 ? 0 : rc;
	fill_standard_streams();
	if (ak_paths_init(&paths, &err) < 0) {
		ak_say("%s", err.text);
		return AK_EXIT_FAILED;
	}
	rc = run_execute(&opts, &paths, &result, &err);
	if (rc < 0) {
		ak_say("%s", err.text);
		rc = rc == -EINVAL ? AK_EXIT_USAGE : result.outcome.exit_code ? result.outcome.exit_code : AK_EXIT_FAILED;
	} else {
		if (opts.json)
			print_json(&result);
		print_closing_lines(&opts, &result);
		rc = result.outcome.exit_code;
		rundir_prune(&paths);
	}
	run_result_done(&result);
	return rc;
}
