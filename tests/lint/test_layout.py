"""The shape of the tree: fixed top level, rooms and their doors, sizes of files and functions, no generated or foreign files."""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOP = {"CMakeLists.txt", "gateway", "dnsproxy", "nft", "vmctl", "policies", "tests", "README.md", "SECURITY.md", "ARCHITECTURE.md",
       "CONTRIBUTING.md", "Makefile", "LICENSE"}
# Every folder with sources: which folders it may include, besides gateway/base and itself, and its doors: the headers that others may include.
# The list goes from the bottom to the top; a folder may only include what stands above it here.
ROOMS = {
    "gateway/base": ((), "*"),
    "policies": ((), "policy.h"),
    "nft": (("policies",), "fw.h"),
    "dnsproxy": (("policies",), "dnsproxy.h"),
    "vmctl": ((), "gwns.h labns.h podman.h sandbox.h source.h vm.h vm_wire.h"),
    "gateway/wire": ((), "http_head.h tls_hello.h"),
    "gateway/log": ((), "audit.h audit_anchor.h audit_kinds.h events.h events_story.h follow.h netlog.h stats.h view.h"),
    "gateway/project": (("vmctl", "gateway/log"), "gitconf.h guard.h mount.h owndir.h project.h tools.h way.h"),
    "gateway/image": (("vmctl",), "image.h"),
    "gateway/store": (("policies", "vmctl", "gateway/log", "gateway/project", "gateway/image"),
                      "agent.h explain.h info.h mounts.h plan.h policy_dirs.h publish.h report.h request.h rundir.h runs.h shared.h snapshot.h state.h state_server.h vitals.h"),
    "gateway/field": (("gateway/log", "gateway/store"), "field.h"),
    "gateway/config": (("policies", "gateway/log", "gateway/store", "gateway/field"), "config.h detect.h trust.h"),
    "gateway/ipc": ((), "ipc.h server.h spawn.h"),
    "gateway/relay": (("policies", "gateway/wire"), "relay.h"),
    "gateway/host": (("policies", "nft", "dnsproxy", "vmctl", "gateway/log", "gateway/relay"), "gw.h resolv.h"),
    "gateway/run": (("vmctl", "gateway/ipc", "gateway/log", "gateway/store", "gateway/host"), "front.h loop.h gw_log.h io.h life.h ports.h run.h tty.h vm.h"),
    "gateway/super": (("vmctl", "gateway/ipc", "gateway/log", "gateway/store", "gateway/run"), "super.h"),
    "gateway/daemon": (("dnsproxy", "gateway/ipc", "gateway/log", "gateway/store", "gateway/host", "gateway/run", "gateway/super"), "daemon.h"),
    "gateway/service": (("vmctl", "gateway/project", "gateway/image", "gateway/config", "gateway/ipc", "gateway/log", "gateway/store", "gateway/run", "gateway/super", "gateway/daemon"), "service.h session.h worker.h"),
    "gateway/doctor": (("vmctl", "gateway/project", "gateway/store", "gateway/host", "gateway/run", "gateway/service"), "doctor.h"),
    "gateway/http": (("gateway/wire", "gateway/log", "gateway/store", "gateway/field", "gateway/service"), "http.h"),
    "gateway/mcp": (("gateway/ipc", "gateway/log", "gateway/store", "gateway/field", "gateway/service"), "mcp.h"),
    "gateway/selftest": (("nft", "dnsproxy", "vmctl", "gateway/log"), "selftest.h"),
    "gateway/cli": (("gateway/log", "gateway/store", "gateway/field", "gateway/run", "gateway/daemon", "gateway/service", "gateway/doctor", "gateway/http", "gateway/mcp",
                     "gateway/selftest"), "cmd.h"),
    "gateway": (("gateway/image", "gateway/cli", "gateway/daemon", "gateway/selftest", "gateway/super"), ""),
    "vmctl/gen": ((), "table.h"),
    "vmctl/guest": (("vmctl",), ""),
    "vmctl/box": (("vmctl",), ""),
    "gateway/host/gen": (("vmctl/gen",), ""),
}
EVENT_LOOPS = {"dnsproxy", "gateway/ipc", "gateway/relay", "gateway/host", "gateway/super", "gateway/daemon", "gateway/http"}
THIRD_PARTY = {"cjson/": {"gateway/base"}, "libnftnl/": {"nft"}, "libmnl/": {"nft"}, "event2/": EVENT_LOOPS,
               "seccomp.h": {"vmctl/gen", "gateway/host/gen"}}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def files(*suffixes):
    """Tracked files, or all sources of an unpacked archive."""
    try:
        out = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
        names = [n for n in out.split("\0") if n]
    except (OSError, subprocess.CalledProcessError):
        names = [os.path.relpath(os.path.join(d, f), ROOT) for d, _, fs in os.walk(ROOT) for f in fs if "/.git" not in d and "/build" not in d]
    return sorted(n for n in names if n.endswith(suffixes) and os.path.exists(os.path.join(ROOT, n)))


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def folder_of(path):
    return os.path.dirname(path)


