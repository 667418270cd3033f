"""h22: no output makes a huge answer: answers of the HTTP server are bounded, and so is what it holds of them."""
import threading

import pytest
from api import api, box_api  # noqa: F401
from lab import PYTHON, wait_for

MIB = 1 << 20
ANSWER = 26 * MIB
# A mebibyte of an octet, again and again, on one stream or both.
WRITE = "import os, sys\nd = bytes([int(sys.argv[1])]) * (1 << 20)\nfor _ in range(int(sys.argv[2])):\n for fd in map(int, sys.argv[3:]): os.write(fd, d)"
OCTETS = {"control": 1, "nul": 0, "not text": 255, "quote": 34, "plain": 120}


def writer(octet, n=16, *fds):
    return {"command": [PYTHON, "-c", WRITE, str(octet), str(n), *map(str, fds or (1, 2))]}


def memory(api, what="VmHWM"):  # noqa: F811
    """In MiB."""
    return int(api.lab.host(["grep", what, "/proc/%d/status" % api.proc.pid]).out.split()[1]) // 1024


@pytest.fixture
def one(box_api):  # noqa: F811
    a = box_api.post("/sandboxes", {"name": "one"})
    assert a.status == 201, a
    return box_api


@pytest.mark.parametrize("octet", OCTETS.values(), ids=OCTETS)
def test_h22_an_answer_is_bounded_whatever_the_octets(api, octet):  # noqa: F811
    a = api.post("/run", writer(octet))
    r = a.data
    assert len(a.body) < ANSWER and r["truncated"] is True and r["exit_code"] == 0, len(a.body)
    text = bytes([octet]).decode(errors="replace")
    for key in ("stdout", "stderr", "output"):
        assert len(r[key]) > MIB and set(r[key]) == {text}
    assert memory(api) < 150


def test_h22_what_fits_is_whole(api):  # noqa: F811
    r = api.post("/run", {"command": [PYTHON, "-c", "import sys\nfor i in range(150000): print('line', i, '\\t\"\\\\ä€😀\\1')\nprint('e' * 2000000, file=sys.stderr)"]}).data
    want = "".join("line %d \t\"\\ä€😀\1\n" % i for i in range(150000))
    assert "truncated" not in r and r["stderr"] == "e" * 2000000 + "\n" and len(want) > 2 * MIB
    assert r["stdout"] == want and len(r["output"]) == len(want) + 2000001


def test_h22_a_cut_never_tears_a_character(api):  # noqa: F811
    for pad in range(4):
        r = api.post("/run", {"command": [PYTHON, "-c", "import sys; sys.stdout.buffer.write(b'x' * %d + '😀'.encode() * 3000000)" % pad]}).data
        assert r["truncated"] is True and set(r["stdout"][pad:]) == {"😀"} == set(r["output"][pad:])


def test_h22_four_calls_at_once_take_little_memory_and_nobody_waits_for_them(api):  # noqa: F811
    answers = []
    threads = [threading.Thread(target=lambda s=s: answers.append(finish(s))) for s in [api.connect() for _ in range(4)]]
    body = api.encode(writer(1))

    def finish(s):
        with s:
            s.settimeout(60)
            s.sendall(api.head("POST", "/run", (), len(body)) + body)
            n = 0
            while n < 1000 or not tail.endswith(b"}\n"):
                tail = s.recv(1 << 20)
                n += len(tail)
            return n
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(answers) == 4 and max(answers) < ANSWER, answers
    assert memory(api) < 4 * 40, memory(api)


def test_h22_a_batch_is_bounded_as_a_whole(api):  # noqa: F811
    a = api.post("/batch/run", {"commands": [writer(1, 4, 1)] * 24})
    rows = a.data["results"]
    assert len(a.body) < ANSWER and all(r["exit_code"] == 0 and r["truncated"] is True and r["output"] for r in rows)
    assert memory(api) < 150


def test_h22_the_logs_of_a_background_command_are_bounded(one):
    d = one.post("/sandboxes/one/exec/detach", writer(1, 16)).data
    base = "/sandboxes/one/exec/detached/" + d["id"]
    wait_for(lambda: one.get(base).data["status"] == "completed", 30)
    a = one.get(base + "/logs")
    assert len(a.body) < ANSWER and a.data["truncated"] is True
    assert set(a.data["stdout"]) == {"\1"} == set(a.data["stderr"]) and len(a.data["stdout"]) > 1 << 17


@pytest.mark.parametrize("octet", [1, 0, 34, 120], ids=["control", "nul", "quote", "plain"])
def test_h22_a_file_is_sent_in_the_shorter_form(one, octet):
    code = "open('/tmp/f', 'wb').write(bytes([%d]) * (16 << 20))" % octet
    assert one.post("/sandboxes/one/exec", {"command": [PYTHON, "-c", code]}).data["exit_code"] == 0
    a = one.get("/sandboxes/one/files/tmp/f")
    assert len(a.body) < ANSWER and a.data["size"] == 16 * MIB and a.data["encoding"] == ("utf8" if octet == 120 else "base64")
    assert memory(one) < 150


def test_h22_a_stream_of_control_characters_is_whole_and_takes_little(api):  # noqa: F811
    s = api.stream("POST", "/run/stream", writer(1, 16, 1))
    n = sum(len(d["data"]) for _, name, d in s if name == "output")
    s.close()
    assert n == 16 * MIB and memory(api) < 60
