/* Store the settings of agentkernel.toml in a request, and say which of them widen it. See config/config.h. */
#include "gateway/config/config.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/publish.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_variable(const struct run_request *o, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < o->n_env; i++) {
		if (!strncmp(o->env[i], name, n) && (o->env[i][n] == '=' || o->env[i][n] == '\0'))
			return true;
	}
	return false;
}

/* Is something mounted at the target of WORD, "SRC:DST:MODE"? */
static bool has_target(const struct run_request *o, const char *word)
{
	const char *at = strchr(word, ':') + 1;
	size_t n = strcspn(at, ":");

	for (size_t i = 0; i < o->n_mounts; i++) {
		const char *target = o->mounts[i].target ? o->mounts[i].target : o->mounts[i].source;

		if (strlen(target) == n && !memcmp(target, at, n))
			return true;
	}
	return false;
}

static bool has_port(const struct run_request *o, const char *word)
{
	struct ak_publish p;
	struct ak_err ignored;

	for (size_t i = 0; i < o->n_publish && ak_publish_parse(word, &p, &ignored) == 0; i++) {
		if (ak_publish_clash(&p, &o->publish[i]))
			return true;
	}
	return false;
}

/* Does the request itself give this setting? Rules add up; variables, mounts and ports count for themselves. */
static bool is_given(const struct config_item *i, const struct run_request *o)
{
	if (i->key->kind == CONFIG_VARIABLE)
		return has_variable(o, i->name);
	if (i->key->kind == CONFIG_MOUNTS)
		return has_target(o, i->word);
	if (i->key->field == FIELD_PUBLISH)
		return has_port(o, i->word);
	return i->key->kind != CONFIG_LIST && i->key->field >= 0 && o->given[i->key->field];
}

/* Does the file's time limit end later than the default of the front end? Without a default, any limit narrows. */
static bool ends_later(const struct config_item *i, const struct run_request *o)
{
	struct field_value v;
	struct ak_err ignored;

	if (!o->timeout_ms)
		return false;
	return field_parse(&field_table[i->key->field], FIELD_CLI, i->word, &v, &ignored) < 0 || v.number > o->timeout_ms;
}

/* Whether the run may be in a virtual machine, by the request or by the file. */
static bool may_be_guest(const struct config *c, const struct run_request *o)
{
	const char *word = o->given[FIELD_BACKEND] ? NULL : config_word(c, "sandbox", "backend");

	return o->vm || o->vm_if_fast || (word && (!strcmp(word, "vm") || !strcmp(word, "auto")));
}

static bool is_above(const struct config_item *i)
{
	return strtoull(i->word, NULL, 10) > i->key->limit;
}

bool config_item_widens(const struct config *c, const struct config_item *i, const struct run_request *o)
{
	const struct config_key *k = i->key;

	if (is_given(i, o))
		return false;
	switch (k->effect) {
	case CONFIG_NARROWS:
		return false;
	case CONFIG_WIDENS:
		return true;
	case CONFIG_WIDENS_ABOVE:
		return is_above(i);
	case CONFIG_WIDENS_GUEST:
		return is_above(i) && may_be_guest(c, o);
	case CONFIG_WIDENS_TO:
		return !strcmp(i->word, k->wide);
	case CONFIG_WIDENS_UNLESS:
		return strcmp(i->word, k->wide) != 0;
	case CONFIG_WIDENS_LATER:
		return ends_later(i, o);
	case CONFIG_PICKS_AGENT:
		return !o->argv;
	case CONFIG_EFFECT_NUM:
		break;
	}
	return true;
}

/* A flag of the file can only narrow: network = false, allowlist_only = true. */
static bool flag_acts(const struct config_item *i)
{
	return !strcmp(i->word, i->key->field == FIELD_NETWORK ? "false" : "true");
}

static int store(struct config_item *i, struct run_request *o, struct ak_err *err)
{
	const struct field *f = &field_table[i->key->field];
	struct field_value v = { .text = i->word };
	int rc = 0;

	if (i->key->kind == CONFIG_FLAG && !flag_acts(i))
		return 0;
	if (i->key->field == FIELD_DEFAULT)
		v.text = "deny";
	else if (f->kind != KIND_BOOL)
		rc = field_parse(f, FIELD_CLI, i->word, &v, err);
	if (rc == 0)
		rc = field_put(o, f, &v, err);
	if (rc == 0 && i->key->kind == CONFIG_MOUNTS)
		o->mounts[o->n_mounts - 1].id = i->id;
	i->used = rc == 0;
	return rc;
}

static bool is_for_request(const struct config_item *i)
{
	return i->key->field >= 0 && i->key->field != FIELD_NAME;
}

int config_apply(struct config *c, struct run_request *o, struct ak_err *err)
{
	size_t env = o->n_env, edits = o->n_edits;
	int rc = 0;

	for (size_t n = 0; n < c->n_items && rc == 0; n++) {
		struct config_item *i = &c->items[n];

		if (is_for_request(i) && !is_given(i, o)) {
			rc = store(i, o, err);
			if (rc < 0)
				ak_err_prefix(err, rc, "%s:%u:%u", c->label, i->line, i->column);
		}
	}
	o->n_file_env = o->n_env - env;
	o->n_file_edits = o->n_edits - edits;
	return rc;
}

