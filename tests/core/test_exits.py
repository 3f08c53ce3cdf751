"""A command ends with what went wrong, and a number that says whether later can help."""

from __future__ import annotations

import pytest

from tessella.core import errors, exits
from tessella.core.errors import TessellaError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.BadKey("k"), 1),
        (errors.BadConfig("c"), 78),
        (errors.PortInUse("p"), 75),
        (errors.ModelUnavailable("m"), 75),
        (errors.PeerUnreachable("p"), 75),
        (errors.RemoteFailure("busy", "", retry=True), 75),
        (errors.LocalError("bug"), 1),
    ],
)
def test_a_shell_is_told_whether_later_can_help(error: TessellaError, code: int) -> None:
    assert exits.exit_code(error) == code


def test_what_was_raised_is_found_in_all_groups_in_order() -> None:
    first, second, bug = errors.BadKey("a"), errors.PeerGone("b"), KeyError("c")
    group = BaseExceptionGroup("", [first, ExceptionGroup("", [second, bug])])
    assert list(exits.leaves(group)) == [first, second, bug]
    assert list(exits.leaves(bug)) == [bug]
