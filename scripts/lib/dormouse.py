"""A Dormouse of real processes in a directory of its own, for shows and benchmarks.

Only Python's standard library. Every process is ended by its id, and by its supervisor's end."""
import fcntl
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PG_BIN = pathlib.Path("/usr/lib/postgresql/15/bin")
# How long a system may take to serve, and to end.
PATIENCE_S = 120


def binary():
    """The program under test: `DORMOUSE`, or what `make build` made."""
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    path = os.environ.get("DORMOUSE") or os.path.join(target, "release", "dormouse")
    if not os.access(path, os.X_OK):
        raise FileNotFoundError(f"there is no program at {path}: run \"make build\", or set DORMOUSE to it")
    return os.path.abspath(path)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def cpu_seconds(pid):
    """CPU time a process has used so far, in user space and in the kernel."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    """Private, proportional and resident bytes."""
    sums = {}
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split()[:2]
        sums[name.rstrip(":")] = int(value) * 1024
    return {"private": sums["Private_Clean"] + sums["Private_Dirty"], "pss": sums["Pss"], "rss": sums["Rss"]}


def disk(directory):
    """Bytes on disk below a directory, as `du` counts them. Files may go while they are counted."""
    total = 0
    for path in pathlib.Path(directory).rglob("*"):
        try:
            total += path.lstat().st_blocks * 512
        except FileNotFoundError:
            pass
    return total


class ApiError(Exception):
    """The HTTP API answered with an error."""

    def __init__(self, status, body):
        error = body.get("error", {}) if isinstance(body, dict) else {}
        super().__init__(f"{status} {error.get('code', '')}: {error.get('message', body)}")
        self.status, self.code = status, error.get("code", "")


class Api:
    """The HTTP API of control, over one connection that stays open. For one thread."""

    def __init__(self, address, token, timeout_s=60):
        self.token = token
        host, port = address.rsplit(":", 1)
        self.connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout_s)

    def call(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        try:
            self.connection.request(method, f"/api/v1{path}", json.dumps(body) if body is not None else None, headers)
            answer = self.connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            # The next call connects again; this one may have been carried out.
            self.connection.close()
            raise
        value = json.loads(text) if text else None
        if answer.status >= 300:
            raise ApiError(answer.status, value)
        return value

    def get(self, path):
        return self.call("GET", path)

    def post(self, path, body=None):
        return self.call("POST", path, body or {})

    def nodes(self):
        """KV nodes, as `node list` shows them."""
        return self.get("/nodes")["nodes"]

    def pages(self, path, field):
        """All objects of a listing that comes in pages."""
        found, after = [], ""
        while True:
            joint = "&" if "?" in path else "?"
            page = self.get(f"{path}{joint}after={after}" if after else path)
            found += page[field]
            after = page.get("next")
            if not after:
                return found

    def ranges(self, tenant=None):
        return self.pages(f"/ranges?tenant={tenant}" if tenant else "/ranges", "ranges")


class Commands:
    """The command line on a data directory."""

    def __init__(self, data):
        self.binary, self.data = binary(), str(data)

    def run(self, *arguments, parse=True, check=True, timeout_s=600):
        """Runs a command; its JSON, or what it printed. If it may fail, the finished process."""
        command = [self.binary, *arguments, "--data-dir", self.data, *(["--output", "json"] if parse else [])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL)
        if not check:
            return done
        if done.returncode:
            raise RuntimeError(f"dormouse {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout) if parse else done.stdout

    def addresses(self):
        return json.loads(pathlib.Path(self.data, "addresses.json").read_text())

    def api(self, timeout_s=60):
        token = pathlib.Path(self.data, "admin.token").read_text().strip()
        return Api(self.addresses()["http"], token, timeout_s)

    def create(self, name):
        """Makes a tenant; the URL to connect with."""
        return self.run("tenant", "create", name)["url"]

    def panics(self):
        """Lines of the logs that tell of a panic."""
        found = []
        for log in pathlib.Path(self.data, "logs").glob("*.log*"):
            with open(log, errors="replace") as lines:
                found += [f"{log.name}: {line.strip()}" for line in lines if "panicked at" in line]
        return found


class Dormouse(Commands):
    """`dormouse start` in a temporary directory, or on a directory that is there."""

    def __init__(self, *flags, directory=None):
        self.owned = directory is None
        self.directory = tempfile.mkdtemp(prefix="dormouse-") if self.owned else str(directory)
        super().__init__(os.path.join(self.directory, "data"))
        self.flags, self.supervisor = flags, None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        """Starts all processes and waits until they serve."""
        log = os.path.join(self.directory, "start.log")
        with open(log, "w") as out:
            self.supervisor = subprocess.Popen(
                [self.binary, "start", "--data-dir", self.data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", *self.flags],
                stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while "\nready\n" not in "\n" + pathlib.Path(log).read_text():
            if self.supervisor.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the system does not start: {pathlib.Path(log).read_text()}")
            time.sleep(0.05)

    def stop(self):
        """Ends all processes, in their order; the data stays. Whether they did so in time."""
        if self.supervisor is None or self.supervisor.poll() is not None:
            return True
        self.supervisor.send_signal(signal.SIGTERM)
        try:
            self.supervisor.wait(PATIENCE_S)
            return True
        except subprocess.TimeoutExpired:
            # Its lifeline ends all others.
            self.supervisor.kill()
            self.supervisor.wait()
            return False

    def processes(self):
        """Process ids by role: kv (of several, the first), control, proxy."""
        pids = {}
        for row in self.run("debug", "processes"):
            if row["role"] in ("kv", "control", "proxy"):
                pids.setdefault(row["role"], row["pid"])
        return pids

    def kv_processes(self):
        """Process ids of the KV nodes."""
        return [row["pid"] for row in self.run("debug", "processes") if row["role"] == "kv"]

    def stores(self):
        """The directories of the KV nodes."""
        return sorted(path for path in pathlib.Path(self.data).glob("kv*") if path.is_dir())

    def sql_node(self, tenant):
        """Process id of the SQL node that serves a tenant."""
        tenant_id = self.run("tenant", "show", tenant)["id"]
        for row in self.run("debug", "processes"):
            if row["role"] == "sql" and row.get("tenant_id") == tenant_id:
                return row["pid"]
        raise RuntimeError(f"no SQL node serves {tenant}")

    def nothing_is_left(self):
        """Whether every process has ended: each holds the lock of the directory."""
        try:
            with open(os.path.join(self.data, "LOCK")) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
        except FileNotFoundError:
            return True
        except BlockingIOError:
            return False

    def close(self):
        self.stop()
        if self.owned:
            shutil.rmtree(self.directory, ignore_errors=True)
