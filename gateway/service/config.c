/* Settings of a project and the user's trust in them: see service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/config/trust.h"
#include "gateway/daemon/daemon.h"
#include "gateway/project/project.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A file in our own configuration folders needs no trust: no sandbox can see them. */
static bool is_users_own(const struct ak_paths *paths, const struct config *c)
{
	const char *const dirs[] = { paths->config, AK_SYSTEM_CONFIG };

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		_cleanup_free_ char *real = realpath(dirs[i], NULL);

		if (real && project_inside(c->path, real))
			return true;
	}
	return false;
}

static const struct config_item *next_wide(const struct config *c, const struct run_request *o, const struct config_item *i)
{
	for (i = i ? i + 1 : c->items; i < c->items + c->n_items; i++) {
		if (config_item_widens(c, i, o))
			return i;
	}
	return NULL;
}

static int fail_untrusted(const struct config *c, const struct run_request *o, enum trust_state state, struct ak_err *err)
{
	const struct config_item *i = next_wide(c, o, NULL);
	_cleanup_strbuf_ struct strbuf first = { 0 };
	size_t more = 0;

	for (const struct config_item *n = i; n && (n = next_wide(c, o, n));)
		more++;
	if (i)
		config_item_print(c, i, &first);
	return ak_fail(err, EKEYREJECTED, "%s%s%.200s%s; check it, then run: agentkernel trust '%.200s'",
		state == TRUST_CHANGED ? "it has changed since you trusted it" : "it asks for more than you have trusted",
		i ? ": " : "", first.data ? first.data : c->label, more ? " and more" : "", c->path);
}

int service_config(struct run_request *o, const char *dir, const struct ak_paths *paths, struct config **ret, struct ak_err *err)
{
	_cleanup_(config_freep) struct config *c = NULL;
	enum trust_state state = TRUST_SAME;
	int rc = dir || o->config ? config_load(dir, o->config, &c, err) : 0;

	*ret = NULL;
	if (rc < 0 || !c)
		return rc;
	if (!is_users_own(paths, c))
		rc = trust_check(paths, c, &state, NULL, err);
	if (rc == 0 && (state == TRUST_CHANGED || (state == TRUST_NONE && next_wide(c, o, NULL))))
		rc = fail_untrusted(c, o, state, err);
	if (rc == 0)
		rc = config_apply(c, o, err);
	if (rc == 0 || rc == -EKEYREJECTED)
		*ret = TAKE(c);
	return rc;
}

int service_config_file(const char *path, struct config **ret, struct ak_err *err)
{
	struct stat st;
	int rc = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? config_load(path, NULL, ret, err)
							     : config_load(NULL, path, ret, err);

	if (rc == 0 && !*ret)
		return ak_fail(err, ENOENT, "there is no %s in '%s'; 'agentkernel init' writes one", CONFIG_NAME, path);
	return rc;
}

/*
 * Would this item make some run wider, or take memory for warm sandboxes? Trust is for the whole file and for every later run, so what the request at hand
 * gives itself is shown as well.
 */
static bool needs_trust(const struct config *c, const struct config_item *i)
{
	static const struct run_request plain = {
		.mode = AK_MODE_NATIVE, .profile = AK_PROFILE_MODERATE, .timeout_ms = 1, .vm = true
	};

	return config_item_widens(c, i, &plain) || !strncmp(i->key->table, "daemon", 6);
}

int service_config_tell(const struct ak_paths *paths, struct config *c, struct strbuf *out, struct ak_err *err)
{
	_cleanup_(trust_record_done) struct trust_record was = { 0 };
	enum trust_state state;
	bool any = false;
	int rc = trust_check(paths, c, &state, &was, err);

	if (rc < 0)
		return rc;
	if (state == TRUST_CHANGED) {
		strbuf_printf(out, "%s has changed since you trusted it:\n", c->path);
		trust_diff(was.text, c->text, out);
	}
	for (size_t i = 0; i < c->n_items; i++) {
		if (!needs_trust(c, &c->items[i]))
			continue;
		if (!any)
			strbuf_printf(out, "%s asks for:\n", c->path);
		any = true;
		strbuf_puts(out, "  ");
		config_item_print(c, &c->items[i], out);
		strbuf_putc(out, '\n');
	}
	return out->failed ? ak_fail(err, ENOMEM, "out of memory") : 0;
}

