/*
 * Parse JSON into rules: one file, the groups it extends, then the flags.
 *
 * A policy is built separately and returned only when complete; on the first error it is freed, so a bad file is never half
 * applied. The printed form ("compiled": true) is read here too: its rules are objects with the name of their source policy.
 */
#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "policies/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#define DESCRIPTION_MAX 1024

struct loader {
	struct policy *p; /* borrowed */
	const struct policy_dirs *dirs; /* may be NULL */
	struct {
		const char *name;
		int dir; /* index into DIRS; -1: given as a path or as text */
	} stack[POLICY_EXTENDS_DEPTH]; /* files being read, outermost first */
	size_t depth;
	const char *seen[POLICY_EXTENDS_MAX]; /* every group read so far; a group may be reached twice */
	size_t n_seen;
	policy_tell_fn tell; /* NULL: the first error ends the reading */
	void *tell_ctx;
	size_t told;
};

/* Pass an error of the outermost file to TELL and go on; without TELL, and when out of memory, it ends the reading. */
static int tell(struct loader *l, int rc, const struct ak_err *err)
{
	if (rc >= 0 || !l->tell || rc == -ENOMEM || l->depth > 1)
		return rc;
	l->told++;
	l->tell(l->tell_ctx, err->text);
	return 0;
}

static int load_group(struct loader *l, const char *name, struct ak_err *err);

/* ---- strings ---- */

/* cJSON ends a string at \u0000: "ok.test\u0000.evil" would be read as "ok.test". */
static int refuse_nul_escape(const char *text, size_t len, struct ak_err *err)
{
	unsigned line = 1;

	for (size_t i = 0; i + 5 < len; i++) {
		if (text[i] == '\n')
			line++;
		if (text[i] != '\\')
			continue;
		if (!memcmp(text + i + 1, "u0000", 5))
			return ak_fail(err, EINVAL, "line %u: \\u0000 in a string is not allowed", line);
		i++; /* skip the escaped character, which may be a backslash */
	}
	return 0;
}

/* Length of the UTF-8 sequence at S; 0 if it is invalid or a control character. */
static unsigned utf8_len(const unsigned char *s)
{
	static const uint32_t least[] = { 0x20, 0xa0, 0x800, 0x10000 }; /* rejects overlong forms, C0 and C1 controls */
	unsigned more = *s < 0x80 ? 0 : *s < 0xc2 ? 9 : *s < 0xe0 ? 1 : *s < 0xf0 ? 2 : *s < 0xf5 ? 3 : 9;
	uint32_t c;

	if (more > 3)
		return 0;
	c = more ? *s & (0x3fu >> more) : *s;
	for (unsigned i = 1; i <= more; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3fu);
	}
	if (c < least[more] || c == 0x7f || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		return 0;
	return more + 1;
}

static bool utf8_ok(const char *text)
{
	for (const unsigned char *s = (const unsigned char *)text; *s;) {
		unsigned n = utf8_len(s);

		if (!n)
			return false;
		s += n;
	}
	return true;
}

