"""A terminal for tests: what a program prints is looked for, and keys are typed."""
import fcntl
import os
import pty
import re
import select
import struct
import termios

from lab import wait_for


class Screen:
    """A terminal that a command of agentkernel is on, or a user's SHELL, from which agentkernel is started as `ak`."""

    def __init__(self, lab, args, rows=24, cols=80, shell=False):
        self.lab = lab
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.start = termios.tcgetattr(slave)
        argv = ["bash", "--norc", "--noprofile", "-i"] if shell else [lab.binary, *args]
        self.proc = lab.spawn(argv, env=lab.env(PS1="host$ ", HISTFILE=""), tty=slave)
        os.close(slave)
        os.set_blocking(self.master, False)
        self.seen = b""
        if shell:
            self.until(rb"host\$ ")
            self.line("alias ak=%s" % lab.binary)

    def line(self, text):
        """Type a line in the user's shell, and wait for the prompt after it."""
        self.type(text.encode() + b"\n")
        self.until(rb"host\$ ")

    def read(self):
        try:
            self.seen += os.read(self.master, 65536)
        except (BlockingIOError, OSError):
            pass

    def until(self, pattern, timeout=10):
        def look():
            self.read()
            return re.search(pattern, self.seen)
        try:
            found = wait_for(look, timeout)
        except AssertionError:
            raise AssertionError("no %r on the screen: %r" % (pattern, self.seen)) from None
        self.seen = self.seen[found.end():]
        return found

    def prompt(self):
        """What is typed before a shell asks is lost, as on any terminal that changes its mode."""
        self.until(rb"[$#] ")

    def type(self, text):
        os.write(self.master, text)

    def paste(self, text):
        """Type much at once, and read meanwhile, as a terminal does."""
        while text:
            _, writable, _ = select.select([self.master], [self.master], [], 10)
            self.read()
            if writable:
                try:
                    text = text[os.write(self.master, text[:4096]):]
                except BlockingIOError:
                    pass

    def until_typed(self, text, pattern):
        """Type TEXT again and again until PATTERN shows: there is no prompt to wait for."""
        def look():
            self.read()
            if not re.search(pattern, self.seen):
                self.type(text)
                select.select([self.master], [], [], 0.1)
                self.read()
            return re.search(pattern, self.seen)
        try:
            wait_for(look)
        except AssertionError:
            raise AssertionError("no %r on the screen after %r: %r" % (pattern, text, self.seen)) from None
        self.seen = b""

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def end(self, timeout=10):
        r = self.proc.wait(timeout)
        os.close(self.master)
        return r

    def close(self):
        """End whatever is there."""
        if self.proc.code is None:
            self.proc.signal(9)
        os.close(self.master)  # hangs up: the shell's jobs go with it
        self.proc.wait(20)
