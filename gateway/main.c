/* agentkernel: find the command in the table, run it and exit with its code. */
#include "gateway/base/io.h"
#include "gateway/base/say.h"
#include "gateway/base/title.h"
#include "gateway/cli/cmd.h"
#include "gateway/daemon/daemon.h"
#include "gateway/image/image.h"
#include "gateway/selftest/selftest.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <fcntl.h>
#include <nss.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Open /dev/null as descriptors 0, 1 and 2 if the caller closed them, so that a file opened later never becomes stdin, stdout or stderr. */
static int fill_stdio(void)
{
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
			return -1;
	}
	return 0;
}

#ifdef AK_STATIC
/* Use only lookups that are part of this program: the NSS modules of the system may need another C library than the one linked statically. */
static void keep_own_lookups(void)
{
	(void)__nss_configure_lookup("passwd", "files");
	(void)__nss_configure_lookup("group", "files");
	(void)__nss_configure_lookup("hosts", "files dns");
	(void)__nss_configure_lookup("services", "files");
	(void)__nss_configure_lookup("protocols", "files");
}
#else
static void keep_own_lookups(void)
{
}
#endif

static int unknown_command(int argc, char **argv)
{
	char typed[160];
	const char *near;

	if (argv[0][0] == '-') {
		ak_say("unknown option '%s' before the command; see 'agentkernel --help'", argv[0]);
		return AK_EXIT_USAGE;
	}
	snprintf(typed, sizeof(typed), "%s%s%s", argv[0], argc > 1 ? " " : "", argc > 1 ? argv[1] : "");
	near = cmd_suggest(typed);
	if (!cmd_is_group(argv[0])) {
		/* Name only the first word: the second may be an argument. */
		snprintf(typed, sizeof(typed), "%s", argv[0]);
		near = near ? near : cmd_suggest(typed);
	}
	if (near)
		ak_say("unknown command '%s'; did you mean '%s'?", typed, near);
	else
		ak_say("unknown command '%s'; see 'agentkernel help'", typed);
	return AK_EXIT_USAGE;
}

static bool is_help(const char *word)
{
	return !strcmp(word, "--help") || !strcmp(word, "-h");
}

/* "network" alone, or "network --help". */
static int group(int argc, char **argv)
{
	bool asked = argc > 1 && is_help(argv[1]);

	cmd_print_overview(argv[0], asked ? stdout : stderr);
	return asked ? 0 : AK_EXIT_USAGE;
}

static int dispatch(int argc, char **argv)
{
	static char version[] = "version";
	const struct cmd *cmd;
	int words = 0;

	if (argc == 0) {
		cmd_print_overview(NULL, stderr);
		return AK_EXIT_USAGE;
	}
	if (is_help(argv[0])) {
		cmd_print_overview(NULL, stdout);
		return 0;
	}
	if (!strcmp(argv[0], "--version") || !strcmp(argv[0], "-V"))
		argv[0] = version;
	if (!strcmp(argv[0], CMD_COMPLETE))
		return cmd_complete(argc - 1, argv + 1);
	if (!strcmp(argv[0], SELFTEST_PROBE))
		return selftest_probe(argc, argv);
	if (!strcmp(argv[0], IMAGE_UNPACK_WORD))
		return image_unpack_main(argc, argv);
	if (!strcmp(argv[0], SUPER_WORD))
		return super_main();
	if (!strcmp(argv[0], HEAL_WORD))
		return daemon_heal_main();
	cmd = cmd_match(argc, argv, &words);
	if (cmd) {
		/* Commands that run a program keep the SIGPIPE disposition they inherited, because the program inherits it from them. */
		if (!cmd->command_follows)
			signal(SIGPIPE, SIG_DFL);
		return cmd->run(argc - words + 1, argv + words - 1);
	}
	if (cmd_is_group(argv[0]) && (argc == 1 || is_help(argv[1])))
		return group(argc, argv);
	return unknown_command(argc, argv);
}

/* Failing to write the output is an error, except when the reader closed the pipe. */
static int finish(int code)
{
	struct ak_err err;
	int rc = ak_flush(&err);

	if (rc == 0 || rc == -EPIPE)
		return code;
	ak_say("%s", err.text);
	return code ? code : AK_EXIT_ERROR;
}

int main(int argc, char **argv)
{
	keep_own_lookups();
	ak_title_init(argc, argv);
	if (fill_stdio() < 0)
		return AK_EXIT_FAILED;
	ak_raise_descriptor_limit();
	return finish(dispatch(argc > 0 ? argc - 1 : 0, argv + (argc > 0)));
}
