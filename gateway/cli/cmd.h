/*
 * Commands: one table row and one function each. main.c finds the row, the function parses its own options.
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
	const char *args; /* what follows the options in the usage line */
	const char *help; /* one line */
	enum field_verb verb; /* its options are the verb's fields; --help is added to all */
	int (*run)(int argc, char **argv); /* argv[0] is the last word of the command's own name */
	bool command_follows; /* `run`, `exec`: the first word that is not an option starts the command */
	const char *alias_of; /* a second spelling: NULL or the row it stands for */
};

extern const struct cmd cmd_table[]; /* ends with name NULL */

/* The row of "run", "network log" …; aliases lead to the row they stand for. NULL when there is none. */
const struct cmd *cmd_row(const char *name);

/* The row with the most words that ARGV starts with, and how many words those are. NULL when there is none. */
const struct cmd *cmd_match(int argc, char **argv, int *ret_words);

/* True when NAME is the first word of commands ("network"). */
bool cmd_is_group(const char *name);

/* The name nearest to what was typed, or NULL when nothing is near. */
const char *cmd_suggest(const char *typed);
const char *cmd_suggest_opt(const struct cmd *cmd, const char *typed);

/* ---- option parsing, shared by every command ---- */

/*
 * Next option or operand of ARGV. Takes --opt value, --opt=value, -x value, -xvalue, grouped flags and "--".
 * Returns the enum field_id and its value (NULL for a flag; A->given has it as its type says); CMD_ARG for an operand (in *VALUE); CMD_END at the end;
 * CMD_BAD after it printed what is wrong with a hint (caller returns AK_EXIT_USAGE); CMD_HELP after --help was printed.
 *
 * Values are checked here, and an option that takes a value once is refused the second time.
 * For a row with command_follows the first operand ends the options: it is argv[at - 1], and the rest follows it untouched.
 */
enum { CMD_END = -1, CMD_ARG = -2, CMD_BAD = -3, CMD_HELP = -4 };
struct cmd_args {
	const struct cmd *cmd;
	int argc;
	char **argv;
	int at; /* next word */
	const char *group; /* rest of a group of letters */
	bool only_operands;
	bool seen[FIELD_NUM]; /* options that were given, and their last value */
	struct field_value given[FIELD_NUM];
};
void cmd_args_init(struct cmd_args *a, const struct cmd *cmd, int argc, char **argv);
int cmd_next(struct cmd_args *a, const char **value);

/*
 * All words of COMMAND at once: A->seen and A->given have the options, RET up to MAX operands, *RET_N how many there are (both may be NULL when MAX is
 * 0). 0 to go on; else the exit code + 1, so that --help's 0 is told apart.
 */
int cmd_read(struct cmd_args *a, const char *command, int argc, char **argv, const char **ret, size_t max, size_t *ret_n);

/*
 * How the reading of the words ended: RC is 0, CMD_HELP, CMD_BAD, or negative with its reason in ERR ("" when it was told). 0 to go on; else
 * the exit code + 1, so that --help's 0 is told apart.
 */
int cmd_parsed(int rc, const struct ak_err *err);

/* Print what --help prints for a command, or for all (NULL), or for a group ("network"). */
void cmd_print_help(const struct cmd *cmd, FILE *out);
void cmd_print_overview(const char *group, FILE *out);

/* service_heal, which prints its line unless QUIET. True if there was no daemon: what was read before may be worth reading again. */
struct ak_paths;
bool cmd_heal(const struct ak_paths *paths, const char *name, bool quiet);

/* OBJ on stdout, as a person reads it; the exit code. */
int cmd_print_json(const cJSON *obj);

/* How the showing of a log ended, told and as an exit code: a reader who left is no failure. CORRUPT lines could not be read. */
int ak_log_end(uint64_t corrupt, int rc, const struct ak_err *err);

/* The commands, each in the file of its name. */
int cmd_run(int argc, char **argv);
int cmd_agent(int argc, char **argv);
int cmd_create(int argc, char **argv);
int cmd_start(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_remove(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_attach(int argc, char **argv);
int cmd_cp(int argc, char **argv);
int cmd_network_log(int argc, char **argv);
int cmd_network_policy(int argc, char **argv);
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
int cmd_agents(int argc, char **argv);
int cmd_agents_import(int argc, char **argv);
int cmd_agents_reset(int argc, char **argv);
int cmd_init(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_completion(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_help(int argc, char **argv);

#endif
