"""Client: the same verbs as everywhere, asked of a server over HTTP."""

from andon.client.client import Client
from andon.client.shape import News, Session, Told

__all__ = ["Client", "News", "Session", "Told"]
