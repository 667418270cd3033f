"""h2 in an image: root's calls that ask for set-uid or set-gid bits succeed, and no file gets the bits, on whatever the sandbox can write."""
import json
import os

import images
import pytest
from expect import compile_c, missing
from lab import PYTHON
from test_h2_set_ids import SOURCE, found

CLAUDE = ("--compatibility-mode", "claude")
REFUSED = {"openat2": 38, "cap2": 1, "cap3": 1}  # as everywhere: ENOSYS, EPERM

# One test for each word on the command line, in the current folder; prints name → 0, an errno or a mode.
SPECIAL = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *name, long value) { printf("\"%s\":%ld,", name, value); fflush(stdout); }
static int err(long rc) { return rc < 0 ? errno : 0; }
static long mode(const char *path) { struct stat st; return lstat(path, &st) < 0 ? -1 : st.st_mode & 07777; }
static int plain(const char *path) { return open(path, O_CREAT | O_RDWR, 0600); }

static void arguments(void)
{
	int fd, same;

	umask(027);
	tell("open", err(fd = syscall(SYS_open, "open", O_CREAT | O_RDWR | O_CLOEXEC, 06777)));
	tell("open mode", mode("open"));
	tell("open descriptor works", write(fd, "x", 1) == 1 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
	close(fd);
	tell("lowest descriptor", (same = open("open", O_CREAT | O_RDONLY, 04700)) == fd);
	tell("open exclusive", err(open("open", O_CREAT | O_EXCL | O_RDWR, 04700)));
	tell("open nowhere", err(open("none/x", O_CREAT | O_RDWR, 04700)));
	tell("chmod nowhere", err(syscall(SYS_chmod, "none", 04700)));
	tell("chmod bad pointer", err(syscall(SYS_chmod, (char *)8, 04700)));
	tell("fchmod bad descriptor", err(syscall(SYS_fchmod, 999, 04700)));
	plain("real"); symlink("real", "link");
	tell("chmod link", err(syscall(SYS_chmod, "link", 07751))); tell("link's target", mode("real"));
	tell("fchmodat2 no follow", err(syscall(452, AT_FDCWD, "link", 04777, AT_SYMLINK_NOFOLLOW)) != 0);
	mkdir("folder", 0700); plain("folder/x"); fd = open("folder", O_RDONLY | O_DIRECTORY);
	tell("fchmodat by descriptor", err(syscall(SYS_fchmodat, fd, "x", 02640))); tell("its mode", mode("folder/x"));
	tell("folder set-gid", err(syscall(SYS_chmod, "folder", 02750))); tell("folder's mode", mode("folder"));
	tell("mknod fifo", err(syscall(SYS_mknod, "fifo", S_IFIFO | 06666, 0))); tell("fifo's mode", mode("fifo"));
	tell("mknod device", err(syscall(SYS_mknod, "device", S_IFCHR | 06666, 0x103)));
	tell("high bits", err(syscall(SYS_chmod, "real", 0xffffffff00000000 | 06711))); tell("high bits mode", mode("real"));
}

/* The caller's own root decides. */
static void root(void)
{
	mkdir("jail", 0755); plain("jail/file"); plain("/file");
	if (fork() == 0) {
		if (chroot("jail") < 0 || chdir("/") < 0) _exit(99);
		_exit(err(syscall(SYS_chmod, "/file", 04755)));
	}
	int st; wait(&st);
	tell("in a chroot", WEXITSTATUS(st)); tell("inner", mode("jail/file")); tell("outer", mode("/file"));
}

/* Landlock of the caller's own: it may write below "mine" only. */
static void landlock(void)
{
	uint64_t handled = 1 << 8 | 1 << 11; /* make regular files, make block devices */
	struct { uint64_t access; int32_t fd; } __attribute__((packed)) rule = { .access = 1 << 8 };
	int set, st;

	mkdir("mine", 0755); mkdir("other", 0755);
	if (fork() == 0) {
		set = syscall(444, &handled, sizeof(handled), 0);
		rule.fd = open("mine", O_PATH);
		if (set < 0 || syscall(445, set, 1, &rule, 0) < 0 || syscall(446, set, 0) < 0) _exit(99);
		if (open("mine/x", O_CREAT | O_RDWR, 04755) < 0) _exit(98);
		_exit(err(open("other/x", O_CREAT | O_RDWR, 04755)));
	}
	wait(&st);
	tell("with Landlock", WEXITSTATUS(st));
}

static void ids(void)
{
	int st;

	plain("of-root"); chmod(".", 0777);
	if (fork() == 0) { /* with one id inside, this only seems to work */
		if (setgid(1000) < 0 || setuid(1000) < 0) _exit(99);
		if (geteuid() == 0) _exit(77);
		plain("of-user");
		_exit(err(syscall(SYS_chmod, "of-user", 04755)));
	}
	wait(&st);
	tell("other user", WEXITSTATUS(st)); tell("other user's mode", mode("of-user"));
	if (fork() == 0) { /* without capabilities root can change its own files, and nobody else's */
		uint32_t head[2] = { 0x20080522, 0 }, data[6] = { 0 };
		chown("of-user", 1000, 1000);
		if (syscall(SYS_capset, head, data) < 0) _exit(99);
		if (syscall(SYS_chmod, "of-root", 04711) < 0) _exit(98);
		_exit(err(syscall(SYS_chmod, "of-user", 04711)));
	}
	wait(&st);
	tell("without capabilities", WEXITSTATUS(st)); tell("its mode", mode("of-root"));
}

/* A tracer inside changes the arguments after all: at the entry of a call that is fine. */
static void traced(void)
{
	int st, bad = 0;
	pid_t pid;

	plain("traced");
	pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(err(syscall(SYS_chmod, "traced", 0755)));
	}
	waitpid(pid, &st, 0);
	for (;;) {
		ptrace(PTRACE_SYSCALL, pid, 0, 0);
		waitpid(pid, &st, 0);
		if (!WIFSTOPPED(st)) break;
#ifdef __x86_64__
		struct user_regs_struct r;
		ptrace(PTRACE_GETREGS, pid, 0, &r);
		if (r.orig_rax == SYS_chmod) { r.rsi = 06755; ptrace(PTRACE_SETREGS, pid, 0, &r); bad++; }
#endif
	}
	tell("traced", WEXITSTATUS(st)); tell("traced mode", mode("traced") & 06000); tell("tampered", bad > 0);
}

