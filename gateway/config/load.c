/* Read agentkernel.toml and check every key and value. See config/config.h. */
#include "gateway/config/config.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/publish.h"
#include "policies/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TABLE_NAME_MAX 128

struct reader {
	struct config *c;
	struct ak_err *err;
};

void config_free(struct config *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n_items; i++)
		free(c->items[i].word);
	free(c->items);
	toml_free(c->doc);
	free(c->text);
	free(c);
}

void config_freep(struct config **c)
{
	config_free(*c);
}

/* ---- errors ---- */

static int fail_at(const struct reader *r, size_t at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static int fail_at(const struct reader *r, size_t at, const char *fmt, ...)
{
	unsigned line, column;
	char what[AK_ERR_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	toml_place(r->c->doc, at, &line, &column);
	return ak_fail(r->err, EINVAL, "%s:%u:%u: %s", r->c->label, line, column, what);
}

/* "line 3, column 7: …" of the reader becomes "FILE:3:7: …". */
static int fail_syntax(const struct config *c, int rc, struct ak_err *err)
{
	struct ak_err was = *err;
	unsigned line, column;
	int n = 0;

	if (sscanf(was.text, "line %u, column %u: %n", &line, &column, &n) == 2 && n > 0)
		return ak_fail(err, -rc, "%s:%u:%u: %s", c->label, line, column, was.text + n);
	return ak_fail(err, EINVAL, "%s: %s", c->label, was.text);
}

/* Errors of options begin with the name of the option. Drop it: the file has other names. */
static const char *without_option(const char *text)
{
	const char *at = strstr(text, ": ");
	enum policy_edit_op ignored;
	char name[32];

	if (!at || at - text >= (ptrdiff_t)sizeof(name))
		return text;
	snprintf(name, sizeof(name), "%.*s", (int)(at - text), text);
	return !strncmp(text, "--", 2) || policy_edit_parse(name, &ignored) ? at + 2 : text;
}

/* ---- values ---- */

static int add_item(const struct reader *r, const struct config_key *key, const char *name, size_t at, char *word)
{
	struct config *c = r->c;

	if (word && c->n_items == c->cap) {
		size_t cap = c->cap ? 2 * c->cap : 16;
		struct config_item *grown = reallocarray(c->items, cap, sizeof(*grown));

		if (!grown) {
			free(word);
			word = NULL;
		} else {
			c->items = grown;
			c->cap = cap;
		}
	}
	if (!word)
		return ak_fail(r->err, ENOMEM, "out of memory");
	c->items[c->n_items] = (struct config_item){ .key = key, .name = name, .word = word };
	toml_place(c->doc, at, &c->items[c->n_items].line, &c->items[c->n_items].column);
	c->n_items++;
	return 0;
}

/* Options check this only when the value is stored. Check it now, while its place in the file is known. */
static int check_rule(const struct field *f, const char *text, struct ak_err *err)
{
	enum policy_edit_op op;
	struct ak_publish port;

	if (f == &field_table[FIELD_PUBLISH])
		return ak_publish_parse(text, &port, err);
	/* The content of a policy file is not covered by the user's trust in this file. */
	if (f->kind == KIND_POLICIES && !ak_sandbox_name_ok(text))
		return ak_fail(err, EINVAL, "'%.64s' is not the name of an installed policy", text);
	return f->kind == KIND_RULES && policy_edit_parse(f->option, &op) ? policy_edit_check(op, text, err) : 0;
}

/* Check WORD as the value of the option with the same meaning. */
static int check_word(const struct reader *r, const struct config_key *key, const char *word, size_t at)
{
	const struct field *f = key->field < 0 ? NULL : &field_table[key->field];
	struct field_value ignored = { 0 };
	struct ak_err why;

	if (f && f->kind != KIND_BOOL && (field_parse(f, FIELD_CLI, word, &ignored, &why) < 0 || check_rule(f, word, &why) < 0))
		return fail_at(r, at, "%s.%s: %s", key->table, key->key, without_option(why.text));
	if (!f && key->choices && !field_is_word(key->choices, word))
		return fail_at(r, at, "%s.%s: '%.100s' is not one of: %s", key->table, key->key, word, key->choices);
	return 0;
}

static int wrong_kind(const struct reader *r, const struct config_key *key, const struct toml_value *v)
{
	static const char *const wants[] = {
		[CONFIG_TEXT] = "a string",
		[CONFIG_NUMBER] = "a whole number",
		[CONFIG_DURATION] = "a string such as \"30s\", or seconds as a whole number",
		[CONFIG_FLAG] = "true or false",
		[CONFIG_LIST] = "an array of strings",
		[CONFIG_VARIABLE] = "a string, or true to pass on your own value",
		[CONFIG_MOUNTS] = "written as [[mounts]]",
	};

	_Static_assert(ARRAY_SIZE(wants) == CONFIG_KIND_NUM, "a text for each kind");
	return fail_at(r, v->at, "%s%s%s must be %s, not %s", key->table, key->table[0] ? "." : "", v->key ? v->key : key->key,
		wants[key->kind], toml_kind_name(v->kind));
}

static int check_text(const struct reader *r, const struct toml_value *v)
{
	return strlen(v->string.text) == v->string.len ? 0 : fail_at(r, v->at, "the string contains a NUL character");
}

static int take_text(const struct reader *r, const struct config_key *key, const char *name, const struct toml_value *v)
{
	int rc = check_text(r, v);

	if (rc == 0)
		rc = check_word(r, key, v->string.text, v->at);
	return rc < 0 ? rc : add_item(r, key, name, v->at, strdup(v->string.text));
}

static int take_number(const struct reader *r, const struct config_key *key, const char *name, const struct toml_value *v)
{
	const char *unit = key->kind == CONFIG_DURATION ? "s" : key->unit ? key->unit : "";
	char word[64];
	int rc;

	snprintf(word, sizeof(word), "%lld%s", (long long)v->integer, unit);
	if (key->field < 0 && (v->integer < (int64_t)key->min || v->integer > (int64_t)key->max))
		return fail_at(r, v->at, "%s.%s: must be from %llu to %llu", key->table, key->key, (unsigned long long)key->min,
			(unsigned long long)key->max);
	rc = check_word(r, key, word, v->at);
	return rc < 0 ? rc : add_item(r, key, name, v->at, strdup(word));
}

static int take_list(const struct reader *r, const struct config_key *key, const struct toml_value *list)
{
	int rc = 0;

	for (const struct toml_value *v = list->list.first; v && rc == 0; v = v->next) {
		if (v->kind == TOML_INTEGER && key->field == FIELD_PUBLISH)
			rc = take_number(r, key, NULL, v);
		else
			rc = v->kind == TOML_STRING ? take_text(r, key, NULL, v) : wrong_kind(r, key, v);
	}
	return rc;
}

/* One path of a mount. A relative one would depend on where the command is typed; "~/" is the user's home. */
static int take_path(const struct reader *r, const struct toml_value *v, bool host, char **ret)
{
	const char *home = getenv("HOME"), *text;
	bool tilde;
	int rc;

	if (v->kind != TOML_STRING)
		return fail_at(r, v->at, "mounts.%s must be a string, not %s", v->key, toml_kind_name(v->kind));
	text = v->string.text;
	tilde = host && !strncmp(text, "~/", 2) && home;
	rc = check_text(r, v);
	if (rc < 0)
		return rc;
	if ((text[0] != '/' && !tilde) || strchr(text, ':'))
		return fail_at(r, v->at, "mounts.%s: '%.100s' must be an absolute path%s without ':'", v->key, text,
			host ? " or begin with ~/, and be" : "");
	return asprintf(ret, "%s%s", tilde ? home : "", text + tilde) < 0 ? ak_fail(r->err, ENOMEM, "out of memory") : 0;
}

static int take_mount(const struct reader *r, const struct config_key *key, const struct toml_value *m)
{
	const struct toml_value *source = toml_get(m, "source"), *target = toml_get(m, "target"), *mode = toml_get(m, "mode");
	_cleanup_free_ char *from = NULL, *to = NULL;
	char *word = NULL;
	int rc;

	for (const struct toml_value *v = m->list.first; v; v = v->next) {
		if (v != source && v != target && v != mode)
			return fail_at(r, v->key_at, "unknown key '%.64s' in [[mounts]]; known: source, target, mode", v->key);
	}
	if (!source)
		return fail_at(r, m->at, "[[mounts]] needs a source");
	rc = take_path(r, source, true, &from);
	if (rc == 0 && target)
		rc = take_path(r, target, false, &to);
	if (rc < 0)
		return rc;
	if (mode && (mode->kind != TOML_STRING || (strcmp(mode->string.text, "ro") != 0 && strcmp(mode->string.text, "rw") != 0)))
		return fail_at(r, mode->at, "mounts.mode must be \"ro\" or \"rw\"");
	if (asprintf(&word, "%s:%s:%s", from, to ? to : from, mode ? mode->string.text : "ro") < 0)
		word = NULL;
	return add_item(r, key, NULL, m->at, word);
}

static int take_mounts(const struct reader *r, const struct config_key *key, const struct toml_value *list)
{
	int rc = list->kind == TOML_ARRAY ? 0 : wrong_kind(r, key, list);

	for (const struct toml_value *m = rc == 0 ? list->list.first : NULL; m && rc == 0; m = m->next)
		rc = m->kind == TOML_TABLE ? take_mount(r, key, m) : wrong_kind(r, key, m);
	return rc;
}

static int take_variable(const struct reader *r, const struct config_key *key, const struct toml_value *v)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_", digits[] = "0123456789";
	char *word = NULL, all[sizeof(letters) + sizeof(digits)];
	int rc;

	snprintf(all, sizeof(all), "%s%s", letters, digits);
	if (!v->key_len || strspn(v->key, all) != v->key_len || !strchr(letters, v->key[0]))
		return fail_at(r, v->key_at, "'%.64s' is not the name of a variable", v->key);
	if (v->kind == TOML_BOOL && v->flag)
		return getenv(v->key) ? add_item(r, key, v->key, v->at, strdup(v->key))
				      : fail_at(r, v->at, "%s is not set in your environment", v->key);
	if (v->kind != TOML_STRING)
		return wrong_kind(r, key, v);
	rc = check_text(r, v);
	if (rc < 0)
		return rc;
	if (asprintf(&word, "%s=%s", v->key, v->string.text) < 0)
		word = NULL;
	return add_item(r, key, v->key, v->at, word);
}

static int take_value(const struct reader *r, const struct config_key *key, const char *name, const struct toml_value *v)
{
	switch (key->kind) {
	case CONFIG_TEXT:
		return v->kind == TOML_STRING ? take_text(r, key, name, v) : wrong_kind(r, key, v);
	case CONFIG_DURATION:
		if (v->kind == TOML_STRING)
			return take_text(r, key, name, v);
		return v->kind == TOML_INTEGER ? take_number(r, key, name, v) : wrong_kind(r, key, v);
	case CONFIG_NUMBER:
		return v->kind == TOML_INTEGER ? take_number(r, key, name, v) : wrong_kind(r, key, v);
	case CONFIG_FLAG:
		return v->kind == TOML_BOOL ? add_item(r, key, name, v->at, strdup(v->flag ? "true" : "false"))
					    : wrong_kind(r, key, v);
	case CONFIG_LIST:
		return v->kind == TOML_ARRAY ? take_list(r, key, v) : wrong_kind(r, key, v);
	case CONFIG_VARIABLE:
		return take_variable(r, key, v);
	case CONFIG_MOUNTS:
		return take_mounts(r, key, v);
	case CONFIG_KIND_NUM:
		break;
	}
	return -EINVAL;
}

/* ---- tables ---- */

static const struct config_key *find_key(const char *table, const char *key)
{
	for (const struct config_key *k = config_keys; k->table; k++) {
		if (!strcmp(k->table, table) && (!strcmp(k->key, key) || !strcmp(k->key, "*")))
			return k;
	}
	return NULL;
}

/* Is TABLE, or something below it, in the list of keys? */
static bool is_table(const char *table)
{
	size_t n = strlen(table);

	for (const struct config_key *k = config_keys; k->table; k++) {
		if (n && !strncmp(k->table, table, n) && (k->table[n] == '\0' || k->table[n] == '.'))
			return true;
	}
	return false;
}

/* What may stand in TABLE: "profile, network, domains". */
static void list_known(const char *table, char *ret, size_t size)
{
	size_t n = strlen(table), used = 0;

	ret[0] = '\0';
	for (const struct config_key *k = config_keys; k->table && used < size; k++) {
		const char *name = k->key;
		char part[64];

		if (strcmp(k->table, table) != 0) { /* a table below it */
			if (n && (strncmp(k->table, table, n) != 0 || k->table[n] != '.'))
				continue;
			name = k->table + n + (n > 0);
			snprintf(part, sizeof(part), "%.*s", (int)strcspn(name, "."), name);
			name = part;
		}
		if (!strcmp(name, "*"))
			name = "claude, codex, gemini, opencode, native";
		if (!strstr(ret, name))
			used += (size_t)snprintf(ret + used, size - used, "%s%s", used ? ", " : "", name);
	}
}

static int unknown(const struct reader *r, const char *table, const struct toml_value *v)
{
	char known[256];

	list_known(table, known, sizeof(known));
	if (!table[0])
		return fail_at(r, v->key_at, "unknown table or key '%.64s'; known: %s", v->key, known);
	return fail_at(r, v->key_at, "unknown key '%.64s' in [%s]; known: %s", v->key, table, known);
}

/* The name of a table below TABLE; "*" for the name of a mode. */
static bool enter(const char *table, const struct toml_value *v, char ret[static TABLE_NAME_MAX], const char **name)
{
	enum ak_mode mode;
	struct ak_err ignored;

	if (strlen(v->key) != v->key_len || strchr(v->key, '.'))
		return false;
	snprintf(ret, TABLE_NAME_MAX, "%s%s%s", table, table[0] ? "." : "", v->key);
	if (is_table(ret))
		return true;
	snprintf(ret, TABLE_NAME_MAX, "%s.*", table);
	if (!is_table(ret) || ak_mode_parse(v->key, &mode, &ignored) < 0)
		return false;
	*name = v->key;
	return true;
}

/* Read a table; the depth of the list of keys bounds the recursion. */
static int take_table(const struct reader *r, const char *table, const char *name, const struct toml_value *t)
{
	for (const struct toml_value *v = t->list.first; v; v = v->next) {
		const struct config_key *key = find_key(table, v->key);
		char below[TABLE_NAME_MAX];
		const char *inner = name;
		int rc;

		if (key)
			rc = take_value(r, key, name, v);
		else if (!enter(table, v, below, &inner))
			rc = unknown(r, table, v);
		else if (v->kind != TOML_TABLE)
			rc = fail_at(r, v->at, "%s must be a table, not %s", below, toml_kind_name(v->kind));
		else
			rc = take_table(r, below, inner, v);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- files ---- */

static int parse(struct config *c, struct ak_err *err)
{
	const struct reader r = { c, err };
	int rc = toml_parse(c->text, c->len, &c->doc, err);

	return rc < 0 ? fail_syntax(c, rc, err) : take_table(&r, "", NULL, toml_root(c->doc));
}

int config_parse(const char *text, size_t len, const char *label, struct config **ret, struct ak_err *err)
{
	_cleanup_(config_freep) struct config *c = calloc(1, sizeof(*c));
	int rc;

	if (!c || !(c->text = malloc(len + 1)))
		return ak_fail(err, ENOMEM, "out of memory");
	memcpy(c->text, text, len);
	c->text[len] = '\0';
	c->len = len;
	snprintf(c->label, sizeof(c->label), "%s", label);
	rc = parse(c, err);
	if (rc == 0)
		*ret = TAKE(c);
	return rc;
}

/* Read a file that a sandbox may have put there: never wait for a FIFO, and never read more than the limit. */
static int read_all(int fd, const char *label, char **ret, size_t *ret_len, struct ak_err *err)
{
	_cleanup_free_ char *text = malloc(CONFIG_BYTES_MAX + 2);
	struct stat st;
	ssize_t n;

	if (!text)
		return ak_fail(err, ENOMEM, "out of memory");
	if (fstat(fd, &st) < 0)
		return ak_fail_errno(err, errno, "%s", label);
	if (!S_ISREG(st.st_mode))
		return ak_fail(err, EINVAL, "%s: not a regular file", label);
	n = ak_pread_all(fd, text, CONFIG_BYTES_MAX + 1, 0);
	if (n < 0)
		return ak_fail_errno(err, (int)-n, "%s", label);
	if (n > CONFIG_BYTES_MAX)
		return ak_fail(err, EINVAL, "%s: larger than %u KiB", label, CONFIG_BYTES_MAX >> 10);
	text[n] = '\0';
	*ret = TAKE(text);
	*ret_len = (size_t)n;
	return 0;
}

/* The path of an open file, without links. */
static int resolve(int fd, char ret[static PATH_MAX], struct ak_err *err)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, ret, PATH_MAX - 1);
	if (n < 0)
		return ak_fail_errno(err, errno, "%s", link);
	ret[n] = '\0';
	return 0;
}

/* A folder that we may not enter has no file for us; a file that we may not read is an error, because it may narrow the run. */
static bool is_searchable(int dir)
{
	struct stat st;
	bool yes = fstatat(dir < 0 ? AT_FDCWD : dir, CONFIG_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != EACCES;

	errno = EACCES;
	return yes;
}

static int open_file(const char *dir, const char *file, struct ak_err *err)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	_cleanup_close_ int at = -1;
	int fd;

	if (!file && strcmp(dir, ".") != 0) {
		at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (at < 0)
			return -ENOENT; /* the code that mounts the folder says what is wrong with it */
	}
	fd = openat(file || at < 0 ? AT_FDCWD : at, file ? file : CONFIG_NAME, flags);
	if (fd >= 0)
		return fd;
	if (!file && (errno == ENOENT || (errno == EACCES && !is_searchable(at))))
		return -ENOENT;
	if (errno == ELOOP)
		return ak_fail(
			err, EINVAL, "%s is a link, which is not followed; use the file itself", file ? file : CONFIG_NAME);
	return ak_fail(err, EINVAL, "%s: %s", file ? file : CONFIG_NAME, strerror(errno));
}

int config_load(const char *dir, const char *file, struct config **ret, struct ak_err *err)
{
	_cleanup_free_ char *text = NULL;
	struct config *c = NULL;
	size_t len = 0;
	struct ak_err why;
	_cleanup_close_ int fd = open_file(dir, file, &why);
	int rc = fd;

	*ret = NULL;
	if (fd == -ENOENT && !file)
		return 0;
	if (rc >= 0)
		rc = read_all(fd, file ? file : CONFIG_NAME, &text, &len, &why);
	if (rc >= 0)
		rc = config_parse(text, len, file ? file : CONFIG_NAME, &c, &why);
	if (rc >= 0)
		rc = resolve(fd, c->path, &why);
	if (rc < 0) {
		config_free(c);
		*err = why;
		return rc == -ENOMEM ? rc : -EINVAL;
	}
	*ret = c;
	return 0;
}