def sources():
    return [n for n in files(".c", ".h") if not n.startswith("tests/")]


def test_the_top_level_is_the_fixed_one():
    extra = {n.split("/")[0] for n in files("")} - TOP
    assert not {n for n in extra if not n.startswith(".")}, extra


def includes():
    """(file, what it includes) for every include of a header of ours."""
    for name in sources():
        for line in INCLUDE.findall(read(name)):
            yield name, line if "/" in line else "%s/%s" % (folder_of(name), line)


def test_every_folder_is_a_room_of_the_table():
    unknown = {folder_of(n) for n in sources()} - set(ROOMS)
    assert not unknown, "not in ROOMS: %s" % unknown


def test_the_map_names_every_room():
    text = read("ARCHITECTURE.md")
    missing = [room for room in ROOMS if room != "gateway" and not room.endswith("/gen") and "| `%s` |" % room not in text]
    assert not missing, "ARCHITECTURE.md does not say what belongs into %s" % missing


def test_the_rooms_have_no_cycle():
    """A table that names only what stands above cannot have a cycle."""
    order = list(ROOMS)
    for room, (uses, _) in ROOMS.items():
        below = [u for u in uses if order.index(u) >= order.index(room)]
        assert not below, "%s may not use %s, which stands below it" % (room, below)


def test_a_room_includes_only_what_it_may_and_only_through_doors():
    bad = []
    for name, line in includes():
        own, other = folder_of(name), folder_of(line)
        if own == other or line.endswith(".inc"):
            continue
        uses, _ = ROOMS[own]
        doors = ROOMS.get(other, ((), ""))[1]
        if other != "gateway/base" and other not in uses:
            bad.append("%s includes %s: %s may not use %s" % (name, line, own, other))
        elif doors != "*" and os.path.basename(line) not in doors.split():
            bad.append("%s includes %s, which is no door of %s" % (name, line, other))
        if line.endswith("internal.h"):
            bad.append("%s includes the internal header %s" % (name, line))
    assert not bad, "\n".join(bad)


def test_the_table_allows_nothing_that_nobody_needs():
    used = {(folder_of(n), folder_of(line)) for n, line in includes()}
    opened = {line for n, line in includes() if folder_of(n) != folder_of(line)}
    spare = ["%s → %s" % (room, u) for room, (uses, _) in ROOMS.items() for u in uses if (room, u) not in used]
    spare += ["%s/%s" % (room, d) for room, (_, doors) in ROOMS.items() for d in doors.split() if d != "*" and "%s/%s" % (room, d) not in opened]
    assert not spare, "nobody uses: %s" % ", ".join(spare)


