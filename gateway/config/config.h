/*
 * The settings of a project: agentkernel.toml.
 *
 * A file is read once into a list of checked settings with their places; config_apply then stores those in a request that the request does not
 * give itself. A sandbox may have written the file, because projects are writable inside. So what narrows a run counts at once, and what widens
 * it counts only when the user has trusted that exact content (config/trust.h).
 */
#ifndef AK_CONFIG_H
#define AK_CONFIG_H

#include "gateway/base/err.h"
#include "gateway/base/toml.h"
#include "gateway/field/field.h"
#include "gateway/store/plan.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define CONFIG_NAME "agentkernel.toml"
#define CONFIG_BYTES_MAX (64u << 10)

/* When a setting makes a run wider than the same request without the file. */
enum config_effect {
	CONFIG_NARROWS, /* never, or it has no effect on a run */
	CONFIG_WIDENS,
	CONFIG_WIDENS_ABOVE, /* above the default: config_key.limit */
	CONFIG_WIDENS_GUEST, /* the same, if the run may be in a virtual machine; elsewhere the default is no limit */
	CONFIG_WIDENS_TO, /* only with the value config_key.wide */
	CONFIG_WIDENS_UNLESS, /* with any value but config_key.wide */
	CONFIG_WIDENS_LATER, /* a time after the one that the front end sets by default (run_request.timeout_ms) */
	CONFIG_PICKS_AGENT, /* when the request has no command */
	CONFIG_EFFECT_NUM
};

enum config_kind {
	CONFIG_TEXT, /* a string */
	CONFIG_NUMBER, /* a whole number */
	CONFIG_DURATION, /* "30s", or seconds as a whole number */
	CONFIG_FLAG, /* true or false */
	CONFIG_LIST, /* an array of strings */
	CONFIG_VARIABLE, /* a string, or true: the user's own value. The key is any name */
	CONFIG_MOUNTS, /* an array of tables: source, target, mode */
	CONFIG_KIND_NUM
};

/* One key that the file may have. */
struct config_key {
	const char *table; /* "security.domains"; "*" stands for any name of a mode; "": the document itself */
	const char *key; /* "*": any name */
	enum config_kind kind;
	enum config_effect effect;
	int field; /* enum field_id of the option with the same meaning; -1: none */
	const char *unit; /* appended to a number to make the value of that option: "M" */
	const char *wide;
	uint64_t limit;
	const char *choices; /* without a field: "a|b" */
	uint64_t min, max; /* without a field: of a number */
	const char *help; /* one line, for the schema and the template */
};
extern const struct config_key config_keys[]; /* ends with table NULL */

/* One value of the file; an item of a list is one too. */
struct config_item {
	const struct config_key *key;
	const char *name; /* borrowed: of a variable, or of the mode that "*" stands for */
	char *word; /* owned: the value as the option takes it */
	unsigned line, column;
	bool used; /* config_apply stored it in the request */
	struct project_id id; /* of a mount: its source when the user trusted the file; unknown: not compared */
};

struct config {
	char path[PATH_MAX]; /* resolved; the key of its trust */
	char label[PATH_MAX]; /* as messages name it */
	char *text; /* owned */
	size_t len;
	struct toml *doc; /* owned */
	struct config_item *items; /* owned; in the order of the text */
	size_t n_items, cap;
};
void config_free(struct config *c);
void config_freep(struct config **c);

/*
 * Read FILE or, when FILE is NULL, CONFIG_NAME in the folder DIR: a regular file, not a link, of at most CONFIG_BYTES_MAX. *RET is NULL when DIR
 * has none. Errors read "FILE:LINE:COLUMN: …".
 */
int config_load(const char *dir, const char *file, struct config **ret, struct ak_err *err);

/* The same from memory. */
int config_parse(const char *text, size_t len, const char *label, struct config **ret, struct ak_err *err);

/* Would this item of C make the request O wider? O is the request as it was given. */
bool config_item_widens(const struct config *c, const struct config_item *i, const struct run_request *o);

/* Store in O what O does not give itself. Its strings are then borrowed from C. */
int config_apply(struct config *c, struct run_request *o, struct ak_err *err);

/* The value of a key that is not for a request ("sandbox", "name"); NULL if the file has none. */
const char *config_word(const struct config *c, const char *table, const char *key);

/* Append "key = value" of an item, as messages show it; anything but printable ASCII is escaped. */
void config_item_print(const struct config *c, const struct config_item *i, struct strbuf *out);

/* Append one line for each setting that O takes from a request or from C (may be NULL), with its source. */
void config_explain(const struct config *c, const struct run_request *o, struct strbuf *out);

/* Append where the value of a field (enum field_id) comes from: the file, an option, or OTHERWISE. */
void config_explain_source(
	const struct config *c, const struct run_request *o, int field, const char *otherwise, struct strbuf *out);

/* Append the JSON Schema for editors, made from config_keys. */
void config_schema(struct strbuf *out);

#endif
