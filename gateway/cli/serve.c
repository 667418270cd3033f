/* `agentkernel serve`: parse the addresses and keys, then run the HTTP API. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/http/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_MAX 16
#define KEY_VARIABLE "AGENTKERNEL_API_KEY"

struct serve {
	const char *hosts[NAMES_MAX + 1], *names[NAMES_MAX + 1];
	size_t n_hosts, n_names;
	struct http_conf conf;
};

static int add_name(const char **list, size_t *n, const char *value, struct ak_err *err)
{
	if (*n == NAMES_MAX)
		return ak_fail(err, E2BIG, "more than %d", NAMES_MAX);
	list[(*n)++] = value;
	return 0;
}

/* Warn when other users can read the key file. */
static void check_mode(const char *path)
{
	struct stat st;

	if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 077))
		ak_say("serve: other users can read the keys in '%s'; fix it with chmod 600", path);
}

static int take(struct serve *s, int id, const struct field_value *v, struct ak_err *err)
{
	int rc = 0;

	if (id == FIELD_PORT)
		s->conf.port = (uint16_t)v->number;
	if (id == FIELD_HOST)
		rc = add_name(s->hosts, &s->n_hosts, v->text, err);
	if (id == FIELD_SERVER_NAME)
		rc = add_name(s->names, &s->n_names, v->text, err);
	if (id == FIELD_API_KEY_FILE) {
		check_mode(v->text);
		rc = http_keys_load(&s->conf.keys, v->text, err);
	}
	return rc < 0 ? ak_err_prefix(err, rc, "serve: --%s", field_table[id].option) : 0;
}

/* Remove the key variable from our environment, so that no sandbox inherits it. An empty variable is an error: the user meant to require a key. */
static int take_variable(struct serve *s, struct ak_err *err)
{
	const char *key = getenv(KEY_VARIABLE);
	int rc = key ? http_keys_add(&s->conf.keys, key, err) : 0;

	if (rc < 0)
		return ak_err_prefix(err, rc, KEY_VARIABLE);
	unsetenv(KEY_VARIABLE);
	return 0;
}

/* Returns 0, the last result of cmd_next, or -EINVAL. */
static int parse(struct serve *s, int argc, char **argv, struct ak_err *err)
{
	struct cmd_args a;
	const char *value;
	int i;

	cmd_args_init(&a, cmd_row("serve"), argc, argv);
	while ((i = cmd_next(&a, &value)) != CMD_END) {
		if (i == CMD_BAD || i == CMD_HELP)
			return i;
		if (i == CMD_ARG)
			return ak_fail(err, EINVAL, "serve: unexpected '%.100s'", value);
		if (take(s, i, &a.given[i], err) < 0)
			return -EINVAL;
	}
	return take_variable(s, err) < 0 ? -EINVAL : 0;
}

static void say_ready(void *ctx, const char *url)
{
	const struct serve *s = ctx;

	ak_say("serving on %s%s", url, s->conf.keys.n ? " (with a key)" : "");
}

int cmd_serve(int argc, char **argv)
{
	struct serve s = { .conf.port = HTTP_PORT };
	struct ak_err err = { "" };
	struct ak_paths paths;
	int rc = cmd_parsed(parse(&s, argc, argv, &err), &err);

	if (rc) {
		http_keys_done(&s.conf.keys);
		return rc - 1;
	}
	ak_fill_standard_streams();
	s.conf.hosts = s.hosts;
	s.conf.names = s.names;
	s.conf.paths = &paths;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = http_serve(&s.conf, say_ready, &s, &err);
	http_keys_done(&s.conf.keys);
	if (rc < 0)
		ak_say("serve: %s", err.text);
	return rc == -EINVAL ? AK_EXIT_USAGE : rc < 0 ? AK_EXIT_ERROR : 0;
}