const char *config_word(const struct config *c, const char *table, const char *key)
{
	for (size_t i = 0; c && i < c->n_items; i++) {
		if (!strcmp(c->items[i].key->table, table) && !strcmp(c->items[i].key->key, key))
			return c->items[i].word;
	}
	return NULL;
}

/* ---- words ---- */

void config_item_print(const struct config *c, const struct config_item *i, struct strbuf *out)
{
	_cleanup_strbuf_ struct strbuf word = { 0 };
	const char *at = i->key->kind == CONFIG_VARIABLE ? strchr(i->word, '=') : NULL, *value = at ? at + 1 : i->word;

	strbuf_json(&word, value);
	strbuf_printf(out, "%s:%u: ", c->label, i->line);
	if (i->key->kind == CONFIG_MOUNTS)
		strbuf_puts(out, "[[mounts]]");
	else
		strbuf_printf(out, "[%s] %s", i->key->table, i->key->kind == CONFIG_VARIABLE ? i->name : i->key->key);
	if (i->key->kind == CONFIG_VARIABLE && !at)
		strbuf_puts(out, " = true, which passes on your own value");
	else if (i->key->kind == CONFIG_NUMBER) /* without the unit of the option */
		strbuf_printf(out, " = %.*s", (int)strspn(value, "-0123456789"), value);
	else if (i->key->kind == CONFIG_FLAG)
		strbuf_printf(out, " = %s", value);
	else
		strbuf_printf(out, " = %s", word.data ? word.data : "");
}

void config_explain_source(
	const struct config *c, const struct run_request *o, int field, const char *otherwise, struct strbuf *out)
{
	for (size_t n = 0; c && n < c->n_items; n++) {
		const struct config_item *i = &c->items[n];

		if (i->used && i->key->field == field) {
			strbuf_printf(out, "  (%s:%u)\n", c->label, i->line);
			return;
		}
	}
	if (o->given[field])
		strbuf_printf(out, "  (--%s)\n", field_table[field].option);
	else
		strbuf_printf(out, "  (%s)\n", otherwise);
}

static void put_limits(struct strbuf *out, const struct config *c, const struct run_request *o)
{
	if (o->limits.memory_bytes)
		strbuf_printf(out, "  memory     %" PRIu64 " MiB", o->limits.memory_bytes >> 20);
	else
		strbuf_puts(out, "  memory     no limit");
	config_explain_source(c, o, FIELD_MEMORY, "default", out);
	if (o->limits.cpus_milli)
		strbuf_printf(out, "  vcpus      %g", o->limits.cpus_milli / 1000.0);
	else
		strbuf_puts(out, "  vcpus      no limit");
	config_explain_source(c, o, FIELD_VCPUS, "default", out);
	strbuf_printf(out, "  pids       %u", o->limits.pids ? o->limits.pids : 1024);
	config_explain_source(c, o, FIELD_PIDS, "default", out);
	strbuf_printf(out, "  /tmp       %" PRIu64 " MiB", o->limits.tmp_bytes ? o->limits.tmp_bytes >> 20 : 512);
	config_explain_source(c, o, FIELD_TMP, "default", out);
	if (o->limits.disk_bytes)
		strbuf_printf(out, "  disk       %" PRIu64 " MiB", o->limits.disk_bytes >> 20);
	else
		strbuf_puts(out, "  disk       no limit");
	config_explain_source(c, o, FIELD_DISK, "default", out);
	if (o->timeout_ms)
		strbuf_printf(out, "  timeout    %" PRIu64 " ms", o->timeout_ms);
	else
		strbuf_puts(out, "  timeout    none");
	config_explain_source(c, o, FIELD_TIMEOUT, "default", out);
}

void config_explain(const struct config *c, const struct run_request *o, struct strbuf *out)
{
	bool off = o->no_network || !ak_profile_network(o->profile);

	strbuf_printf(out, "\nSETTINGS%s%s\n", c ? ", with " : "", c ? c->path : "");
	strbuf_printf(out, "  mode       %s", ak_mode_policy(o->mode, o->own));
	config_explain_source(c, o, FIELD_MODE, "default", out);
	strbuf_printf(out, "  profile    %s", ak_profile_name(o->profile));
	config_explain_source(c, o, FIELD_PROFILE, "default", out);
	strbuf_printf(out, "  network    %s", off ? "none" : "by policy");
	config_explain_source(c, o, FIELD_NETWORK, ak_profile_network(o->profile) ? "mode" : "profile", out);
	put_limits(out, c, o);
	for (size_t n = 0; c && n < c->n_items; n++) {
		const struct config_item *i = &c->items[n];

		if (i->used &&
			(i->key->kind == CONFIG_LIST || i->key->kind == CONFIG_VARIABLE || i->key->kind == CONFIG_MOUNTS)) {
			strbuf_puts(out, "  ");
			config_item_print(c, i, out);
			strbuf_putc(out, '\n');
		}
	}
}
