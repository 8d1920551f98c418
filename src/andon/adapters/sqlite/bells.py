"""Bells: what the processes that share a file tell each other, over datagrams in a folder beside it.

Nothing here is ever waited for, and nothing depends on it: a peer whose queue is full, or that is
dead, is passed over, and finds what it missed in the file.
"""

import asyncio
import os
import secrets
import socket
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from andon.core.command import Key

HELLO, WORK, GROWN, RING, DELTA = b"h", b"w", b"g", b"r", b"d"
LONGEST_PATH = 100  # bytes; the limits of systems begin at 104
LARGEST = 1 << 18  # bytes of a datagram: no system passes on so many
BURST = 100  # datagrams that are heard in one go
SILENT = "silent-"
NAME = "{tag}-{id}.sock"

Heard = Callable[[bytes, Key | None, bytes], None]


class Bells:
    """The bell of one substrate, and those of its peers.

    Args:
        heard: Is called with the kind of what a peer tells, the session it is about, and the rest.
        quiet: Is called when all has been heard that was there.
        died: Is called, from any thread, with a peer whose process is there no more.
    """

    def __init__(self, heard: Heard, quiet: Callable[[], None], died: Callable[[str], None]) -> None:
        self._heard = heard
        self._quiet = quiet
        self._died = died
        self._prefix = ""
        self._folder = Path()
        self.peers: dict[str, str] = {}
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.id = secrets.token_hex(6)

    # In the threads of the substrate

    def open(self, folder: Path, tag: str) -> bool:
        """Hang the bell up, and greet the others; False if sockets are not to be had here."""
        self._prefix, self._folder = f"{tag}-", folder
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            self._ear = _socket()
            self._ear.bind(self._path(self.id))
            self._mouth = _socket()
        except (OSError, AttributeError):  # no such sockets on this system, or not in this folder
            self.close()
            self.id = SILENT + self.id
            return False
        for path in folder.glob(f"{self._prefix}*.sock"):
            self._meet(path.stem.removeprefix(self._prefix))
        self.post(HELLO, None, self.id.encode())
        return True

    def close(self) -> None:
        """Take the bell down."""
        ear, mouth, self._ear, self._mouth = self._ear, self._mouth, None, None
        self.peers = {}
        if ear is not None:
            ear.close()
            Path(self._path(self.id)).unlink(missing_ok=True)
        if mouth is not None:
            mouth.close()

    def post(self, kind: bytes, key: Key | None, body: bytes = b"") -> None:
        """Tell all peers, and clear away what the dead have left."""
        for peer in list(self.peers):
            self.call(peer, kind, key, body)

    def call(self, peer: str, kind: bytes, key: Key | None, body: bytes = b"") -> bool:
        """Tell one peer; False if it is dead. One that has no bell looks at the file by itself."""
        if peer.startswith(SILENT):
            return True
        try:
            self._send(self._path(peer), kind, key, body)
        except ConnectionRefusedError:  # nobody has that socket open: the system closes those of the dead
            self.peers.pop(peer, None)
            with suppress(OSError):  # another peer was as quick, or may do it
                Path(self._path(peer)).unlink(missing_ok=True)
            self._died(peer)
            return False
        except FileNotFoundError:  # it may live, and its folder may not be ours
            self.peers.pop(peer, None)
            return False
        except OSError:  # its queue is full, or this is too large
            return True
        return True

    # On the loop

    def listen(self) -> None:
        """Hear what comes from here on, on this loop."""
        if self._ear is not None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._ear, self._hear)

    def deafen(self) -> None:
        """Hear no more."""
        if self._loop is not None and self._ear is not None:
            self._loop.remove_reader(self._ear)

    def whisper(self, kind: bytes, key: Key | None, body: bytes) -> None:
        """Tell all peers something that may be lost."""
        for path in list(self.peers.values()):
            with suppress(OSError):
                self._send(path, kind, key, body)

    def _hear(self) -> None:
        ear = self._ear
        if ear is None:
            return
        for _ in range(BURST):
            try:
                datagram = ear.recv(LARGEST)
            except OSError:  # there is no more
                break
            self._take(datagram)
        self._quiet()

    def _take(self, datagram: bytes) -> None:
        kind, (about, _, body) = datagram[:1], datagram[1:].partition(b"\n")
        if kind == HELLO:
            self._meet(body.decode())
            return
        key = Key(*about.decode().split("/")) if about else None
        self._heard(kind, key, body)

    def _meet(self, peer: str) -> None:
        if peer != self.id:
            self.peers[peer] = self._path(peer)

    def _path(self, peer: str) -> str:
        return str(self._folder / f"{self._prefix}{peer}.sock")

    def _send(self, path: str, kind: bytes, key: Key | None, body: bytes) -> None:
        mouth = self._mouth
        if mouth is not None:
            about = b"" if key is None else str(key).encode()
            mouth.sendto(b"%b%b\n%b" % (kind, about, body), path)


def folder_of(db: sqlite3.Connection, path: Path, tag: str) -> Path:
    """Give the folder of the bells: beside the file, or, where that is too long a path, as noted in it."""
    beside = path.parent / "bells"
    if len(os.fsencode(beside)) + len(NAME.format(tag=tag, id="0" * 12)) < LONGEST_PATH:
        return beside
    noted = db.execute("SELECT value FROM about WHERE name = 'bells'").fetchone()
    if noted is not None and _is_ours(Path(noted[0])):
        return Path(noted[0])
    made = tempfile.mkdtemp(prefix="andon-")
    db.execute("INSERT OR REPLACE INTO about VALUES ('bells', ?)", (made,))
    return Path(made)


def _is_ours(folder: Path) -> bool:
    # Somebody else may have made one of that name in the folder that all share.
    return folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid()


def _socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.settimeout(0)
    return made
