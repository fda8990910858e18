#!/usr/bin/env python3
"""Distance between processes of one machine: TCP proxies that hold every byte back for a while, each way.

A proxy stands before one KV node, which advertises the proxy's address. Who connects is known by its process: the
socket of a connection belongs to one. So connections from processes at the same *place* as the node pass at once, and
all others are delayed. Bytes keep their order and are not limited in rate: what arrives is passed on after the delay,
whatever else is under way.

Reads its orders as lines of JSON from standard input, and ends with it:
    {"listen": PORT, "to": PORT, "place": NAME, "ms": MILLISECONDS}   a proxy; answered with a line when it listens
    {"pid": PID, "place": NAME}                                       where a process stands; all others: "home"
Only Python's standard library; Linux."""
import asyncio
import collections
import contextlib
import gc
import json
import os
import socket
import sys

READ_BYTES = 256 << 10
# Bytes on their way in one direction, beyond which the sender waits. Far more than a connection has here.
MOST_UNDER_WAY = 64 << 20

HOME = "home"

places = {}


def inode_of(address, peer):
    """The inode of the socket at `peer` that is connected to `address`, both (host, port) on IPv4."""
    def written(end):
        return f"{int.from_bytes(socket.inet_aton(end[0]), sys.byteorder):08X}:{end[1]:04X}"
    wanted = written(peer), written(address)
    with open("/proc/net/tcp") as table:
        for line in table:
            fields = line.split()
            if (fields[1], fields[2]) == wanted:
                return fields[9]
    return None


def place_of(address, peer):
    """Where the process stands that connected."""
    name = f"socket:[{inode_of(address, peer)}]"
    for pid, place in places.items():
        try:
            with os.scandir(f"/proc/{pid}/fd") as entries:
                for entry in entries:
                    try:
                        if os.readlink(entry.path) == name:
                            return place
                    except OSError:
                        pass
        except OSError:
            pass
    return HOME


class Side(asyncio.Protocol):
    """One of the two connections of a pair; what arrives is written to the other after the delay."""

    def __init__(self, delay_s):
        self.delay_s, self.other, self.transport = delay_s, None, None
        self.held, self.bytes, self.timer = collections.deque(), 0, None

    def connection_made(self, transport):
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data):
        self._hold(data)

    def connection_lost(self, _):
        # The end comes as late as the bytes before it.
        self._hold(None)

    def _hold(self, data):
        loop = asyncio.get_running_loop()
        if not self.delay_s:
            self._pass(data)
            return
        self.held.append((loop.time() + self.delay_s, data))
        self.bytes += len(data or b"")
        if self.bytes > MOST_UNDER_WAY and self.transport.is_reading():
            self.transport.pause_reading()
        if self.timer is None:
            self.timer = loop.call_later(self.delay_s, self._due)

    def _due(self):
        loop, self.timer = asyncio.get_running_loop(), None
        # Timers are exact to a millisecond at best; what is due a moment later goes along.
        now, ready = loop.time() + 0.0002, []
        while self.held and self.held[0][0] <= now:
            ready.append(self.held.popleft()[1])
        whole = b"".join(data for data in ready if data is not None)
        self.bytes -= len(whole)
        if whole:
            self._pass(whole)
        if None in ready:
            self._pass(None)
        if self.held:
            self.timer = loop.call_at(self.held[0][0], self._due)
        if self.bytes <= MOST_UNDER_WAY and not self.transport.is_closing() and not self.transport.is_reading():
            self.transport.resume_reading()

    def _pass(self, data):
        if data is None:
            self.other.close()
        elif not self.other.is_closing():
            self.other.write(data)


class Front(Side):
    """The side of who connects; makes the other side."""

    def __init__(self, order):
        super().__init__(0)
        self.order, self.waiting = order, []

    def connection_made(self, transport):
        super().connection_made(transport)
        transport.pause_reading()
        asyncio.get_running_loop().create_task(self._connect(transport))

    async def _connect(self, transport):
        place = place_of(transport.get_extra_info("sockname"), transport.get_extra_info("peername"))
        delay_s = 0 if place == self.order["place"] else self.order["ms"] / 1000
        try:
            self.other, back = await asyncio.get_running_loop().create_connection(
                lambda: Side(delay_s), "127.0.0.1", self.order["to"])
        except OSError:
            transport.abort()
            return
        self.delay_s, back.other = delay_s, transport
        if transport.is_closing():
            self.other.close()
        else:
            transport.resume_reading()

    def _hold(self, data):
        if self.other is not None:
            super()._hold(data)


async def main():
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        if "pid" in order:
            places[order["pid"]] = order["place"]
        else:
            await loop.create_server(lambda order=order: Front(order), "127.0.0.1", order["listen"])
        print(json.dumps({"done": order}), flush=True)


if __name__ == "__main__":
    # A network does not wait for processors, and does not collect garbage. What has no right to go first goes along.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    gc.freeze()
    gc.disable()
    asyncio.run(main())
