"""Errors that users of the format see; each names the field, its value and what was expected."""


class CassandraError(ValueError):
    """Base of all errors that bad input (not a bug) can raise; the message is one line."""


class DecodeError(CassandraError):
    """Packed data violate the format.

    ``cause`` is one of the causes of section 7 of docs/format.md ("short", "long", "code", "rank",
    "group", "window") and ``segment`` the index of the segment in which it was found.
    """

    def __init__(self, cause: str, segment: int, detail: str) -> None:
        super().__init__(f"segment {segment}: {detail} ({cause})")
        self.cause = cause
        self.segment = segment


class FileError(CassandraError):
    """A file is missing, truncated, corrupted or of an unsupported kind."""
