/* The effective policy of a persistent sandbox, including its edits, and its plan. See store/state.h. */
#include "gateway/store/state.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/store/policy_dirs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *state_mode(const struct state_sandbox *s)
{
	return ak_mode_policy(s->mode, s->own);
}

int state_set_mode(struct state_sandbox *s, const char *text, struct ak_err *err)
{
	const char *own;
	int rc = ak_mode_choose(text, &s->mode, &own, err);

	if (rc == 0)
		snprintf(s->own, sizeof(s->own), "%s", own ? own : "");
	return rc;
}

bool state_network(const struct state_sandbox *s)
{
	return ak_profile_network(s->profile) && !s->no_network;
}

/* ---- edits ---- */

void state_edits_clear(struct state_sandbox *s)
{
	for (size_t i = 0; i < s->n_edits; i++)
		free(s->edits[i].text);
	free(s->edits);
	s->edits = NULL;
	s->n_edits = 0;
}

static void drop_edit(struct state_sandbox *s, size_t i)
{
	free(s->edits[i].text);
	memmove(&s->edits[i], &s->edits[i + 1], (s->n_edits - i - 1) * sizeof(s->edits[0]));
	s->n_edits--;
}

size_t state_edits_expire(struct state_sandbox *s, uint64_t now_us)
{
	size_t gone = 0;

	for (size_t i = s->n_edits; i-- > 0;) {
		if (s->edits[i].until_us && s->edits[i].until_us <= now_us) {
			drop_edit(s, i);
			gone++;
		}
	}
	return gone;
}

uint64_t state_edits_next(const struct state_sandbox *s)
{
	uint64_t next = 0;

	for (size_t i = 0; i < s->n_edits; i++) {
		if (s->edits[i].until_us && (!next || s->edits[i].until_us < next))
			next = s->edits[i].until_us;
	}
	return next;
}

int state_edits_copy(const struct state_sandbox *from, struct state_sandbox *to)
{
	struct state_edit *copy = calloc(from->n_edits + 1, sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_edits; i++) {
		copy[i] = from->edits[i];
		copy[i].text = strdup(from->edits[i].text);
		if (!copy[i].text) {
			while (i-- > 0)
				free(copy[i].text);
			free(copy);
			return -ENOMEM;
		}
	}
	state_edits_clear(to);
	to->edits = copy;
	to->n_edits = from->n_edits;
	return 0;
}

static int append_edit(struct state_sandbox *s, enum policy_edit_op op, const char *text, uint64_t until_us, struct ak_err *err)
{
	struct state_edit *grown;
	char *copy;

	if (s->n_edits >= STATE_EDITS_MAX)
		return ak_fail(err, E2BIG, "more than %d changes to the policy; put them in a policy file", STATE_EDITS_MAX);
	copy = strdup(text);
	grown = copy ? realloc(s->edits, (s->n_edits + 1) * sizeof(*grown)) : NULL;
	if (!grown) {
		free(copy);
		return ak_fail(err, ENOMEM, "out of memory");
	}
	s->edits = grown;
	s->edits[s->n_edits++] = (struct state_edit){ op, copy, until_us };
	return 0;
}

static bool names_policy(enum policy_edit_op op)
{
	return op == POLICY_EDIT_ADD_POLICY || op == POLICY_EDIT_ALLOW_GROUP;
}

/* A policy file that is given again replaces what was read from it before. */
static bool same_edit(const struct state_edit *e, enum policy_edit_op op, const char *text)
{
	char had[POLICY_WORD_MAX], has[POLICY_WORD_MAX];

	return e->op == op &&
		!strcmp(policy_edit_label(&(struct policy_edit){ e->op, e->text }, had),
			policy_edit_label(&(struct policy_edit){ op, text }, has));
}

/* Did E add the rule, policy or group TEXT, however it was spelled? Parse a policy that contains nothing else and try to remove the rule. */
static bool edit_makes(const struct state_edit *e, const char *text)
{
	static const char nothing[] = "{\"version\":1,\"name\":\"nothing\",\"default\":\"deny\"}";
	static const struct policy_dirs none;
	const struct policy_edit edits[] = { { e->op, e->text }, { POLICY_EDIT_REMOVE, text } };
	struct policy *p = NULL;
	struct ak_err ignored;

	if (names_policy(e->op))
		return same_edit(e, e->op, text);
	if (e->op == POLICY_EDIT_DEFAULT || e->op == POLICY_EDIT_REMOVE)
		return false;
	if (policy_parse(nothing, sizeof(nothing) - 1, "nothing", &none, edits, 2, &p, &ignored) < 0)
		return false;
	policy_unref(p);
	return true;
}