static volatile int stop;
static char shared[16] = "a";
static void *flip(void *arg) { while (!stop) { shared[0] ^= 'a' ^ 'b'; } return NULL; }
static void *many(void *arg)
{
	char name[32]; long bad = 0;
	for (int i = 0; i < 60; i++) {
		int fd;
		sprintf(name, "t%ld-%d", (long)arg, i);
		fd = open(name, O_CREAT | O_EXCL | O_RDWR, 06755);
		bad += fd < 0; bad += fchmod(fd, 04711) < 0; close(fd); bad += mode(name) != 0711;
	}
	return (void *)bad;
}
static void noop(int sig) { (void)sig; }

/* Threads at once; a path and a mode in memory that change meanwhile; signals all the time; callers that are killed or stopped. */
static void races(void)
{
	struct sigaction sa = { .sa_handler = noop, .sa_flags = SA_RESTART };
	pthread_t t[6];
	long bad = 0, n;
	pid_t pid, self = getpid();
	void *ret;
	int st;

	for (long i = 0; i < 6; i++) pthread_create(&t[i], NULL, many, (void *)i);
	for (int i = 0; i < 6; i++) { pthread_join(t[i], &ret); bad += (long)ret; }
	tell("threads", bad);
	plain("a"); plain("b"); bad = 0;
	pthread_create(&t[0], NULL, flip, NULL);
	for (int i = 0; i < 300; i++) { bad += syscall(SYS_chmod, shared, 06755) < 0; bad += ((mode("a") | mode("b")) & 06000) != 0; }
	stop = 1; pthread_join(t[0], NULL);
	tell("changing path", bad);
	sigaction(SIGUSR1, &sa, NULL); bad = 0; n = 0;
	pid = fork();
	if (pid == 0) for (;;) kill(self, SIGUSR1);
	for (int i = 0; i < 300; i++) { n += syscall(SYS_chmod, "a", 06755) < 0; bad += (mode("a") & 06000) != 0; }
	kill(pid, SIGKILL); waitpid(pid, &st, 0);
	tell("with signals", n); tell("with signals, bits", bad);
	for (int i = 0; i < 100; i++) {
		pid = fork();
		if (pid == 0) for (;;) syscall(SYS_chmod, "b", 06755);
		while (mode("b") == 0600 && i == 0) ;
		if (i % 3 == 0) { kill(pid, SIGSTOP); waitpid(pid, &st, WUNTRACED); kill(pid, SIGCONT); }
		kill(pid, SIGKILL); waitpid(pid, &st, 0);
	}
	tell("after kills", err(syscall(SYS_chmod, "b", 06750))); tell("after kills, mode", mode("b"));
}

