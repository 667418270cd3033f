/* What is shown of a persistent sandbox, whoever knows it: from its record on disk, or from the daemon that runs it. */
#ifndef AK_INFO_H
#define AK_INFO_H

#include "gateway/base/json.h"
#include "gateway/store/state.h"

#include <stdint.h>

struct sandbox_info {
	const struct state_sandbox *state; /* borrowed */
	const char *status; /* "running", "stopped", … */
	uint64_t allowed, denied; /* in all its life */
	const struct ak_publish *publish; /* borrowed: its published ports as they are open now; NULL: as in STATE */
};

/* SandboxInfo: {"name","uuid","status","backend","mode","profile","vcpus","memory_mb","disk_mb"?,"network","ip","dir"?,"created_at","generation","mcp"?,
 * "publish"?,"allowed","denied"}; NULL when out of memory. */
cJSON *sandbox_info_json(const struct sandbox_info *i);

/* The same of one whose record cannot be read: its name is all that is known, and what is wrong. */
cJSON *sandbox_info_damaged(const char *name, const char *reason);

/* Its live policy P, and the changes in force at NOW_US: {"name","generation","mcp"?,"changes":[{"op","text","until"?}],"policy"}. "mcp" where MCP
 * servers may use it: whether they were given this policy. */
cJSON *sandbox_policy_json(const struct state_sandbox *s, const struct policy *p, uint64_t now_us);

#endif
