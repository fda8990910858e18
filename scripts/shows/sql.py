"""psql as a client: single queries, and sessions that stay open."""
import queue
import subprocess
import threading
import time

from dormouse import PG_BIN


def query(url, text, patience_s=60):
    """The rows of a query as lists of text; fails if it fails."""
    done = subprocess.run([str(PG_BIN / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text, url],
                          capture_output=True, text=True, timeout=patience_s, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return [line.split("|") for line in done.stdout.splitlines()]


class SqlError(Exception):
    """A statement failed; `code` is its SQLSTATE, empty if the connection did."""

    def __init__(self, code, message):
        super().__init__(f"{code} {message}".strip())
        self.code = code


class Session:
    """One psql that stays connected. For one thread. A statement that is not answered in time, or a lost
    connection, ends the session; the next statement opens another one."""

    def __init__(self, url):
        self.url, self.process = url, None

    def _open(self):
        self.process = subprocess.Popen(
            [str(PG_BIN / "psql"), "-XAtq", self.url], text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()

    @staticmethod
    def _read(process, lines):
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    def execute(self, text, patience_s=30):
        """The rows of one statement."""
        if self.process is None:
            self._open()
        rows, deadline = [], time.monotonic() + patience_s
        try:
            self.process.stdin.write(f"{text};\n\\echo :ERROR :SQLSTATE @\n")
            self.process.stdin.flush()
        except OSError:
            self.close()
            raise SqlError("", "the connection is lost")
        while True:
            try:
                line = self.lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                self.close()
                raise SqlError("", f"no answer within {patience_s} s")
            if line is None:
                self.close()
                raise SqlError("", " ".join(rows) or "the connection is lost")
            if line.endswith(" @"):
                failed, code = line.split()[:2]
                if failed == "true":
                    message = " ".join(rows)
                    if "connection" in message and ("lost" in message or "terminat" in message or "closed" in message):
                        self.close()
                    raise SqlError(code, message)
                return [row.split("|") for row in rows]
            rows.append(line)

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