def test_headers_do_not_include_each_other_in_circles():
    graph = {}
    for name, line in includes():
        if name.endswith(".h"):
            graph.setdefault(name, set()).add(line)
    done = set()

    def walk(name, path):
        assert name not in path, " → ".join(path[path.index(name):] + [name])
        if name not in done:
            for other in sorted(graph.get(name, ())):
                walk(other, path + [name])
            done.add(name)
    for name in sorted(graph):
        walk(name, [])


def test_the_libraries_link_what_the_rooms_may_use():
    """gateway/CMakeLists.txt builds one library a room; what it links is what the table says."""
    rows = dict((m[0], m[1].split()) for m in re.findall(r"^ak_room\((\w+) ([^)]*)\)", read("gateway/CMakeLists.txt"), re.M))
    rooms = {r.split("/")[1] for r in ROOMS if r.startswith("gateway/")} - {"base"}
    assert set(rows) == rooms
    for room, links in rows.items():
        uses = {u.split("/")[-1] for u in ROOMS["gateway/" + room][0]} | {"base"}
        assert {x for x in links if "::" not in x} == uses, room
        assert ("PkgConfig::EVENT" in links) == ("gateway/" + room in EVENT_LOOPS), room


def test_third_party_headers_stay_in_their_folder():
    bad = []
    for name in sources():
        for line in re.findall(r"^\s*#\s*include\s+<([^>]+)>", read(name), re.M):
            for prefix, owners in THIRD_PARTY.items():
                if line.startswith(prefix) and folder_of(name) not in owners:
                    bad.append("%s includes <%s>" % (name, line))
    assert not bad, "\n".join(bad)


def test_c_files_stay_short_and_begin_with_their_role():
    bad = []
    for name in sources():
        text = read(name)
        if text.count("\n") > 800:
            bad.append("%s has %d lines" % (name, text.count("\n")))
        if not text.lstrip().startswith("/*"):
            bad.append("%s does not say what it is for" % name)
    assert not bad, "\n".join(bad)


def test_functions_stay_short():
    bad = []
    for name in [n for n in sources() if n.endswith(".c")]:
        start = None
        lines = read(name).split("\n")
        for i, line in enumerate(lines):
            if line == "{" or (line.endswith("{") and line[:1].isalpha() and "(" in line):
                start = i
            elif line == "}" and start is not None:
                if i - start > 82:
                    bad.append("%s:%d: %d lines" % (name, start + 1, i - start))
                start = None
    assert not bad, "\n".join(bad)


def test_sources_are_indented_with_tabs_and_have_no_loose_ends():
    bad = []
    for name in sources():
        for i, line in enumerate(read(name).split("\n"), 1):
            if line.startswith("    "):
                bad.append("%s:%d: indented with spaces" % (name, i))
            if line != line.rstrip():
                bad.append("%s:%d: trailing space" % (name, i))
            if re.search(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b", line):
                bad.append("%s:%d: unfinished: %s" % (name, i, line.strip()))
    assert not bad, "\n".join(bad[:50])


def test_exit_is_called_only_at_the_edge():
    """`exit` ends only main and the processes that are our own children's whole life."""
    bad = [n for n in sources() if n.endswith(".c") and not n.startswith("gateway/main") and re.search(r"(?<![_\w])exit\(", re.sub(
        r"/\*.*?\*/|\"(\\.|[^\"])*\"", "", read(n), flags=re.S))]
    assert not bad, bad


def test_policies_are_json_and_spell_registries_as_zones():
    import json
    for name in files(".json"):
        if not name.startswith("policies/"):
            continue
        data = json.loads(read(name))
        for host in data.get("allow", []) if isinstance(data, dict) else []:
            if host.split(":")[0].endswith(("npmjs.org", "debian.org")):
                assert host.startswith("*."), "%s: %s" % (name, host)


def test_python_of_the_tests_compiles():
    for name in files(".py"):
        compile(read(name), name, "exec")
