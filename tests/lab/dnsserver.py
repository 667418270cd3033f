"""The lab's DNS: answers for everybody from one table that tests change while it runs.

It plays root, authority and recursive resolver in one: a question is answered with the whole CNAME chain, as a resolver would.
Every question is kept as it came (case, EDNS options, header bits): that log is the truth about what left a sandbox.
"""
import asyncio
import socket
import struct
import time

import dnswire

IP_PKTINFO = 8
IPV6_RECVPKTINFO, IPV6_PKTINFO, IPV6_FREEBIND = 49, 50, 78


class Zone:
    """names → records, and how to misbehave for some of them."""

    def __init__(self):
        self.records = {}
        self.behaviour = {}
        self.log = []

    def set(self, name, ttl=30, append=False, **records):
        name = name.lower()
        rows = self.records.setdefault(name, []) if append else self.records.__setitem__(name, []) or self.records[name]
        for rtype, values in records.items():
            for value in values if isinstance(values, list) else [values]:
                rows.append((rtype, value, ttl))

    def rows(self, name):
        if name in self.records:
            return self.records[name]
        labels = name.split(".")
        for i in range(1, len(labels)):
            wild = "*." + ".".join(labels[i:])
            if wild in self.records:
                return self.records[wild]
        return None

    @staticmethod
    def spread(owner, rows):
        """An A of "11.96.0.0*4" stands for four addresses of each name's own: the number in its first label tells which."""
        for rtype, value, ttl in rows:
            if rtype != "A" or "*" not in value:
                yield rtype, value, ttl
                continue
            base, each = value.split("*")
            first = struct.unpack("!I", socket.inet_aton(base))[0] + int(each) * int("".join(filter(str.isdigit, owner.split(".")[0])) or 0)
            for i in range(int(each)):
                yield rtype, socket.inet_ntoa(struct.pack("!I", first + i)), ttl

    def answer(self, name, qtype):
        """(rcode, [(owner, type, value, ttl)]) with the CNAME chain followed."""
        out, seen, owner = [], set(), name
        while True:
            rows = self.rows(owner)
            if rows is None:
                return (0 if out else 3), out
            hit = [(owner, rtype, value, ttl) for rtype, value, ttl in self.spread(owner, rows) if qtype in (dnswire.TYPES[rtype], 255)]
            alias = [(owner, rtype, value, ttl) for rtype, value, ttl in rows if rtype == "CNAME"]
            if hit or not alias or qtype == 5:
                return 0, out + hit
            out += alias
            if owner in seen:
                return 0, out
            seen.add(owner)
            owner = alias[0][2].lower()


