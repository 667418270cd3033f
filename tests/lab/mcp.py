"""An MCP client for the tests: it says exactly what it is told to, right or wrong, and hears everything."""
import contextlib
import json
import os
import time

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
TOOLS = {"sandbox_run", "sandbox_create", "sandbox_exec", "sandbox_list", "sandbox_remove", "sandbox_file_write", "sandbox_file_read",
         "sandbox_start", "sandbox_stop", "network_log", "network_check"}


class Mcp:
    def __init__(self, lab, *options, command=("mcp", "server"), env=None, who=None, cwd=None):
        self.lab = lab
        self.proc = lab.spawn([lab.binary, *command, *options], stdin="pipe", env=lab.env(**(env or {})), who=who, cwd=cwd)
        self.last = 0

    # ---- bytes ----

    def write(self, data):
        """All of DATA, however slowly it is taken."""
        end = time.monotonic() + 60
        while data:
            try:
                data = data[os.write(self.proc.keep_stdin, data[:65536]):]
            except BlockingIOError:
                assert time.monotonic() < end and self.proc.code is None, "the server does not read: %r" % self.proc.output
                self.proc._pump(time.monotonic() + 0.001, lambda: False)

    def lines(self):
        """Whole lines so far, each of them JSON."""
        return [json.loads(line) for line in self.proc.output[1].split(b"\n")[:-1]]

    def hear(self, which, timeout=20, since=0):
        """The first message, but for SINCE earlier ones, for which WHICH is true; waits for it."""
        found = []

        def look():
            found[:] = [m for m in self.lines()[since:] if which(m)][:1]
            return found or self.proc.code is not None

        self.proc._pump(time.monotonic() + max(timeout, self.lab.patience_s), look)
        assert found, "never heard: %r %r code %r" % (self.proc.output[1][-3000:], self.proc.output[2][-3000:], self.proc.code)
        return found[0]

    def hears_nothing(self):
        """Nothing was said but an answer to a ping that was sent last."""
        before = len(self.lines())
        self.ping()
        assert len(self.lines()) == before + 1, self.lines()[before:]

    # ---- messages ----

    def say(self, message):
        self.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    def notify(self, method, **params):
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, method, **params):
        """Send a request; its id."""
        self.last += 1
        self.say({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        return self.last

    def answer(self, ident, timeout=20):
        return self.hear(lambda m: isinstance(m, dict) and m.get("id") == ident and "method" not in m, timeout)

    def request(self, method, timeout=20, **params):
        return self.answer(self.ask(method, **params), timeout)

    def ping(self):
        return self.request("ping")

    def error(self, message, ident=None):
        """The error that MESSAGE is answered with: (code, text)."""
        seen = len(self.lines())
        self.say(message)
        found = self.hear(lambda m: isinstance(m, dict) and "error" in m, since=seen)
        assert found["id"] == ident and found["jsonrpc"] == "2.0", found
        return found["error"]["code"], found["error"]["message"]

    def open(self, revision="2025-11-25"):
        result = self.request("initialize", protocolVersion=revision, capabilities={}, clientInfo={"name": "test", "version": "1"})["result"]
        self.notify("notifications/initialized")
        return result

    # ---- tools ----

    def call(self, tool, timeout=40, **arguments):
        return self.request("tools/call", timeout, name=tool, arguments=arguments)

    def good(self, tool, timeout=40, **arguments):
        """A call that works: (structured, text)."""
        result = self.call(tool, timeout, **arguments)["result"]
        assert result["isError"] is False, result
        return result["structuredContent"], result["content"][0]["text"]

    def bad(self, tool, timeout=40, **arguments):
        """A call that fails as a tool: the text."""
        result = self.call(tool, timeout, **arguments)["result"]
        assert result["isError"] is True and "structuredContent" not in result, result
        return result["content"][0]["text"]

    def close(self, timeout=10):
        with contextlib.suppress(OSError):
            self.proc.close_stdin()
        return self.proc.wait(timeout)


@contextlib.contextmanager
def serving(lab, *options, revision="2025-11-25", **kw):
    """A server that was greeted, and ends well."""
    m = Mcp(lab, *options, **kw)
    try:
        m.open(revision)
        yield m
    except BaseException:
        m.proc.signal(9)
        m.close()
        raise
    r = m.close()
    assert r.code == 0 and r.err == "", r
