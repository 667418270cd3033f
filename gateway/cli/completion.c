/*
 * completion bash|zsh|fish: print a completion script, generated from the command table, that knows every command, option and choice.
 *
 * Each script contains the table as a few case lists (options of a command, options that take a value, the words of a choice) and fixed
 * logic that finds where the command's name ends and, for `run`, where the user's own command begins.
 */
#include "gateway/cli/cmd.h"

#include <stdio.h>
#include <string.h>

static void print_choice(void *ctx, const char *word, size_t len)
{
	const char **gap = ctx;

	printf("%s%.*s", *gap, (int)len, word);
	*gap = " ";
}

/* Print the available words of a choice, separated by spaces. */
static void print_choices(const struct field *f)
{
	const char *gap = "";

	field_choices(f, print_choice, &gap);
}

/* "bash|zsh|fish" is a choice; "NAME|--last" and "MODE|NAME|FILE HOST" are not. */
static bool closed_operands(const struct cmd *c)
{
	return strchr(c->args, '|') && !strpbrk(c->args, " -ABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

/* Does the name of an existing sandbox come first? True for "NAME", "NAME…", "NAME|--last", "NAME CMD …". */
static bool takes_name(const struct cmd *c)
{
	return !strncmp(c->args, "NAME", 4) && cmd_row("list") && strcmp(c->name, "create") != 0 &&
		strcmp(c->name, "sandbox create") != 0 && strncmp(c->name, "policy ", 7) != 0;
}

static void print_words(const char *choice)
{
	for (; *choice; choice++)
		putchar(*choice == '|' ? ' ' : *choice);
}

/* Print each word that may follow PREFIX ("" or "network") in a command name, once. */
static void print_next_words(const char *prefix)
{
	size_t len = strlen(prefix);
	char last[64] = "";

	for (const struct cmd *c = cmd_table; c->name; c++) {
		const char *rest = c->name + (len ? len + 1 : 0);
		char word[64];

		if (len && (strncmp(c->name, prefix, len) != 0 || c->name[len] != ' '))
			continue;
		snprintf(word, sizeof(word), "%.*s", (int)strcspn(rest, " "), rest);
		if (!strcmp(word, last))
			continue; /* the rows of a group are adjacent */
		printf("%s%s", last[0] ? " " : "", word);
		memcpy(last, word, sizeof(last));
	}
}

/* Print the case branches of _agentkernel_words, which bash and zsh share. */
static void print_case_groups(void)
{
	char last[64] = "";

	printf("\t'') echo '");
	print_next_words("");
	printf("' ;;\n");
	for (const struct cmd *c = cmd_table; c->name; c++) {
		char group[64];

		snprintf(group, sizeof(group), "%.*s", (int)strcspn(c->name, " "), c->name);
		if (!strchr(c->name, ' ') || !strcmp(group, last))
			continue;
		printf("\t'%s') echo '", group);
		print_next_words(group);
		printf("' ;;\n");
		memcpy(last, group, sizeof(last));
	}
}

static void print_case_options(void)
{
	for (const struct cmd *c = cmd_table; c->name; c++) {
		printf("\t'%s') echo '", c->name);
		field_each(u, c->verb, FIELD_CLI) {
			if (!field_absent(&field_table[u->id]))
				printf("--%s ", field_table[u->id].option);
		}
		printf("--help' ;;\n");
	}
}

/* What kind of value an option takes: <dir>, <name> or <any>. */
static const char *value_kind(const struct field *f)
{
	const char *arg = field_arg(f);

	return !strcmp(arg, "DIR") ? "<dir>" : f->kind == KIND_NAME ? "<name>" : "<any>";
}

static void print_case_values(void)
{
	for (const struct cmd *c = cmd_table; c->name; c++) {
		field_each(u, c->verb, FIELD_CLI) {
			const struct field *f = &field_table[u->id];

			if (field_absent(f) || !field_arg(f))
				continue;
			printf("\t'%s --%s'", c->name, f->option);
			if (f->letter)
				printf("|'%s -%c'", c->name, f->letter);
			printf(") echo '");
			if (f->choices)
				print_choices(f);
			else
				printf("%s", value_kind(f));
			printf("' ;;\n");
		}
	}
}

static void print_case_operands(void)
{
	for (const struct cmd *c = cmd_table; c->name; c++) {
		printf("\t'%s') echo '", c->name);
		if (takes_name(c))
			printf(c->command_follows ? "<name><command>" : "<name>");
		else if (c->command_follows)
			printf("<command>");
		else if (closed_operands(c))
			print_words(c->args);
		else
			printf(c->args[0] ? "<any>" : "<none>");
		printf("' ;;\n");
	}
}

static void print_shell_tables(void)
{
	printf("# The words that may follow a command's first words.\n_agentkernel_words() {\n\tcase $1 in\n");
	print_case_groups();
	printf("\tesac\n}\n\n_agentkernel_options() {\n\tcase $1 in\n");
	print_case_options();
	printf("\tesac\n}\n\n# What an option takes: words, <dir> or <any>; nothing for a flag.\n_agentkernel_value() {\n\tcase \"$1 $2\" in\n");
	print_case_values();
	printf("\tesac\n}\n\n_agentkernel_operands() {\n\tcase $1 in\n");
	print_case_operands();
	printf("\tesac\n}\n\n");
}

/* Parses the words before the cursor. Sets cmd (the command's name), want (the option whose value comes next) and state. */
static const char shell_scan[] =
	"# Parse the words before the cursor: which command is it, and what may come next?\n"
	"_agentkernel_scan() {\n"
	"\tlocal w\n"
	"\tcmd= want= named= state=words\n"
	"\tfor w in \"$@\"; do\n"
	"\t\tif [[ -n $want ]]; then\n"
	"\t\t\t[[ $w = '=' ]] || want=\n"
	"\t\t\tcontinue\n"
	"\t\tfi\n"
	"\t\tcase $state in\n"
	"\t\twords)\n"
	"\t\t\tcase \" $(_agentkernel_words \"$cmd\") \" in\n"
	"\t\t\t*\" $w \"*) cmd=${cmd:+$cmd }$w; continue ;;\n"
	"\t\t\tesac\n"
	"\t\t\t[[ -n $cmd ]] || { state=done; continue; }\n"
	"\t\t\tstate=options ;;\n"
	"\t\tdone) continue ;;\n"
	"\t\tesac\n"
	"\t\tcase $w in\n"
	"\t\t--) state=operands; case $(_agentkernel_operands \"$cmd\")$named in '<command>'|*'<command>named') state=command ;; esac ;;\n"
	"\t\t--*=*) ;;\n"
	"\t\t-?*) [[ $state != options || -z $(_agentkernel_value \"$cmd\" \"$w\") ]] || want=$w ;;\n"
	"\t\t*) case $(_agentkernel_operands \"$cmd\")$named in\n"
	"\t\t\t'<command>'|*'<command>named') state=done ;;\n"
	"\t\t\t*'<command>') named=named ;;\n"
	"\t\t\tesac ;;\n"
	"\t\tesac\n"
	"\tdone\n"
	"}\n\n"
	"# Candidates for an operand: for `exec` a sandbox name, then the command.\n"
	"_agentkernel_operand() {\n"
	"\tlocal what=$(_agentkernel_operands \"$cmd\")\n"
	"\tcase $what$named in\n"
	"\t'<name><command>named') echo '<command>' ;;\n"
	"\t'<name>'*) agentkernel list -q 2>/dev/null | tr '\\n' ' '; echo '<none>' ;;\n"
	"\t*) echo \"$what\" ;;\n"
	"\tesac\n"
	"}\n\n"
	"# Candidates for the word at the cursor, separated by spaces.\n"
	"_agentkernel_candidates() {\n"
	"\tlocal more\n"
	"\tif [[ -n $want ]]; then\n"
	"\t\tmore=$(_agentkernel_value \"$cmd\" \"$want\")\n"
	"\t\t[[ $more != '<name>' ]] || more=$(agentkernel list -q 2>/dev/null)\n"
	"\t\techo \"$more\"\n"
	"\t\treturn\n"
	"\tfi\n"
	"\tcase $state in\n"
	"\tdone) echo '<any>' ;;\n"
	"\tcommand) echo '<command>' ;;\n"
	"\toperands) _agentkernel_operand ;;\n"
	"\t*)\n"
	"\t\tmore=\n"
	"\t\t[[ $state = words ]] && more=$(_agentkernel_words \"$cmd\")\n"
	"\t\tcase $1 in\n"
	"\t\t-*) if [[ -n $cmd ]]; then _agentkernel_options \"$cmd\"; else echo '--help --version'; fi ;;\n"
	"\t\t*) echo \"$more $([[ -n $cmd ]] && _agentkernel_operand)\" ;;\n"
	"\t\tesac ;;\n"
	"\tesac\n"
	"}\n\n";

static int print_bash(void)
{
	printf("# bash completion for agentkernel; generated by 'agentkernel completion bash'.\n\n");
	print_shell_tables();
	fputs(shell_scan, stdout);
	fputs("_agentkernel() {\n"
	      "\tlocal cur=${COMP_WORDS[COMP_CWORD]} cmd want named state found\n"
	      "\t_agentkernel_scan \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"\n"
	      "\t[[ -n $want && $cur = '=' ]] && cur=\n"
	      "\tfound=$(_agentkernel_candidates \"$cur\")\n"
	      "\tCOMPREPLY=()\n"
	      "\tcase $found in\n"
	      "\t*'<dir>'*) mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
	      "\t*'<command>'*) mapfile -t COMPREPLY < <(compgen -c -- \"$cur\") ;;\n"
	      "\t*)\n"
	      "\t\tfound=${found//<any>/}\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"${found//<none>/}\" -- \"$cur\") ;;\n"
	      "\tesac\n"
	      "\t[[ $found = *'<none>'* ]] && compopt +o default 2>/dev/null\n"
	      "\treturn 0\n"
	      "}\n"
	      "complete -o default -F _agentkernel agentkernel\n",
		stdout);
	return 0;
}

static int print_zsh(void)
{
	printf("#compdef agentkernel\n# zsh completion for agentkernel; generated by 'agentkernel completion zsh'.\n\n");
	print_shell_tables();
	fputs(shell_scan, stdout);
	fputs("_agentkernel() {\n"
	      "\tlocal cur=${words[CURRENT]} cmd want named state found\n"
	      "\tlocal -a list\n"
	      "\t_agentkernel_scan \"${(@)words[2,CURRENT-1]}\"\n"
	      "\tif [[ -z $want && $state != (done|operands|command) && $cur = --*=* ]]; then\n"
	      "\t\twant=${cur%%=*}\n"
	      "\t\tcompset -P '*='\n"
	      "\tfi\n"
	      "\tfound=$(_agentkernel_candidates \"$cur\")\n"
	      "\tcase $found in\n"
	      "\t*'<dir>'*) _files -/ ; return ;;\n"
	      "\t*'<command>'*) _command_names -e ; return ;;\n"
	      "\tesac\n"
	      "\tlist=(${(s: :)found})\n"
	      "\tlist=(${list:#<*>})\n"
	      "\tif (( ${#list} )); then\n"
	      "\t\tcompadd -- $list\n"
	      "\telif [[ $found = *'<any>'* ]]; then\n"
	      "\t\t_files\n"
	      "\tfi\n"
	      "}\n\n"
	      "if [[ ${funcstack[1]} = _agentkernel ]]; then\n"
	      "\t_agentkernel \"$@\"\n"
	      "else\n"
	      "\tcompdef _agentkernel agentkernel\n"
	      "fi\n",
		stdout);
	return 0;
}

static void print_fish_value(const struct field *f)
{
	if (f->choices) {
		printf(" -x -a '");
		print_choices(f);
		putchar('\'');
	} else if (f->kind == KIND_NAME) {
		printf(" -x -a '(agentkernel list -q 2>/dev/null)'");
	} else {
		printf(!strcmp(field_arg(f), "DIR") || !strcmp(field_arg(f), "FILE") ? " -r -F" : " -x");
	}
}

static void print_fish_opts(const struct cmd *c)
{
	field_each(u, c->verb, FIELD_CLI) {
		_cleanup_strbuf_ struct strbuf words = { 0 };
		const struct field *f = &field_table[u->id];

		if (field_absent(f))
			continue;
		printf("complete -c agentkernel -n '__agentkernel_in \"%s\"' -l %s", c->name, f->option);
		if (f->letter)
			printf(" -s %c", f->letter);
		if (field_arg(f))
			print_fish_value(f);
		field_words(&words, f, FIELD_CLI);
		printf(" -d \"%s\"\n", words.data ? words.data : "");
	}
	printf("complete -c agentkernel -n '__agentkernel_in \"%s\"' -l help -s h -d 'print help'\n", c->name);
}

static void print_fish_words(const struct cmd *c)
{
	const char *space = strchr(c->name, ' ');

	if (space)
		printf("complete -c agentkernel -n '__agentkernel_at \"%.*s\"' -f -a %s -d \"%s\"\n", (int)(space - c->name),
			c->name, space + 1, c->help);
	else
		printf("complete -c agentkernel -n '__agentkernel_at \"\"' -f -a %s -d \"%s\"\n", c->name, c->help);
	if (closed_operands(c)) {
		printf("complete -c agentkernel -n '__agentkernel_in \"%s\"' -f -a '", c->name);
		print_words(c->args);
		printf("'\n");
	} else if (takes_name(c)) {
		printf("complete -c agentkernel -n '__agentkernel_in \"%s\"' -f -a '(agentkernel list -q 2>/dev/null)' -d sandbox\n",
			c->name);
	} else if (!c->args[0]) {
		printf("complete -c agentkernel -n '__agentkernel_in \"%s\"' -f\n", c->name);
	}
}

static int print_fish(void)
{
	char last[64] = "";

	printf("# fish completion for agentkernel; generated by 'agentkernel completion fish'.\n\n");
	printf("# The words so far are exactly the command's first words.\n"
	       "function __agentkernel_at\n"
	       "\tset -l words (commandline -opc)\n"
	       "\ttest \"$words[2..]\" = \"$argv[1]\"\n"
	       "end\n\n"
	       "# The words so far start with the command's name, and no longer name does.\n"
	       "function __agentkernel_in\n"
	       "\tset -l words (commandline -opc)\n"
	       "\tset -l line \" $words[2..] \"\n"
	       "\tstring match -q -- \" $argv[1] *\" $line; or return 1\n"
	       "\tif test \"$argv[1]\" = audit\n"
	       "\t\tnot string match -q -- ' audit verify *' $line\n"
	       "\tend\n"
	       "end\n\n");
	for (const struct cmd *c = cmd_table; c->name; c++) {
		char group[64];

		snprintf(group, sizeof(group), "%.*s", (int)strcspn(c->name, " "), c->name);
		if (strchr(c->name, ' ') && strcmp(group, last) != 0 && !cmd_row(group))
			printf("complete -c agentkernel -n '__agentkernel_at \"\"' -f -a %s\n", group);
		memcpy(last, group, sizeof(last));
		print_fish_words(c);
		print_fish_opts(c);
	}
	printf("complete -c agentkernel -n '__agentkernel_at \"\"' -l version -d 'print the version'\n"
	       "complete -c agentkernel -n '__agentkernel_at \"\"' -l help -s h -d 'print help'\n"
	       "complete -c agentkernel -n '__agentkernel_in run' -a '(__fish_complete_subcommand --fcs-skip=2)'\n");
	return 0;
}

int cmd_completion(int argc, char **argv)
{
	struct cmd_args a;
	const char *shell = NULL;
	int rc = cmd_read(&a, "completion", argc, argv, &shell, 1, NULL);

	if (rc)
		return rc - 1;
	if (shell && !strcmp(shell, "bash"))
		return print_bash();
	if (shell && !strcmp(shell, "zsh"))
		return print_zsh();
	if (shell && !strcmp(shell, "fish"))
		return print_fish();
	ak_say("completion: %s; give bash, zsh or fish", shell ? "unknown shell" : "no shell given");
	return AK_EXIT_USAGE;
}
