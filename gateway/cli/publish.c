/* network publish: show or change the published ports of a sandbox. */
#include "gateway/cli/cmd.h"

#include "gateway/base/cleanup.h"
#include "gateway/service/service.h"
#include "gateway/store/runs.h"

#include <errno.h>
#include <stdio.h>

#define COMMAND "network publish"

struct words {
	const char *name;
	char whole[AK_NAME_MAX]; /* the name that was abbreviated */
	struct service_ports ports;
	bool json;
};

static int add_port(const char *text, struct ak_publish *list, size_t *n, struct ak_err *err)
{
	struct ak_publish p;
	int rc = ak_publish_parse(text, &p, err);

	return rc < 0 || ak_publish_add(list, n, &p, err) < 0 ? -EINVAL : 0;
}

static int take_word(struct words *w, int id, const char *value, struct ak_err *err)
{
	if (id == CMD_ARG && !w->name)
		w->name = value;
	else if (id == CMD_ARG)
		return add_port(value, w->ports.add, &w->ports.n_add, err);
	else if (id == FIELD_UNPUBLISH)
		return add_port(value, w->ports.drop, &w->ports.n_drop, err);
	else if (id == FIELD_JSON)
		w->json = true;
	return 0;
}

/* Returns 0 to continue, else the exit code + 1. */
static int parse(struct words *w, int argc, char **argv)
{
	struct cmd_args a;
	struct ak_err err;
	const char *value;
	int i, rc = 0;

	cmd_args_init(&a, cmd_row(COMMAND), argc, argv);
	while (rc == 0 && (i = cmd_next(&a, &value)) != CMD_END) {
		if (i == CMD_BAD || i == CMD_HELP)
			return 1 + (i == CMD_BAD ? AK_EXIT_USAGE : 0);
		rc = take_word(w, i, i == CMD_ARG ? value : a.given[i].text, &err);
	}
	if (rc == 0 && !w->name)
		rc = ak_fail(&err, EINVAL, "no sandbox given; see 'agentkernel list'");
	if (rc == 0 && w->ports.n_add && w->ports.n_drop)
		rc = ak_fail(&err, EINVAL, "publish ports or --remove them, not both at once");
	if (rc == 0)
		return 0;
	ak_say("%s: %s", COMMAND, err.text);
	return 1 + AK_EXIT_USAGE;
}

/* Say that other machines can connect to a port that was just published. */
static void say_open(const struct service_ports *ports)
{
	char host[AK_PUBLISH_TEXT];

	for (size_t i = 0; i < ports->n_add; i++) {
		if (!ak_publish_is_local(&ports->add[i]))
			ak_say("%s: other machines that reach this address can connect", ak_publish_host(&ports->add[i], host));
	}
}

static int print(const struct words *w, const cJSON *info)
{
	const cJSON *ports = cJSON_GetObjectItemCaseSensitive(info, "publish"), *item;
	_cleanup_json_ cJSON *none = cJSON_CreateArray();

	if (w->json)
		return cmd_print_json(ports ? ports : none);
	cJSON_ArrayForEach(item, ports) {
		struct ak_publish p;
		struct ak_err ignored;
		char host[AK_PUBLISH_TEXT];

		if (cJSON_IsString(item) && ak_publish_parse(item->valuestring, &p, &ignored) == 0)
			printf("%s leads to port %u of %s\n", ak_publish_host(&p, host), p.port, w->name);
	}
	return 0;
}

int cmd_network_publish(int argc, char **argv)
{
	struct words w = { .name = NULL };
	_cleanup_json_ cJSON *info = NULL;
	struct ak_paths paths;
	struct ak_err err;
	int rc = parse(&w, argc, argv);

	if (rc)
		return rc - 1;
	rc = ak_paths_init(&paths, &err);
	if (rc == 0)
		rc = runs_resolve(&paths, &w.name, w.whole, &err);
	if (rc == 0 && (w.ports.n_add || w.ports.n_drop)) {
		rc = service_publish(&paths, w.name, &w.ports, &info, &err);
		if (rc == 0)
			say_open(&w.ports);
	} else if (rc == 0) {
		cmd_heal(&paths, w.name, false);
		rc = service_inspect(&paths, w.name, &info, &err);
	}
	if (rc < 0) {
		ak_say("%s: %s", COMMAND, err.text);
		return rc == -EINVAL ? AK_EXIT_USAGE : AK_EXIT_ERROR;
	}
	return print(&w, info);
}
