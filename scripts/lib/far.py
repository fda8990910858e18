"""Three KV nodes far from each other, and the rest of the system beside the first: all processes on this machine,
the distance made by `delay.py`.

```text
   home: control, proxy, SQL nodes, KV node 1          Every node advertises the address of a proxy before it.
       │ one_way_ms        │ one_way_ms                What passes a line, of either direction, takes one_way_ms;
    KV node 2 ─────────── KV node 3                    what stays at home takes nothing.
               one_way_ms
```

Every process is ended by its id, and by the end of the lifeline."""
import json
import os
import pathlib
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from dormouse import PATIENCE_S, Commands, free_port

PLACES = ("home", "b", "c")


class Distance:
    """The proxies, one process for each node."""

    def __init__(self, one_way_ms):
        self.one_way_ms, self.processes, self.known = one_way_ms, [], []

    def _order(self, process, **order):
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        if not process.stdout.readline():
            raise RuntimeError("a proxy that delays has ended")

    def before(self, port, place):
        """A proxy before a node that listens at a port; the address to advertise."""
        process = subprocess.Popen([sys.executable, str(pathlib.Path(__file__).with_name("delay.py"))], text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        listen = free_port()
        self._order(process, listen=listen, to=port, place=place, ms=self.one_way_ms)
        for known in self.known:
            self._order(process, **known)
        return f"127.0.0.1:{listen}"

    def stands(self, pid, place):
        """A process stands at a place. To be said before it connects to anything."""
        self.known.append({"pid": pid, "place": place})
        for process in self.processes:
            self._order(process, pid=pid, place=place)

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


class Far(Commands):
    """The system."""

    def __init__(self, one_way_ms):
        self.directory = tempfile.mkdtemp(prefix="dormouse-far-")
        super().__init__(os.path.join(self.directory, "data"))
        for name in ("run", "logs"):
            os.makedirs(os.path.join(self.data, name), mode=0o700)
        self.certs, self.processes, self.kv = os.path.join(self.directory, "certs"), {}, []
        self.lifeline, self.kept = os.pipe()
        self.distance = Distance(one_way_ms)
        try:
            subprocess.run([self.binary, "cert", "create", "--certs", self.certs], check=True, capture_output=True)
            self._start_kv()
            self._start_home()
        except BaseException:
            self.close()
            raise

    def _start(self, name, *words):
        """Starts a process; the file where it says that it serves."""
        file = os.path.join(self.directory, f"{name}.address")
        with open(os.path.join(self.data, "logs", f"{name}.log"), "a") as out:
            self.processes[name] = subprocess.Popen(
                [self.binary, *words, "--certs", self.certs, "--lifeline-fd", str(self.lifeline), "--address-file", file],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=[self.lifeline])
        return file

    def _serving(self, name, file):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if self.processes[name].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} does not start: {pathlib.Path(self.data, 'logs', f'{name}.log').read_text()}")
            try:
                return json.loads(pathlib.Path(file).read_text())["serving"]
            except (FileNotFoundError, ValueError, KeyError):
                time.sleep(0.02)

    def _start_kv(self):
        for number, place in enumerate(PLACES, 1):
            port, name = free_port(), f"kv{number}"
            advertised = self.distance.before(port, place)
            join = ["--join", self.kv[0]] if self.kv else []
            file = self._start(name, "kv", "--store", os.path.join(self.directory, name), "--listen", f"127.0.0.1:{port}",
                               "--advertise", advertised, "--locality", f"region={place}", *join)
            # It takes longer to start than to say so.
            self.distance.stands(self.processes[name].pid, place)
            self._serving(name, file)
            self.kv.append(advertised)

    def _start_home(self):
        addresses = {"sql": f"127.0.0.1:{free_port()}", "http": f"127.0.0.1:{free_port()}",
                     "control": f"127.0.0.1:{free_port()}", "kv": self.kv[0], "kv_nodes": self.kv, "metrics": {}, "pid": os.getpid()}
        paths = {name: os.path.join(self.data, name) for name in ("run", "logs", "admin.token", "addresses.json")}
        pathlib.Path(paths["admin.token"]).write_text(secrets.token_hex(20))
        pathlib.Path(paths["addresses.json"]).write_text(json.dumps(addresses))
        file = self._start("control", "control", "--listen", addresses["control"], "--http", addresses["http"],
                           "--kv", ",".join(self.kv), "--run-dir", paths["run"], "--log-dir", paths["logs"],
                           "--token-file", paths["admin.token"], "--addresses-file", paths["addresses.json"])
        self._serving("control", file)
        file = self._start("proxy", "proxy", "--listen", addresses["sql"], "--control", addresses["control"])
        self._serving("proxy", file)

    def create_at_home(self, name):
        """Makes a tenant whose leases are at home; the URL to connect with."""
        url = self.create(name)
        self.run("tenant", "set", name, "--lease-preference", f"region={PLACES[0]}", parse=False)
        return url

    def wait_for(self, tenant, ranges):
        """Waits until a tenant has so many ranges, each with three replicas and its lease at home."""
        api, deadline = self.api(), time.monotonic() + PATIENCE_S
        while True:
            found = api.ranges(tenant)
            if len(found) == ranges and all(len(one["replicas"]) == 3 and one["leaseholder"] == 1 for one in found):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the ranges of {tenant} do not come home: {found}")
            time.sleep(0.2)

    def close(self):
        """Asks everything to end; the lifeline ends what does not, SQL nodes too."""
        for process in reversed(self.processes.values()):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        os.close(self.kept)
        os.close(self.lifeline)
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.distance.close()
        shutil.rmtree(self.directory, ignore_errors=True)
