/* Has a run or a sandbox ended? For commands that follow its log. See service/service.h. */
#include "gateway/service/service.h"

#include "gateway/base/cleanup.h"
#include "gateway/base/io.h"
#include "gateway/base/json.h"
#include "gateway/daemon/daemon.h"
#include "gateway/store/rundir.h"
#include "gateway/store/state.h"
#include "gateway/super/super.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define RUN_JSON_MAX (4u << 20) /* a command line may be long */

static bool process_gone(const cJSON *run)
{
	struct ak_err ignored;
	uint64_t pid = 0;

	if (json_get_uint(run, "pid", 1u << 22, &pid, &ignored) <= 0 || pid == 0)
		return false;
	return kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

/* The last line of TEXT. *LEN is the length of TEXT on entry and the length of the line on return. */
static const char *last_line(const char *text, size_t *len)
{
	size_t end = *len, start;

	if (end && text[end - 1] == '\n')
		end--;
	for (start = end; start && text[start - 1] != '\n'; start--)
		continue;
	*len = end - start;
	return text + start;
}

static bool run_ended(const char *dir)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_json_ cJSON *run = NULL;
	const char *ended = "", *line;
	struct ak_err ignored;
	char path[PATH_MAX];
	size_t len;

	if (ak_path_join(path, dir, RUNDIR_FILE, NULL) < 0)
		return true;
	if (ak_read_file(AT_FDCWD, path, RUN_JSON_MAX, &text, &len) < 0)
		return access(dir, F_OK) < 0; /* not written yet: the run is just starting */
	line = last_line(text, &len);
	if (json_parse(line, len, &run, &ignored) < 0)
		return false; /* the line is being written */
	return (json_get_string(run, "ended", &ended, &ignored) > 0 && ended[0]) || process_gone(run);
}

/* A persistent sandbox has ended if the daemon recorded that in its state, or if neither its supervisor nor a daemon is running. */
static bool persistent_ended(const struct ak_paths *p, const char *name)
{
	struct state_sandbox s = { 0 };
	struct ak_err ignored;
	_cleanup_close_ int daemon = -1;
	bool running;

	if (state_load(p, name, &s, &ignored) < 0)
		return true;
	running = s.running;
	state_done(&s);
	if (!running)
		return true;
	_cleanup_close_ int sock = super_connect(p, name, &ignored);

	if (sock >= 0 || sock == -EPERM)
		return false;
	daemon = daemon_connect(p, false, &ignored);
	return daemon < 0;
}

bool service_ended(const struct ak_paths *p, const char *dir)
{
	const char *name = strrchr(dir, '/'), *folder = "/sandboxes";
	size_t len = name ? (size_t)(name - dir) : 0;

	if (len > strlen(folder) && !strncmp(dir + len - strlen(folder), folder, strlen(folder)))
		return persistent_ended(p, name + 1);
	return run_ended(dir);
}