int service_trust(const struct ak_paths *paths, const struct config *c, struct ak_err *err)
{
	return trust_store(paths, c, err);
}

/* PATH may be gone; then it names the file or its folder as it was listed. */
int service_trust_revoke(const struct ak_paths *paths, const char *path, char ret[static PATH_MAX], struct ak_err *err)
{
	_cleanup_free_ char *real = realpath(path, NULL);
	const char *named = real ? real : path;
	struct ak_err ignored;
	size_t len = strlen(named);

	if (len >= PATH_MAX)
		return ak_fail(err, ENAMETOOLONG, "'%.100s': path too long", named);
	memcpy(ret, named, len + 1);
	if (trust_revoke(paths, named, &ignored) == 0)
		return 0;
	if (ak_path_join(ret, named, CONFIG_NAME, NULL) < 0)
		return ak_fail(err, ENAMETOOLONG, "'%.100s': path too long", named);
	return trust_revoke(paths, ret, err);
}

/* ---- the daemon's pool ---- */

static void take_pool(const struct config_item *i, struct daemon_conf *ret)
{
	unsigned n = (unsigned)strtoul(i->word, NULL, 10);
	bool min = !strcmp(i->key->key, "min_warm"), backend = !strcmp(i->key->key, "backend");

	for (int m = 0; m < AK_MODE_NUM; m++) {
		if (i->name && strcmp(i->name, ak_mode_name((enum ak_mode)m)) != 0)
			continue;
		if (backend)
			ret->vm[m] = !strcmp(i->word, "vm");
		else
			*(min ? &ret->min_warm[m] : &ret->max_warm[m]) = n;
	}
}

/* Memory for warm sandboxes is taken on the word of the user only, so all of it needs trust. */
int service_pool_settings(const char *dir, const struct ak_paths *paths, struct daemon_conf *ret, struct ak_err *err)
{
	_cleanup_(config_freep) struct config *c = NULL;
	enum trust_state state = TRUST_SAME;
	bool any = false;
	int rc = config_load(dir, NULL, &c, err);

	for (int own = 0; rc == 0 && c && own < 2; own++) { /* a mode's own number beats the one for all */
		for (size_t i = 0; i < c->n_items; i++) {
			const struct config_item *item = &c->items[i];

			if (strncmp(item->key->table, "daemon", 6) != 0 || !strcmp(item->key->key, "runtime") ||
				(item->name != NULL) != own)
				continue;
			take_pool(item, ret);
			any = true;
		}
	}
	if (any && !is_users_own(paths, c))
		rc = trust_check(paths, c, &state, NULL, err);
	if (rc == 0 && state != TRUST_SAME)
		rc = ak_fail(err, EINVAL, "%s: [daemon] counts after you trust the file: agentkernel trust '%.200s'", c->label,
			c->path);
	return rc;
}

/* ---- records ---- */

struct listing {
	const struct ak_paths *paths;
	struct strbuf *out;
};

static const char *status_of(const struct ak_paths *paths, const char *path)
{
	_cleanup_(config_freep) struct config *c = NULL;
	enum trust_state state;
	struct ak_err ignored;

	if (config_load(NULL, path, &c, &ignored) < 0)
		return access(path, F_OK) < 0 ? "gone" : "changed";
	return trust_check(paths, c, &state, NULL, &ignored) == 0 && state == TRUST_SAME ? "trusted" : "changed";
}

static void put_record(void *ctx, const struct trust_record *r)
{
	const struct listing *l = ctx;

	strbuf_puts(l->out, l->out->len > 1 ? ",{\"path\":" : "{\"path\":");
	strbuf_json_utf8(l->out, r->path, strlen(r->path));
	strbuf_printf(l->out, ",\"status\":\"%s\",\"sha256\":\"%s\",\"time\":%llu}", status_of(l->paths, r->path), r->sha256,
		(unsigned long long)r->time_s);
}

int service_trust_list(const struct ak_paths *paths, cJSON **ret, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf out = { 0 };
	struct listing l = { paths, &out };
	int rc;

	strbuf_putc(&out, '[');
	rc = trust_each(paths, put_record, &l, err);
	strbuf_putc(&out, ']');
	if (rc < 0)
		return rc;
	return out.failed ? ak_fail(err, ENOMEM, "out of memory") : json_parse(out.data, out.len, ret, err);
}