/* One caller blocks in its own call; others go on. */
static void blocked(void)
{
	pid_t pid;
	int fd, st;

	mkfifo("pipe", 0600); plain("free");
	pid = fork();
	if (pid == 0) _exit(err(open("pipe", O_CREAT | O_WRONLY, 06600)));
	for (int i = 0; i < 50; i++) if (syscall(SYS_chmod, "free", 06755) < 0) tell("blocked", errno);
	tell("free", mode("free"));
	fd = open("pipe", O_RDONLY); /* waits for the writer, which is let go by this */
	waitpid(pid, &st, 0); close(fd);
	tell("writer", WEXITSTATUS(st));
}

static void foreign(void)
{
	plain("foreign");
#ifdef __x86_64__
	long rc;
	static char name[] = "foreign";
	tell("x32", err(syscall(0x40000000 + SYS_chmod, "foreign", 04755)));
	__asm__ volatile("int $0x80" : "=a"(rc) : "a"(15L), "b"(name), "c"(04755L) : "memory", "r8", "r9", "r10", "r11");
	tell("i386", -rc);
#endif
	tell("foreign mode", mode("foreign"));
}

/* The helper cannot be looked into; killed, it leaves a refusal. */
static void helper(int pid)
{
	char path[64];
	const char *const files[] = { "mem", "environ", "fd/3", "root/etc", "maps" };

	for (int i = 0; i < 5; i++) { sprintf(path, "/proc/%d/%s", pid, files[i]); tell(files[i], open(path, O_RDONLY) >= 0); }
	tell("ptrace", ptrace(PTRACE_SEIZE, pid, 0, 0) == 0);
	tell("getfd", syscall(438, syscall(434, pid, 0), 3, 0) >= 0);
	plain("late"); kill(pid, SIGTERM); kill(pid, SIGINT); kill(pid, SIGHUP);
	tell("signalled", err(syscall(SYS_chmod, "late", 06711)));
	kill(pid, SIGKILL);
	while (kill(pid, 0) == 0) ;
	tell("without it", err(syscall(SYS_chmod, "late", 04755)) != 0); tell("late mode", mode("late")); tell("ordinary", err(chmod("late", 0640)));
}

static void *let_through(void *arg)
{
	uint64_t note[10]; /* struct seccomp_notif */
	struct { uint64_t id; int64_t val; int32_t error; uint32_t flags; } go = { .flags = 1 /* continue */ };

	for (;;) {
		memset(note, 0, sizeof(note));
		if (ioctl(*(int *)arg, 0xc0502100, note) < 0) continue;
		go.id = note[0];
		ioctl(*(int *)arg, 0xc0182101, &go);
	}
	return NULL;
}

/* A filter of the caller's own, whose listener lets the calls through. The newest filter is asked, if several report a call. */
static void listener(int pid)
{
	/* load the number; is it fchmod's? report it : allow it */
	struct { uint16_t code; uint8_t yes, no; uint32_t k; } code[] = { { 0x20, 0, 0, 0 }, { 0x15, 0, 1, SYS_fchmod }, { 6, 0, 0, 0x7fc00000 }, { 6, 0, 0, 0x7fff0000 } };
	struct { unsigned short len; void *code; } prog = { 4, code };
	static int own;
	pthread_t t;
	int fd = plain("let-through");

	if (pid) { kill(pid, SIGKILL); while (kill(pid, 0) == 0) ; }
	own = syscall(SYS_seccomp, 1, 8, &prog);
	tell("listener", own >= 0);
	if (own >= 0) pthread_create(&t, NULL, let_through, &own);
	syscall(SYS_fchmod, fd, 06711);
	tell("let through", mode("let-through") & 06000);
}

