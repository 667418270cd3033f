/*
 * completion bash|zsh|fish: print a small script that asks this program for the words that fit at the cursor. The answers (cli/complete.c) are the same in every
 * shell, and those of the installed program, so a script never becomes outdated.
 */
#include "gateway/cli/cmd.h"

#include <stdio.h>
#include <string.h>

/*
 * Bash splits words at '=' and ':'; we take the line apart ourselves, and give back only what follows the last of them. Bash inserts a word as it is, so each is
 * quoted: a sandbox chooses the names of its files.
 */
static const char bash_script[] =
	"# bash completion for agentkernel; printed by 'agentkernel completion bash'.\n"
	"_agentkernel() {\n"
	"\tlocal line=${COMP_LINE:0:COMP_POINT} kind word cur cut\n"
	"\tlocal -a words found\n"
	"\tCOMPREPLY=()\n"
	"\tread -ra words <<< \"$line\"\n"
	"\t[[ $line != *[[:space:]] ]] || words+=('')\n"
	"\tcur=${words[-1]}\n"
	"\tcut=${cur%\"${cur##*[=:]}\"}\n"
	"\tmapfile -t found < <(\"${words[0]}\" " CMD_COMPLETE " \"${words[@]:1}\" 2>/dev/null)\n"
	"\tkind=${found[0]-}\n"
	"\tfor word in \"${found[@]:1}\"; do\n"
	"\t\tword=${word%%$'\\t'*}\n"
	"\t\tprintf -v word %q \"${word#\"$cut\"}\"\n"
	"\t\tCOMPREPLY+=(\"$word\")\n"
	"\tdone\n"
	"\t[[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *[/:=] ]] || compopt -o nospace 2>/dev/null\n"
	"\tcase $kind in\n"
	"\tfiles) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"${cur#\"$cut\"}\") ;;\n"
	"\tfolders) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- \"${cur#\"$cut\"}\") ;;\n"
	"\tcommand*) if declare -F _command_offset >/dev/null; then _command_offset $((${kind#command } + 1)); else compopt -o default 2>/dev/null; fi ;;\n"
	"\tesac\n"
	"}\n"
	"complete -F _agentkernel agentkernel\n";

static const char zsh_script[] =
	"#compdef agentkernel\n"
	"# zsh completion for agentkernel; printed by 'agentkernel completion zsh'.\n"
	"_agentkernel() {\n"
	"\tlocal kind line\n"
	"\tlocal -a found open shown_open closed shown_closed\n"
	"\tfound=(\"${(@f)$(${words[1]} " CMD_COMPLETE " \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
	"\tkind=$found[1]\n"
	"\tfor line in \"${(@)found[2,-1]}\"; do\n"
	"\t\t[[ -n $line ]] || continue\n"
	"\t\tif [[ ${line%%$'\\t'*} = *[/:=] ]]; then\n"
	"\t\t\topen+=(\"${line%%$'\\t'*}\") shown_open+=(\"${line/$'\\t'/  -- }\")\n"
	"\t\telse\n"
	"\t\t\tclosed+=(\"${line%%$'\\t'*}\") shown_closed+=(\"${line/$'\\t'/  -- }\")\n"
	"\t\tfi\n"
	"\tdone\n"
	"\t(( ${#closed} )) && compadd -l -d shown_closed -a closed\n"
	"\t(( ${#open} )) && compadd -S '' -l -d shown_open -a open\n"
	"\tcase $kind in\n"
	"\tfiles) _files ;;\n"
	"\tfolders) _files -/ ;;\n"
	"\tcommand*) shift $(( ${kind#command } + 1 )) words; (( CURRENT -= ${kind#command } + 1 )); _normal ;;\n"
	"\tesac\n"
	"}\n\n"
	"if [[ ${funcstack[1]} = _agentkernel ]]; then\n"
	"\t_agentkernel \"$@\"\n"
	"else\n"
	"\tcompdef _agentkernel agentkernel\n"
	"fi\n";

static const char fish_script[] = "# fish completion for agentkernel; printed by 'agentkernel completion fish'.\n"
				  "function __agentkernel_complete\n"
				  "\tset -l words (commandline -opc)\n"
				  "\tset -l cur (commandline -ct)\n"
				  "\tset -l found ($words[1] " CMD_COMPLETE " $words[2..] \"$cur\" 2>/dev/null)\n"
				  "\tset -l kind (string split ' ' -- \"$found[1]\")\n"
				  "\tprintf '%s\\n' $found[2..]\n"
				  "\tswitch \"$kind[1]\"\n"
				  "\t\tcase files\n"
				  "\t\t\t__fish_complete_path \"$cur\"\n"
				  "\t\tcase folders\n"
				  "\t\t\t__fish_complete_directories \"$cur\" ''\n"
				  "\t\tcase command\n"
				  "\t\t\tset -l rest $words[(math $kind[2] + 2)..] \"$cur\"\n"
				  "\t\t\tcomplete -C (string escape -- $rest[1..-2] | string join ' ')\" $cur\"\n"
				  "\tend\n"
				  "end\n"
				  "complete -c agentkernel -f -a '(__agentkernel_complete)'\n";

int cmd_completion(int argc, char **argv)
{
	static const struct {
		const char *shell, *script;
	} scripts[] = { { "bash", bash_script }, { "zsh", zsh_script }, { "fish", fish_script } };
	struct cmd_args a;
	const char *shell = NULL;
	int rc = cmd_read(&a, "completion", argc, argv, &shell, 1, NULL);

	if (rc)
		return rc - 1;
	for (size_t i = 0; shell && i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		if (!strcmp(shell, scripts[i].shell)) {
			fputs(scripts[i].script, stdout);
			return 0;
		}
	}
	ak_say("completion: %s; give bash, zsh or fish", shell ? "unknown shell" : "no shell given");
	return AK_EXIT_USAGE;
}
