/*
 * The fields of all requests. The command line calls them options, HTTP calls them body members or query parameters, MCP calls them arguments.
 *
 * One table (field/table.c) holds the names, type, limits and help text of each field, and which verbs of which front ends take it. Option parsing,
 * JSON checks, --help, completions, the OpenAPI description and the MCP schemas are all generated from this table, so they cannot disagree.
 */
#ifndef AK_FIELD_H
#define AK_FIELD_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/strbuf.h"
#include "gateway/store/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_front {
	FIELD_CLI, /* options */
	FIELD_HTTP, /* members of a JSON body */
	FIELD_QUERY, /* parameters of a URL */
	FIELD_MCP, /* arguments of a tool */
	FIELD_FRONT_NUM
};

/* The comments name the unit of a field's MIN and MAX. A MAX of 0 means no limit. */
enum field_kind {
	KIND_BOOL, /* an option without a value */
	KIND_TEXT, /* bytes */
	KIND_CHOICE, /* one of CHOICES */
	KIND_MODE, /* one of CHOICES, or the name of an installed policy */
	KIND_NAME, /* the name of a sandbox */
	KIND_PATH, /* bytes; absolute */
	KIND_DIR, /* bytes; a folder on the host. In JSON it must be absolute, because a client of a server has no current folder */
	KIND_COUNT, /* the number itself */
	KIND_SIZE, /* bytes; "512M" on the command line, MiB in JSON */
	KIND_DURATION, /* milliseconds; "30s" on the command line */
	KIND_TIME, /* bytes of the text: "10m" ago, or an RFC 3339 time */
	KIND_STRINGS, /* items: a command */
	KIND_RULES, /* items; on the command line, one per repeated option */
	KIND_POLICIES, /* items as above: names of installed policies or paths of policy files, absolute in JSON */
	KIND_VARIABLES, /* items: "K=V" each, or an object */
	KIND_MOUNTS, /* items: "SRC[:DST][:ro|rw]" on the command line, one per repeated option; objects in JSON */
	KIND_TEXTS, /* items: an object of strings */
	KIND_RUNS, /* items: an array of `run` requests */
	KIND_NUM
};

/* A checked value. TEXT is the value as given, borrowed. */
struct field_value {
	const char *text;
	bool flag;
	uint64_t number; /* a count, bytes or milliseconds; for a time, microseconds since 1970 */
};

struct field {
	const char *name; /* in JSON and in URLs; NULL: command line only */
	const char *option; /* without the dashes; NULL: not on the command line */
	const char *alias; /* another spelling of the option, or NULL */
	char letter; /* short option, or 0 */
	enum field_kind kind;
	bool negated; /* the option means the opposite of the name: --no-network is "network":false */
	bool repeat; /* the option may be given more than once, whatever its kind */
	bool secret; /* hide the value from the process list */
	const char *never; /* clients send it, but it cannot be true: the reason */
	uint64_t min, max;
	const char *arg; /* the placeholder for the value in --help; NULL: the kind's default */
	const char *choices; /* "a|b|c" */
	const char *help; /* one line */
	const char *more[FIELD_FRONT_NUM]; /* appended to HELP for one front end */
	/* Where the value is stored: through SET, or in the member of struct run_request at offset AT. With neither, the front end handles the value. */
	int (*set)(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);
	size_t at;
};

