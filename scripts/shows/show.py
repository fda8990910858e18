"""What every show has: progress, figures, promises, an end in bounded time, and nothing left behind."""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))


class OutOfTime(Exception):
    """The show took longer than it may."""


class Ended(Exception):
    """Somebody ended the show."""


class Show:
    """Collects what a show sees. Progress goes to standard error, the summary to standard output."""

    def __init__(self, name):
        self.name, self.started = name, time.monotonic()
        self.facts, self.promises = {}, []
        self.cleanup = contextlib.ExitStack()
        self.lock = threading.Lock()
        self.logs = None

    def elapsed(self):
        return time.monotonic() - self.started

    def say(self, text):
        with self.lock:
            print(f"{self.elapsed():7.1f}s  {text}", file=sys.stderr, flush=True)

    def fact(self, name, value):
        """Something that was measured."""
        self.facts[name] = value

    def promise(self, what, held, detail=""):
        """Something that must be so."""
        self.promises.append({"promise": what, "held": bool(held), "detail": str(detail)})
        self.say(f"{'held  ' if held else 'BROKEN'}  {what}{f': {detail}' if detail != '' else ''}")
        return held

    def directory(self, keep):
        """A directory for everything of this show; goes with it unless it is to be kept."""
        directory = tempfile.mkdtemp(prefix=f"{self.name}-")
        self.cleanup.callback(self._remove, directory, keep)
        self.logs = os.path.join(directory, "data", "logs")
        return directory

    def _remove(self, directory, keep):
        if keep:
            self.say(f"kept: {directory}")
            return
        if not self.held() and self.logs and os.path.isdir(self.logs):
            kept = tempfile.mkdtemp(prefix=f"{self.name}-logs-")
            shutil.copytree(self.logs, kept, dirs_exist_ok=True)
            self.say(f"logs are kept in {kept}")
        shutil.rmtree(directory, ignore_errors=True)

    def held(self):
        return bool(self.promises) and all(promise["held"] for promise in self.promises)

    def wait_until(self, what, condition, patience_s, pause_s=0.2):
        """Waits for something that must happen; how long it took. Errors of the condition count as no."""
        started, last = time.monotonic(), None
        while True:
            try:
                if condition():
                    return time.monotonic() - started
            except (Ended, OutOfTime):
                raise
            except Exception as error:  # The system may not answer at the moment.
                last = error
            if time.monotonic() - started > patience_s:
                raise RuntimeError(f"waited {patience_s} s in vain: {what}{f' ({last})' if last else ''}")
            time.sleep(pause_s)

    def summary(self, output):
        result = {"show": self.name, "held": self.held(), "seconds": round(self.elapsed(), 1),
                  "promises": self.promises, "facts": self.facts}
        if output == "json":
            print(json.dumps(result, indent=2, default=str))
            return
        print(f"\n{self.name}: {'all promises held' if result['held'] else 'BROKEN'} ({result['seconds']} s)\n")
        for promise in self.promises:
            mark = "held  " if promise["held"] else "BROKEN"
            print(f"  {mark}  {promise['promise']}{': ' if promise['detail'] else ''}{promise['detail']}")
        print()
        for name, value in self.facts.items():
            if isinstance(value, list) and value:
                print(f"  {name}:")
                for line in value:
                    print(f"    {line}")
            else:
                print(f"  {name:<44} {value}")


def arguments(description, *knobs):
    """The arguments all shows take, and the knobs of this one: (name, default, help)."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, default, text in knobs:
        parser.add_argument(name, type=type(default), default=default, help=text, metavar="N")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="how to print the summary")
    parser.add_argument("--keep", action="store_true", help="keep the directory with data and logs")
    return parser.parse_args()


def _raise(kind, text):
    def handler(*_):
        # A second signal must not break into the cleaning up.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        raise kind(text)
    return handler


def run(name, options, body, bound_s):
    """Runs a show to its end and leaves the process: 0 if every promise held, 1 otherwise."""
    show = Show(name)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _raise(Ended, "ended by a signal"))
    signal.signal(signal.SIGALRM, _raise(OutOfTime, f"the show is not over after {bound_s:.0f} s"))
    signal.alarm(int(bound_s))
    try:
        with show.cleanup:
            try:
                body(show, options)
            except Exception as error:
                traceback.print_exc(file=sys.stderr)
                show.promise("the show comes to its end", False, error)
            finally:
                signal.alarm(0)
    finally:
        show.summary(options.output)
    sys.exit(0 if show.held() else 1)
