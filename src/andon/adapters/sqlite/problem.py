"""Problem: what SQLite cannot do, in words that say what to do now."""

import sqlite3
from pathlib import Path

from andon.errors import SessionError, tell

FULL = {sqlite3.SQLITE_FULL}
LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
NO_DATABASE = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
NO_ACCESS = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}


def problem(path: Path, error: BaseException) -> SessionError:
    """Say what an error of SQLite means for whoever keeps this file."""
    if isinstance(error, SessionError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of it says where
    if code in FULL:
        return SessionError(f"there is no room for {path}: nothing was written; make room, try again", "full")
    if code in LOCKED:
        told = f"another program keeps {path} locked: nothing was written; let go of it there, try again"
        return SessionError(told, "full")
    if code in NO_DATABASE:
        told = f"{path} is no database, or is damaged ({error}): restore it from a back-up, or move it away"
        return SessionError(told, "broken")
    if code in NO_ACCESS:
        return SessionError(f"{path} cannot be written ({error}): {_why(path)}", "broken")
    return SessionError(f"{path} cannot be used ({tell(error)}): look at the disk that it is on", "broken")


def _why(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}; make it, or name another file"
    if path.is_dir():
        return "it is a folder; name a file in it"
    return "give this user the right to write the file and its folder, or name another file"
