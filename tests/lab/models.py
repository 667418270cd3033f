"""Scripted model APIs of the lab's Internet: OpenAI Responses, Anthropic Messages and Gemini streamGenerateContent, all streaming.

The prompt is the script: "[[MARK|COMMAND]]" makes the model call the agent's own shell tool with COMMAND. When the result of the tool has come back,
it answers "seen: MARK …" with the marks of every prompt of the conversation, so that a continued session shows. Anything else gets a short text.
"""
import json
import re

PROMPT = re.compile(r"\[\[(\w+)\|(.*?)\]\]", re.S)
SHELL_TOOLS = ("exec_command", "shell_command", "shell", "exec", "bash", "Bash", "run_shell_command")


def text_of(part):
    """All text in a message's content, whatever its shape."""
    if isinstance(part, str):
        return part
    if isinstance(part, list):
        return "\n".join(map(text_of, part))
    return text_of(part.get("text") or part.get("content") or part.get("parts") or "") if isinstance(part, dict) else ""


class Talk:
    """What a request says so far: its prompts, whether the last one's tool has answered, and what the model does next."""

    def __init__(self, items, is_result, is_user, tools):
        self.marks, self.command, self.result = [], None, None
        for item in items:
            if is_result(item):
                self.result = json.dumps(item)
                continue
            for mark, command in PROMPT.findall(text_of(item)) if is_user(item) else ():
                if mark not in self.marks:
                    self.marks.append(mark)
                self.command, self.result = command, None
        self.tool = next((t for t in tools if t.get("name") in SHELL_TOOLS), None)

    @property
    def calls(self):
        return bool(self.command and self.result is None and self.tool)

    @property
    def answer(self):
        return "seen: " + " ".join(self.marks) if self.marks else "ok"

    def arguments(self):
        """COMMAND in the form that the tool's own schema asks for."""
        schema = self.tool.get("parameters") or self.tool.get("input_schema") or self.tool.get("parametersJsonSchema") or {}
        properties = {k: v for k, v in (schema.get("properties") or {"command": {"type": "string"}}).items()}
        name = "cmd" if "cmd" in properties else "command"
        value = ["bash", "-c", self.command] if properties[name].get("type") in ("array", "ARRAY") else self.command
        out = {name: value}
        if "description" in (schema.get("required") or ()):
            out["description"] = "the scripted call"
        return out


# ---- OpenAI ----


def openai(path, body):
    if path.startswith("/v1/models"):
        return {"object": "list", "data": []}
    if not path.startswith("/v1/responses"):
        return None
    items = body.get("input") if isinstance(body.get("input"), list) else [{"role": "user", "content": body.get("input") or ""}]
    tools = list(openai_tools([*(body.get("tools") or ()), *(t for i in items if i.get("type") == "additional_tools" for t in i["tools"])]))
    talk = Talk(items, lambda i: i.get("type", "").endswith("_call_output"), lambda i: i.get("role") == "user", tools)
    if talk.calls and talk.tool["type"] == "custom":  # a program in JavaScript that calls the shell tool
        item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_%d" % len(items), "name": "exec", "status": "completed",
                "input": "text(JSON.stringify(await tools.exec_command(%s)))" % json.dumps({"cmd": talk.command})}
        if talk.tool.get("namespace"):
            item["namespace"] = talk.tool["namespace"]
    elif talk.calls:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_%d" % len(items), "name": talk.tool["name"], "arguments": json.dumps(talk.arguments()),
                "status": "completed"}
    else:
        item = {"type": "message", "id": "msg_%d" % len(items), "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": talk.answer, "annotations": []}]}
    return talk, list(openai_events(item, body.get("model")))


def openai_tools(tools, namespace=None):
    """All of them, also those in namespaces; the ones that are called directly first."""
    flat = []
    for tool in tools:
        flat += openai_tools(tool["tools"], tool["name"]) if tool.get("type") == "namespace" else [dict(tool, namespace=namespace)]
    return sorted(flat, key=lambda t: t.get("type") != "function")


def openai_events(item, model):
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": model, "status": "in_progress", "output": [], "error": None,
            "incomplete_details": None}
    events = [("response.created", {"response": head}),
              ("response.output_item.added", {"output_index": 0, "item": dict(item, status="in_progress", **{k: type(item[k])() for k in ("content", "arguments", "input") if k in item})})]
    if "content" in item:
        text = item["content"][0]["text"]
        at = {"output_index": 0, "content_index": 0, "item_id": item["id"]}
        events += [("response.content_part.added", dict(at, part=dict(item["content"][0], text=""))),
                   ("response.output_text.delta", dict(at, delta=text[:3])), ("response.output_text.delta", dict(at, delta=text[3:])),
                   ("response.output_text.done", dict(at, text=text)), ("response.content_part.done", dict(at, part=item["content"][0]))]
    elif "input" in item:
        at = {"output_index": 0, "item_id": item["id"]}
        events += [("response.custom_tool_call_input.delta", dict(at, delta=item["input"])), ("response.custom_tool_call_input.done", dict(at, input=item["input"]))]
    else:
        at = {"output_index": 0, "item_id": item["id"]}
        events += [("response.function_call_arguments.delta", dict(at, delta=item["arguments"])),
                   ("response.function_call_arguments.done", dict(at, arguments=item["arguments"]))]
    usage = {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 18}
    events += [("response.output_item.done", {"output_index": 0, "item": item}),
               ("response.completed", {"response": dict(head, status="completed", output=[item], usage=usage)})]
    for n, (kind, data) in enumerate(events):
        yield kind, dict(data, type=kind, sequence_number=n)


