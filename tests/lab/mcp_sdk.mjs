// Drives our server with the MCP TypeScript SDK's own client: node mcp_sdk.mjs SDK_FOLDER BINARY [OPTIONS…] < steps.json
// Each step is {tool, args} or {list:true} or {cancel_after_ms, tool, args}; one JSON result a line.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [folder, binary, ...options] = process.argv.slice(2);
const sdk = (name) => import(pathToFileURL(path.join(folder, "node_modules/@modelcontextprotocol/sdk/dist/esm/client", name)).href);
const { Client } = await sdk("index.js");
const { StdioClientTransport } = await sdk("stdio.js");

const transport = new StdioClientTransport({ command: binary, args: ["mcp", "server", ...options], env: process.env, stderr: "inherit" });
const client = new Client({ name: "sdk-test", version: "1.0.0" });
await client.connect(transport);
console.log(JSON.stringify({ server: client.getServerVersion(), instructions: client.getInstructions() }));

for (const step of JSON.parse(readFileSync(0, "utf8"))) {
	const began = performance.now();
	let out;
	try {
		if (step.list) {
			out = await client.listTools();
		} else {
			const progress = [];
			const how = { timeout: 60000, onprogress: (p) => progress.push(p) };
			if (step.cancel_after_ms) {
				how.signal = AbortSignal.timeout(step.cancel_after_ms);
			}
			out = await client.callTool({ name: step.tool, arguments: step.args }, undefined, how);
			out.progress = progress;
		}
	} catch (e) {
		out = { thrown: String(e.message ?? e), code: e.code };
	}
	out.ms = performance.now() - began;
	console.log(JSON.stringify(out));
}
await client.close();