static int keep(struct loader *l, const char *text, const char **ret, struct ak_err *err)
{
	*ret = arena_copy(&l->p->arena, text, strlen(text));
	return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

/* "…/codex.json" becomes "codex". */
static int name_of_label(struct loader *l, const char *label, const char **ret, struct ak_err *err)
{
	const char *base = strrchr(label, '/');
	size_t n;

	base = base ? base + 1 : label;
	n = strlen(base);
	if (n > 5 && !strcmp(base + n - 5, ".json"))
		n -= 5;
	*ret = arena_copy(&l->p->arena, base, n);
	return *ret ? 0 : ak_fail(err, ENOMEM, "out of memory");
}

/* Names that log records use for sources other than files. */
static bool is_reserved(const char *name)
{
	return !strcmp(name, "builtin") || !strcmp(name, "default") || !strcmp(name, "flags");
}

/* ---- the parts of a file ---- */

static int read_version(const cJSON *obj, struct ak_err *err)
{
	uint64_t version;
	int rc = json_get_uint(obj, "version", UINT32_MAX, &version, err);

	if (rc < 0)
		return rc;
	if (rc == 0)
		return ak_fail(err, EINVAL, "version: missing: write \"version\": 1");
	if (version != 1)
		return ak_fail(err, EINVAL, "version: %llu is not supported, use 1", (unsigned long long)version);
	return 0;
}

/* "codex+mine": the name of a policy to which others were added. Only the printed form has such names. */
static bool is_sum(const char *name)
{
	char word[POLICY_WORD_MAX];
	size_t n;

	if (strlen(name) >= POLICY_NAMES_MAX)
		return false;
	for (;; name += n + 1) {
		n = strcspn(name, "+");
		if (n >= sizeof(word))
			return false;
		memcpy(word, name, n);
		word[n] = '\0';
		if (!policy_word_ok(word) || !name[n])
			return policy_word_ok(word);
	}
}

static int read_name(struct loader *l, const cJSON *obj, const char *label, bool compiled, const char **ret, struct ak_err *err)
{
	const char *name;
	int rc = json_get_string(obj, "name", &name, err);

	if (rc < 0)
		return rc;
	if (rc == 0)
		return name_of_label(l, label, ret, err);
	if (!policy_word_ok(name) && !(compiled && is_sum(name)))
		return ak_fail(
			err, EINVAL, "name: '%.80s': 1 to 63 letters, digits, '-' and '_', alphanumeric at both ends", name);
	if (is_reserved(name))
		return ak_fail(err, EINVAL, "name: '%s' is reserved: choose another", name);
	return keep(l, name, ret, err);
}

static int read_description(struct loader *l, const cJSON *obj, const char **ret, struct ak_err *err)
{
	const char *text;
	int rc = json_get_string(obj, "description", &text, err);

	if (rc <= 0)
		return rc;
	if (strlen(text) > DESCRIPTION_MAX)
		return ak_fail(err, EINVAL, "description: longer than %d octets", DESCRIPTION_MAX);
	if (!utf8_ok(text))
		return ak_fail(err, EINVAL, "description: must be one line of valid UTF-8");
	return keep(l, text, ret, err);
}

static int read_default(const cJSON *obj, bool *ret, struct ak_err *err)
{
	const char *text;
	int rc = json_get_string(obj, "default", &text, err);

	if (rc <= 0)
		return rc;
	if (!strcmp(text, "allow"))
		*ret = true;
	else if (!strcmp(text, "deny"))
		*ret = false;
	else
		return ak_fail(err, EINVAL, "default: '%.80s' is neither \"allow\" nor \"deny\"", text);
	return 0;
}

static int parse_bytes(const char *text, uint64_t *ret, struct ak_err *err)
{
	static const char units[] = "KMGT";
	size_t n = strspn(text, "0123456789");
	const char *unit = text[n] ? strchr(units, text[n]) : NULL;
	uint64_t value = 0;

	if (n == 0 || n > 18 || (text[n] && (!unit || text[n + 1])))
		return ak_fail(
			err, EINVAL, "egress_bytes: '%.40s' is not a whole number, optionally followed by K, M, G or T", text);
	for (size_t i = 0; i < n; i++)
		value = value * 10 + (uint64_t)(text[i] - '0');
	for (const char *u = units; unit && u <= unit; u++) {
		if (value > UINT64_MAX / 1024)
			return ak_fail(err, EINVAL, "egress_bytes: '%.40s' is too large", text);
		value *= 1024;
	}
	*ret = value;
	return 0;
}

static int read_egress(const cJSON *obj, uint64_t *ret, struct ak_err *err)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, "egress_bytes");
	int rc;

	/* JSON numbers beyond 2^53 lose digits, hence the string form. */
	if (!cJSON_IsString(item))
		return json_get_uint(obj, "egress_bytes", (uint64_t)1 << 53, ret, err);
	rc = parse_bytes(item->valuestring, ret, err);
	return rc < 0 ? rc : 1;
}

/* A limit in the file itself overrides the limit of a group. */
static int read_limit(const cJSON *obj, const char *key, bool *has, uint32_t *ret, struct ak_err *err)
{
	uint64_t value;
	int rc = json_get_uint(obj, key, 1000000, &value, err);

	if (rc > 0 && !*has) {
		*has = true;
		*ret = (uint32_t)value;
	}
	return rc < 0 ? rc : 0;
}

static int read_limits(struct policy *p, const cJSON *obj, struct ak_err *err)
{
	static const char *const known[] = { "connections", "dns_qps", "egress_bytes", NULL };
	const cJSON *limits;
	uint64_t egress;
	int rc = json_get_object(obj, "limits", &limits, err);

	if (rc <= 0)
		return rc;
	rc = json_check_keys(limits, known, err);
	if (rc >= 0)
		rc = read_limit(limits, "connections", &p->has_connections, &p->limits.connections, err);
	if (rc >= 0)
		rc = read_limit(limits, "dns_qps", &p->has_dns_qps, &p->limits.dns_qps, err);
	if (rc >= 0)
		rc = read_egress(limits, &egress, err);
	if (rc < 0)
		return ak_err_prefix(err, rc, "limits");
	if (rc > 0 && !p->has_egress) {
		p->has_egress = true;
		p->limits.egress_bytes = egress;
	}
	return 0;
}

