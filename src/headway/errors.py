"""What Headway tells a person when something they gave it cannot be used."""

from __future__ import annotations


class HeadwayError(Exception):
    """An error meant for a person: what is wrong, and in `hint` what to do next.

    Commands print it without a traceback and end with exit status 2; the HTTP interface answers with its
    message.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}\n{self.hint}" if self.hint else message


class InvalidInput(HeadwayError):
    """A field of a file or a request has a value that is not allowed."""

    def __init__(
        self,
        field: str,
        value: object,
        allowed: str,
        *,
        source: str = "",
        line: int | None = None,
        hint: str = "",
    ) -> None:
        place = f"{source}:{line}: " if source and line is not None else f"{source}: " if source else ""
        super().__init__(f"{place}{field} is {value!r}; allowed: {allowed}", hint)
        self.field = field
        self.value = value
        self.allowed = allowed
        self.source = source
        self.line = line
