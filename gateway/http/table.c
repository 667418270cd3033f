/* The route table. See http/route.h. */
#include "gateway/http/http.h"

#include "gateway/base/cleanup.h"

/* Formatted by hand, one route per line. */
/* clang-format off */
#define STRING "{\"type\":\"string\"}"
#define OBJECT "{\"type\":\"object\"}"
#define ARRAY_OF(schema) "{\"type\":\"array\",\"items\":" schema "}"
#define REF(name) "{\"$ref\":\"#/components/schemas/" name "\"}"

const struct http_route http_routes[] = {
	{ HTTP_GET, "/health", HTTP_TAG_SERVER, "health", "check that the server answers", VERB_NONE, VERB_NONE, STRING, .open = true, .handle = http_handle_health },
	{ HTTP_GET, "/openapi.json", HTTP_TAG_SERVER, "openapi", "this description", VERB_NONE, VERB_NONE, OBJECT, .answer = HTTP_TEXT, .handle = http_handle_openapi },
	{ HTTP_GET, "/metrics", HTTP_TAG_SERVER, "metrics", "metrics for Prometheus", VERB_NONE, VERB_NONE, STRING, .answer = HTTP_TEXT, .handle = http_handle_metrics },
	{ HTTP_POST, "/run", HTTP_TAG_RUN, "run", "run a command in a temporary sandbox", VERB_RUN, VERB_NONE, REF("RunResult"), .conflict = true, .handle = http_handle_run },
	{ HTTP_POST, "/run/stream", HTTP_TAG_RUN, "runStream", "run a command and stream its output", VERB_RUN, VERB_NONE, REF("StreamEvent"), .answer = HTTP_SSE, .handle = http_handle_run_stream },
	{ HTTP_POST, "/batch/run", HTTP_TAG_RUN, "batchRun", "run several commands at once, each in its own sandbox", VERB_BATCH, VERB_NONE, REF("BatchResult"), .handle = http_handle_batch },
	{ HTTP_GET, "/sandboxes", HTTP_TAG_SANDBOXES, "listSandboxes", "list all sandboxes", VERB_NONE, VERB_NONE, ARRAY_OF(REF("SandboxInfo")), .work = http_work_list },
	{ HTTP_POST, "/sandboxes", HTTP_TAG_SANDBOXES, "createSandbox", "create a sandbox and start it", VERB_CREATE, VERB_NONE, REF("SandboxInfo"), .created = true, .conflict = true, .work = http_work_create },
	{ HTTP_GET, "/sandboxes/{name}", HTTP_TAG_SANDBOXES, "getSandbox", "one sandbox", VERB_NONE, VERB_NONE, REF("SandboxInfo"), .work = http_work_get },
	{ HTTP_DELETE, "/sandboxes/{name}", HTTP_TAG_SANDBOXES, "removeSandbox", "stop and remove it", VERB_NONE, VERB_NONE, STRING, .conflict = true, .work = http_work_remove },
	{ HTTP_GET, "/sandboxes/by-uuid/{uuid}", HTTP_TAG_SANDBOXES, "getSandboxByUuid", "one sandbox", VERB_NONE, VERB_NONE, REF("SandboxInfo"), .described = "/sandboxes/{by}/{uuid}", .work = http_work_get_uuid },
	{ HTTP_POST, "/sandboxes/{name}/start", HTTP_TAG_SANDBOXES, "startSandbox", "start it", VERB_NONE, VERB_NONE, REF("SandboxInfo"), .conflict = true, .work = http_work_start },
	{ HTTP_POST, "/sandboxes/{name}/stop", HTTP_TAG_SANDBOXES, "stopSandbox", "stop it; its files and policy stay", VERB_NONE, VERB_NONE, REF("SandboxInfo"), .conflict = true, .work = http_work_stop },
	{ HTTP_GET, "/sandboxes/{name}/snapshots", HTTP_TAG_SANDBOXES, "listSnapshots", "list its snapshots", VERB_NONE, VERB_NONE, ARRAY_OF(REF("Snapshot")), .work = http_work_snapshots },
	{ HTTP_POST, "/sandboxes/{name}/snapshots", HTTP_TAG_SANDBOXES, "snapshotSandbox", "keep a copy of its files", VERB_SNAPSHOT, VERB_NONE, REF("Snapshot"), .created = true, .conflict = true, .work = http_work_snapshot },
	{ HTTP_DELETE, "/sandboxes/{name}/snapshots/{tag}", HTTP_TAG_SANDBOXES, "removeSnapshot", "remove a snapshot", VERB_NONE, VERB_NONE, STRING, .work = http_work_snapshot_remove },
	{ HTTP_POST, "/sandboxes/{name}/restore", HTTP_TAG_SANDBOXES, "restoreSandbox", "restore the files of a snapshot", VERB_RESTORE, VERB_NONE, REF("SandboxInfo"), .conflict = true, .work = http_work_restore },
	{ HTTP_POST, "/sandboxes/{name}/fork", HTTP_TAG_SANDBOXES, "forkSandbox", "make a new sandbox, stopped, with its files and settings", VERB_FORK, VERB_NONE, REF("SandboxInfo"), .created = true, .conflict = true, .work = http_work_fork },
	{ HTTP_POST, "/sandboxes/{name}/exec", HTTP_TAG_EXEC, "exec", "run a command in it", VERB_EXEC, VERB_NONE, REF("RunResult"), .conflict = true, .handle = http_handle_exec },
	{ HTTP_POST, "/sandboxes/{name}/exec/detach", HTTP_TAG_EXEC, "execDetach", "start a command in the background", VERB_EXEC, VERB_NONE, REF("Detached"), .created = true, .conflict = true, .handle = http_handle_detach },
	{ HTTP_GET, "/sandboxes/{name}/exec/detached", HTTP_TAG_EXEC, "detachedList", "list the background commands", VERB_NONE, VERB_NONE, ARRAY_OF(REF("Detached")), .handle = http_handle_detached_list },
	{ HTTP_GET, "/sandboxes/{name}/exec/detached/{id}", HTTP_TAG_EXEC, "detachedStatus", "the status of a background command", VERB_NONE, VERB_NONE, REF("Detached"), .handle = http_handle_detached_get },
	{ HTTP_GET, "/sandboxes/{name}/exec/detached/{id}/logs", HTTP_TAG_EXEC, "detachedLogs", "the newest output of a background command", VERB_NONE, VERB_DETACHED_LOGS, REF("DetachedLogs"), .work = http_work_detached_logs },
	{ HTTP_DELETE, "/sandboxes/{name}/exec/detached/{id}", HTTP_TAG_EXEC, "detachedKill", "end a background command", VERB_NONE, VERB_NONE, STRING, .handle = http_handle_detached_kill },
	{ HTTP_POST, "/sandboxes/{name}/files", HTTP_TAG_FILES, "writeFiles", "write several files", VERB_FILES_WRITE, VERB_NONE, REF("Written"), .conflict = true, .work = http_work_files_write },
	{ HTTP_GET, "/sandboxes/{name}/files/{path}", HTTP_TAG_FILES, "readFile", "a file's content", VERB_NONE, VERB_NONE, REF("File"), .conflict = true, .work = http_work_file_read },
	{ HTTP_PUT, "/sandboxes/{name}/files/{path}", HTTP_TAG_FILES, "writeFile", "write a file; missing folders are created", VERB_FILE_WRITE, VERB_NONE, STRING, .conflict = true, .work = http_work_file_write },
	{ HTTP_DELETE, "/sandboxes/{name}/files/{path}", HTTP_TAG_FILES, "deleteFile", "remove a file or an empty folder", VERB_NONE, VERB_NONE, STRING, .conflict = true, .work = http_work_file_delete },
	{ HTTP_GET, "/sandboxes/{name}/logs", HTTP_TAG_LOGS, "logs", "its audit records", VERB_NONE, VERB_AUDIT_LOGS, ARRAY_OF(OBJECT), .work = http_work_logs },
	{ HTTP_GET, "/sandboxes/{name}/network/log", HTTP_TAG_LOGS, "networkLog", "its network records", VERB_NONE, VERB_NETWORK_LOG, ARRAY_OF(OBJECT), .follows = true, .handle = http_handle_network_log },
	{ HTTP_POST, "/sandboxes/{name}/network/check", HTTP_TAG_POLICIES, "networkCheck", "the verdict of its policy on a destination", VERB_CHECK, VERB_NONE, REF("Verdict"), .conflict = true, .work = http_work_check },
	{ HTTP_POST, "/sandboxes/{name}/network/publish", HTTP_TAG_POLICIES, "networkPublish", "publish ports of it, or remove them", VERB_PUBLISH, VERB_NONE, REF("SandboxInfo"), .conflict = true, .work = http_work_publish },
	{ HTTP_GET, "/sandboxes/{name}/policy", HTTP_TAG_POLICIES, "getPolicy", "the policy in force", VERB_NONE, VERB_NONE, REF("LivePolicy"), .conflict = true, .work = http_work_policy_get },
	{ HTTP_PUT, "/sandboxes/{name}/policy", HTTP_TAG_POLICIES, "putPolicy", "replace all rules", VERB_POLICY_PUT, VERB_NONE, REF("LivePolicy"), .conflict = true, .work = http_work_policy_put },
	{ HTTP_PATCH, "/sandboxes/{name}/policy", HTTP_TAG_POLICIES, "patchPolicy", "add rules to those in force", VERB_POLICY_CHANGE, VERB_NONE, REF("LivePolicy"), .conflict = true, .work = http_work_policy_patch },
	{ HTTP_GET, "/policies", HTTP_TAG_POLICIES, "listPolicies", "list the policies", VERB_NONE, VERB_NONE, ARRAY_OF(OBJECT), .work = http_work_policies },
	{ HTTP_GET, "/policies/{name}", HTTP_TAG_POLICIES, "showPolicy", "a policy as it is enforced", VERB_NONE, VERB_NONE, OBJECT, .work = http_work_policy_named },
	{ HTTP_GET, "/events", HTTP_TAG_LOGS, "events", "audit records of all sandboxes as they are written", VERB_NONE, VERB_AUDIT, OBJECT, .answer = HTTP_SSE, .handle = http_handle_events },
};
/* clang-format on */
const size_t http_n_routes = ARRAY_SIZE(http_routes);
