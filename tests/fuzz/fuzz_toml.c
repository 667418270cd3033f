/* The TOML reader: what it accepts is a tree within its bounds, with places inside the text; the same text means the same twice. */
#include "fuzz.h"
#include "gateway/base/cleanup.h"
#include "gateway/base/toml.h"

/* Compare two trees and check the bounds of one. */
static void check(const struct toml *doc, const struct toml_value *a, const struct toml_value *b, size_t size)
{
	unsigned line, column;
	size_t n = 0;

	must(a->depth <= TOML_DEPTH_MAX && a->at <= size && a->key_at <= size && a->kind == b->kind && a->key_len == b->key_len);
	toml_place(doc, a->at, &line, &column);
	must(line >= 1 && column >= 1 && line <= size + 1 && column <= size + 1);
	if (a->key)
		must(!memcmp(a->key, b->key, a->key_len) && a->key[a->key_len] == '\0');
	if (a->kind == TOML_STRING)
		must(a->string.len == b->string.len && !memcmp(a->string.text, b->string.text, a->string.len));
	if (a->kind == TOML_INTEGER)
		must(a->integer == b->integer);
	if (a->kind == TOML_DATE)
		must(a->date.nanosecond < 1000000000 && a->date.has_date + a->date.has_time > 0);
	if (a->kind != TOML_ARRAY && a->kind != TOML_TABLE)
		return;
	must(a->list.n == b->list.n);
	for (const struct toml_value *x = a->list.first, *y = b->list.first; x; x = x->next, y = y->next, n++) {
		must((x->key != NULL) == (a->kind == TOML_TABLE) && x->depth == a->depth + 1);
		check(doc, x, y, size);
	}
	must(n == a->list.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(toml_freep) struct toml *doc = NULL, *again = NULL;
	_cleanup_free_ char *copy = malloc(size ? size : 1); /* its end is watched */
	struct ak_err err = { "" };

	if (!copy || size > 1u << 14)
		return 0;
	memcpy(copy, data, size);
	if (toml_parse(copy, size, &doc, &err) < 0) {
		must(!doc && err.text[0]);
		return 0;
	}
	must(toml_parse(copy, size, &again, &err) == 0);
	memset(copy, 'x', size); /* the document has a copy of its own */
	check(doc, toml_root(doc), toml_root(again), size);
	return 0;
}
