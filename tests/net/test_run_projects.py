"""Small projects build and test themselves in an allowlist mode, with packages of the lab's registries: see tests/lab/registries.py."""
import base64
import hashlib
import os
import shutil
import subprocess

import pytest

from expect import allowed, missing
from lab import PATH, PYTHON
from registries import MODULE

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
            missing("no %s on this machine" % program)


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


# A plugin of Maven with two goals, which compile a project and run its Main with what Maven has found for it. Those that Maven brings
# itself would want a hundred packages.
MOJO = """package lab;
import java.util.*;
public class %(name)s extends org.apache.maven.plugin.AbstractMojo {
  private List<String> path;
  private String folder;
  public void execute() throws org.apache.maven.plugin.MojoExecutionException {
    try {
      String all = String.join(":", path) + ":" + folder + "/classes";
      %(body)s
    } catch (Exception e) { throw new org.apache.maven.plugin.MojoExecutionException("failed: " + e, e); }
  }
}
"""
GOALS = {
    "Compile": """new java.io.File(folder + "/classes").mkdirs();
      if (javax.tools.ToolProvider.getSystemJavaCompiler().run(null, null, null, "-d", folder + "/classes", "-cp", all, folder + "/Main.java") != 0)
        throw new Exception("javac");""",
    "Test": """if (new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-ea", "-cp", all, "Main").inheritIO().start().waitFor() != 0)
        throw new Exception("test");""",
}
PLUGIN = """<plugin><name>lab</name><groupId>test.lab</groupId><artifactId>lab-maven-plugin</artifactId><version>1.0.0</version><goalPrefix>lab</goalPrefix><mojos>%s</mojos></plugin>"""
GOAL = """<mojo><goal>%s</goal><phase>%s</phase><requiresProject>true</requiresProject><requiresDependencyResolution>test</requiresDependencyResolution>
<implementation>lab.%s</implementation><language>java</language><instantiationStrategy>per-lookup</instantiationStrategy><parameters>
<parameter><name>path</name><type>java.util.List</type></parameter><parameter><name>folder</name><type>java.lang.String</type></parameter></parameters>
<configuration><path implementation="java.util.List" default-value="${project.testClasspathElements}"/>
<folder implementation="java.lang.String" default-value="${basedir}"/></configuration></mojo>"""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>%s</groupId><artifactId>%s</artifactId>
<version>%s</version><packaging>%s</packaging>%s</project>"""
PROJECT = POM % ("test.lab", "p", "1.0.0", "pom", """<dependencies><dependency><groupId>test.lab</groupId><artifactId>labpack</artifactId><version>1.0.0</version></dependency></dependencies>
<build><plugins><plugin><groupId>test.lab</groupId><artifactId>lab-maven-plugin</artifactId><version>1.0.0</version><executions><execution>
<goals><goal>compile</goal><goal>test</goal></goals></execution></executions></plugin></plugins></build>""")


def maven_repository(lab, folder):
    """Maven's central repository with the plugin and a library, both compiled here."""
    def put(group, name, version, kind, archive):
        at = "/maven2/%s/%s/%s/%s-%s" % (group.replace(".", "/"), name, version, name, version)
        for end, data in ((".jar", archive), (".pom", (POM % (group, name, version, kind, "")).encode())):
            for mark, content in (("", data), (".sha1", hashlib.sha1(data).hexdigest().encode())):
                lab.internet(op="put", host="repo.maven.apache.org", path=at + end + mark, data=base64.b64encode(content).decode())

    def jar(name, sources, more=()):
        top = folder / name
        for path, text in [*sources.items(), *more]:
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_text(text)
        subprocess.run(["javac", "--release", "11", "-cp", "/usr/share/maven/lib/*", *sources], cwd=top, check=True)
        subprocess.run(["jar", "--create", "--file", str(folder / (name + ".jar")), "-C", str(top), "."], check=True)
        archive = (folder / (name + ".jar")).read_bytes()
        put("test.lab", name, "1.0.0", "maven-plugin" if more else "jar", archive)
        return archive

    any_jar = jar("labpack", {"test/lab/Answer.java": "package test.lab;\npublic class Answer { public static int answer() { return 42; } }\n"})
    put("org.codehaus.plexus", "plexus-utils", "1.1", "jar", any_jar)  # Maven gives it to every plugin that does not name it
    goals = "".join(GOAL % (name.lower(), name.lower(), name) for name in GOALS)
    jar("lab-maven-plugin", {"lab/%s.java" % name: MOJO % dict(name=name, body=body) for name, body in GOALS.items()},
        [("META-INF/maven/plugin.xml", PLUGIN % goals)])


def test_a_maven_project_fetches_its_plugin_and_its_library(project, tmp_path):
    need("mvn", "javac", "jar", "keytool")
    maven_repository(project.lab, tmp_path)
    project.write({"pom.xml": PROJECT, "Main.java": "public class Main { public static void main(String[] a) { assert test.lab.Answer.answer() == 42; System.out.println(\"tested\"); } }\n"})
    # Java has a store of authorities of its own, which Debian fills when an authority is installed; here the project brings it.
    subprocess.run(["keytool", "-importcert", "-noprompt", "-storetype", "JKS", "-storepass", "changeit", "-alias", "lab", "-keystore", project.lab.path("project", "authorities")],
                   input=project.lab.ca.encode(), check=True, capture_output=True)
    os.chmod(project.lab.path("project", "authorities"), 0o644)
    out = project.build("export MAVEN_OPTS=-Djavax.net.ssl.trustStore=$PWD/authorities; mvn -B -q -Dmaven.repo.local=.m2 test", mode="claude")
    assert "tested\n" in out, out
    assert os.path.exists(project.lab.path("project", ".m2/test/lab/labpack/1.0.0/labpack-1.0.0.jar"))
    allowed(project.lab.netlog(), name="repo.maven.apache.org", proto="tcp")


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
    project.write({"go.mod": "module p\n\ngo 1.19\n\nrequire %s v1.0.0\n" % MODULE,
                   "p_test.go": 'package p\n\nimport (\n\t"testing"\n\n\t"%s"\n)\n\nfunc TestAnswer(t *testing.T) {\n\tif labpack.Answer() != 42 {\n\t\tt.Fatal()\n\t}\n}\n' % MODULE})
    # The database of checksums signs what it says, so the lab cannot play it.
    out = project.build("export GOFLAGS=-mod=mod GONOSUMDB=%s; go vet ./... && go test ./..." % MODULE)
    assert out.startswith("ok"), out
    with open(project.lab.path("project", "go.sum")) as f:
        assert MODULE + " v1.0.0 h1:" in f.read()
    allowed(project.lab.netlog(), name="proxy.golang.org", proto="tcp")
