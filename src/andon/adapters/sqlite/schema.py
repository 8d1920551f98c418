"""Schema: the tables of the file, by the version that made them, and how the file is opened."""

import secrets
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from time import monotonic

from andon.errors import SessionError

APPLICATION = 0x416E646F  # "Ando": what `file` and we tell ours by
PATIENCE = 5.0  # seconds that another process may write for
AGAIN = 0.005

# Version n of the schema is what the first n of these make; they are only ever added to.
SCHEMA = (
    """
    CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        app TEXT NOT NULL,
        user TEXT NOT NULL,
        session TEXT NOT NULL,
        head INTEGER NOT NULL DEFAULT 0,    -- of its last record
        created REAL NOT NULL DEFAULT 0,    -- wall time of its first record
        touched REAL NOT NULL DEFAULT 0,    -- and of its last one
        UNIQUE (app, user, session)
    );

    -- AUTOINCREMENT: a head is never given again, so that whoever had a deleted session stays fenced.
    CREATE TABLE records (
        head INTEGER PRIMARY KEY AUTOINCREMENT,
        session INTEGER NOT NULL,
        record BLOB NOT NULL
    );
    CREATE INDEX records_of ON records (session);

    CREATE TABLE mail (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        session INTEGER NOT NULL,
        command BLOB NOT NULL
    );
    CREATE INDEX mail_of ON mail (session);

    -- The ids outlive the commands: what is sent twice takes effect once.
    CREATE TABLE sent (
        session INTEGER NOT NULL,
        id TEXT NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (session, id)
    ) WITHOUT ROWID;

    -- The sessions that have something to do, whether somebody has them (token, until) or not.
    CREATE TABLE claims (
        session INTEGER PRIMARY KEY,
        turn INTEGER NOT NULL,                  -- the lowest is next
        deliveries INTEGER NOT NULL DEFAULT 0,
        not_before REAL NOT NULL DEFAULT 0,
        until REAL NOT NULL DEFAULT 0,
        token TEXT,
        worker TEXT,
        bell TEXT                               -- of the substrate through which it was claimed
    );
    CREATE INDEX claims_by_turn ON claims (turn);

    CREATE TABLE rows (run TEXT PRIMARY KEY, session INTEGER NOT NULL, row BLOB NOT NULL);
    CREATE INDEX rows_of ON rows (session);
    """,
)
VERSION = len(SCHEMA)


def connect(path: Path) -> sqlite3.Connection:
    """Open the file for one thread, with transactions in our own hands."""
    db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA journal_mode").fetchone()  # reads the file: now is when it is said to be none
    except BaseException:
        db.close()
        raise
    return db


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables, or those that an older version did not have; a newer file is refused."""
    with _transaction(db, "BEGIN"):  # one look: another process may make the tables at this moment
        _check(db, path)
    mode = _share(db)
    if mode != "wal":
        told = f"{path} is not on a disk that processes can share (journal mode {mode}): name a local file"
        raise SessionError(told, "broken")
    with _transaction(db, "BEGIN IMMEDIATE"):
        _upgrade(db, _check(db, path))


def _share(db: sqlite3.Connection) -> str:
    """Let readers and a writer work side by side; gives the journal mode that it has come to."""
    until = monotonic() + PATIENCE
    while True:
        try:
            return str(db.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            # While others do the same, SQLite refuses at once, instead of waiting as it was told to.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                raise
        Event().wait(AGAIN)


@contextmanager
def _transaction(db: sqlite3.Connection, begin: str) -> Generator[None]:
    db.execute(begin)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # it was rolled back already, or the disk cannot even do that
            db.execute("ROLLBACK")
        raise


def tag(db: sqlite3.Connection) -> str:
    """Tell this file from others in its folder."""
    (value,) = db.execute("SELECT value FROM about WHERE name = 'tag'").fetchone()
    return str(value)


def _check(db: sqlite3.Connection, path: Path) -> int:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != APPLICATION and (tables or version):
        told = f"{path} is the database of another program: name another file"
        raise SessionError(told, "broken")
    if version > VERSION:
        told = (
            f"{path} has version {version}, and this Andon knows up to {VERSION}: "
            "use the newer Andon that wrote it, or name another file"
        )
        raise SessionError(told, "newer")
    return int(version)


def _upgrade(db: sqlite3.Connection, version: int) -> None:
    for statements in SCHEMA[version:]:
        for statement in statements.split(";\n"):
            db.execute(statement)
    if not version:
        db.execute(f"PRAGMA application_id = {APPLICATION}")
        db.execute("INSERT INTO about VALUES ('tag', ?)", (secrets.token_hex(4),))
    if version < VERSION:
        db.execute(f"PRAGMA user_version = {VERSION}")
