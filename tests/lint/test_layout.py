"""The shape of the tree: fixed top level, who may include whom, sizes of files and functions, no generated or foreign files."""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOP = {"CMakeLists.txt", "gateway", "dnsproxy", "nft", "vmctl", "policies", "tests", "README.md", "SECURITY.md", "Makefile", "LICENSE"}
# folder → folders whose headers it may include (DESIGN: modules); its own is always allowed.
MAY_INCLUDE = {
    "gateway/base": set(),
    "policies": {"gateway/base"},
    "nft": {"policies", "gateway/base"},
    "dnsproxy": {"policies", "gateway/base"},
    "vmctl": {"gateway/base"},
    "gateway": {"gateway/base", "policies", "nft", "dnsproxy", "vmctl"},
}
# Only the named header of a folder is public to others (the base is all public).
PUBLIC = {"policies": {"policy.h"}, "nft": {"fw.h"}, "dnsproxy": {"dnsproxy.h"}}
THIRD_PARTY = {"cjson/": {"gateway/base"}, "libnftnl/": {"nft"}, "libmnl/": {"nft"}, "ares": {"dnsproxy"}, "event2/": {"dnsproxy", "gateway"},
               "seccomp.h": {"vmctl", "gateway"}}


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
    return "gateway/base" if path.startswith("gateway/base/") else path.split("/")[0]


def sources():
    return [n for n in files(".c", ".h") if not n.startswith("tests/")]


def test_the_top_level_is_the_fixed_one():
    extra = {n.split("/")[0] for n in files("")} - TOP
    assert not {n for n in extra if not n.startswith(".")}, extra


def test_a_folder_includes_only_what_it_may():
    bad = []
    for name in sources():
        own = folder_of(name)
        for line in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(name), re.M):
            other = folder_of(line) if "/" in line else own
            if other == own:
                continue
            if other not in MAY_INCLUDE.get(own, set()):
                bad.append("%s includes %s" % (name, line))
            elif other in PUBLIC and os.path.basename(line) not in PUBLIC[other]:
                bad.append("%s includes the internal header %s" % (name, line))
    assert not bad, "\n".join(bad)


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