# ---- Anthropic ----


def anthropic(path, body):
    if path.startswith("/v1/messages/count_tokens"):
        return {"input_tokens": 9}
    if not path.startswith("/v1/messages"):
        return None
    items = [dict(part if isinstance(part, dict) else {"type": "text", "text": part}, role=m["role"]) for m in body.get("messages") or ()
             for part in (m["content"] if isinstance(m["content"], list) else [m["content"]])]
    talk = Talk(items, lambda i: i.get("type") == "tool_result", lambda i: i["role"] == "user", body.get("tools") or ())
    if talk.calls:
        block = {"type": "tool_use", "id": "toolu_%d" % len(items), "name": talk.tool["name"], "input": talk.arguments()}
    else:
        block = {"type": "text", "text": talk.answer}
    message = {"id": "msg_%d" % len(items), "type": "message", "role": "assistant", "model": body.get("model"), "content": [block],
               "stop_reason": "tool_use" if talk.calls else "end_turn", "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 9}}
    return talk, (list(anthropic_events(message, block)) if body.get("stream") else message)


def anthropic_events(message, block):
    empty = dict(block, **({"input": {}} if "input" in block else {"text": ""}))
    delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])} if "input" in block else {"type": "text_delta", "text": block["text"]}
    for kind, data in (("message_start", {"message": dict(message, content=[], stop_reason=None)}),
                       ("content_block_start", {"index": 0, "content_block": empty}), ("content_block_delta", {"index": 0, "delta": delta}),
                       ("content_block_stop", {"index": 0}),
                       ("message_delta", {"delta": {"stop_reason": message["stop_reason"], "stop_sequence": None}, "usage": {"output_tokens": 9}}),
                       ("message_stop", {})):
        yield kind, dict(data, type=kind)


# ---- Gemini ----


def least(schema):
    """The smallest value that fits a JSON schema: how the model answers a question with a form."""
    kind = str(schema.get("type", "object")).lower()
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "object":
        return {name: least(sub) for name, sub in (schema.get("properties") or {}).items()}
    return {"string": "", "boolean": False, "array": []}.get(kind, 1)


def gemini(path, body):
    if "GenerateContent" not in path and "generateContent" not in path:
        return {"totalTokens": 9} if "countTokens" in path else None
    items = [dict(part, role=c.get("role")) for c in body.get("contents") or () for part in c.get("parts") or ()]
    tools = [f for t in body.get("tools") or () for f in t.get("functionDeclarations") or ()]
    talk = Talk(items, lambda i: "functionResponse" in i, lambda i: i["role"] == "user", tools)
    config = body.get("generationConfig") or {}
    form = config.get("responseJsonSchema") or config.get("responseSchema")
    if form:
        talk.tool = None
    part = {"text": json.dumps(least(form))} if form else {"functionCall": {"name": talk.tool["name"], "args": talk.arguments()}} if talk.calls else {"text": talk.answer}
    answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
              "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}, "modelVersion": "lab"}
    return talk, ([(None, answer)] if "stream" in path else answer)


APIS = {"api.openai.com": openai, "api.anthropic.com": anthropic, "generativelanguage.googleapis.com": gemini}
# Asked for lists of models, settings and news, and better without an answer than with a strange one.
SILENT = ("chatgpt.com", "models.dev", "models.opencode.ai", ".googleapis.com")


class Models:
    """Serves APIS for one Internet, and remembers what was asked."""

    def __init__(self):
        self.log = []

    @staticmethod
    def serves(host):
        return host is not None and (host in APIS or host.endswith(SILENT))

    async def answer(self, host, method, path, heads, body, writer):
        entry = {"host": host, "method": method, "path": path}
        self.log.append(entry)
        if "upgrade" in heads.get("connection", "").lower():
            entry["status"] = 426
            return await self.send(writer, "426 Upgrade Required", {"error": {"message": "no WebSocket here"}})
        got = APIS[host](path, json.loads(body) if body else {}) if host in APIS else None
        talk, out = got if isinstance(got, tuple) else (None, got)
        if out is None:
            entry["status"] = 404
            return await self.send(writer, "404 Not Found", {"error": {"message": "not in the lab"}})
        entry["status"] = 200
        if talk:
            entry.update(marks=talk.marks, calls=talk.calls, result=talk.result)
        if isinstance(out, list):
            return await self.stream(writer, out)
        return await self.send(writer, "200 OK", out)

    @staticmethod
    async def send(writer, status, out):
        body = json.dumps(out).encode()
        writer.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status.encode(), len(body)) + body)
        await writer.drain()

    @staticmethod
    async def stream(writer, events):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n")
        for kind, data in events:
            text = (("event: %s\n" % kind if kind else "") + "data: %s\n\n" % json.dumps(data)).encode()
            writer.write(b"%x\r\n" % len(text) + text + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
