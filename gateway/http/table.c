/* The table of routes: see http/route.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"

#define MODES "claude|codex|gemini|native"
#define PROFILES "permissive|moderate|restrictive"
#define LIST_MAX 256 /* variables and rules of one request: PLAN_LIST_MAX */
#define ARGV_MAX 4096
#define TIME_MAX (7ull * 24 * 3600 * 1000)

/* One field or route a line reads as the table it is. */
/* clang-format off */
#define COMMAND { "command", HTTP_STRINGS, true, 1, ARGV_MAX, NULL, "the program and its arguments; no shell is involved" }
#define ENV { "env", HTTP_ENV, false, 0, LIST_MAX, NULL, "variables, as an object or as K=V strings" }
#define TIMEOUT { "timeout_ms", HTTP_UINT, false, 1, TIME_MAX, NULL, "end it after this long" }
#define PROFILE { "profile", HTTP_STRING, false, 0, 0, PROFILES, "how much of the host it may use" }
#define MODE { "compatibility_mode", HTTP_STRING, false, 0, 0, MODES, "whose network and files it gets" }
#define IMAGE { "image", HTTP_STRING, false, 1, 255, NULL, "root file system from an image; not in this version" }
#define NETWORK { "network", HTTP_BOOL, false, 0, 0, NULL, "false: none at all" }

const struct http_field http_run_fields[] = {
	COMMAND, IMAGE, PROFILE, MODE, NETWORK,
	{ "cwd", HTTP_STRING, false, 1, 4095, NULL, "where it starts; a mode that mounts the project takes it as the project" },
	ENV, TIMEOUT,
	{ "fast", HTTP_BOOL, false, 0, 0, NULL, "false: never a pre-built sandbox; policy and limits are the same either way" },
	{ 0 },
};

static const struct http_field batch_fields[] = {
	{ "commands", HTTP_RUNS, true, 1, 256, NULL, "what to run, each as for /run" },
	{ 0 },
};

static const struct http_field create_fields[] = {
	{ "name", HTTP_STRING, true, 1, 63, NULL, "letters, digits, - and _" },
	IMAGE,
	{ "vcpus", HTTP_UINT, false, 1, 1024, NULL, "processor limit" },
	{ "memory_mb", HTTP_UINT, false, 4, 1u << 24, NULL, "memory limit in MiB" },
	PROFILE, MODE, NETWORK, ENV,
	{ "dir", HTTP_STRING, false, 1, 4095, NULL, "the project folder on the host" },
	{ 0 },
};

#define SUDO { "sudo", HTTP_BOOL, false, 0, 0, NULL, "not in this version: only false" }
static const struct http_field exec_fields[] = {
	COMMAND, ENV,
	{ "workdir", HTTP_STRING, false, 1, 4095, NULL, "where it starts" },
	TIMEOUT, SUDO,
	{ 0 },
};

static const struct http_field write_fields[] = {
	{ "content", HTTP_STRING, true, 0, 0, NULL, "the whole file" },
	{ "encoding", HTTP_STRING, false, 0, 0, "utf8|base64", "of content (utf8)" },
	{ 0 },
};

static const struct http_field files_fields[] = {
	{ "files", HTTP_TEXTS, true, 1, 4096, NULL, "path → content" },
	{ 0 },
};

#define RULES(name, help) { name, HTTP_STRINGS, false, 0, LIST_MAX, NULL, help }
#define DEFAULT { "default", HTTP_STRING, false, 0, 0, "allow|deny", "what no rule speaks of" }
static const struct http_field policy_put_fields[] = {
	DEFAULT, RULES("allow", "hosts"), RULES("deny", "hosts"), RULES("allow_cidr", "address ranges"), RULES("deny_cidr", "address ranges"),
	{ 0 },
};

