"""SQLite: journals, mailboxes and claims in one file of one machine, shared by its processes."""

from andon.adapters.sqlite.substrate import SqliteSubstrate

__all__ = ["SqliteSubstrate"]
