"""The systems under test: a Dormouse of its own and a PostgreSQL 15 of its own, both in temporary
directories, both ended by their process ids."""
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PG_BIN = pathlib.Path("/usr/lib/postgresql/15/bin")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    """Private, proportional and resident bytes."""
    sums = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split()[:2]
        sums[name.rstrip(":")] = int(value) * 1024
    return {"private": sums["Private_Clean"] + sums["Private_Dirty"], "pss": sums["Pss"], "rss": sums["Rss"]}


class Dormouse:
    """`dormouse start` in a temporary directory."""

    def __init__(self, *flags):
        self.binary = os.environ["DORMOUSE"]
        self.directory = tempfile.mkdtemp(prefix="dormouse-bench-")
        self.data = os.path.join(self.directory, "data")
        self.log = open(os.path.join(self.directory, "start.log"), "w+")
        self.supervisor = subprocess.Popen(
            [self.binary, "start", "--data-dir", self.data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *flags],
            stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while "\nready\n" not in "\n" + pathlib.Path(self.log.name).read_text():
            if self.supervisor.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(pathlib.Path(self.log.name).read_text())
            time.sleep(0.05)
        self.addresses = json.loads(pathlib.Path(self.data, "addresses.json").read_text())

    def run(self, *arguments, parse=True):
        out = subprocess.run([self.binary, *arguments, "--data-dir", self.data, *(["--output", "json"] if parse else [])],
                             check=True, capture_output=True, text=True).stdout
        return json.loads(out) if parse else out

    def create(self, name):
        return self.run("tenant", "create", name)["url"]

    def processes(self):
        """Process ids by role: kv, control, proxy."""
        rows = self.run("debug", "processes")
        return {row["role"]: row["pid"] for row in rows if row["role"] in ("kv", "control", "proxy")}

    def sql_node(self, tenant):
        """Process id of the SQL node that serves a tenant."""
        tenant_id = self.run("tenant", "show", tenant)["id"]
        for row in self.run("debug", "processes"):
            if row["role"] == "sql" and row.get("tenant_id") == tenant_id:
                return row["pid"]
        raise RuntimeError(f"no SQL node serves {tenant}")

    def close(self):
        self.supervisor.send_signal(signal.SIGTERM)
        self.supervisor.wait(30)
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Postgres:
    """Debian's PostgreSQL 15 with its defaults."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="postgres-bench-")
        self.data = os.path.join(self.directory, "data")
        self.port = free_port()
        self.user = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        if self.user:
            os.chown(self.directory, self.user.pw_uid, self.user.pw_gid)
        password = os.path.join(self.directory, "password")
        pathlib.Path(password).write_text("bench\n")
        if self.user:
            os.chown(password, self.user.pw_uid, self.user.pw_gid)
        self._call(PG_BIN / "initdb", "-D", self.data, "-U", "bench", "-A", "scram-sha-256", "--pwfile", password,
                   "-E", "UTF8", "--locale=C.UTF-8")
        certificate, key = os.path.join(self.data, "server.crt"), os.path.join(self.data, "server.key")
        self._call("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                   "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost")
        os.chmod(key, 0o600)
        self.server = subprocess.Popen(
            [PG_BIN / "postgres", "-D", self.data, "-p", str(self.port), "-k", self.directory, "-c", "ssl=on"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._identity())
        deadline = time.monotonic() + 60
        while subprocess.run([PG_BIN / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]).returncode:
            if self.server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL does not start")
            time.sleep(0.1)
        self.url = f"postgresql://bench:bench@127.0.0.1:{self.port}/postgres"

    def _identity(self):
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}

    def _call(self, *command):
        subprocess.run([str(word) for word in command], check=True, capture_output=True, **self._identity())

    def close(self):
        self.server.send_signal(signal.SIGINT)
        self.server.wait(30)
        shutil.rmtree(self.directory, ignore_errors=True)


def pgbench(url, *arguments, tls=False):
    """Runs pgbench; believes its figure only if no transaction failed."""
    base = url.split("?")[0] + ("?sslmode=require" if tls else "?sslmode=disable")
    done = subprocess.run([str(PG_BIN / "pgbench"), *arguments, base], capture_output=True, text=True)
    if done.returncode != 0 or "number of failed transactions: 0 " not in done.stdout + "number of failed transactions: 0 " * ("-i" in arguments):
        raise RuntimeError(f"pgbench {' '.join(arguments)}: {done.stdout}\n{done.stderr}")
    if "aborted" in done.stderr:
        raise RuntimeError(done.stderr)
    for line in done.stdout.splitlines():
        if line.startswith("tps ="):
            return float(line.split()[2])
    return None