/* Is the rule TEXT in the policy of the mode, or in one that an edit adds? -ENOENT if it is not. */
static int try_removal(const struct ak_paths *paths, const struct state_sandbox *s, const char *text, struct ak_err *err)
{
	_cleanup_free_ struct policy_edit *edits = calloc(s->n_edits + 1, sizeof(*edits));
	struct policy *p = NULL;
	size_t n = 0;
	int rc;

	if (!edits)
		return ak_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < s->n_edits; i++) {
		if (names_policy(s->edits[i].op))
			edits[n++] = (struct policy_edit){ s->edits[i].op, s->edits[i].text };
	}
	edits[n++] = (struct policy_edit){ POLICY_EDIT_REMOVE, text };
	rc = ak_policy_load(paths, state_mode(s), edits, n, &p, err);
	policy_unref(p);
	return rc;
}

static int add_removal(
	const struct ak_paths *paths, struct state_sandbox *s, const char *text, uint64_t until_us, struct ak_err *err)
{
	bool found = false;
	int rc;

	for (size_t i = s->n_edits; i-- > 0;) {
		if (edit_makes(&s->edits[i], text)) {
			drop_edit(s, i);
			found = true;
		}
	}
	rc = try_removal(paths, s, text, err);
	if (rc < 0)
		return found && rc == -ENOENT ? 0 : rc;
	return append_edit(s, POLICY_EDIT_REMOVE, text, until_us, err);
}

int state_edit_add(const struct ak_paths *paths, struct state_sandbox *s, enum policy_edit_op op, const char *text,
	uint64_t until_us, struct ak_err *err)
{
	for (size_t i = 0; i < s->n_edits; i++) {
		if (same_edit(&s->edits[i], op, text)) {
			drop_edit(s, i); /* and append it again: the newest edit wins */
			break;
		}
	}
	if (op == POLICY_EDIT_REMOVE)
		return add_removal(paths, s, text, until_us, err);
	return append_edit(s, op, text, until_us, err);
}

/* ---- policy ---- */

/* Drop edits that remove a rule that the policy file no longer has. */
static size_t keep_possible(const struct ak_paths *paths, const struct state_sandbox *s, struct policy_edit *edits, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		struct ak_err ignored;

		if (edits[i].op != POLICY_EDIT_REMOVE || try_removal(paths, s, edits[i].text, &ignored) != -ENOENT)
			edits[kept++] = edits[i];
	}
	return kept;
}

int state_policy(
	const struct ak_paths *paths, const struct state_sandbox *s, uint64_t now_us, struct policy **ret, struct ak_err *err)
{
	_cleanup_free_ struct policy_edit *edits = calloc(s->n_edits + 1, sizeof(*edits));
	size_t n = 0, kept;
	int rc;

	if (!edits)
		return ak_fail(err, ENOMEM, "out of memory");
	for (size_t i = 0; i < s->n_edits; i++) {
		if (!s->edits[i].until_us || s->edits[i].until_us > now_us)
			edits[n++] = (struct policy_edit){ s->edits[i].op, s->edits[i].text };
	}
	rc = ak_policy_load(paths, state_mode(s), edits, n, ret, err);
	if (rc != -ENOENT)
		return rc;
	kept = keep_possible(paths, s, edits, n);
	return kept < n ? ak_policy_load(paths, state_mode(s), edits, kept, ret, err) : rc;
}

int state_write_policy(const struct ak_paths *paths, const char *name, const struct policy *p, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	_cleanup_close_ int dir = state_lock(paths, name, err);
	int rc;

	if (dir < 0)
		return dir;
	policy_print(p, &out);
	rc = out.failed ? -ENOMEM : ak_replace_file(dir, "policy.json", out.data, out.len, false);
	return rc < 0 ? ak_fail_errno(err, -rc, "%s: policy.json", name) : 0;
}

/* ---- plan ---- */

int state_plan(const struct ak_paths *paths, const struct state_sandbox *s, const char *empty_dir, struct run_plan *ret,
	struct ak_err *err)
{
	_cleanup_free_ struct run_request *opts = calloc(1, sizeof(*opts));

	if (!opts)
		return ak_fail(err, ENOMEM, "out of memory");
	opts->mode = s->mode;
	opts->own = s->own;
	opts->profile = s->profile;
	opts->no_network = s->no_network;
	opts->nested = s->nested;
	opts->vm = s->vm;
	opts->podman = s->podman;
	opts->project_writable = s->project_writable;
	opts->limits = s->limits;
	opts->name = s->name;
	opts->image = s->image[0] ? s->image : NULL;
	opts->image_id = s->image_id;
	opts->dir = s->dir[0] ? s->dir : NULL;
	opts->dir_id = s->dir_id;
	opts->path = s->path;
	for (; s->tools && s->tools[opts->n_tools] && opts->n_tools < RUN_TOOLS_MAX; opts->n_tools++)
		opts->tools[opts->n_tools] = s->tools[opts->n_tools];
	opts->n_mounts = s->n_mounts < RUN_MOUNTS_MAX ? s->n_mounts : RUN_MOUNTS_MAX;
	memcpy(opts->mounts, s->mounts, opts->n_mounts * sizeof(*s->mounts));
	opts->fixed_env = s->env ? s->env : (char *const[]){ NULL };
	return run_plan_init(ret, opts, paths, empty_dir, err);
}
