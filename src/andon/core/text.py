"""Text: what can be written down as UTF-8, and what becomes of words that cannot."""

from typing import TypeGuard

from andon.errors import tell


def clean(text: str) -> str:
    """Give a text that can be written down: two halves of a character are joined, one alone is replaced."""
    if text.isascii():  # by far the most, and by far the fastest
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_all(value: object) -> object:
    """Clean every text in a value of dicts and lists."""
    if isinstance(value, str):
        return clean(value)
    if _is_list(value):
        return [clean_all(one) for one in value]
    if _is_dict(value):
        return {clean_all(key): clean_all(one) for key, one in value.items()}
    return value


def in_words(error: BaseException) -> str:
    """Say in words what was raised."""
    return clean(tell(error))


def check_text(name: str, text: str | None, most: int | None = None) -> None:
    """Refuse what is no text, is longer than `most`, or cannot be written down; None is no text at all."""
    if text is None:
        return
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"{name} is {text!r:.80}: give text"
        raise TypeError(msg)
    if most is not None and len(text) > most:
        msg = f"{name} has {len(text)} characters, {most} are allowed: shorten it"
        raise ValueError(msg)
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        msg = f"{name} is no valid text ({error.reason} at {error.start}): decode it from UTF-8 first"
        raise ValueError(msg) from error


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _is_dict(value: object) -> TypeGuard[dict[object, object]]:
    return isinstance(value, dict)
