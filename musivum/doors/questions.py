"""The names under which musivum answers: the paths of its HTTP routes, the same over libp2p."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from musivum.bodies import fields, ledger, mesh, operator
from musivum.operator import Operator
from musivum.pages.ledger import LedgerPages
from musivum.pages.mesh import Pages
from tessella.core.errors import BadRequest, Refused, UnknownRoute
from tessella.core.frames import KIB, MAX_LIST_FRAME
from tessella.core.text import one_line

# What stands around a document in its frame takes the rest.
MAX_DOCUMENT = MAX_LIST_FRAME - KIB

# No question takes a tenth of them.
MAX_ARGUMENTS = 64
# Of an argument's name, in what is said about it.
MAX_NAMED_CHARS = 80

A = TypeVar("A", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Question(Generic[A]):
    """One question: what it takes, and what answers it."""

    path: str
    takes: type[A]
    gives: Any
    answer: Callable[[Any, A], Any]
    """A method of whoever answers, with its arguments. A public page's is not awaited, those of
    the operator and of the ledger are."""
    method: str = "GET"
    refusals: tuple[int, ...] = ()
    """The statuses of its own errors."""


def read_arguments(question: Question[A], data: bytes) -> A:
    """The arguments in a JSON object. Raises BadRequest that names the field."""
    try:
        plain = json.loads(data or b"{}")
        if isinstance(plain, dict) and len(plain) > MAX_ARGUMENTS:
            raise BadRequest(f"arguments: more than {MAX_ARGUMENTS}")
        return question.takes.model_validate(plain)
    except (ValueError, RecursionError) as exc:
        raise BadRequest(_named(exc)) from None


def _named(error: ValueError | RecursionError) -> str:
    if not isinstance(error, ValidationError):
        return "arguments that are not JSON"
    first = error.errors(include_url=False, include_input=False)[0]
    where = one_line(".".join(map(str, first["loc"])))[:MAX_NAMED_CHARS]
    return f"{where or 'arguments'}: {first['msg']}"


def find(questions: Mapping[str, Question[Any]], path: str) -> Question[Any]:
    """The question of a name. Raises UnknownRoute."""
    if path not in questions:
        raise UnknownRoute(f"nothing is answered under {path[:200]!r}")
    return questions[path]


def render(question: Question[Any], answer: object) -> bytes:
    """An answer as JSON."""
    return _adapter(question.gives).dump_json(answer, ensure_ascii=True)


# One for each question, made when it is first asked.
@cache
def _adapter(gives: Any) -> TypeAdapter[Any]:  # noqa: ANN401 - any type of pydantic's
    return TypeAdapter(gives)


def framed(path: str, data: bytes) -> bytes:
    """An answer as a frame takes it. Raises Refused for one that is too long for that."""
    if len(data) > MAX_DOCUMENT:
        raise Refused(
            f"{path}: an answer of {len(data)} bytes, over {MAX_DOCUMENT}: ask for one model, or "
            "over HTTP"
        )
    return data


def _table(*questions: Question[Any]) -> dict[str, Question[Any]]:
    return {question.path: question for question in questions}


PUBLIC = _table(
    Question("/peers", mesh.OfAnyModel, list[mesh.PeerBody], Pages.peers),
    Question("/api/network/models", fields.NoArguments, list[mesh.NetworkModel], Pages.models),
    Question("/workers", mesh.OfAnyModel, list[mesh.WorkerBody], Pages.workers),
    Question("/model_health", mesh.PriceArguments, mesh.ModelHealth, Pages.model_health),
    Question(
        "/api/v1/assignment",
        mesh.AssignmentArguments,
        mesh.Preview,
        Pages.assignment,
        refusals=(404, 409),
    ),
    Question("/api/v1/chain", mesh.OfModel, mesh.ChainBody, Pages.chain, refusals=(404, 503)),
    Question("/weights/manifest", mesh.OfModel, mesh.ManifestBody, Pages.manifest, refusals=(404,)),
    Question("/weights/manifests", fields.NoArguments, list[mesh.ManifestBody], Pages.manifests),
    Question("/p2p_id", fields.NoArguments, mesh.P2pId, Pages.p2p_id),
)
LEDGER = _table(
    Question(
        "/ledger/head",
        fields.NoArguments,
        ledger.HeadBody,
        LedgerPages.head,
        refusals=(503,),
    ),
    Question(
        "/ledger/proof",
        ledger.ProofArguments,
        ledger.LedgerProofBody,
        LedgerPages.proof,
        refusals=(404, 503),
    ),
)
"""Public as well, and read from the store."""
OPERATOR = _table(
    Question(
        "/rebalance",
        fields.NoArguments,
        operator.Rebalanced,
        Operator.rebalance,
        method="POST",
        refusals=(503,),
    ),
    Question(
        "/weights/manifest",
        operator.PublishBody,
        operator.Published,
        Operator.publish,
        method="POST",
        refusals=(503,),
    ),
    Question(
        "/reputation",
        operator.ReputationArguments,
        list[operator.ReputationBody],
        Operator.reputation,
    ),
    Question(
        "/ledger",
        ledger.LatestArguments,
        list[ledger.EntryBody],
        Operator.entries,
        refusals=(503,),
    ),
    Question(
        "/ledger/snapshot",
        ledger.SnapshotArguments,
        ledger.SnapshotBody,
        Operator.snapshot,
        refusals=(404, 503),
    ),
    Question(
        "/credits",
        ledger.CreditsArguments,
        list[ledger.CreditsBody],
        Operator.credits,
        refusals=(503,),
    ),
    Question(
        "/slash",
        ledger.SlashBody,
        ledger.PenaltyBody,
        Operator.slash,
        method="POST",
        refusals=(409, 503),
    ),
    Question(
        "/appeal",
        ledger.AppealBody,
        ledger.PenaltyBody,
        Operator.appeal,
        method="POST",
        refusals=(409, 503),
    ),
)
