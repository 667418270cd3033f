"""The lab's Internet: one process, in its own network namespace, that is every address there is.

All of IPv4 and global IPv6 is routed to local sockets here (metadata addresses and private ranges too), so that a leak would
arrive. A packet socket on the one link in counts all that does arrive: those counters are what tests assert on.
Controlled by JSON lines on a socket; see Internet.rpc_*.
"""
import asyncio
import base64
import collections
import json
import os
import socket
import ssl
import struct
import sys

import dnsserver
import models
import registries

PACKET_OUTGOING = 4
QUIET_S, QUIET_LIMIT_S = 0.02, 1
TURNS = 20  # of our own event loop, more than a connection needs from its first packet to its bytes: on a busy machine no turn may fit into QUIET_S
ND_TYPES = set(range(130, 138)) | {143}  # multicast listener and neighbour chatter of the kernels themselves


def refuses_reply(frame, proto, off):
    """The host's kernel tells a DNS server that nobody waits any more: "no such port", quoting the server's own reply."""
    inner = off + 8
    if proto == 1 and frame[off:off + 2] == b"\x03\x03":
        source, udp, quoted = frame[inner + 12:inner + 16], inner + 20, frame[inner:inner + 1] == b"\x45" and frame[inner + 9:inner + 10] == b"\x11"
        return quoted and source == frame[30:34] and frame[udp:udp + 2] == b"\0\x35"
    if proto == 58 and frame[off:off + 2] == b"\x01\x04":
        source, udp, quoted = frame[inner + 8:inner + 24], inner + 40, frame[inner + 6:inner + 7] == b"\x11"
        return quoted and source == frame[38:54] and frame[udp:udp + 2] == b"\0\x35"
    return False


class Counter:
    """Packets that came in on LINK, by destination."""

    def __init__(self, link):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.sock.bind((link, 0))
        self.sock.setblocking(False)
        for option in (33, socket.SO_RCVBUF):  # SO_RCVBUFFORCE first
            try:
                self.sock.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
                break
            except OSError:
                pass
        self.clear()
        self.on = True

    def clear(self):
        self.packets = collections.Counter()
        self.syns = collections.Counter()
        self.frames = 0

    def drain(self):
        while True:
            try:
                frame, addr = self.sock.recvfrom(256)
            except BlockingIOError:
                return
            self.frames += 1
            if self.on and addr[2] != PACKET_OUTGOING:
                self.count(frame)

    def count(self, frame):
        kind = frame[12:14]
        if kind == b"\x08\x00":
            proto, off = frame[23], 14 + (frame[14] & 15) * 4
            dst = socket.inet_ntop(socket.AF_INET, frame[30:34])
        elif kind == b"\x86\xdd":
            proto, off = frame[20], 54
            dst = socket.inet_ntop(socket.AF_INET6, frame[38:54])
            if (proto == 58 and frame[54] in ND_TYPES) or proto == 0:
                return
        elif kind == b"\x08\x06":
            return
        else:
            self.packets["ethertype " + kind.hex()] += 1
            return
        if proto in (6, 17) and len(frame) >= off + 4:
            key = "%s %d %s" % (dst, struct.unpack_from("!H", frame, off + 2)[0], "tcp" if proto == 6 else "udp")
            if proto == 6 and frame[off + 13] & 0x12 == 2:
                self.syns[key] += 1
        elif refuses_reply(frame, proto, off):
            key = dst + " 53 late"
        else:
            key = "%s 0 %d" % (dst, proto)
        self.packets[key] += 1


