// What a program does that was written for the published client. Prints one JSON object; the test looks at it.
// Base URL and key are the client's own defaults and variables: nothing is set here.
const { AgentKernel, AgentKernelError, AuthError, NetworkError, NotFoundError, ValidationError } = await import(process.argv[2]);

const out = {};
const client = new AgentKernel();
const failure = async (promise) => {
	try {
		return { value: await promise };
	} catch (e) {
		return { name: e.name, status: e.status, message: e.message, ours: e instanceof AgentKernelError };
	}
};
const until = async (look) => {
	for (let i = 0; i < 200; i++) {
		const got = await look();
		if (got) return got;
		await new Promise((r) => setTimeout(r, 25));
	}
	throw new Error("never came true");
};

out.health = await client.health();
out.run = await client.run(["sh", "-c", "echo hello; exit 3"]);
out.restrictive = await client.run(["echo", "quiet"], { profile: "restrictive", fast: false });
out.events = [];
const apart = "sleep 0.3"; // the time between two events is what is looked at: it shows that each is told when it happens
for await (const event of client.runStream(["sh", "-c", `echo one; ${apart}; echo two; exit 2`])) out.events.push([Date.now(), event.type, event.data]);

out.created = await client.createSandbox("node-box", { vcpus: 1, memory_mb: 256, profile: "moderate" });
out.got = await client.getSandbox("node-box");
out.byUuid = await client.getSandboxByUuid(out.created.uuid);
out.list = (await client.listSandboxes()).map((s) => s.name);
out.exec = await client.execInSandbox("node-box", ["sh", "-c", "echo $A; pwd"], { env: ["A=b c"], workdir: "/tmp" });

const binary = Buffer.from(Array.from({ length: 1024 }, (_, i) => i & 255));
out.wrote = await client.writeFile("node-box", "tmp/with space.txt", "käse\n");
out.read = await client.readFile("node-box", "/tmp/with space.txt");
await client.writeFile("node-box", "/tmp/binary", binary.toString("base64"), { encoding: "base64" });
const back = await client.readFile("node-box", "tmp/binary");
out.binary = { encoding: back.encoding, size: back.size, same: Buffer.from(back.content, "base64").equals(binary) };
out.many = await client.writeFiles("node-box", { "/tmp/a/1": "x", "/tmp/a/2": "y" });
out.deleted = await client.deleteFile("node-box", "/tmp/with space.txt");
out.logs = (await client.getSandboxLogs("node-box")).map((r) => r.event);
out.batch = await client.batchRun([{ command: ["echo", "1"] }, { command: ["sh", "-c", "echo 2 >&2; exit 1"] }]);

const d = (out.detached = await client.execDetached("node-box", ["sh", "-c", "echo from behind; echo oops >&2; sleep 1000"]));
out.detachedStatus = await client.detachedStatus("node-box", d.id);
out.detachedLogs = await until(async () => {
	const l = await client.detachedLogs("node-box", d.id);
	return l.stdout && l.stderr ? l : null;
});
out.detachedErr = await client.detachedLogs("node-box", d.id, "stderr");
out.detachedList = (await client.detachedList("node-box")).map((x) => x.id === d.id);
out.detachedKill = await client.detachedKill("node-box", d.id);
out.detachedEnd = await until(async () => {
	const s = await client.detachedStatus("node-box", d.id);
	return s.status !== "running" ? s : null;
});

out.errors = {
	missing: await failure(client.getSandbox("nobody")),
	badName: await failure(client.createSandbox("not a name")),
	unknownField: await failure(client.createSandbox("x", { volumes: ["a:/b"] })),
	badProfile: await failure(client.run(["true"], { profile: "lax" })),
	noFile: await failure(client.readFile("node-box", "/tmp/none")),
	taken: await failure(client.createSandbox("node-box")),
	streamBad: await failure(client.runStream([]).next()),
	snapshots: await failure(client.listSnapshots()),
	orchestrations: await failure(client.createOrchestration({})),
	extend: await failure(client.extendTtl("node-box", { by: "1h" })),
	wrongKey: await failure(new AgentKernel({ apiKey: "wrong" }).listSandboxes()),
	nobodyThere: await failure(new AgentKernel({ baseUrl: "http://localhost:1" }).health()),
	timeout: await failure(new AgentKernel({ timeout: 300 }).run(["sleep", "1000"])),
};
out.classes = {
	missing: out.errors.missing.name === new NotFoundError().name,
	badName: out.errors.badName.name === new ValidationError().name,
	wrongKey: out.errors.wrongKey.name === new AuthError().name,
	nobodyThere: out.errors.nobodyThere.name === new NetworkError().name,
};

const session = await client.sandbox("session-box");
out.session = await session.run(["echo", "in session"]);
await session.writeFiles({ "/tmp/s": "1" });
out.sessionInfo = (await session.info()).status;
await session.remove();
await session.remove();
out.removed = await client.removeSandbox("node-box");
out.left = await client.listSandboxes();
console.log(JSON.stringify(out));
