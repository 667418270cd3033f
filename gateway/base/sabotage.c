/* Deliberately broken builds: see base/sabotage.h. */
#include "gateway/base/sabotage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifndef AK_SABOTAGE
#define AK_SABOTAGE ""
#endif

const char *sabotage_switches(void)
{
	return AK_SABOTAGE[0] ? AK_SABOTAGE : NULL;
}

int sabotage_check(struct ak_err *err)
{
	const char *known = getenv("AK_SABOTAGE_OK");

	if (!sabotage_switches() || (known && !strcmp(known, "1")))
		return 0;
	return ak_fail(err, EPERM, "this build is deliberately broken (%s) to test the self-test; it refuses to run anything",
		sabotage_switches());
}
