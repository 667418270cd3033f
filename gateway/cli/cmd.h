/*
 * The commands of the command line. Each has one table row and one function: main.c finds the row, the function parses its own options.
 */
#ifndef AK_CMD_H
#define AK_CMD_H

#include "gateway/base/err.h"
#include "gateway/base/json.h"
#include "gateway/base/number.h"
#include "gateway/base/paths.h"
#include "gateway/base/say.h"
#include "gateway/field/field.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct cmd {
	const char *name; /* "run", "network log": words separated by one space */
	const char *args; /* the operands in the usage line */
	const char *help; /* one line */
	enum field_verb verb; /* the verb whose fields are the options; every command also takes --help */
	int (*run)(int argc, char **argv); /* argv[0] is the last word of the command's own name */
	unsigned command_follows; /* `run`: 1, `exec`: 2: this operand starts the program's command line; 0: there is none */
	const char *alias_of; /* for an alias, the name of the real command; else NULL */
};

extern const struct cmd cmd_table[]; /* ends with name NULL */

/* Find the row of "run", "network log", …; for an alias, the row of the real command. NULL when there is none. */
const struct cmd *cmd_row(const char *name);

/* Find the row whose name is the longest prefix of ARGV, and the number of words in that name. NULL when there is none. */
const struct cmd *cmd_match(int argc, char **argv, int *ret_words);

/* True when NAME is the first word of several commands ("network"). */
bool cmd_is_group(const char *name);

/* The name most similar to TYPED, or NULL when none is similar enough. */
const char *cmd_suggest(const char *typed);
const char *cmd_suggest_opt(const struct cmd *cmd, const char *typed);

/* ---- option parsing, shared by every command ---- */

/*
 * Read the next option or operand of ARGV. Accepts --opt value, --opt=value, -x value, -xvalue, grouped flags and "--".
 * Returns one of:
 *   an enum field_id for an option, with its text in *VALUE (NULL for a flag) and its checked value in A->given;
 *   CMD_ARG for an operand, in *VALUE;
 *   CMD_END at the end;
 *   CMD_BAD after printing an error and a hint (the caller returns AK_EXIT_USAGE);
 *   CMD_HELP after printing the help text.
 *
 * Values are checked here. Giving an option twice is an error unless the option may be repeated.
 * For a row with command_follows the operand of this number ends the options: it is argv[at - 1], and the words after it are not parsed.
 */
enum { CMD_END = -1, CMD_ARG = -2, CMD_BAD = -3, CMD_HELP = -4 };
struct cmd_args {
	const struct cmd *cmd;
	int argc;
	char **argv;
	int at; /* next word */
	const char *group; /* the unread letters of a group such as -it */
	bool only_operands;
	unsigned n_operands;
	bool seen[FIELD_NUM]; /* which options were given; GIVEN has their last values */
	struct field_value given[FIELD_NUM];
};
void cmd_args_init(struct cmd_args *a, const struct cmd *cmd, int argc, char **argv);
int cmd_next(struct cmd_args *a, const char **value);

/*
 * Parse all words of COMMAND. Options go to A->seen and A->given, up to MAX operands to RET and their number to *RET_N (both may be NULL when MAX is 0).
 * Returns 0 to continue, else the exit code + 1 (so that exit code 0 of --help differs from "continue").
 */
int cmd_read(struct cmd_args *a, const char *command, int argc, char **argv, const char **ret, size_t max, size_t *ret_n);

/*
 * The same, and put every option into O, repeated ones too. In a row with command_follows, the last of MAX operands starts the program's command line:
 * it is argv[a->at - 1], and the words after it are not parsed.
 */
struct run_request;
int cmd_read_into(struct cmd_args *a, const char *command, int argc, char **argv, struct run_request *o, const char **ret,
	size_t max, size_t *ret_n);

/*
 * Map a parse result to an exit code. RC is 0, CMD_HELP, CMD_BAD, or a negative errno with the error in ERR (empty when already printed).
 * Returns 0 to continue, else the exit code + 1, as cmd_read does.
 */
int cmd_parsed(int rc, const struct ak_err *err);

/*
 * Decide whether the command gets a terminal of its own: with --tty, and without --no-tty and --json when we are at one. Returns 0 to continue, else the
 * exit code + 1, as cmd_read does.
 */
