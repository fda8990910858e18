"""The systems under test: a Dormouse of its own and a PostgreSQL 15 of its own, both in temporary
directories, both ended by their process ids."""
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from dormouse import PG_BIN, Dormouse, cpu_seconds, disk, free_port, memory  # noqa: E402,F401
from far import Far  # noqa: E402,F401


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def ms(seconds):
    return f"{seconds * 1000:.1f} ms"


def mib(size):
    return f"{size / (1 << 20):.1f} MiB"


def last_json(text):
    """The JSON a command printed, alone or as its last line."""
    return json.loads(text if text.lstrip().startswith("{") else text.strip().splitlines()[-1])


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