/* ---- rules ---- */

struct rule_list {
	const char *key;
	bool allow;
	int (*add)(struct policy *p, const char *text, bool allow, const char *from, struct ak_err *err);
};

static const struct rule_list rule_lists[] = {
	{ "allow", true, policy_add_host },
	{ "deny", false, policy_add_host },
	{ "allow_cidr", true, policy_add_cidr },
	{ "deny_cidr", false, policy_add_cidr },
};

/* {"rule": "api.openai.com:443", "from": "codex"} */
static int read_compiled_rule(struct loader *l, const cJSON *item, const char **ret_text, const char **from, struct ak_err *err)
{
	static const char *const known[] = { "rule", "from", NULL };
	const char *name;
	int rc = json_check_keys(item, known, err);

	if (rc >= 0)
		rc = json_get_string(item, "rule", ret_text, err);
	if (rc == 0)
		return ak_fail(err, EINVAL, "rule: missing");
	if (rc > 0)
		rc = json_get_string(item, "from", &name, err);
	if (rc == 0)
		return ak_fail(err, EINVAL, "from: missing");
	if (rc < 0)
		return rc;
	if (!policy_word_ok(name))
		return ak_fail(err, EINVAL, "from: '%.80s' is not a policy name", name);
	/* Neighbouring rules mostly come from the same file: share one copy of its name. */
	return strcmp(*from, name) ? keep(l, name, from, err) : 0;
}

static int read_rules(
	struct loader *l, const cJSON *obj, const struct rule_list *list, const char *from, bool compiled, struct ak_err *err)
{
	const cJSON *array, *item;
	unsigned i = 0;
	int rc = json_get_array(obj, list->key, &array, err);

	if (rc <= 0)
		return rc;
	cJSON_ArrayForEach(item, array) {
		const char *text = item->valuestring;

		rc = 0;
		if (compiled && cJSON_IsObject(item))
			rc = read_compiled_rule(l, item, &text, &from, err);
		else if (!cJSON_IsString(item))
			rc = ak_fail(err, EINVAL, "must be a string");
		if (rc >= 0)
			rc = list->add(l->p, text, list->allow, from, err);
		if (rc >= 0 && l->tell && list->allow && list->add == policy_add_cidr)
			rc = policy_can_open(&l->p->cidrs[l->p->n_cidrs - 1], err);
		if (rc < 0)
			rc = tell(l, ak_err_prefix(err, rc, "%s[%u]", list->key, i), err);
		if (rc < 0)
			return rc;
		i++;
	}
	return 0;
}

static int read_extends(struct loader *l, const cJSON *obj, struct ak_err *err)
{
	const cJSON *array, *item;
	unsigned i = 0;
	int rc = json_get_array(obj, "extends", &array, err);

	if (rc <= 0)
		return rc;
	cJSON_ArrayForEach(item, array) {
		if (!cJSON_IsString(item))
			rc = ak_fail(err, EINVAL, "must be a string");
		else
			rc = load_group(l, item->valuestring, err);
		if (rc < 0)
			rc = tell(l, ak_err_prefix(err, rc, "extends[%u]", i), err);
		if (rc < 0)
			return rc;
		i++;
	}
	return 0;
}

/* ---- files ---- */

static int check_known(struct loader *l, const cJSON *obj, const char *const *known, struct ak_err *err)
{
	const cJSON *item;

	if (!l->tell)
		return json_check_keys(obj, known, err);
	cJSON_ArrayForEach(item, obj) {
		size_t i = 0;

		while (known[i] && strcmp(known[i], item->string) != 0)
			i++;
		if (!known[i])
			(void)tell(l, ak_fail(err, EINVAL, "%.60s: unknown key", item->string), err);
	}
	return 0;
}

static int check_keys(struct loader *l, const cJSON *obj, bool *ret_compiled, struct ak_err *err)
{
	static const char *const written[] = { "$schema", "version", "name", "description", "default", "extends", "allow", "deny",
		"allow_cidr", "deny_cidr", "limits", NULL };
	static const char *const printed[] = { "version", "compiled", "name", "description", "default", "allow", "deny",
		"allow_cidr", "deny_cidr", "limits", NULL };
	int compiled = 0, rc;

	rc = json_get_bool(obj, "compiled", &compiled, err);
	if (rc < 0)
		return rc;
	*ret_compiled = compiled;
	return check_known(l, obj, compiled ? printed : written, err);
}

