/* Restart the daemon for commands that use running sandboxes. See service_heal. */
#include "gateway/cli/cmd.h"

#include "gateway/service/service.h"

bool cmd_heal(const struct ak_paths *paths, const char *name, bool quiet)
{
	struct ak_err told;

	if (!service_heal(paths, name, &told))
		return false;
	if (!quiet)
		ak_say("%s", told.text);
	return true;
}
