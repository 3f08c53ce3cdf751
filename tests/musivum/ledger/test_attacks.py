"""Attacks on credits, at the door that anybody may knock at, and the figure that each comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from musivum.testing import a_registration, calling, clock
from tessella.core.identity import Identity
from tessella.core.ids import ModelId
from tessella.core.layers import LayerRange
from tessella.core.ledger import MINT
from tessella.core.messages import (
    Accepted,
    AskCredits,
    AskGrant,
    Fail,
    Granted,
    Message,
    Ready,
    Signed,
)
from tessella.core.proofs import SignedProof
from tessella.core.settlement import MICRO_PER_LAYER_TOKEN, Outcome
from tessella.core.tickets import SETTLE_SECONDS, TICKET_SECONDS, open_ticket
from tessella.core.tiers import MICRO
from tessella.core.vouchers import Crossing, Sent, crossing_at, vouch
from tests.core.work import MUSIVUM, NOW, Work, committed, identity
from tests.musivum.ledger.attacked import CONFIG, Attacked, attacked

NODE, OTHER = identity(1), identity(8)
CHAIN = [identity(1), identity(2), identity(3)]
FOUR = [*CHAIN, identity(4)]
# Of a stage of 10 layers and 50 positions.
PAY = 500 * MICRO_PER_LAYER_TOKEN
Figures = Callable[[str], None]


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """A function that tells what an attack came to."""

    def tell(line: str) -> None:
        print(f"\n{line}")  # noqa: T201 - what a run is for
        record_property(line.split()[0], line)

    return tell


def codes(outcomes: list[Outcome]) -> list[str]:
    return [each.code for each in outcomes]


async def test_a_proof_that_a_hundred_bring_at_once_is_paid_once(
    autojump_clock: MockClock, figures: Figures
) -> None:
    async with attacked() as mesh:
        callers = [await mesh.caller(100 + number) for number in range(100)]
        proof = Work([NODE]).proof(0)
        async with trio.open_nursery() as nursery:
            for caller in callers:
                nursery.start_soon(lambda by: mesh.bring(proof, by=by), caller)
        said = Counter(each.became.value for each in mesh.told)
        before = await mesh.owns(NODE)
        (altered,) = await mesh.bring(Work([NODE]).proof(0, 60))
        delta = await mesh.owns(NODE) - before
        payments = await mesh.paid()
    figures(
        f"dup posts={len(mesh.told) - 1} paid={said['paid']} dup={said['already_paid']} conflict=0"
    )
    figures(f"altered conflict={int(altered.code == 'proof_conflict')} paid_delta={delta}")
    assert said == {"paid": 1, "already_paid": 99}
    assert (payments, before) == (1, PAY)
    assert (altered.code, delta) == ("proof_conflict", 0)


def flipped(data: bytes) -> bytes:
    """The same but for its last bit."""
    return data[:-1] + bytes([data[-1] ^ 1])


def forgeries() -> dict[str, SignedProof]:
    """Proofs and tickets that somebody else signed than who had to, or nobody."""
    good, other = Work([NODE]), Work([NODE], issuer=OTHER, changes={"issuer": MUSIVUM.peer_id})
    bent = Work([NODE])
    bent.payload = flipped(bent.payload)
    proof = good.proof(0)
    return {
        "the worker did not sign": good.proof(0, by=OTHER),
        "nobody signed": SignedProof(proof.payload, bytes(64)),
        "a bit is other": SignedProof(flipped(proof.payload), proof.signature),
        "the ticket is another's, in musivum's name": other.proof(0),
        "a bit of the ticket is other": bent.proof(0),
        "the ticket's signature is empty": good.proof(0, ticket_signature=b""),
        "the worker is not in the chain": good.proof(0, worker=OTHER.peer_id, by=OTHER),
        "no proof": SignedProof(b"\x00" * 40, bytes(64)),
        "empty": SignedProof(b"", bytes(64)),
    }


async def test_nothing_is_paid_for_what_is_forged(
    autojump_clock: MockClock, figures: Figures
) -> None:
    async with attacked() as mesh:
        cases = forgeries()
        outcomes = await mesh.bring(*cases.values())
        payments = await mesh.paid()
    refused = sum(each.became.value == "refused" for each in outcomes)
    figures(f"forged cases={len(cases)} refused={refused} paid={payments}")
    assert refused == len(cases), list(zip(cases, outcomes, strict=True))
    assert payments == 0
    assert set(codes(outcomes)) <= {"bad_signature", "bad_ticket", "bad_frame"}


async def test_tickets_of_others_and_of_other_days_are_not_paid(
    autojump_clock: MockClock, figures: Figures
) -> None:
    lasts = TICKET_SECONDS + SETTLE_SECONDS
    moments = {-lasts - 1: "ticket_expired", -lasts + 1: "", 59.0: "", 61.0: "ticket_expired"}
    async with attacked() as mesh:
        outcomes = await mesh.bring(
            *(
                Work([NODE], request_id=bytes([place]) * 16, issued_at=NOW + at).proof(0)
                for place, at in enumerate(moments)
            )
        )
        before = await mesh.paid()
        foreign = await mesh.bring(Work([NODE], issuer=OTHER).proof(0))
        payments = await mesh.paid()
    late = codes(outcomes).count("ticket_expired")
    figures(f"expired cases={len(moments)} refused={late} paid={before}")
    figures(
        f"foreign cases=1 refused={codes(foreign).count('foreign_ticket')} paid={payments - before}"
    )
    assert codes(outcomes) == list(moments.values())
    assert codes(foreign) == ["foreign_ticket"]
    assert (before, payments) == (2, 2)


async def test_who_says_more_than_it_did_gets_what_its_neighbours_saw(
    autojump_clock: MockClock, figures: Figures
) -> None:
    work = Work(CHAIN)
    claims = {
        "more layers": work.proof(0, layers=LayerRange(0, 20)),
        "other layers": work.proof(0, layers=LayerRange(10, 20)),
        "more positions than the ticket has": work.proof(0, 101),
        "fewer than none": work.proof(0, start=50),
        "before the first": work.proof(0, start=-1),
        "more out than in": work.proof(0, outputs=committed(1, 90).commit()),
    }
    async with attacked() as mesh:
        outcomes = await mesh.bring(*claims.values())
        more = Work(CHAIN, request_id=b"t" * 16)
        await mesh.bring(more.proof(0, 90), more.proof(1, 50), more.proof(2, 50))
        paid = [await mesh.owns(worker) for worker in CHAIN]
        await mesh.paid()
    refused = sum(each.became.value == "refused" for each in outcomes)
    figures(
        f"inflated cases={len(claims)} refused={refused} claimed_positions=90 served_positions=50 "
        f"paid_positions={paid[0] // (10 * MICRO_PER_LAYER_TOKEN)}"
    )
    assert refused == len(claims), list(zip(claims, outcomes, strict=True))
    assert paid == [PAY] * 3, "it gains nothing, and harms nobody"


def forged_vouchers(work: Work, liar: int) -> dict[str, SignedProof]:
    """Proofs of a stage that brings for the rows that came what nobody signed of them."""
    other, more = committed(liar, 50, b"x").commit(), committed(liar, 90).commit()
    before, stage = FOUR[liar - 1], work.ticket.chain[liar]
    came = committed(liar, 50).commit()
    real = crossing_at(work.payload, 0, stage.layers.start)

    def signed(crossing: Crossing, by: Identity = before) -> SignedProof:
        return work.proof(liar, voucher=vouch(by, crossing, Sent(0, came)))

    return {
        "other rows came": work.proof(liar, inputs=other),
        "more rows came": work.proof(
            liar, 50, inputs=more, outputs=committed(liar + 1, 90).commit()
        ),
        "it signed itself": signed(real, FOUR[liar]),
        "of another epoch": signed(replace(real, epoch=1)),
        "of another edge": signed(replace(real, layer=stage.layers.stop)),
        "of another session": signed(replace(real, ticket=bytes(32))),
        "nobody signed": work.proof(liar, voucher=b""),
    }


def four(number: int) -> Work:
    """A request that four serve."""
    return Work(FOUR, request_id=bytes([number]) * 16)


async def test_a_stage_that_lies_about_its_neighbours_is_not_paid_and_they_are(
    autojump_clock: MockClock, figures: Figures
) -> None:
    """It commits to other rows than it vouched for, or says that other rows came."""
    names = list(forged_vouchers(four(0), 1))
    lies = [(liar, "") for liar in range(3)]
    lies += [(liar, name) for liar in range(1, 4) for name in names]
    paid = []
    async with attacked() as mesh:
        for number, (liar, name) in enumerate(lies):
            work = four(number)
            proofs = [work.proof(place) for place in range(4)]
            other = work.proof(liar, salt=(b"", b"y"))
            proofs[liar] = forged_vouchers(work, liar)[name] if name else other
            paid.append(await mesh.pays(work, *proofs))
        payments = await mesh.paid()
    forged = codes(mesh.told).count("bad_signature")
    liars = [each[liar] for each, (liar, _) in zip(paid, lies, strict=True)]
    honest, most = sum(map(sum, paid)) - sum(liars), 3 * len(lies) * PAY
    figures(f"lies cases={len(lies)} liar_paid={sum(liars)} honest_paid={honest} of {most}")
    assert liars == [0] * len(lies)
    assert (honest, payments) == (most, 3 * len(lies))
    assert forged == 3 * len(names)


async def test_a_stage_that_says_that_less_came_costs_itself_alone(
    autojump_clock: MockClock, figures: Figures
) -> None:
    paid = []
    async with attacked() as mesh:
        for liar in range(4):
            counts, work = [50] * 4, four(liar)
            counts[liar] = 2
            paid.append(await mesh.pays(work, *map(work.proof, range(4), counts)))
        await mesh.paid()
    liars = [row[liar] for liar, row in enumerate(paid)]
    honest = sum(map(sum, paid)) - sum(liars)
    figures(f"understated cases=4 liar_paid={sum(liars)} honest_paid={honest} of {12 * PAY}")
    assert liars == [0, 0, 0, 2 * PAY // 50], "the tail vouches for nothing"
    assert honest == 12 * PAY


async def test_a_pair_that_says_more_than_came_is_paid_for_what_came(
    autojump_clock: MockClock, figures: Figures
) -> None:
    """The first of two vouches for rows that it never had, and the second claims them."""
    work = four(0)
    async with attacked() as mesh:
        paid = await mesh.pays(work, *map(work.proof, range(4), [10, 10, 90, 90]))
        await mesh.paid()
    positions = [each // (10 * MICRO_PER_LAYER_TOKEN) for each in paid]
    figures(f"pair claimed_positions=90 served_positions=10 paid_positions={max(positions)}")
    assert positions == [10, 0, 10, 10]


@pytest.mark.slow
async def test_a_pair_of_one_owner_mints_its_share_of_a_day_and_no_more(
    autojump_clock: MockClock, figures: Figures
) -> None:
    """The only node of a mesh, and a client of the same owner: every ticket is for that node."""
    cap = 50
    async with attacked(replace(CONFIG, mint_daily_cap=cap, requests_per_second=1000.0)) as mesh:
        node = await mesh.stack.enter_async_context(calling(mesh.net, NODE.seed, mesh.door.peer))
        await node.register(replace(a_registration(), claim_mb=64, wanted=LayerRange(0, 12)))
        assert await node.call(Ready(LayerRange(0, 12))) == Accepted()
        asked = AskGrant(ModelId("small"), 64, False, b"")
        for _ in range(0, 1000, 100):
            await mesh.bring(*[await granted_to(mesh, asked) for _ in range(100)])
        payments = await mesh.paid()
        minted = -(await mesh.door.opened.rooms.ledger.balance(MINT))
    worth = len(mesh.told) * 12 * 50 * MICRO_PER_LAYER_TOKEN
    figures(
        f"selfdeal requests={len(mesh.told)} worth={worth / MICRO:g} minted={minted / MICRO:g} "
        f"cap={cap / 5:g}"
    )
    assert {each.became.value for each in mesh.told} == {"paid"}
    assert minted == cap * MICRO // 5
    assert payments == len(mesh.told) == 1000


async def granted_to(mesh: Attacked, asked: AskGrant) -> SignedProof:
    """The proof of the work for a ticket that musivum gave."""
    granted = await mesh.client.call(asked)
    while isinstance(granted, Fail):
        # More calls than a peer may make in three minutes: it waits, as an attacker would.
        assert granted.code == "too_many_requests"
        await trio.sleep(30.0)
        granted = await mesh.client.call(asked)
    assert isinstance(granted, Granted)
    ticket = open_ticket(granted.ticket, granted.signature, {MUSIVUM.peer_id})
    work = Work([NODE], layers_each=12, issued_at=clock())
    work.ticket, work.payload, work.signature = ticket, granted.ticket, granted.signature
    return work.proof(0, 50)


SKEWS = {
    0.0: "",
    -59.0: "",
    -61.0: "clock_skew",
    29.0: "",
    31.0: "clock_skew",
    61.0: "clock_skew",
    3600.0: "clock_skew",
    -3600.0: "clock_skew",
}


async def test_calls_by_clocks_that_are_off_are_told_by_how_much(
    autojump_clock: MockClock, figures: Figures
) -> None:
    answers: dict[float, Message] = {}
    async with attacked() as mesh:
        for ahead in SKEWS:
            call = replace(mesh.client.a_call(AskCredits()), created=clock() + ahead)
            answers[ahead] = await mesh.client.ask(mesh.client.sign(call))
    refused = {at: each for at, each in answers.items() if isinstance(each, Fail)}
    figures(f"skew cases={len(SKEWS)} accepted={len(SKEWS) - len(refused)} refused={len(refused)}")
    assert {at: code_of(each) for at, each in answers.items()} == SKEWS
    for at, fail in refused.items():
        assert f"{abs(at):.0f} s {'ahead of' if at > 0 else 'behind'}" in fail.text


async def test_a_signed_call_is_good_once_and_for_who_signed_it(
    autojump_clock: MockClock, figures: Figures
) -> None:
    async with attacked() as mesh:
        thief, second = await mesh.caller(40), await mesh.caller(41)
        call = mesh.client.a_call(AskCredits())
        signed = mesh.client.sign(call)
        assert code_of(await mesh.client.ask(signed)) == ""
        bent = Signed(signed.payload, flipped(signed.signature))
        same_nonce = mesh.client.sign(replace(mesh.client.a_call(AskCredits()), nonce=call.nonce))
        said = [
            code_of(await mesh.client.ask(signed)),
            code_of(await mesh.client.ask(same_nonce)),
            code_of(await thief.ask(signed)),
            code_of(await thief.ask(thief.sign(call))),
        ]
        await trio.sleep(59.0)
        said.append(code_of(await mesh.client.ask(signed)))
        await trio.sleep(200.0)
        said.append(code_of(await mesh.client.ask(signed)))
        said.append(code_of(await second.ask(Signed(bent.payload, bent.signature))))
        own = second.sign(second.a_call(AskCredits()))
        said.append(code_of(await second.ask(replace(own, signature=bent.signature))))
    figures(f"replay cases={len(said)} accepted={said.count('')}")
    assert said == [
        "call_replayed",
        "call_replayed",
        "not_authorized",
        "not_authorized",
        "call_replayed",
        "clock_skew",
        "not_authorized",
        "bad_signature",
    ]


def code_of(answer: Message) -> str:
    return answer.code if isinstance(answer, Fail) else ""