enum field_id {
	FIELD_COMMAND,
	FIELD_MODE,
	FIELD_PROFILE,
	FIELD_NETWORK,
	FIELD_AGENT_STATE,
	FIELD_EXPLAIN,
	FIELD_IMAGE,
	FIELD_IMAGE_NAME,
	FIELD_MAX_SIZE,
	FIELD_CA_FILE,
	FIELD_AUTH_FILE,
	FIELD_KEEP,
	FIELD_RUN_NAME,
	FIELD_DETACH,
	FIELD_CONFIG,
	FIELD_BACKEND,
	FIELD_DEBUG,
	FIELD_DIR,
	FIELD_BROAD_DIR,
	FIELD_PROJECT_WRITABLE,
	FIELD_MOUNT,
	FIELD_TOOL,
	FIELD_ENV,
	FIELD_ENV_FILE,
	FIELD_WORKDIR,
	FIELD_CWD,
	FIELD_TIMEOUT,
	FIELD_MEMORY,
	FIELD_VCPUS,
	FIELD_PIDS,
	FIELD_TMP,
	FIELD_DISK,
	FIELD_OUTPUT,
	FIELD_OUTPUT_BYTES,
	FIELD_OUTPUT_SHOWN,
	FIELD_NESTED,
	FIELD_ALLOW_HOST,
	FIELD_BLOCK_HOST,
	FIELD_ALLOW_CIDR,
	FIELD_BLOCK_CIDR,
	FIELD_PUBLISH,
	FIELD_ADD_POLICY,
	FIELD_ALLOW_GROUP,
	FIELD_UNPUBLISH,
	FIELD_PASS_API_KEY,
	FIELD_INTERACTIVE,
	FIELD_TTY,
	FIELD_TTY_LEAVE,
	FIELD_NO_TTY,
	FIELD_QUIET,
	FIELD_JSON_RESULT,
	FIELD_FAST,
	FIELD_SUDO,
	FIELD_COMMANDS,
	/* sandboxes */
	FIELD_NAME,
	FIELD_OPEN_TO_MCP,
	FIELD_START,
	FIELD_ALL,
	FIELD_LIST_ALL,
	FIELD_COLOR,
	FIELD_UTC,
	FIELD_ACCEPT_DIR,
	FIELD_FORCE,
	FIELD_NAMES_ONLY,
	FIELD_NEW_SHELL,
	FIELD_RECURSIVE,
	FIELD_JSON,
	/* live policy */
	FIELD_DEFAULT,
	FIELD_PROXY_POLICY,
	FIELD_REMOVE_RULE,
	FIELD_RESET,
	FIELD_FOR,
	FIELD_CHANGE_MCP,
	FIELD_WATCH,
	FIELD_SHOW,
	FIELD_POLICY,
	FIELD_TARGET,
	/* logs */
	FIELD_LAST,
	FIELD_FOLLOW,
	FIELD_FOLLOW_ALL,
	FIELD_DENIED,
	FIELD_ALLOWED,
	FIELD_SINCE,
	FIELD_LIMIT_LINES,
	FIELD_LIMIT_RECORDS,
	FIELD_LIMIT_ROWS,
	FIELD_JSON_LINES,
	FIELD_SUMMARY,
	FIELD_LOG_NAME,
	FIELD_SANDBOX,
	FIELD_STREAM,
	FIELD_KEY_FILE,
	/* files */
	FIELD_PATH,
	FIELD_CONTENT,
	FIELD_ENCODING,
	FIELD_FILES,
	FIELD_OFFSET,
	FIELD_READ_LIMIT,
	/* servers */
	FIELD_FOREGROUND,
	FIELD_POOL_MODE,
	FIELD_POOL_COUNT,
	FIELD_POOL_BACKEND,
	FIELD_CEILING_MODE,
	FIELD_CEILING_PROFILE,
	FIELD_CEILING_NO_NETWORK,
	FIELD_CEILING_DIR,
	FIELD_CEILING_KEEP,
	FIELD_HOST,
	FIELD_PORT,
	FIELD_API_KEY_FILE,
	FIELD_SERVER_NAME,
	FIELD_PLUGIN,
	FIELD_CHECK,
	FIELD_DRY_RUN,
	FIELD_VM,
	FIELD_OFFLINE,
	FIELD_YES,
	FIELD_ASSENT,
	FIELD_TRUST_LIST,
	FIELD_REVOKE,
	FIELD_WRITTEN,
	FIELD_FORGET,
	FIELD_REPLACE,
	FIELD_SNAPSHOT_LIST,
	FIELD_SNAPSHOT_REMOVE,
	FIELD_TAG,
	FIELD_TAG_NEW,
	FIELD_TAG_FROM,
	FIELD_STOP_FIRST,
	FIELD_FORK_NAME,
	FIELD_NUM
};
extern const struct field field_table[FIELD_NUM];

#define FIELD_OUTPUT_MAX (8u << 20) /* bytes, JSON-escaped, of a stream in one answer of the HTTP server */
#define FIELD_SHOWN_MAX 65536u /* bytes of a stream in one result of the MCP server */
#define FIELD_READ_MAX (1u << 20) /* bytes that one sandbox_file_read returns */
#define FIELD_RECORDS_MAX 10000

