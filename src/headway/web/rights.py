"""Whether a caller may ask for something: by the role, and by whose the jobs are that it is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from headway import wire
from headway.access.tokens import TokenOwner
from headway.errors import Forbidden
from headway.model.job import JobId
from headway.wire.roles import OWN

NOBODY: Final = TokenOwner("", wire.Role.VIEWER)
"""The caller of what needs no token."""

MORE_RIGHTS: Final = "An administrator makes tokens with other roles: `headway token create --user NAME --role ROLE`."


def right_of(route: wire.Route) -> wire.Right:
    """Who may ask for something.

    Raises:
        LookupError: nothing is said of it, so the interface must not offer it.
    """
    if route.right is None:
        raise LookupError(f"it is not said who may ask for {route.name!r}")
    return route.right


def is_allowed(route: wire.Route, caller: TokenOwner) -> bool:
    """Whether the role of a caller allows a request; whose jobs it may be about is another question."""
    least = right_of(route).least
    return least is None or caller.role.covers(least)


def check_right(route: wire.Route, caller: TokenOwner) -> None:
    """The same.

    Raises:
        Forbidden: it does not.
    """
    if not is_allowed(route, caller):
        said = (
            f"the role of user {caller.name!r} is {caller.role.value!r}; {route.name!r} is for {right_of(route).text}"
        )
        raise Forbidden(said, MORE_RIGHTS)


def check_owner(route: wire.Route, caller: TokenOwner, job: JobId, user: str) -> None:
    """Check that a caller has a right to a job of a user.

    Raises:
        Forbidden: there is none.
    """
    if not caller.owns(user):
        said = f"job {job} is of user {user!r}; {caller.name!r} is {caller.title}, who has a right to own jobs only"
        raise Forbidden(said, f"{route.name!r} is for {OWN.text}. {MORE_RIGHTS}")


def jobs_in(body: Any) -> Iterable[JobId]:
    """The jobs that the body of a request names."""
    match body:
        case wire.JobsNamed():
            return body.jobs
        case wire.ResultsWanted():
            return (tasks.job for tasks in body.wanted)
        case wire.Acknowledgement():
            return (tasks.job for tasks in body.results)
    return ()