static const struct http_field policy_patch_fields[] = {
	DEFAULT, RULES("allow", "hosts"), RULES("deny", "hosts"), RULES("allow_cidr", "address ranges"), RULES("deny_cidr", "address ranges"),
	RULES("remove", "rules as written"),
	{ "reset", HTTP_BOOL, false, 0, 0, NULL, "forget all earlier changes first" },
	{ "for_ms", HTTP_UINT, false, 1, TIME_MAX, NULL, "take the change back after this long" },
	{ 0 },
};

static const struct http_field check_fields[] = {
	{ "target", HTTP_STRING, true, 1, 300, NULL, "host[:port][/proto]" },
	{ 0 },
};

static const struct http_field stream_query[] = {
	{ "stream", HTTP_STRING, false, 0, 0, "stdout|stderr", "only this one" },
	{ 0 },
};

static const struct http_field logs_query[] = {
	{ "since", HTTP_STRING, false, 1, 64, NULL, "10m, 1h30m or an RFC 3339 time" },
	{ "limit", HTTP_UINT, false, 1, 10000, NULL, "the newest N (1000)" },
	{ 0 },
};

static const struct http_field network_log_query[] = {
	{ "follow", HTTP_BOOL, false, 0, 0, NULL, "an event stream, until the sandbox ends" },
	{ "denied", HTTP_BOOL, false, 0, 0, NULL, "only what was denied" },
	{ "allowed", HTTP_BOOL, false, 0, 0, NULL, "only what was allowed" },
	{ "since", HTTP_STRING, false, 1, 64, NULL, "10m, 1h30m or an RFC 3339 time" },
	{ "limit", HTTP_UINT, false, 1, 10000, NULL, "the newest N (1000)" },
	{ 0 },
};

static const struct http_field events_query[] = {
	{ "sandbox", HTTP_STRING, false, 1, 63, NULL, "only events of this one" },
	{ "since", HTTP_STRING, false, 1, 64, NULL, "with earlier ones: 10m, 1h30m or an RFC 3339 time" },
	{ 0 },
};

#define STRING "{\"type\":\"string\"}"
#define OBJECT "{\"type\":\"object\"}"
#define ARRAY_OF(schema) "{\"type\":\"array\",\"items\":" schema "}"
#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"

