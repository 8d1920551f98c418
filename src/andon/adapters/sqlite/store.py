"""Store: what each verb does to the tables, inside of a transaction of the writer or a look of the reader."""

import sqlite3
from collections.abc import Mapping

from msgspec import Struct

from andon.core.command import Key
from andon.errors import SessionError
from andon.ports import SessionInfo

Db = sqlite3.Connection


class Given(Struct, frozen=True):
    """A session that was given to a worker."""

    key: Key
    deliveries: int


# Journal


def append(db: Db, key: Key, record: bytes, *, head: int, rows: Mapping[str, bytes], wall: float) -> int:
    """Append a record, if the journal has not grown since."""
    known = db.execute(
        "SELECT id, head FROM sessions WHERE app = ? AND user = ? AND session = ?", _of(key)
    ).fetchone()
    if head != (0 if known is None else known[1]):
        msg = f"another worker has written to session {key} since: this one has it no longer"
        raise SessionError(msg, "fenced")
    session = _create(db, key) if known is None else known[0]
    new = db.execute("INSERT INTO records (session, record) VALUES (?, ?)", (session, record)).lastrowid
    created = "" if head else "created = :wall, "
    db.execute(
        f"UPDATE sessions SET {created}head = :head, touched = :wall WHERE id = :id",  # noqa: S608 — ours
        {"head": new, "wall": wall, "id": session},
    )
    db.executemany(
        "INSERT INTO rows VALUES (?, ?, ?) "
        "ON CONFLICT (run) DO UPDATE SET session = excluded.session, row = excluded.row",
        [(run_id, session, row) for run_id, row in rows.items()],
    )
    return int(new or 0)


def head(db: Db, key: Key) -> int:
    """Give the head of a journal; 0 if there is none."""
    found = db.execute(
        "SELECT head FROM sessions WHERE app = ? AND user = ? AND session = ?", _of(key)
    ).fetchone()
    return 0 if found is None else found[0]


def read(db: Db, key: Key, after: int) -> list[tuple[int, bytes]]:
    """Give the records behind a head."""
    return db.execute(
        "SELECT r.head, r.record FROM records AS r JOIN sessions AS s ON r.session = s.id "
        "WHERE s.app = ? AND s.user = ? AND s.session = ? AND r.head > ? ORDER BY r.head",
        (*_of(key), after),
    ).fetchall()


def sessions(db: Db, app: str | None, user: str | None) -> list[SessionInfo]:
    """List the sessions that have a journal."""
    found = db.execute(
        "SELECT app, user, session, created, touched FROM sessions "
        "WHERE head > 0 AND app = coalesce(?, app) AND user = coalesce(?, user) ORDER BY app, user, session",
        (app, user),
    )
    return [SessionInfo(Key(*key), created, touched) for *key, created, touched in found]


def row(db: Db, run_id: str) -> bytes | None:
    """Give the row of a run."""
    found = db.execute("SELECT row FROM rows WHERE run = ?", (run_id,)).fetchone()
    return None if found is None else found[0]


def rows(db: Db) -> list[bytes]:
    """Give all rows."""
    return [one for (one,) in db.execute("SELECT row FROM rows ORDER BY rowid")]


def delete(db: Db, key: Key) -> None:
    """Forget a session."""
    session = _find(db, key)
    for table in ("records", "mail", "sent", "claims", "rows"):
        db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))  # noqa: S608 — names of ours
    db.execute("DELETE FROM sessions WHERE id = ?", (session,))


# Mailbox


def send(db: Db, key: Key, command_id: str, command: bytes, *, most: int) -> int:
    """Put a command into the mailbox, and see to it that somebody claims the session."""
    session = _find(db, key)
    known = db.execute(
        "SELECT number FROM sent WHERE session = ? AND id = ?", (session, command_id)
    ).fetchone()
    if known is not None:
        return int(known[0])
    (count,) = db.execute("SELECT count(*) FROM mail WHERE session = ?", (session,)).fetchone()
    if count >= most:
        msg = f"the mailbox of session {key} is full, {most} commands wait: try again in a moment"
        raise SessionError(msg, "full")
    session = session or _create(db, key)
    number = db.execute("INSERT INTO mail (session, command) VALUES (?, ?)", (session, command)).lastrowid
    db.execute("INSERT INTO sent VALUES (?, ?, ?)", (session, command_id, number))
    db.execute(
        "INSERT INTO claims (session, turn) VALUES (?, (SELECT coalesce(max(turn), 0) + 1 FROM claims)) "
        "ON CONFLICT DO NOTHING",
        (session,),
    )
    return int(number or 0)