class Server:
    def __init__(self, zone):
        self.zone = zone
        self.tasks = set()
        self.ports = {}  # name → the port its last question came from

    async def start(self, port=53):
        loop = asyncio.get_running_loop()
        for family, any_addr in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            sock = socket.socket(family, socket.SOCK_DGRAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            if family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
                sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVPKTINFO, 1)
            sock.bind((any_addr, port))
            sock.setblocking(False)
            loop.add_reader(sock, self.on_udp, sock, family)
            await asyncio.start_server(self.on_tcp, any_addr, port, family=family)

    def on_udp(self, sock, family):
        for _ in range(64):
            try:
                data, anc, _, peer = sock.recvmsg(65535, 256)
            except BlockingIOError:
                return
            # Reply from the address that was asked: every address is ours here.
            if family == socket.AF_INET:
                info = next(d for level, kind, d in anc if kind == IP_PKTINFO)
                local = socket.inet_ntop(family, info[8:12])
                back = [(socket.IPPROTO_IP, IP_PKTINFO, struct.pack("I", 0) + info[8:12] + b"\0" * 4)]
            else:
                info = next(d for level, kind, d in anc if kind == IPV6_PKTINFO)
                local = socket.inet_ntop(family, info[:16])
                back = [(socket.IPPROTO_IPV6, IPV6_PKTINFO, info[:16] + struct.pack("I", 0))]

            def send(reply, forged_source=None, sock=sock, peer=peer, back=back):
                anc_out = back
                if forged_source and (":" in forged_source) != (family == socket.AF_INET6):
                    return
                if forged_source and family == socket.AF_INET:
                    anc_out = [(socket.IPPROTO_IP, IP_PKTINFO, struct.pack("I", 0) + socket.inet_aton(forged_source) + b"\0" * 4)]
                elif forged_source:
                    anc_out = [(socket.IPPROTO_IPV6, IPV6_PKTINFO, socket.inet_pton(family, forged_source) + struct.pack("I", 0))]
                try:
                    sock.sendmsg([reply], anc_out, 0, peer)
                except OSError:
                    pass

            self.spawn(self.handle(data, "udp", local, send, peer, back, sock))

    def spawn(self, coro):
        task = asyncio.ensure_future(coro)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def on_tcp(self, reader, writer):
        local = writer.get_extra_info("sockname")[0]
        try:
            while True:
                length = struct.unpack("!H", await reader.readexactly(2))[0]
                data = await reader.readexactly(length)
                await self.handle(data, "tcp", local, lambda reply, forged_source=None: writer.write(struct.pack("!H", len(reply)) + reply))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def handle(self, data, proto, local, send, peer=None, back=None, sock=None):
        entry = {"time": time.time(), "proto": proto, "dst": local, "len": len(data), "raw": data.hex(), "sport": peer[1] if peer else 0}
        self.zone.log.append(entry)
        try:
            question = dnswire.parse(data)
            asked = question["questions"][0]
        except (ValueError, IndexError, struct.error):
            entry["bad"] = True
            return
        name = asked["name"].lower()
        entry.update(name=asked["name"], qtype=dnswire.TYPE_NAMES.get(asked["qtype"], asked["qtype"]), flags=question["flags"],
                     id=question["id"], options=question["options"], udp_size=question.get("udp_size"))
        how = self.zone.behaviour.get(name) or self.zone.behaviour.get("*") or {}
        if proto == "udp":
            self.ports[name] = peer[1]
            if how.get("spray"):
                self.spawn(self.spray(name, asked["qtype"], how["spray"], sock, peer, back))
        if how.get("drop") or (how.get("drop_udp") and proto == "udp"):
            return
        if how.get("delay"):
            await asyncio.sleep(how["delay"])
        self.reply(data, question, asked, name, how, proto, send)

    async def spray(self, name, qtype, how, sock, peer, back):
        """One who can send as the resolver but not read: every id, the question in lower case, to the port that another question ("like") was seen to have."""
        peer = (peer[0], self.ports.get(how.get("like"), peer[1]), *peer[2:])
        body = dnswire.encode_name(name) + struct.pack("!HH", qtype, 1) + dnswire.record(name, "A", how["A"], 300)
        for ident in range(65536):
            try:
                sock.sendmsg([struct.pack("!HHHHHH", ident, 0x8180, 1, 1, 0, 0) + body], back, 0, peer)
            except OSError:
                pass
            if ident % 64 == 63:
                await asyncio.sleep(0)

    def reply(self, data, question, asked, name, how, proto, send):
        rcode, rows = self.zone.answer(name, asked["qtype"])
        rcode = how.get("rcode", rcode)
        end = dnswire.decode_name(data, 12)[1] + 4
        quest = data[12:end].lower() if how.get("lower") and proto == "udp" else data[12:end]
        # Names such as `extra` are given as (owner, type, value, ttl).
        answers = [dnswire.record(*row) for row in rows] + [dnswire.record(*row) for row in how.get("extra", [])]
        more = [dnswire.record(*row) for row in how.get("additional", [])]
        opt = b"\0" + struct.pack("!HHIH", 41, 1232, 0, 0) if question.get("udp_size") else b""

        def message(ident, quest_bytes, flags, body, tail, extra_opt):
            return struct.pack("!HHHHHH", ident, flags, 1, len(body), 0, len(tail) + (1 if extra_opt else 0)) + quest_bytes + b"".join(
                body) + b"".join(tail) + extra_opt

        flags = 0x8180 | rcode
        for text in how.get("garbage", []):  # hex after the right id
            send(struct.pack("!H", question["id"]) + bytes.fromhex(text))
        if how.get("garbage"):
            return
        for guess in range(how.get("guess", 0)):  # an attacker who knows everything but the id
            if guess != question["id"]:
                send(message(guess, quest, 0x8180, [dnswire.record(name, "A", how["guess_A"], 300)], [], b""))
        for forged in how.get("forge", []):
            lie = [dnswire.record(name, "AAAA" if ":" in forged["A"] else "A", forged["A"], 300)]
            ident = question["id"] ^ (0x5555 if forged["kind"] == "id" else 0)
            lie_quest = dnswire.encode_name("other.test") + quest[-4:] if forged["kind"] == "question" else quest
            if forged["kind"] == "type":
                lie_quest = quest[:-4] + struct.pack("!HH", 16, 1)
            elif forged["kind"] == "class":
                lie_quest = quest[:-2] + struct.pack("!H", 3)
            flags_lie = 0x0100 if forged["kind"] == "query" else 0x8180
            send(message(ident, lie_quest, flags_lie, lie, [], b""), forged.get("source") if forged["kind"] == "source" else None)
        if how.get("silent"):
            return
        whole = message(question["id"], quest, flags, answers, more, opt)
        limit = max(512, question.get("udp_size") or 512)
        if proto == "udp" and (how.get("truncate") or len(whole) > limit):
            send(message(question["id"], quest, flags | 0x0200, [], [], opt))
            return
        send(whole)