struct run_request;
int cmd_choose_tty(const char *command, const struct run_request *o, bool *ret_tty);

/* Print the help text of a command; the list of all commands (GROUP is NULL) or of one group ("network"). */
void cmd_print_help(const struct cmd *cmd, FILE *out);
void cmd_print_overview(const char *group, FILE *out);

/* Call service_heal and print its message unless QUIET. True if no daemon was running: the caller may want to read the state again. */
struct ak_paths;
bool cmd_heal(const struct ak_paths *paths, const char *name, bool quiet);

/* There is no sandbox NAME: if a run has that name, say in ERR what it is instead. */
void cmd_explain_missing(const struct ak_paths *paths, const char *name, struct ak_err *err);

bool cmd_on_terminal(void); /* whether a question can be asked */
bool cmd_ask(const char *question); /* on the terminal; anything but "y" or "yes" means no */

/* 0 if the user agrees, by --yes (YES) or on the terminal, else the exit code. DOES says what --yes does. */
int cmd_agree(const char *command, bool yes, const char *question, const char *does);

/* Print lines that name files of a project, or anything else from outside: what could control a terminal is escaped. */
void cmd_print_lines(const char *text);

/* Print JSON on stdout: indented on a terminal, in one line otherwise. Both return the exit code. */
int cmd_print_json(const cJSON *obj);
int cmd_print_json_text(const struct strbuf *text);

/* Print and free T. An empty table is followed by HINT on stderr; on a terminal the hint stands alone. Returns the exit code. */
struct table;
int cmd_print_table(struct table *t, const char *hint);

/* Report how printing a log ended and return the exit code. CORRUPT is the number of unreadable lines. A closed pipe is not an error. */
int ak_log_end(uint64_t corrupt, int rc, const struct ak_err *err);

/*
 * Apply agentkernel.toml to the request (service_config). If the file widens it, show how and ask, when there is a terminal. Returns 0, or the exit
 * code after printing the error. The caller frees *RET after its last use of O.
 */
struct config;
int cmd_settings(const char *command, struct run_request *o, const struct ak_paths *paths, struct config **ret);

/* Example command lines of a command, without the program's name; NULL-terminated, or NULL when there are none. */
const char *const *cmd_examples(const char *command);

/* The functions in the command table. */
int cmd_run(int argc, char **argv);
int cmd_agent(int argc, char **argv);
int cmd_create(int argc, char **argv);
int cmd_start(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_remove(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_restore(int argc, char **argv);
int cmd_fork(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_attach(int argc, char **argv);
int cmd_cp(int argc, char **argv);
int cmd_network_log(int argc, char **argv);
int cmd_network_policy(int argc, char **argv);
int cmd_network_publish(int argc, char **argv);
int cmd_network_proxy(int argc, char **argv);
int cmd_network_check(int argc, char **argv);
int cmd_network_selftest(int argc, char **argv);
int cmd_policy_list(int argc, char **argv);
int cmd_policy_show(int argc, char **argv);
int cmd_policy_validate(int argc, char **argv);
int cmd_audit(int argc, char **argv);
int cmd_audit_verify(int argc, char **argv);
int cmd_daemon_start(int argc, char **argv);
int cmd_daemon_stop(int argc, char **argv);
int cmd_daemon_status(int argc, char **argv);
int cmd_daemon_prewarm(int argc, char **argv);
int cmd_mcp_server(int argc, char **argv);
int cmd_image_pull(int argc, char **argv);
int cmd_image_import(int argc, char **argv);
int cmd_image_list(int argc, char **argv);
int cmd_image_remove(int argc, char **argv);
int cmd_image_prune(int argc, char **argv);
int cmd_agents(int argc, char **argv);
int cmd_agents_import(int argc, char **argv);
int cmd_agents_reset(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_setup(int argc, char **argv);
int cmd_init(int argc, char **argv);
int cmd_trust(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_completion(int argc, char **argv);

/* What the completion scripts ask; ARGV are the words after the program's name up to the cursor. */
#define CMD_COMPLETE "__complete"
int cmd_complete(int argc, char **argv);

int cmd_version(int argc, char **argv);
int cmd_help(int argc, char **argv);

#endif