def commands(db: Db, key: Key) -> list[tuple[int, bytes]]:
    """Give all commands that are not forgotten yet."""
    return db.execute(
        "SELECT number, command FROM mail WHERE session = ? ORDER BY number", (_find(db, key),)
    ).fetchall()


def forget(db: Db, key: Key, upto: int) -> None:
    """Forget the commands that were consumed."""
    db.execute("DELETE FROM mail WHERE session = ? AND number <= ?", (_find(db, key), upto))


# Claims


def claim(db: Db, token: str, worker: str, bell: str, *, now: float, lease: float) -> Given | float | None:
    """Take the session that has waited longest; or say when one may be free, if no news come before."""
    found = db.execute(
        "SELECT c.session, c.deliveries, s.app, s.user, s.session FROM claims AS c "
        "JOIN sessions AS s ON s.id = c.session "
        "WHERE c.until <= :now AND c.not_before <= :now ORDER BY c.turn LIMIT 1",
        {"now": now},
    ).fetchone()
    if found is None:
        (free,) = db.execute("SELECT min(max(until, not_before)) FROM claims").fetchone()
        return free
    session, deliveries, *key = found
    db.execute(
        "UPDATE claims SET turn = (SELECT max(turn) + 1 FROM claims), deliveries = ?, "
        "token = ?, worker = ?, bell = ?, until = ? WHERE session = ?",
        (deliveries + 1, token, worker, bell, now + lease, session),
    )
    return Given(Key(*key), deliveries + 1)


def beat(db: Db, token: str, until: float) -> bool:
    """Keep a session, unless it was given to another."""
    return db.execute("UPDATE claims SET until = ? WHERE token = ?", (until, token)).rowcount > 0


def release(db: Db, token: str, cursor: int) -> bool:
    """Leave a session, unless more has come."""
    found = db.execute("SELECT session FROM claims WHERE token = ?", (token,)).fetchone()
    if found is None:
        return True
    more = db.execute("SELECT 1 FROM mail WHERE session = ? AND number > ?", (found[0], cursor)).fetchone()
    if more is None:
        db.execute("DELETE FROM claims WHERE token = ?", (token,))
    return more is None


def give_back(db: Db, token: str, not_before: float, *, anew: bool) -> None:
    """Leave a session to the next worker; `anew` forgets how often it was claimed."""
    db.execute(
        "UPDATE claims SET token = NULL, until = 0, not_before = ?, deliveries = deliveries * ? "
        "WHERE token = ?",
        (not_before, not anew, token),
    )


def undo(db: Db, token: str) -> None:
    """Take back a claim of which nobody has heard."""
    db.execute(
        "UPDATE claims SET token = NULL, until = 0, deliveries = deliveries - 1 WHERE token = ?", (token,)
    )


def leave(db: Db, bell: str) -> None:
    """Leave all sessions that were claimed through a substrate, as nobody keeps them up from here on."""
    db.execute("UPDATE claims SET token = NULL, until = 0 WHERE bell = ?", (bell,))


def holder(db: Db, key: Key, now: float) -> str | None:
    """Give the bell of whoever has a session."""
    found = db.execute(
        "SELECT bell FROM claims WHERE session = ? AND until > ?", (_find(db, key), now)
    ).fetchone()
    return None if found is None else found[0]


def probe(db: Db) -> None:
    """Write something and take it back, to see whether there is room again."""
    db.execute("INSERT OR REPLACE INTO about VALUES ('probe', ?)", ("." * 16_384,))
    db.execute("DELETE FROM about WHERE name = 'probe'")


def _of(key: Key) -> tuple[str, str, str]:
    return key.app, key.user, key.session


def _find(db: Db, key: Key) -> int | None:
    found = db.execute(
        "SELECT id FROM sessions WHERE app = ? AND user = ? AND session = ?", _of(key)
    ).fetchone()
    return None if found is None else found[0]


def _create(db: Db, key: Key) -> int:
    made = db.execute("INSERT INTO sessions (app, user, session) VALUES (?, ?, ?)", _of(key))
    return int(made.lastrowid or 0)
