"""Tag filters: one tag, or all that begin alike.

Written `["tag", "Eq", "x"]`, `["tag", "Glob", "x*"]` with one star at the end, or as a bare
string, which is a Glob when it ends in a star. A record without a tag never matches.
"""

from __future__ import annotations

import msgspec

from headwater.core.errors import InvalidRequestError
from headwater.core.limits import TAG_BYTES_MAX


class TagMatcher(msgspec.Struct, frozen=True):
    text: bytes
    """The tag, or what it begins with; without the star."""
    prefix: bool

    def matches(self, tag: bytes | None) -> bool:
        if not tag:
            return False
        return tag.startswith(self.text) if self.prefix else tag == self.text

    def __str__(self) -> str:
        return self.text.decode() + ("*" if self.prefix else "")


def parse_match(given: object) -> TagMatcher:
    if isinstance(given, str):
        return _glob(given) if given.endswith("*") else _exact(given)
    if isinstance(given, (list, tuple)) and len(given) == 3:
        field, operator, text = given
        if field != "tag":
            raise InvalidRequestError(f"match filters by tag only, not by {field!r}")
        if not isinstance(text, str):
            raise InvalidRequestError(f"match compares with a string, not with {text!r}")
        if operator == "Eq":
            return _exact(text)
        if operator == "Glob":
            return _glob(text)
        raise InvalidRequestError(f"match knows Eq and Glob, not {operator!r}")
    raise InvalidRequestError('match must be a string or ["tag", "Eq" or "Glob", string]')


def _exact(text: str) -> TagMatcher:
    tag = _encoded(text)
    if not tag:
        raise InvalidRequestError("match needs a tag; records without one never match")
    return TagMatcher(tag, prefix=False)


def _glob(pattern: str) -> TagMatcher:
    text = pattern.removesuffix("*")
    if len(text) == len(pattern) or "*" in text:
        raise InvalidRequestError(f"a Glob has one star, at its end: {pattern!r}")
    return TagMatcher(_encoded(text), prefix=True)


def _encoded(text: str) -> bytes:
    try:
        tag = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("match is not valid Unicode") from error
    if len(tag) > TAG_BYTES_MAX:
        raise InvalidRequestError(f"match has {len(tag)} bytes; a tag has {TAG_BYTES_MAX} at most")
    return tag