static int read_object(struct loader *l, const cJSON *obj, const char *label, bool top, struct ak_err *err)
{
	const char *name = NULL, *description = "";
	bool compiled = false, default_allow = false;
	int rc;

	if (!cJSON_IsObject(obj))
		return ak_fail(err, EINVAL, "must be a JSON object");
	rc = tell(l, check_keys(l, obj, &compiled, err), err);
	if (rc >= 0)
		rc = tell(l, read_version(obj, err), err);
	if (rc >= 0)
		rc = tell(l, read_name(l, obj, label, compiled, &name, err), err);
	if (rc >= 0)
		rc = tell(l, read_description(l, obj, &description, err), err);
	if (rc >= 0)
		rc = tell(l, read_default(obj, &default_allow, err), err);
	if (rc >= 0)
		rc = tell(l, read_limits(l->p, obj, err), err);
	for (size_t i = 0; rc >= 0 && i < ARRAY_SIZE(rule_lists); i++)
		rc = tell(l, read_rules(l, obj, &rule_lists[i], name ? name : "", compiled, err), err);
	if (rc < 0)
		return rc;
	if (top) {
		/* A group contributes rules, never its default: extending an open policy opens nothing. */
		l->p->name = name;
		l->p->description = description;
		l->p->default_allow = default_allow;
	}
	return tell(l, read_extends(l, obj, err), err);
}

static int read_text(struct loader *l, const char *text, size_t len, const char *label, bool top, struct ak_err *err)
{
	_cleanup_json_ cJSON *obj = NULL;
	int rc;

	if (len > POLICY_FILE_MAX)
		return ak_fail(err, EFBIG, "%s: larger than %zu MiB", label, POLICY_FILE_MAX >> 20);
	rc = refuse_nul_escape(text, len, err);
	if (rc >= 0)
		rc = json_parse(text, len, &obj, err);
	if (rc >= 0)
		rc = read_object(l, obj, label, top, err);
	return rc < 0 ? ak_err_prefix(err, rc, "%s", label) : 0;
}

static int read_path(struct loader *l, const char *path, bool top, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int rc = ak_read_file(AT_FDCWD, path, POLICY_FILE_MAX, &text, &len);

	if (rc < 0)
		return ak_fail_errno(err, -rc, "%s", path);
	return read_text(l, text, len, path, top, err);
}

/* A file that the user named may lie in a folder that a sandbox writes, where a FIFO would make us wait for ever. */
static int read_given(struct loader *l, const char *path, struct ak_err *err)
{
	struct stat st;

	if (strncmp(path, "/dev/", 5) != 0 && stat(path, &st) == 0 && !S_ISREG(st.st_mode))
		return ak_fail(err, EINVAL, "%s: not a regular file", path);
	return read_path(l, path, true, err);
}

/* The index of the first folder, from FROM on, that has NAME.json; -1 if none has. */
static int find_named(const struct loader *l, const char *name, int from, char path[static PATH_MAX])
{
	for (int i = from; l->dirs && i < (int)ARRAY_SIZE(l->dirs->dirs) && l->dirs->dirs[i]; i++) {
		int n = snprintf(path, PATH_MAX, "%s/%s.json", l->dirs->dirs[i], name);

		if (n < PATH_MAX && faccessat(AT_FDCWD, path, F_OK, 0) == 0)
			return i;
	}
	return -1;
}

/*
 * Look NAME.json up in the folders from index FROM on. The first file found is used, even if it is invalid. The top of the stack
 * is the entry of that file.
 */
static int read_named(struct loader *l, const char *name, int from, bool top, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf looked = { 0 };
	char path[PATH_MAX];
	int dir;

	if (!policy_word_ok(name))
		return ak_fail(err, EINVAL, "'%.80s' is not a policy name", name);
	dir = find_named(l, name, from, path);
	l->stack[l->depth - 1].dir = dir;
	if (dir >= 0)
		return read_path(l, path, top, err);
	for (int i = from; l->dirs && i < (int)ARRAY_SIZE(l->dirs->dirs) && l->dirs->dirs[i]; i++)
		strbuf_printf(&looked, "%s%s", looked.len ? ", " : "", l->dirs->dirs[i]);
	return ak_fail(err, ENOENT, "no policy named '%s'%s%.200s%s", name, looked.len ? " (looked in " : "",
		looked.len ? looked.data : "", looked.len ? ")" : "");
}

