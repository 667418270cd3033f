"""What `make demo` shows: codex mode, in the lab, from the command line to the log."""
import os
import shlex
import shutil
import time

from lab import HERE, PYTHON


def main(lab):
    project = lab.path("project")
    shutil.copy(os.path.join(HERE, "demo_client.py"), project)
    shutil.copy(os.path.join(lab.folder, "ca.pem"), project)
    who = "root" if lab.who == "root" else "an ordinary user"
    print("A private Internet with its own DNS, TLS and HTTP servers; agentkernel runs as %s.\n" % who)
    command = ["run", "--compatibility-mode", "codex", PYTHON, "demo_client.py"]
    print("$ agentkernel " + shlex.join(command), flush=True)
    r = lab.ak([*command, repr(time.monotonic()), "ca.pem"])
    print(r.out + r.err, flush=True)
    print("$ agentkernel network log --last")
    log = lab.ak(["network", "log", "--last"])
    print(log.out + log.err)
    arrived = lab.strangers("11.2.0.1", "2a00:2::1")
    print("What the far side saw besides api.openai.com: %s" % (", ".join(arrived) or "nothing"))
    times = sorted(lab.run(["--compatibility-mode", "codex", "true"]).seconds for _ in range(9))
    print("Starting and ending a sandbox (`run --compatibility-mode codex true`): %.1f ms, the middle of nine" % (times[4] * 1000))
    lines = [line for line in r.out.splitlines() if line.startswith("  ")]
    as_promised = len(lines) == 5 and "reached" in lines[0] and all("refused" in line for line in lines[1:])
    return 0 if as_promised and not arrived and r.code == 0 else 1
