"""Hosts in network namespaces, joined by a router in one of its own, which can drop what goes between
any two of them: silently, as a network that fails does.

```text
  this machine ──┐
  host 1 ────── router ────── host 2      every link a veth pair, every host 10.231.N.2
                 └─────────── host N
```

Needs root and `ip` (iproute2); no packet filter."""
import os
import subprocess

PREFIX = "10.231"


class Impossible(Exception):
    """This machine has no network namespaces for us."""


def _ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise Impossible(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """`names` are the hosts. The machine itself reaches all of them, as host 0."""

    def __init__(self, names):
        # Two shows at a time must not share names; the addresses would clash anyway and be refused.
        self.tag = f"dm{os.getpid() % 100000}"
        self.router = f"{self.tag}-router"
        self.names = list(names)
        self.made, self.links, self.cuts = [], [], []
        if f"{PREFIX}." in _ip("route", "show"):
            raise Impossible(f"addresses {PREFIX}.* are in use here")
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self):
        self._namespace(self.router)
        # Forwarding is switched on in the router alone.
        subprocess.run(["ip", "netns", "exec", self.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)
        self._link(0, None)
        _ip("route", "add", f"{PREFIX}.0.0/16", "via", f"{PREFIX}.0.1")
        for number, name in enumerate(self.names, 1):
            namespace = self.namespace(name)
            self._namespace(namespace)
            self._link(number, namespace)
            _ip("-n", namespace, "route", "add", "default", "via", f"{PREFIX}.{number}.1")

    def namespace(self, name):
        return f"{self.tag}-{name}"

    def address(self, name):
        return f"{PREFIX}.{self.names.index(name) + 1}.2"

    def _namespace(self, namespace):
        _ip("netns", "add", namespace)
        self.made.append(namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")

    def _link(self, number, namespace):
        """A link from a host, or from this machine, to the router."""
        here, there = f"{self.tag}h{number}", f"{self.tag}r{number}"
        own = ["-n", namespace] if namespace else []
        _ip(*own, "link", "add", here, "type", "veth", "peer", "name", there, "netns", self.router)
        self.links.append((own, here))
        for side, name, address in ((own, here, 2), (["-n", self.router], there, 1)):
            _ip(*side, "addr", "add", f"{PREFIX}.{number}.{address}/30", "dev", name)
            _ip(*side, "link", "set", name, "up")

    def command(self, name, *words):
        """A command that runs on a host; its process is the command's own."""
        return ["ip", "netns", "exec", self.namespace(name), *words]

    def cut(self, one, other):
        """Nothing arrives from now on between any host of `one` and any of `other`."""
        pairs = [(a, b) for x in one for y in other for a, b in ((x, y), (y, x))]
        for source, target in pairs:
            rule = ["from", self.address(source), "to", self.address(target), "blackhole"]
            _ip("-n", self.router, "rule", "add", *rule)
            self.cuts.append(rule)

    def heal(self):
        """Everything arrives again."""
        while self.cuts:
            _ip("-n", self.router, "rule", "del", *self.cuts.pop())

    def close(self):
        """Takes everything away again. Whoever runs in a namespace keeps it until they end."""
        if self.links and not self.links[0][0]:
            subprocess.run(["ip", "link", "del", self.links[0][1]], capture_output=True)
        for namespace in self.made:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
        self.made, self.links = [], []