enum field_verb {
	VERB_NONE, /* takes no fields */
	VERB_RUN,
	VERB_BATCH,
	VERB_CREATE,
	VERB_START,
	VERB_STOP,
	VERB_REMOVE,
	VERB_SNAPSHOT,
	VERB_RESTORE,
	VERB_FORK,
	VERB_LIST,
	VERB_EXEC,
	VERB_ATTACH,
	VERB_CP,
	VERB_LOGS,
	VERB_FILE_READ,
	VERB_FILE_WRITE,
	VERB_FILES_WRITE,
	VERB_DETACHED_LOGS,
	VERB_PUBLISH,
	VERB_POLICY_CHANGE,
	VERB_POLICY_PROXY,
	VERB_POLICY_PUT,
	VERB_CHECK,
	VERB_NETWORK_LOG,
	VERB_AUDIT,
	VERB_AUDIT_LOGS,
	VERB_AUDIT_VERIFY,
	VERB_AGENTS,
	VERB_AGENT_MEMORY,
	VERB_PRINT,
	VERB_IMAGE_PULL,
	VERB_IMAGE_IMPORT, /* prints a table, or JSON */
	VERB_DAEMON_START,
	VERB_PREWARM,
	VERB_MCP_SERVER,
	VERB_SERVE,
	VERB_DOCTOR,
	VERB_SETUP,
	VERB_INIT,
	VERB_TRUST,
	VERB_NUM
};

/* One field of a verb, with the front ends that offer it. */
struct field_use {
	enum field_id id;
	unsigned fronts; /* a mask of 1 << FIELD_CLI, …, and FIELD_REQUIRED when JSON must contain the field */
};
#define FIELD_REQUIRED (1u << FIELD_FRONT_NUM)

/* Iterate over the fields of VERB in FRONT, in table order: returns the one after U (NULL: the first), or NULL at the end. */
const struct field_use *field_next(enum field_verb verb, enum field_front front, const struct field_use *u);
#define field_each(u, verb, front)                                                                                               \
	for (const struct field_use *(u) = field_next(verb, front, NULL); (u); (u) = field_next(verb, front, u))

/* Find the field that FRONT calls NAME (LEN bytes); NULL when VERB has no such field. */
const struct field_use *field_find(enum field_verb verb, enum field_front front, const char *name, size_t len);

const char *field_name(const struct field *f, enum field_front front);
const char *field_arg(const struct field *f); /* "DURATION", "a|b|c"; NULL: the option takes no value */
bool field_repeats(const struct field *f);

/* Call FN for each available word of CHOICES. */
void field_choices(const struct field *f, void (*fn)(void *ctx, const char *word, size_t len), void *ctx);

/* Append the one-line help text of the field for one front end. */
void field_words(struct strbuf *out, const struct field *f, enum field_front front);

/* ---- checks (field/check.c); error texts begin with the field: "--memory: …", "memory_mb: …", "command[2]: …" ---- */

/* Parse WORD as the value of an option or of a query parameter. */
int field_parse(const struct field *f, enum field_front front, const char *word, struct field_value *ret, struct ak_err *err);

/* Check that OBJ has only fields of VERB and all required ones, each of the right type and within its limits. A null member counts as absent. */
int fields_check(enum field_verb verb, enum field_front front, const cJSON *obj, struct ak_err *err);

/* ---- typed requests (field/request.c) ---- */

/* Memory that decoded requests point into. */
struct field_mem {
	void **list; /* owned, including the elements */
	size_t n;
};
void field_mem_done(struct field_mem *m);

/* Store a value in O; error texts begin with the field. Does nothing for a field that has neither SET nor AT. */
int field_set(
	struct run_request *o, const struct field *f, enum field_front front, const struct field_value *v, struct ak_err *err);

/* The same for a value that is not the request's own: it is not recorded in O->given, and error texts do not name the field. */
int field_put(struct run_request *o, const struct field *f, const struct field_value *v, struct ak_err *err);

/* Is WORD one of CHOICES ("a|b|c")? */
bool field_is_word(const char *choices, const char *word);

/*
 * Check OBJ as fields_check does and store every value in O, leaving its other members unchanged. Strings are borrowed from OBJ and MEM; the caller
 * frees MEM even after a failure.
 */
int fields_decode(enum field_verb verb, enum field_front front, const cJSON *obj, struct run_request *o, struct field_mem *mem,
	struct ak_err *err);

/* ---- schemas (field/schema.c) ---- */

/* Append the JSON Schema of one field, or of the object with all fields of VERB. */
void field_schema(struct strbuf *out, const struct field *f, enum field_front front);
void fields_schema(struct strbuf *out, enum field_verb verb, enum field_front front);

#endif
