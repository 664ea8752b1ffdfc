"""What all servers have in common: a folder, an account, a port, a process."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

START_S_MAX = 60.0
STOP_S_MAX = 30.0
POLL_S = 0.02


class CannotBeHad(Exception):
    """This machine cannot have the server. The message says why."""


class Daemon(ABC):
    """Something in a folder of its own. Started once, it may be stopped and started again."""

    name: ClassVar[str]
    """What `make up` calls it."""
    variable: ClassVar[str]
    """The setting that its URL is for."""
    quick: ClassVar[bool] = False
    """Whether it is had, and its tests are done, soon enough for `make test` to wait for it."""
    proven: ClassVar[bool] = True
    """Whether it is known to be had on a machine like CI's, which then insists on it."""
    durable_when_killed: ClassVar[bool] = True
    """Whether what it has answered outlives SIGKILL: not where it is a stand-in for tests only."""
    ours: ClassVar[bool] = True
    """Whether we start it, and may stop it."""
    hasty_settings: ClassVar[Mapping[str, str]] = {}
    """What makes it quicker where nothing need outlive a power cut."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings or {})
        """The server's own, beside those that it needs to run here."""
        self.process: subprocess.Popen[bytes] | None = None
        """What `start` started; not known to who finds it running."""

    @abstractmethod
    def fetch(self) -> str:
        """Make sure that its programs are here; the version. `CannotBeHad` says why not."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it answers."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, as the setting `variable` has it."""

    @property
    @abstractmethod
    def pid(self) -> int | None:
        """Its process, if it runs."""

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it, and wait until it is gone. Nothing happens if it does not run."""
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, how)
        if not _happens(lambda: not alive(pid), STOP_S_MAX):
            os.kill(pid, signal.SIGKILL)
            _happens(lambda: not alive(pid), STOP_S_MAX)
        if self.process is not None:
            self.process.wait()

    def delete(self) -> None:
        """Stop it and forget its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Server(Daemon):
    """A database server, to keep timers in."""

    variable = "DATABASE_URL"
    scheme: ClassVar[str]
    """The scheme of its URLs; several servers may speak one."""

    @abstractmethod
    def new_url(self, name: str) -> str:
        """Make a database of that name (letters, digits and `_`), empty; `DATABASE_URL` for it."""


def shared_folder() -> Path:
    """Where servers may live that do not run as root: root's home is closed to them."""
    folder = Path(tempfile.gettempdir()) / f"duetime-servers-{os.getuid()}"
    folder.mkdir(mode=0o711, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise CannotBeHad(f"{folder} is somebody else's")
    return folder


def cache() -> Path:
    """What was downloaded stays here."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "duetime"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def account(*names: str) -> pwd.struct_passwd | None:
    """For servers that refuse to run as root: the first of these that there is, if we are."""
    if os.getuid() != 0:
        return None
    for name in (*names, "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise CannotBeHad("it refuses to run as root, and there is no other account")


def run(command: Sequence[str | Path], *, user: pwd.struct_passwd | None = None) -> str:
    """Run a command to its end; `CannotBeHad` with what it said last if it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd="/",
        stdin=subprocess.DEVNULL,
        **_as(user),
    )
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise CannotBeHad(f"{Path(command[0]).name} failed: {said}")
    return done.stdout


def spawn(
    command: Sequence[str | Path], *, log: Path, user: pwd.struct_passwd | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that outlives us if need be."""
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            **_as(user),
        )


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Until it is ready. `CannotBeHad` if it ends before, or takes too long."""
    if _happens(lambda: ready() or process.poll() is not None, START_S_MAX) and ready():
        return
    if process.poll() is None:
        process.kill()
    said = log.read_text(errors="replace").strip().splitlines() or ["nothing"]
    raise CannotBeHad(f"it did not start: {said[-1]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _as(user: pwd.struct_passwd | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _happens(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        # Of a child that has ended, until somebody asks for its exit code, a zombie is left.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