int main(int argc, char **argv)
{
	printf("{");
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "arguments")) arguments();
		if (!strcmp(argv[i], "root")) root();
		if (!strcmp(argv[i], "landlock")) landlock();
		if (!strcmp(argv[i], "ids")) ids();
		if (!strcmp(argv[i], "traced")) traced();
		if (!strcmp(argv[i], "races")) races();
		if (!strcmp(argv[i], "blocked")) blocked();
		if (!strcmp(argv[i], "foreign")) foreign();
		if (!strcmp(argv[i], "helper")) helper(atoi(argv[++i]));
		if (!strcmp(argv[i], "listener")) listener(atoi(argv[++i]));
	}
	printf("\"end\":0}\n");
	return 0;
}
"""
WANTED = {
    "arguments": {"open": 0, "open mode": 0o750, "open descriptor works": 1, "lowest descriptor": 1, "open exclusive": 17, "open nowhere": 2, "chmod nowhere": 2,
                  "chmod bad pointer": 14, "fchmod bad descriptor": 9, "chmod link": 0, "link's target": 0o1751, "fchmodat2 no follow": 1,
                  "fchmodat by descriptor": 0, "its mode": 0o640, "folder set-gid": 0, "folder's mode": 0o750, "mknod fifo": 0, "fifo's mode": 0o640,
                  "mknod device": 1, "high bits": 0, "high bits mode": 0o711},
    "root": {"in a chroot": 0, "inner": 0o755, "outer": 0o600},
    "landlock": {"with Landlock": 13},
    "traced": {"traced": 1, "traced mode": 0, "tampered": 1},
    "races": {"threads": 0, "changing path": 0, "with signals": 0, "with signals, bits": 0, "after kills": 0, "after kills, mode": 0o750},
    "blocked": {"free": 0o755, "writer": 0},
    "foreign": {"x32": 38, "i386": 38, "foreign mode": 0o600},
}
# Stops sandbox "x" with an hour's patience for its processes.
STOP = """
import json, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(60); s.connect(sys.argv[1])
s.send(json.dumps({"op": "stop", "name": "x", "grace_ms": 3600000}).encode())
print(s.recv(65536).decode())
"""
# Forks until that fails; how many there were.
COUNT = r"""
#include <signal.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>
int main(void) { int n = 0; pid_t pid; while ((pid = fork()) > 0) n++; if (pid == 0) for (;;) pause(); printf("%d\n", n); fflush(stdout); kill(0, SIGKILL); }
"""


@pytest.fixture(autouse=True)
def tools():
    lacks = images.missing_tools()
    if lacks:
        missing("not installed: %s" % lacks)


def imported(lab, config=None):
    folder = images.write_layout(lab.path("home", "layout"), [images.base_layer().done()], config)
    assert lab.ak(["image", "import", "--name", "box", folder + ":latest"]).code == 0


def nothing_left(lab):
    """In the project, and in what is kept of sandboxes."""
    for folder in ("project", "home", "state"):
        assert not found(lab.path(folder)), found(lab.path(folder))


def refused(r):
    """What the calls of SOURCE that failed answered; /tmp may be another file system, from which nothing can be moved."""
    assert r.code == 0, r
    return {name: rc for name, rc in json.loads(r.out).items() if rc and name not in ("moved", "linked")}


def overlay_has(lab, name):
    return any(name in files for _, _, files in os.walk(lab.path("state")))


@pytest.mark.parametrize("where", ["project", "image"])
def test_h2_every_call_of_root_works_and_no_bit_stays(any_user, where):
    lab = any_user
    imported(lab)
    tool = compile_c(lab, SOURCE, "h2", static=True)
    folder = {"project": lab.path("project"), "image": "/root"}[where]
    r = lab.run([*CLAUDE, "--keep", "--image", "box", "--dir", lab.path("project"), "-w", folder, "--", tool], cwd=lab.path("project"))
    assert refused(r) == REFUSED, r
    nothing_left(lab)
    assert os.path.exists(lab.path("project", "fchmodat2")) if where == "project" else overlay_has(lab, "fchmodat2")


@pytest.mark.parametrize("what", sorted(WANTED))
def test_h2_the_caller_itself_makes_the_call(any_user, what):
    lab = any_user
    imported(lab)
    tool = compile_c(lab, SPECIAL, "h2-special", static=True)
    r = lab.run([*CLAUDE, "--keep", "--image", "box", "--dir", lab.path("project"), "-w", "/root", "--", tool, what], cwd=lab.path("project"), timeout=60)
    assert r.code == 0, r
    got = json.loads(r.out)
    if os.uname().machine != "x86_64":
        got = {**WANTED[what], **got, "tampered": 1} if what in ("traced", "foreign") else got
    assert got == {**WANTED[what], "end": 0}, r
    nothing_left(lab)


def test_h2_other_users_of_an_image_are_refused(any_user):
    lab = any_user
    imported(lab)
    tool = compile_c(lab, SPECIAL, "h2-special", static=True)
    r = lab.run([*CLAUDE, "--keep", "--image", "box", "--dir", lab.path("project"), "-w", "/tmp", "--", tool, "ids"], cwd=lab.path("project"))
    assert r.code == 0, r
    got = json.loads(r.out)
    if "one user inside" in r.err:
        assert got["other user"] == 77, r
    else:
        assert got["other user"] == 1 and got["other user's mode"] == 0o600 and got["without capabilities"] == 1, r
    assert got["its mode"] == 0o711, r
    nothing_left(lab)


@pytest.mark.parametrize("args", [["--image", "node"], ["--compatibility-mode", "codex", "--image", "box"]], ids=["user of the image", "strict"])
def test_h2_a_sandbox_without_root_has_no_helper(any_user, args):
    lab = any_user
    imported(lab)
    folder = images.write_layout(lab.path("home", "layout-node"), [images.base_layer().done()], {"User": "node"})
    assert lab.ak(["image", "import", "--name", "node", folder + ":latest"]).code == 0
    script = "cd /tmp && touch x && ! chmod 4755 x && chmod 750 x && stat -c %a x && echo /proc/[0-9]*"
    r = lab.run([*args, "sh", "-c", script])
    assert r.code == 0 and "not permitted" in r.err, r
    assert r.out.split() == ["750", "/proc/1", "/proc/2"], r  # init and the shell


def test_h2_the_helper_is_closed_and_its_end_is_a_refusal(any_user):
    lab = any_user
    imported(lab)
    compile_c(lab, SPECIAL, "h2-special", static=True)
    script = "for p in /proc/[0-9]*; do case $(cat $p/cmdline) in *helper) exec ./h2-special helper ${p#/proc/};; esac; done"
    r = lab.run([*CLAUDE, "--image", "box", "--dir", lab.path("project"), "sh", "-c", script], cwd=lab.path("project"))
    assert r.code == 0, r
    assert json.loads(r.out) == {"mem": 0, "environ": 0, "fd/3": 0, "root/etc": 0, "maps": 0, "ptrace": 0, "getfd": 0, "signalled": 0, "without it": 1,
                                 "late mode": 0o711, "ordinary": 0, "end": 0}, r
    nothing_left(lab)


@pytest.mark.parametrize("kill", [True, False], ids=["without the helper", "with it"])
def test_h2_a_listener_of_its_own_does_not_let_the_bits_through(any_user, kill):
    lab = any_user
    imported(lab)
    compile_c(lab, SPECIAL, "h2-special", static=True)
    script = "for p in /proc/[0-9]*; do case $(cat $p/cmdline) in *helper) exec ./h2-special listener %s;; esac; done" % ("${p#/proc/}" if kill else 0)
    r = lab.run([*CLAUDE, "--image", "box", "--dir", lab.path("project"), "sh", "-c", script], cwd=lab.path("project"))
    assert json.loads(r.out) == {"listener": 0, "let through": 0, "end": 0}, r
    nothing_left(lab)


def test_h2_commands_in_a_persistent_image_sandbox(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    imported(lab)
    tool = compile_c(lab, SPECIAL, "h2-special", static=True)
    all_calls = compile_c(lab, SOURCE, "h2", static=True)
    b.up("x", *CLAUDE, "--image", "box", "--dir", lab.path("project"))
    r = b.exec("x", all_calls, options=("-w", "/root"))
    assert refused(r) == REFUSED and "left" not in r.err, r
    r = b.exec("x", tool, "arguments", "landlock", "root", options=("-w", "/home"))
    assert json.loads(r.out) == {**WANTED["arguments"], **WANTED["landlock"], **WANTED["root"], "end": 0}, r
    assert "left" not in r.err, r
    b.ak("stop", "x")
    nothing_left(lab)
    assert overlay_has(lab, "fchmodat2")
    b.ak("start", "x")
    assert b.sh("x", "cd /root && chmod 6711 open && stat -c %a open") == "711\n"
    nothing_left(lab)


def test_h2_a_stop_does_not_wait_for_the_helper(any_boxes):
    b, lab = any_boxes, any_boxes.lab
    imported(lab)
    b.up("x", "--image", "box")
    assert b.sh("x", "cd /root && touch a && chmod 6711 a && stat -c %a a") == "711\n"
    r = lab.spawn([PYTHON, "-c", STOP, b.runtime("daemon.sock")], env=lab.env()).wait(90)
    assert r.code == 0 and "error" not in json.loads(r.out), r
    assert b.list()["x"]["status"] == "stopped"


def test_h2_the_helper_is_not_among_the_processes_of_the_limit(any_user):
    lab = any_user
    imported(lab)
    tool = compile_c(lab, COUNT, "h2-count", static=True)
    counts = [lab.run([*CLAUDE, *more, "--pids", "40", "--dir", lab.path("project"), "--", tool], cwd=lab.path("project")) for more in ([], ["--image", "box"])]
    assert counts[0].out == counts[1].out and int(counts[0].out) > 30, counts