const struct http_route http_routes[] = {
	{ HTTP_GET, "/health", "health", "the server answers", NULL, NULL, STRING, .open = true, .handle = http_handle_health },
	{ HTTP_GET, "/openapi.json", "openapi", "this description", NULL, NULL, OBJECT, .answer = HTTP_TEXT, .handle = http_handle_openapi },
	{ HTTP_GET, "/metrics", "metrics", "numbers for Prometheus", NULL, NULL, STRING, .answer = HTTP_TEXT, .handle = http_handle_metrics },
	{ HTTP_POST, "/run", "run", "run a command in a temporary sandbox", http_run_fields, NULL, REF("RunResult"), .handle = http_handle_run },
	{ HTTP_POST, "/run/stream", "runStream", "the same, with its output while it runs", http_run_fields, NULL, REF("StreamEvent"), .answer = HTTP_SSE, .handle = http_handle_run_stream },
	{ HTTP_POST, "/batch/run", "batchRun", "several at once, each in a sandbox of its own", batch_fields, NULL, REF("BatchResult"), .handle = http_handle_batch },
	{ HTTP_GET, "/sandboxes", "listSandboxes", "all sandboxes", NULL, NULL, ARRAY_OF(REF("SandboxInfo")), .work = http_work_list },
	{ HTTP_POST, "/sandboxes", "createSandbox", "define one and start it", create_fields, NULL, REF("SandboxInfo"), .created = true, .work = http_work_create },
	{ HTTP_GET, "/sandboxes/{name}", "getSandbox", "one sandbox", NULL, NULL, REF("SandboxInfo"), .work = http_work_get },
	{ HTTP_DELETE, "/sandboxes/{name}", "removeSandbox", "stop and remove it", NULL, NULL, STRING, .work = http_work_remove },
	{ HTTP_GET, "/sandboxes/by-uuid/{uuid}", "getSandboxByUuid", "one sandbox", NULL, NULL, REF("SandboxInfo"), .work = http_work_get_uuid },
	{ HTTP_POST, "/sandboxes/{name}/start", "startSandbox", "start it", NULL, NULL, REF("SandboxInfo"), .work = http_work_start },
	{ HTTP_POST, "/sandboxes/{name}/stop", "stopSandbox", "stop it; its files and policy stay", NULL, NULL, REF("SandboxInfo"), .work = http_work_stop },
	{ HTTP_POST, "/sandboxes/{name}/exec", "exec", "run a command in it", exec_fields, NULL, REF("RunResult"), .handle = http_handle_exec },
	{ HTTP_POST, "/sandboxes/{name}/exec/detach", "execDetach", "start a command in the background", exec_fields, NULL, REF("Detached"), .created = true, .handle = http_handle_detach },
	{ HTTP_GET, "/sandboxes/{name}/exec/detached", "detachedList", "background commands", NULL, NULL, ARRAY_OF(REF("Detached")), .handle = http_handle_detached_list },
	{ HTTP_GET, "/sandboxes/{name}/exec/detached/{id}", "detachedStatus", "how a background command stands", NULL, NULL, REF("Detached"), .handle = http_handle_detached_get },
	{ HTTP_GET, "/sandboxes/{name}/exec/detached/{id}/logs", "detachedLogs", "the newest output of a background command", NULL, stream_query, REF("DetachedLogs"), .work = http_work_detached_logs },
	{ HTTP_DELETE, "/sandboxes/{name}/exec/detached/{id}", "detachedKill", "end a background command", NULL, NULL, STRING, .handle = http_handle_detached_kill },
	{ HTTP_POST, "/sandboxes/{name}/files", "writeFiles", "write several files", files_fields, NULL, REF("Written"), .work = http_work_files_write },
	{ HTTP_GET, "/sandboxes/{name}/files/{path}", "readFile", "a file's content", NULL, NULL, REF("File"), .work = http_work_file_read },
	{ HTTP_PUT, "/sandboxes/{name}/files/{path}", "writeFile", "write a file; missing folders are made", write_fields, NULL, STRING, .work = http_work_file_write },
	{ HTTP_DELETE, "/sandboxes/{name}/files/{path}", "deleteFile", "remove a file or an empty folder", NULL, NULL, STRING, .work = http_work_file_delete },
	{ HTTP_GET, "/sandboxes/{name}/logs", "logs", "its audit records", NULL, logs_query, ARRAY_OF(OBJECT), .work = http_work_logs },
	{ HTTP_GET, "/sandboxes/{name}/network/log", "networkLog", "its network records", NULL, network_log_query, ARRAY_OF(OBJECT), .follows = true, .handle = http_handle_network_log },
	{ HTTP_POST, "/sandboxes/{name}/network/check", "networkCheck", "what its policy says of a destination", check_fields, NULL, REF("Verdict"), .work = http_work_check },
	{ HTTP_GET, "/sandboxes/{name}/policy", "getPolicy", "the policy in force", NULL, NULL, REF("LivePolicy"), .work = http_work_policy_get },
	{ HTTP_PUT, "/sandboxes/{name}/policy", "putPolicy", "exactly these rules from now on", policy_put_fields, NULL, REF("LivePolicy"), .work = http_work_policy_put },
	{ HTTP_PATCH, "/sandboxes/{name}/policy", "patchPolicy", "rules on top of those in force", policy_patch_fields, NULL, REF("LivePolicy"), .work = http_work_policy_patch },
	{ HTTP_GET, "/policies", "listPolicies", "the policies that exist", NULL, NULL, ARRAY_OF(OBJECT), .work = http_work_policies },
	{ HTTP_GET, "/policies/{name}", "showPolicy", "a policy as it is enforced", NULL, NULL, OBJECT, .work = http_work_policy_named },
	{ HTTP_GET, "/events", "events", "audit records of all sandboxes as they are written", NULL, events_query, OBJECT, .answer = HTTP_SSE, .handle = http_handle_events },
};
/* clang-format on */
const size_t http_n_routes = ARRAY_SIZE(http_routes);
