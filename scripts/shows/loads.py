"""Loads on a tenant: the workload `bank`, and pgbench. Both write down every transaction that was
acknowledged and when, so that what must be there and the longest gap are known afterwards."""
import json
import os
import pathlib
import re
import subprocess
import threading
import time

from dormouse import PG_BIN, binary
from sql import query

# What one line of the file of acknowledged transfers takes: an id and the end of the line.
LINE = 37
SAMPLE_S = 0.1
# How long a run may take beyond its time: a statement waits up to ten seconds, a connection longer.
END_PATIENCE_S = 120


def longest_gap(moments, start, end):
    """The longest time between two acknowledgements within [start, end], and when it began."""
    inside = [start] + sorted(moment for moment in moments if start <= moment <= end) + [end]
    gap, began = max((b - a, a) for a, b in zip(inside, inside[1:]))
    return gap, began


def per_second(moments, start, end):
    """Acknowledgements in every whole second of [start, end]."""
    counts = [0] * max(0, int(end - start))
    for moment in moments:
        second = int(moment - start)
        if 0 <= moment - start and second < len(counts):
            counts[second] += 1
    return counts


def errors_counted(errors):
    """Each error once, with how often it came."""
    return [f"{errors.count(error)} × {error}" for error in dict.fromkeys(errors)]


