"""h2: no file or folder with a set-uid, set-gid bit or file capability can be left in a folder that is mounted from the host."""
import json
import os
import stat

import pytest
from expect import compile_c

# Every way to make such a file, each under a name of its own; prints what each call answered (0 or errno).
SOURCE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#define S "SUID"
static int first = 1;
static void tell(const char *name, long rc) { printf("%s\"%s\":%d", first ? "" : ",", name, rc < 0 ? errno : 0); first = 0; }
static int plain(const char *name) { int fd = open(name, O_CREAT | O_RDWR, 0755); return fd; }

int main(void)
{
	uint64_t how[3] = { O_CREAT | O_WRONLY, 04755, 0 };
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "socket" };
	uint32_t cap2[5] = { 0x02000001, 0xffffffff, 0, 0xffffffff, 0 }, cap3[6] = { 0x03000001, 0xffffffff, 0, 0xffffffff, 0, 0 };
	int fd, sock = socket(AF_UNIX, SOCK_STREAM, 0);

	umask(0);
	printf("{");
	plain("chmod"); tell("chmod", syscall(SYS_chmod, "chmod", 04755));
	plain("chmod-g"); tell("chmod-g", syscall(SYS_chmod, "chmod-g", 02755));
	plain("chmod-high"); tell("chmod-high", syscall(SYS_chmod, "chmod-high", 0xffffffff00000000 | 06755));
	fd = plain("fchmod"); tell("fchmod", syscall(SYS_fchmod, fd, 06755));
	plain("fchmodat"); tell("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, "fchmodat", 04755));
	plain("fchmodat2"); tell("fchmodat2", syscall(452, AT_FDCWD, "fchmodat2", 04755, 0));
	fd = plain("fchmodat2-empty"); tell("fchmodat2-empty", syscall(452, fd, "", 04755, 0x1000));
	tell("open", syscall(SYS_open, "open", O_CREAT | O_WRONLY, 04755));
	tell("openat", syscall(SYS_openat, AT_FDCWD, "openat", O_CREAT | O_WRONLY, 06755));
	tell("creat", syscall(SYS_creat, "creat", 02755));
	tell("openat2", syscall(437, AT_FDCWD, "openat2", how, sizeof(how)));
	fd = syscall(SYS_openat, AT_FDCWD, ".", O_TMPFILE | O_RDWR, 04755); tell("tmpfile", fd);
	if (fd >= 0) { char p[64]; sprintf(p, "/proc/self/fd/%d", fd); linkat(AT_FDCWD, p, AT_FDCWD, "tmpfile", AT_SYMLINK_FOLLOW); }
	tell("mknod", syscall(SYS_mknod, "mknod", S_IFREG | 04755, 0));
	tell("mknodat", syscall(SYS_mknodat, AT_FDCWD, "mknodat", S_IFREG | 06755, 0));
	tell("mknod-fifo", syscall(SYS_mknod, "mknod-fifo", S_IFIFO | 06777, 0));
	tell("mkdir", syscall(SYS_mkdir, "mkdir", 06755));
	tell("mkdirat", syscall(SYS_mkdirat, AT_FDCWD, "mkdirat", 06755));
	mkdir("folder", 0755); tell("folder", syscall(SYS_chmod, "folder", 02755));
	tell("socket", fchmod(sock, 06777)); bind(sock, (void *)&un, sizeof(un));
	plain("cap2"); tell("cap2", setxattr("cap2", "security.capability", cap2, sizeof(cap2), 0));
	plain("cap3"); tell("cap3", setxattr("cap3", "security.capability", cap3, sizeof(cap3), 0));
	/* Made where it may be, then moved in. */
	fd = open("/tmp/moved", O_CREAT | O_WRONLY, 0755); fchmod(fd, 04755); tell("moved", rename("/tmp/moved", "moved"));
	tell("linked", link("/tmp/moved", "linked"));
	/* What must go on working. */
	plain("ok"); tell("ok", chmod("ok", 0700)); mkdir("ok-sticky", 0755); tell("ok-sticky", chmod("ok-sticky", 01777));
	tell("ok-open", open("ok-open", O_RDWR | O_CREAT | O_EXCL, 0640)); tell("ok-flags", syscall(SYS_openat, AT_FDCWD, "ok", O_RDONLY, 06000));
	printf("}\n");
	return 0;
}
"""
TOOLS = """
cp /bin/true a; install -m 4755 a b; cp a c; chmod u+s c; chmod g+s c
mkdir t; cp a t/x; python3 - <<'E'
import tarfile, zipfile, io, os
t = tarfile.open('s.tar', 'w'); i = tarfile.TarInfo('from-tar'); i.mode = 0o6755; i.size = 1; t.addfile(i, io.BytesIO(b'x')); t.close()
z = zipfile.ZipFile('s.zip', 'w'); n = zipfile.ZipInfo('from-zip'); n.external_attr = 0o104755 << 16; z.writestr(n, 'x'); z.close()
E
tar -xpf s.tar; command -v unzip >/dev/null && unzip -qK s.zip; command -v rsync >/dev/null && rsync -a --chmod=u+s a r
cp -a b d; perl -e 'chmod 06755, "a"'; python3 -c 'import os; os.chmod("a", 0o6755)'
unshare -Ur sh -c 'cp a e; chmod 6755 e; setcap all+ep e'; setcap all+ep a
true
"""


def found(folder):
    """Names below FOLDER that carry a set-id bit or a capability, as the host sees them."""
    out = []
    for path, dirs, files in os.walk(folder):
        for name in dirs + files:
            full = os.path.join(path, name)
            bits = stat.S_IMODE(os.lstat(full).st_mode) & 0o6000
            caps = not os.path.islink(full) and "security.capability" in os.listxattr(full, follow_symlinks=False)
            if bits or caps:
                out.append((os.path.relpath(full, folder), oct(bits), caps))
    return out


@pytest.mark.parametrize("mode", ["codex", "claude", "gemini", "native"])
def test_h2_no_system_call_leaves_a_set_id_file(any_user, mode):
    lab = any_user
    tool = compile_c(lab, SOURCE, "h2", static=True)
    r = lab.run(["--compatibility-mode", mode, "--dir", lab.path("project"), "--", tool], cwd=lab.path("project"))
    assert r.code == 0, r
    rows = json.loads(r.out)
    assert not found(lab.path("project")), found(lab.path("project"))
    broken = {n: rc for n, rc in rows.items() if n.startswith("ok") and rc}
    assert not broken, broken


@pytest.mark.parametrize("profile", ["permissive", "moderate", "restrictive"])
def test_h2_no_program_leaves_a_set_id_file(any_user, profile):
    lab = any_user
    r = lab.run(["--profile", profile, "--dir", lab.path("project"), "--", "sh", "-c", TOOLS], cwd=lab.path("project"))
    assert r.code == 0, r
    assert os.path.exists(lab.path("project", "a")), r
    assert not found(lab.path("project")), (found(lab.path("project")), r)


def test_h2_exec_in_a_persistent_sandbox_leaves_none(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    tool = compile_c(lab, SOURCE, "h2", static=True)
    b.up("x", "--compatibility-mode", "claude", "--dir", lab.path("project"))
    b.out("x", tool)
    b.sh("x", TOOLS)
    b.sh("x", "cd && cp /bin/true kept; chmod 6755 kept; true")
    assert not found(lab.path("project")), found(lab.path("project"))
    assert not found(lab.path("home")), found(lab.path("home"))
