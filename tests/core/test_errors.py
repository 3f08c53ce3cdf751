"""The error tree answers whose fault, which status, and whether to try again."""

from __future__ import annotations

import pytest

from tessella.core import errors
from tessella.core.errors import RemoteFailure, TessellaError


def tree(root: type[TessellaError]) -> list[type[TessellaError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in tree(child))]


OURS = [kind for kind in tree(TessellaError) if kind.__module__.startswith(f"{errors.__name__}.")]


def test_every_error_stands_in_the_drawing_at_the_top_of_its_file() -> None:
    drawn = {line.split()[0] for line in (errors.__doc__ or "").splitlines() if line.strip()}
    assert {kind.__name__ for kind in OURS} <= drawn


def test_every_code_names_one_error() -> None:
    codes = [kind.code for kind in OURS if "code" in vars(kind)]
    assert len(codes) == len(set(codes)) == len(OURS) - 1  # RemoteFailure takes its peer's


def test_a_bug_of_ours_is_not_told_to_peers() -> None:
    assert "secret" not in errors.LocalError("secret path").told()
    assert errors.BadTensor("shape [1]").told() == "shape [1]"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("context_length_exceeded", 400),
        ("input_too_long", 413),
        ("unknown_model", 404),
        ("too_many_sessions", 503),
        ("too_many_requests", 429),
        ("model_unavailable", 503),
        ("out_of_turn", 502),
        ("bad_frame", 502),
        ("internal_error", 502),
        ("no such code", 502),
    ],
)
def test_what_a_peer_says_of_the_request_is_answered_as_our_own(code: str, status: int) -> None:
    assert RemoteFailure(code, "", retry=False).status == status
