"""Small projects build and test themselves in an allowlist mode, with packages of the lab's registries: see tests/lab/registries.py."""
import os
import shutil

import pytest

from lab import PATH, PYTHON

NODE_CA = {"NODE_EXTRA_CA_CERTS": "/etc/ssl/certs/ca-certificates.crt"}
RUST = os.path.expanduser("~/.rustup/toolchains")


class Project:
    def __init__(self, lab):
        self.lab = lab

    def write(self, files):
        for name, text in files.items():
            path = self.lab.path("project", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)
            while self.lab.is_root and self.lab.who == "user" and path != self.lab.path("project"):
                os.chown(path, self.lab.uid, self.lab.gid)
                path = os.path.dirname(path)

    def build(self, script, env=None, mode="codex"):
        with self.lab.trusted():
            r = self.lab.run(["--compatibility-mode", mode, "--", "sh", "-ec", script], timeout=120, env=env)
        assert r.code == 0, r
        return r.out


@pytest.fixture
def project(any_user):
    return Project(any_user)


def need(*programs):
    for program in programs:
        if not shutil.which(program, path=PATH):
            pytest.skip("no %s on this machine" % program)


def test_a_node_project(project):
    need("node", "npm")
    project.write({"package.json": '{"name":"p","version":"1.0.0","scripts":{"test":"node --test"}}',
                   "p.test.js": 'const { answer } = require("labpack"); require("node:test")("answer", () => require("node:assert").equal(answer(), 42));\n'})
    out = project.build("npm install --no-audit --no-fund labpack; npm test", env=NODE_CA)
    assert "added 1 package" in out and "pass 1\n" in out, out
    assert os.path.exists(project.lab.path("project", "node_modules", "labpack", "index.js"))


def test_a_python_project(project):
    need("pip3")
    project.write({"test_p.py": "import unittest, labpack\n\nclass T(unittest.TestCase):\n    def test_answer(self):\n        self.assertEqual(labpack.answer(), 42)\n"})
    out = project.build("%s -m pip install -q --disable-pip-version-check --target lib labpack; PYTHONPATH=lib %s -m unittest -v 2>&1" % (PYTHON, PYTHON))
    assert "OK" in out, out


def test_a_c_project(project):
    need("cc", "make")
    project.write({"Makefile": "test: p\n\t./p\np: p.c\n\t$(CC) -O2 -g -Wall -o $@ $<\n",
                   "p.c": "#include <pthread.h>\n#include <stdio.h>\nstatic void *f(void *p)\n{\n\treturn p;\n}\nint main(void)\n{\n\tpthread_t t;\n"
                          "\treturn pthread_create(&t, NULL, f, NULL) || pthread_join(t, NULL) || puts(\"built\") < 0;\n}\n"})
    assert project.build("make -j2 test").endswith("built\n")


def test_a_java_project(project):
    need("javac", "jar", "java")
    project.write({"src/p/Main.java": "package p;\npublic class Main {\n  public static void main(String[] a) throws Exception {\n"
                                      "    assert java.net.InetAddress.getLocalHost() != null;\n"
                                      "    javax.net.ssl.SSLContext.getDefault();\n    System.out.println(\"built in \" + java.nio.charset.Charset.defaultCharset());\n  }\n}\n"})
    out = project.build("javac -d classes src/p/Main.java; jar --create --file p.jar --main-class p.Main -C classes .; java -ea -jar p.jar", mode="claude")
    assert out == "built in UTF-8\n", out


def test_a_rust_project(project):
    lab = project.lab
    found = [name for name in (os.listdir(RUST) if os.path.isdir(RUST) else ()) if name.startswith("stable")]
    if not found:
        pytest.skip("no stable tool chain of rustup on this machine")
    chain = lab.path("home", ".rustup", "toolchains", found[0])
    os.makedirs(chain)
    assert lab.host(["mount", "--bind", os.path.join(RUST, found[0]), chain]).code == 0
    project.write({"Cargo.toml": '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\nlabpack = "1"\n',
                   "src/lib.rs": "#[test]\nfn answer() {\n    assert_eq!(labpack::answer(), 42);\n}\n"})
    try:
        with lab.trusted():
            r = lab.run(["--compatibility-mode", "codex", "--", "cargo", "test", "--quiet"], timeout=120,
                        env={"PATH": os.path.join(chain, "bin") + ":" + PATH, "CARGO_HTTP_CAINFO": "/etc/ssl/certs/ca-certificates.crt"})
    finally:
        lab.host(["umount", chain])
    assert r.code == 0 and "1 passed" in r.out, r


def test_a_go_project(project):
    need("go")
    project.write({"go.mod": "module p\n\ngo 1.19\n", "p.go": "package p\n\nfunc Answer() int { return 42 }\n",
                   "p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestAnswer(t *testing.T) {\n\tif Answer() != 42 {\n\t\tt.Fatal()\n\t}\n}\n"})
    assert project.build("go vet ./... && go test ./...").startswith("ok")