class Internet:
    def __init__(self, control, tls_dir, link):
        self.control = control
        self.zone = dnsserver.Zone()
        self.dns = dnsserver.Server(self.zone)
        self.counter = Counter(link)
        self.conns = []
        self.models = models.Models()
        self.listening = {}
        self.ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ctx.load_cert_chain(os.path.join(tls_dir, "server.pem"), os.path.join(tls_dir, "server.key"))
        self.ctx.sni_callback = self.on_sni
        self.tasks = set()
        self.writers = set()

    # ---- services ----

    @staticmethod
    def on_sni(sslobj, name, ctx):
        sslobj.lab_sni = name

    def note(self, kind, writer):
        local, peer = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
        obj = writer.get_extra_info("ssl_object")
        entry = {"kind": kind, "dst": local[0], "port": local[1], "peer": peer[0] if peer else None, "first": "", "bytes": 0,
                 "sni": getattr(obj, "lab_sni", None) if obj else None, "open": True}
        self.conns.append(entry)
        return entry

    async def serve(self, kind, reader, writer):
        entry = self.note(kind, writer)
        self.writers.add(writer)
        try:
            await getattr(self, "do_" + kind)(entry, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ssl.SSLError, OSError, ValueError):
            pass
        finally:
            entry["open"] = False
            self.writers.discard(writer)
            writer.close()

    async def do_echo(self, entry, reader, writer):
        while data := await reader.read(65536):
            entry["first"] = entry["first"] or data[:64].hex()
            entry["bytes"] += len(data)
            writer.write(data)
            await writer.drain()

    async def do_count(self, entry, reader, writer):
        while data := await reader.read(1 << 18):
            entry["bytes"] += len(data)
        writer.write(b"%d\n" % entry["bytes"])
        await writer.drain()

    async def do_banner(self, entry, reader, writer):
        writer.write(b"SSH-2.0-lab\r\n")
        await self.do_echo(entry, reader, writer)

    async def do_silent(self, entry, reader, writer):
        while data := await reader.read(65536):
            entry["bytes"] += len(data)

    async def do_http(self, entry, reader, writer):
        """Requests one after the other; `ECHO` as the first line turns the connection into an echo."""
        while not writer.is_closing():  # requests of one that has gone may still be in the buffer, thousands of them after a flood
            await asyncio.sleep(0)  # others have their turn: what is in the buffer is read without waiting
            head = await reader.readuntil(b"\n")
            entry["first"] = entry["first"] or head[:64].hex()
            if head.startswith(b"ECHO"):
                writer.write(b"ECHO\n")
                await self.do_echo(entry, reader, writer)
                return
            if not head.endswith(b"\r\n"):
                return
            while not head.endswith(b"\r\n\r\n"):
                head += await reader.readuntil(b"\n")
            lines = head.decode("latin-1").split("\r\n")
            host = next((line[5:].strip() for line in lines if line.lower().startswith("host:")), None)
            entry.setdefault("hosts", []).append(host)
            method, path = lines[0].split(" ")[:2]
            heads = {line.split(":")[0].strip().lower(): line.partition(":")[2].strip() for line in lines[1:]}
            body = await self.read_body(heads, reader, writer)
            if entry["kind"] == "tls" and self.models.serves(host):
                await self.models.answer(host, method, path, heads, body, writer)
                continue
            if entry["kind"] == "tls" and registries.serves(host):
                await registries.answer(host, path, writer)
                continue
            if path.startswith("/bytes/"):
                await self.send_bytes(writer, int(path[7:]))
                continue
            body = json.dumps({"host": host, "path": path, "sni": entry["sni"], "dst": entry["dst"], "port": entry["port"]}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    do_tls = do_http

    @staticmethod
    async def read_body(heads, reader, writer):
        body = bytearray()
        if heads.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:-2]
                if len(body) % 64 == 0:
                    await asyncio.sleep(0)
                if writer.is_closing():
                    raise ConnectionAbortedError
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
        elif heads.get("content-length", "").isdigit():
            body = await reader.readexactly(int(heads["content-length"]))
        return bytes(body)

    @staticmethod
    async def send_bytes(writer, size):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        block = bytes(range(256)) * 256
        while size > 0:
            writer.write(block[:size])
            size -= min(size, len(block))
            await writer.drain()

    async def listen(self, port, kind):
        if (port, "tcp") in self.listening:
            old, servers = self.listening[port, "tcp"]
            if old == kind:
                return
            for server in servers:
                server.close()
        servers = []
        for family, addr in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            servers.append(await asyncio.start_server(lambda r, w: self.serve(kind, r, w), addr, port, family=family, backlog=512,
                                                      ssl=self.ctx if kind == "tls" else None, reuse_address=True))
        self.listening[port, "tcp"] = (kind, servers)

    def listen_udp(self, port):
        if (port, "udp") in self.listening:
            return
        for family, addr in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            sock = socket.socket(family, socket.SOCK_DGRAM)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.setsockopt(socket.IPPROTO_IPV6, dnsserver.IPV6_FREEBIND, 1)
                sock.setsockopt(socket.IPPROTO_IPV6, dnsserver.IPV6_RECVPKTINFO, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IP, dnsserver.IP_PKTINFO, 1)
            sock.bind((addr, port))
            sock.setblocking(False)
            asyncio.get_running_loop().add_reader(sock, self.on_udp_echo, sock, family, port)
        self.listening[port, "udp"] = ("echo", [])

    def on_udp_echo(self, sock, family, port):
        try:
            data, anc, _, peer = sock.recvmsg(65535, 256)
        except OSError:
            return
        if family == socket.AF_INET:
            info = anc[0][2]
            back = [(socket.IPPROTO_IP, dnsserver.IP_PKTINFO, struct.pack("I", 0) + info[8:12] + b"\0" * 4)]
            local = socket.inet_ntop(family, info[8:12])
        else:
            info = anc[0][2]
            back = [(socket.IPPROTO_IPV6, dnsserver.IPV6_PKTINFO, info[:16] + struct.pack("I", 0))]
            local = socket.inet_ntop(family, info[:16])
        self.conns.append({"kind": "udp", "dst": local, "port": port, "first": data[:64].hex(), "bytes": len(data), "sni": None})
        try:
            sock.sendmsg([data], back, 0, peer)
        except OSError:
            pass

    # ---- control ----

    def rpc_dns_set(self, name, **kw):
        self.zone.set(name, **kw)

    def rpc_dns_behave(self, name, **how):
        self.zone.behaviour[name.lower()] = how

    async def rpc_dns_log(self):
        await self.settle()
        return self.zone.log

    async def settle(self):
        """Until nothing has come or gone for a moment: what a test says must not arrive may still be on its way. Some tests never are quiet: bounded."""
        end = asyncio.get_running_loop().time() + QUIET_LIMIT_S
        while asyncio.get_running_loop().time() < end:
            before = self.counter.frames
            await asyncio.sleep(QUIET_S)
            for _ in range(TURNS):
                await asyncio.sleep(0)
            self.counter.drain()
            if self.counter.frames == before:
                return

    def rpc_put(self, host, path, data):
        """Serve DATA (base64) at a registry's PATH."""
        registries.put(host, path, base64.b64decode(data))

    def rpc_models(self):
        return self.models.log

    async def rpc_conns(self):
        await self.settle()
        return self.conns

    async def rpc_counters(self):
        await self.settle()
        return {"packets": self.counter.packets, "syns": self.counter.syns}

    def rpc_counting(self, on):
        self.counter.drain()
        self.counter.on = on

    async def rpc_listen(self, port, kind="echo"):
        if kind == "udp":
            self.listen_udp(port)
        else:
            await self.listen(port, kind)

    async def rpc_reset(self, zone):
        for writer in self.writers:
            writer.transport.abort()
        await self.settle()
        self.zone.records, self.zone.behaviour = {}, {}
        for row in zone:
            self.zone.set(row.pop("name"), **row)
        self.zone.log.clear()
        self.models.log.clear()
        self.conns = []
        self.counter.drain()
        self.counter.clear()

    async def rpc_clear(self):
        """Forget what was seen; keep the zone."""
        await self.settle()
        self.zone.log.clear()
        self.models.log.clear()
        self.conns = []
        self.counter.drain()
        self.counter.clear()

    async def run(self):
        loop = asyncio.get_running_loop()
        loop.add_reader(self.counter.sock, self.counter.drain)
        await self.dns.start()
        for port, kind in ((443, "tls"), (8443, "tls"), (80, "http"), (8080, "http"), (22, "banner"), (7, "echo"), (853, "echo"),
                           (5432, "echo"), (9000, "count")):
            await self.listen(port, kind)
        for port in (7, 443, 5000):
            self.listen_udp(port)
        reader, writer = await asyncio.open_connection(sock=self.control, limit=1 << 26)
        writer.write(b'{"ready":true}\n')
        while line := await reader.readline():
            req = json.loads(line)
            try:
                ret = getattr(self, "rpc_" + req.pop("op"))(**req)
                if asyncio.iscoroutine(ret):
                    ret = await ret
                out = {"ok": ret}
            except Exception as e:  # told to the test, which fails with it
                out = {"error": repr(e)}
            writer.write(json.dumps(out).encode() + b"\n")
            await writer.drain()


def main(control_fd, tls_dir, link):
    asyncio.run(Internet(socket.socket(fileno=control_fd), tls_dir, link).run())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