class Load:
    """Repeats runs of some seconds in threads of its own, until it is told to stop. Times are those of
    `time.time`, as pgbench's logs have them."""

    def __init__(self, show, lanes, run_s):
        self.show, self.run_s = show, run_s
        self.stopping = threading.Event()
        self.errors, self.lock = [], threading.Lock()
        self.running = {}
        self.threads = [threading.Thread(target=self._lane, args=(lane,), daemon=True) for lane in range(lanes)]

    def start(self):
        self.started = time.time()
        for thread in self.threads:
            thread.start()
        self.show.cleanup.callback(self.kill)

    def stop(self):
        """Waits for the end of the runs under way."""
        self.stopped = time.time()
        self.stopping.set()
        for thread in self.threads:
            thread.join(self.run_s + END_PATIENCE_S)

    def kill(self):
        self.stopping.set()
        with self.lock:
            for process in self.running.values():
                process.kill()

    def error(self, text):
        self.show.say(f"{self.name}: {text}")
        with self.lock:
            self.errors.append(text)

    def _lane(self, lane):
        number = 0
        while not self.stopping.is_set():
            number += 1
            began = time.monotonic()
            try:
                self.once(lane, number)
            except Exception as error:
                self.error(f"{type(error).__name__}: {error}")
            if time.monotonic() - began < 0.5:
                # A system that refuses at once is not asked in a circle.
                self.stopping.wait(0.25)

    def call(self, lane, command):
        """Runs a program to its end, within its time."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with self.lock:
            self.running[lane] = process
        try:
            out, err = process.communicate(timeout=self.run_s + END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise RuntimeError(f"{self.name} does not come to an end")
        finally:
            with self.lock:
                del self.running[lane]
        return process.returncode, out, err


class Bank(Load):
    """`dormouse workload run bank`."""

    name = "bank"

    def __init__(self, show, url, directory, connections=4, run_s=10):
        super().__init__(show, 1, run_s)
        self.url, self.connections = url, connections
        self.file = os.path.join(directory, "acknowledged")
        pathlib.Path(self.file).touch()
        self.counts = {"retries": 0, "reconnects": 0, "ambiguous_commits": 0}
        self.moments = []
        self.sampler = threading.Thread(target=self._sample, daemon=True)

    def command(self, *words):
        return [binary(), "workload", *words, "--url", self.url, "--output", "json"]

    def init(self):
        subprocess.run(self.command("init", "bank"), check=True, capture_output=True, stdin=subprocess.DEVNULL)

    def start(self):
        super().start()
        self.sampler.start()

    def stop(self):
        super().stop()
        self.sampler.join(5)

    def _sample(self):
        known = 0
        while any(thread.is_alive() for thread in self.threads):
            now, count = time.time(), self.acknowledged()
            self.moments += [now] * (count - known)
            known = count
            time.sleep(SAMPLE_S)

    def acknowledged(self):
        return os.stat(self.file).st_size // LINE

    def once(self, lane, number):
        status, out, err = self.call(lane, [
            *self.command("run", "bank"), "--quiet", "--connections", str(self.connections),
            "--duration", f"{self.run_s}s", "--acknowledged", self.file])
        if status:
            if not self.stopping.is_set() or status > 0:
                self.error(f"exit {status}: {err.strip().splitlines()[-1] if err.strip() else out.strip()}")
            return
        report = json.loads(out)
        for name in self.counts:
            self.counts[name] += report[name]

    def check(self):
        """The report of `workload check bank`."""
        done = subprocess.run(self.command("check", "bank", "--acknowledged", self.file),
                              capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        try:
            return json.loads(done.stdout.splitlines()[0])
        except (ValueError, IndexError):
            return {"ok": False, "problems": [done.stderr.strip()]}


class Pgbench(Load):
    """pgbench's TPC-B, each client a process of its own: one that meets an error it must not repeat ends
    alone, and is started again."""

    name = "pgbench"

    def __init__(self, show, url, directory, clients=4, run_s=10, scale=4):
        super().__init__(show, clients, run_s)
        self.url, self.scale = url, scale
        self.logs = os.path.join(directory, "pgbench-logs")
        os.makedirs(self.logs, exist_ok=True)
        self.counts = {"retries": 0, "aborted_clients": 0, "failed_transactions": 0}

    def init(self):
        subprocess.run([str(PG_BIN / "pgbench"), "-i", "-q", "-s", str(self.scale), self.url],
                       check=True, capture_output=True, timeout=600, stdin=subprocess.DEVNULL)

    def once(self, lane, number):
        status, out, err = self.call(lane, [
            str(PG_BIN / "pgbench"), "-n", "-c", "1", "-M", "prepared", "--max-tries", "1000", "-T", str(self.run_s),
            "-l", "--log-prefix", os.path.join(self.logs, f"{lane}-{number}"), self.url])
        retried = re.search(r"total number of retries: (\d+)", out)
        failed = re.search(r"number of failed transactions: (\d+)", out)
        with self.lock:
            self.counts["retries"] += int(retried.group(1)) if retried else 0
            self.counts["failed_transactions"] += int(failed.group(1)) if failed else 0
            self.counts["aborted_clients"] += status == 2
        if status > 0 or (status and not self.stopping.is_set()):
            told = ("aborted in", "ERROR", "failed", "FATAL")
            lines = [line for line in err.splitlines() if any(word in line for word in told)]
            self.error(f"exit {status}: {' '.join(dict.fromkeys(lines)) or err.strip()[-300:]}")

    def collect(self):
        """Reads the logs: when each acknowledged transaction ended."""
        self.moments = []
        for log in pathlib.Path(self.logs).iterdir():
            for line in log.read_text().splitlines():
                words = line.split()
                # A last line may be cut off; transactions that failed have a word in place of a time.
                if len(words) >= 6 and words[2].isdigit():
                    self.moments.append(int(words[4]) + int(words[5]) / 1e6)
        return self.moments

    def acknowledged(self):
        return len(self.moments)

    def totals(self):
        """(accounts, tellers, branches, history, transactions)."""
        row = query(self.url, "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),"
                    " (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history),"
                    " (SELECT count(*) FROM pgbench_history)", 300)[0]
        return [int(value) for value in row]

    def inconsistencies(self):
        """Branches, tellers and accounts that do not hold what the history says."""
        wrong = []
        for table, key, balance in (("branches", "bid", "bbalance"), ("tellers", "tid", "tbalance"), ("accounts", "aid", "abalance")):
            held = query(self.url, f"SELECT {key}, {balance} FROM pgbench_{table} WHERE {balance} <> 0", 300)
            noted = query(self.url, f"SELECT {key}, sum(delta) FROM pgbench_history GROUP BY {key}", 300)
            held, noted = ({int(k): int(v) for k, v in rows if int(v)} for rows in (held, noted))
            wrong += [f"{table} {k}: {held.get(k, 0)} instead of {noted.get(k, 0)}" for k in held.keys() | noted.keys()
                      if held.get(k, 0) != noted.get(k, 0)]
        return wrong


def judge(show, bank, pgbench):
    """What must be so of both loads after anything: nothing lost, nothing by half, nothing twice."""
    report = bank.check()
    show.fact("bank transfers, acknowledged", f"{report.get('transfers')}, {report.get('acknowledged')}")
    show.promise("bank: books balance, no acknowledged transfer is missing", report.get("ok"),
                 report.get("problems") or f"{report.get('acknowledged')} acknowledged")
    acknowledged = len(pgbench.collect())
    accounts, tellers, branches, history, transactions = pgbench.totals()
    show.promise("pgbench: the four sums are equal", accounts == tellers == branches == history,
                 f"accounts {accounts}, tellers {tellers}, branches {branches}, history {history}")
    wrong = pgbench.inconsistencies()
    show.promise("pgbench: every branch, teller and account holds what the history says", not wrong, "; ".join(wrong[:5]))
    # A client that was aborted, or ended by us, may have had one commit under way.
    unknown = len(pgbench.errors) + len(pgbench.threads)
    show.fact("pgbench transactions, acknowledged", f"{transactions}, {acknowledged}")
    show.promise("pgbench: nothing acknowledged is missing, nothing was done twice",
                 acknowledged <= transactions <= acknowledged + unknown,
                 f"{transactions} in the history, {acknowledged} acknowledged, at most {unknown} unknown")
    return report
