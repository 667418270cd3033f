/* A plan in words: see store/explain.h. */
#include "gateway/store/explain.h"

#include "gateway/base/cleanup.h"
#include "gateway/store/agent.h"

#include <assert.h>
#include <string.h>

static const struct {
	const char *text;
	bool shown; /* its value cannot be a secret */
} sources[] = {
	[PLAN_FROM_SYSTEM] = { "system programs", true },
	[PLAN_FROM_CALLER_PATH] = { "your PATH, as far as it exists inside", true },
	[PLAN_FROM_TERMINAL] = { "your terminal and language", true },
	[PLAN_FROM_AUTHORITIES] = { "your certificate authorities, which the sandbox has too", true },
	[PLAN_FROM_GIT] = { "your name in git", true },
	[PLAN_FROM_SANDBOX] = { "the sandbox itself", true },
	[PLAN_FROM_TMP] = { "the sandbox's own folder for temporary files", true },
	[PLAN_FROM_PROFILE] = { "your environment (permissive profile)", false },
	[PLAN_FROM_API_KEY] = { "--pass-api-key", false },
	[PLAN_FROM_OPTION] = { "--env", false },
	[PLAN_FROM_FILE] = { "agentkernel.toml", false },
	[PLAN_FROM_CREATE] = { "fixed when the sandbox was created", false },
	[PLAN_FROM_AGENT] = { "the agent", true },
	[PLAN_FROM_IMAGE] = { "the image", true },
};
static_assert(ARRAY_SIZE(sources) == PLAN_SOURCE_NUM, "a row for each source");

static void put_command(struct strbuf *out, const struct run_plan *plan, const struct run_request *request)
{
	const struct tools *t = &plan->tools;

	char *const *argv = plan->argv ? plan->argv : request->argv;

	strbuf_printf(out, "command    %s\n", argv ? argv[0] : "-");
	if (plan->image)
		strbuf_printf(out, "image      %s (%.12s), as user %u\n", request->image, plan->image->id, plan->image->uid);
	else if (t->program)
		strbuf_printf(out, "           found at %s\n", t->program);
	else if (argv && !strchr(argv[0], '/'))
		strbuf_puts(out, "           not on your PATH\n");
	if (t->refused)
		strbuf_printf(out, "           not brought in: %s\n", t->refused);
	strbuf_printf(out, "mode       %s\nprofile    %s\nfolder     %s\n", ak_mode_policy(request->mode, request->own),
		ak_profile_name(request->profile), plan->workdir);
}

static void put_mounts(struct strbuf *out, const struct run_plan *plan)
{
	strbuf_puts(out, plan->image ? "\nMOUNTS, besides the image\n" : "\nMOUNTS, besides /usr, /opt and an /etc of its own\n");
	for (size_t i = 0; i < plan->n_mounts; i++) {
		const struct sandbox_mount *m = &plan->mounts[i];

		strbuf_printf(out, "  %s  %s", m->readonly ? "ro" : "rw", m->target);
		if (strcmp(m->source, m->target) != 0)
			strbuf_printf(out, " (from %s)", m->source);
		strbuf_printf(out, "\n      %s\n", plan->mounts_why[i]);
	}
	for (size_t i = 0; i < plan->n_links; i++)
		strbuf_printf(out, "  ln  %s → %s\n", plan->links[i].path, plan->links[i].target);
	for (size_t i = 0; i < plan->n_files; i++)
		strbuf_printf(out, "  fi  %s\n      %s\n", plan->files[i].path, plan->files_why[i]);
	if (plan->n_mounts + plan->n_links + plan->n_files == 0)
		strbuf_puts(out, "  none\n");
}

static void put_variables(struct strbuf *out, const struct run_plan *plan)
{
	strbuf_puts(out, "\nVARIABLES\n");
	for (size_t i = 0; i < plan->n_env; i++) {
		enum plan_source from = plan->env_from[i];
		int key = (int)strcspn(plan->env[i], "=");

		if (from == PLAN_FROM_AGENT)
			strbuf_printf(out, "  %s\n      the agent: %s\n", plan->env[i], agent_env_why(plan->env[i]));
		else if (sources[from].shown)
			strbuf_printf(out, "  %s\n      %s\n", plan->env[i], sources[from].text);
		else
			strbuf_printf(out, "  %.*s=…\n      %s\n", key, plan->env[i], sources[from].text);
	}
}

static void put_published(struct strbuf *out, const struct run_request *request)
{
	for (size_t i = 0; i < request->n_publish; i++) {
		const struct ak_publish *p = &request->publish[i];
		char host[AK_PUBLISH_TEXT];

		strbuf_printf(out, "  %s of the host%s leads to port %u inside (--publish)\n", ak_publish_host(p, host),
			p->host_port ? "" : " (any free port)", p->port);
	}
}

static void put_network(struct strbuf *out, const struct run_request *request, const struct policy *policy)
{
	char name[POLICY_WORD_MAX];

	strbuf_puts(out, "\nNETWORK\n");
	if (!policy) {
		strbuf_puts(out, "  none\n");
		return;
	}
	strbuf_printf(
		out, "  policy %s%s\n", ak_mode_policy(request->mode, request->own), request->n_edits ? ", changed by" : "");
	for (size_t i = 0; i < request->n_edits; i++)
		strbuf_printf(out, "    %s%s %s\n", i + request->n_file_edits < request->n_edits ? "--" : "agentkernel.toml: ",
			policy_edit_name(request->edits[i].op), policy_edit_label(&request->edits[i], name));
	put_published(out, request);
	strbuf_puts(out, "  all of it:\n");
	policy_print(policy, out);
}

void run_plan_explain(
	const struct run_plan *plan, const struct run_request *request, const struct policy *policy, struct strbuf *out)
{
	put_command(out, plan, request);
	put_mounts(out, plan);
	put_variables(out, plan);
	put_network(out, request, policy);
}
