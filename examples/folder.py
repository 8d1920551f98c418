"""A store that keeps each checkpoint in a file of its own, written whole or not at all."""

from pathlib import Path


class Folder:
    """Keeps checkpoints in a folder."""

    def __init__(self, path: str = ".") -> None:
        self.path = Path(path)

    async def get(self, name: str) -> bytes | None:
        file = self.path / name
        return file.read_bytes() if file.exists() else None

    async def set(self, name: str, data: bytes) -> None:
        (self.path / f"{name}.new").write_bytes(data)
        (self.path / f"{name}.new").replace(self.path / name)

    async def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)