static int fail_cycle(const struct loader *l, size_t from, const char *name, struct ak_err *err)
{
	_cleanup_strbuf_ struct strbuf path = { 0 };

	for (size_t i = from; i < l->depth; i++)
		strbuf_printf(&path, "%s > ", l->stack[i].name);
	return ak_fail(err, EINVAL, "cycle: %.300s%s", path.data ? path.data : "", name);
}

/* Read NAME.json as a group of the innermost file, from the folder with index FROM on. */
static int push_group(struct loader *l, const char *name, int from, struct ak_err *err)
{
	const char *kept;
	int rc;

	if (l->depth == POLICY_EXTENDS_DEPTH)
		return ak_fail(err, EINVAL, "'%s': nested more than %d deep", name, POLICY_EXTENDS_DEPTH - 1);
	if (l->n_seen == POLICY_EXTENDS_MAX)
		return ak_fail(err, EINVAL, "'%s': more than %d groups in total", name, POLICY_EXTENDS_MAX);
	rc = keep(l, name, &kept, err);
	if (rc < 0)
		return rc;
	l->stack[l->depth++].name = l->seen[l->n_seen++] = kept;
	rc = read_named(l, kept, from, false, err);
	l->depth--;
	return rc;
}

/*
 * A file that extends its own name means the file that it replaces: the next one down (user, system, shipped). When there is
 * none, and when another group leads back to a file that is being read, it is a cycle.
 */
static int load_group(struct loader *l, const char *name, struct ak_err *err)
{
	size_t self = l->depth - 1;
	int below = l->stack[self].dir + 1;
	char path[PATH_MAX];

	if (!policy_word_ok(name))
		return ak_fail(err, EINVAL, "'%.80s' is not a policy name", name);
	if (!strcmp(l->stack[self].name, name))
		return find_named(l, name, below, path) < 0 ? fail_cycle(l, self, name, err) : push_group(l, name, below, err);
	for (size_t i = 0; i < self; i++) {
		if (!strcmp(l->stack[i].name, name))
			return fail_cycle(l, i, name, err);
	}
	for (size_t i = 0; i < l->n_seen; i++) {
		if (!strcmp(l->seen[i], name))
			return 0;
	}
	return push_group(l, name, 0, err);
}

/* ---- entry ---- */

static int finish(struct policy **p, const struct policy_dirs *dirs, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err)
{
	int rc = policy_add_policies(*p, dirs, edits, n_edits, err);

	if (rc >= 0)
		rc = policy_apply_edits(*p, edits, n_edits, err);
	if (rc >= 0)
		rc = policy_compile(*p, err);
	if (rc < 0)
		return rc;
	*ret = TAKE(*p);
	return 0;
}

/* Push the outermost policy onto the stack, so that a group that extends it is reported as a cycle. */
static int loader_init(struct loader *l, struct policy *p, const struct policy_dirs *dirs, const char *label, struct ak_err *err)
{
	*l = (struct loader){ .p = p, .dirs = dirs, .depth = 1 };
	l->stack[0].dir = -1;
	if (!p)
		return ak_fail(err, ENOMEM, "out of memory");
	return name_of_label(l, label, &l->stack[0].name, err);
}

int policy_load(const char *name, const struct policy_dirs *dirs, const struct policy_edit *edits, size_t n_edits,
	struct policy **ret, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = policy_new();
	struct loader l;
	int rc = loader_init(&l, p, dirs, name, err);

	if (rc < 0)
		return rc;
	rc = policy_is_file(name) ? read_given(&l, name, err) : read_named(&l, name, 0, true, err);
	return rc < 0 ? rc : finish(&p, dirs, edits, n_edits, ret, err);
}

int policy_parse(const char *text, size_t len, const char *label, const struct policy_dirs *dirs, const struct policy_edit *edits,
	size_t n_edits, struct policy **ret, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = policy_new();
	struct loader l;
	int rc = loader_init(&l, p, dirs, label, err);

	if (rc >= 0)
		rc = read_text(&l, text, len, label, true, err);
	return rc < 0 ? rc : finish(&p, dirs, edits, n_edits, ret, err);
}

int policy_tell_errors(const char *text, size_t len, const char *label, const struct policy_dirs *dirs, policy_tell_fn fn,
	void *ctx, struct policy **ret, struct ak_err *err)
{
	_cleanup_(policy_unrefp) struct policy *p = policy_new();
	struct loader l;
	int rc = loader_init(&l, p, dirs, label, err);

	l.tell = fn;
	l.tell_ctx = ctx;
	if (rc >= 0)
		rc = read_text(&l, text, len, label, true, err);
	if (rc >= 0 && l.told)
		rc = -EBADMSG;
	return rc < 0 ? rc : finish(&p, dirs, NULL, 0, ret, err);
}
