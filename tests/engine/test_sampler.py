from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

from tessella.core.errors import BadRequest, NotFinite
from tessella.core.sampling import Sampling
from tessella.engine.sampler import DEPTHS, Choice, choose, uniform

# exp(log p) of these is a distribution, so that probabilities can be read off.
PROBABILITIES = [0.05, 0.4, 0.1, 0.25, 0.2]
LOGITS = torch.tensor(PROBABILITIES).log()


def pick(
    logits: torch.Tensor = LOGITS,
    *,
    prompt: tuple[int, ...] = (),
    answer: tuple[int, ...] = (),
    eos_ids: frozenset[int] = frozenset(),
    position: int = 0,
    **sampling: Any,
) -> Choice:
    return choose(
        logits,
        prompt=prompt,
        answer=answer,
        sampling=Sampling(**sampling),
        eos_ids=eos_ids,
        position=position,
    )


def drawn(
    count: int,
    logits: torch.Tensor = LOGITS,
    **sampling: Any,
) -> Counter[int]:
    sampling = {"temperature": 1.0, "seed": 7} | sampling
    return Counter(pick(logits, position=at, **sampling).id for at in range(count))


def test_greedy_takes_the_best_and_tells_its_probability() -> None:
    choice = pick()
    assert (choice.id, choice.top) == (1, ())
    assert choice.logprob == pytest.approx(math.log(0.4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ties_go_to_the_lowest_id(dtype: torch.dtype) -> None:
    logits = torch.tensor([0.0, 3.0, 1.0, 3.0, 3.0], dtype=dtype)
    assert pick(logits).id == 1
    assert [token for token, _ in pick(logits, logprobs=3).top] == [1, 3, 4]
    assert set(drawn(60, logits, top_k=2)) == {1, 3}


def test_alternatives_are_the_models_own_best_first() -> None:
    choice = pick(logprobs=3, answer=(1,), presence_penalty=2.0)
    assert choice.id == 3
    assert [token for token, _ in choice.top] == [1, 3, 4]
    assert [value for _, value in choice.top] == pytest.approx(
        [math.log(p) for p in (0.4, 0.25, 0.2)]
    )


def test_more_alternatives_than_the_vocabulary_are_all_of_it() -> None:
    assert len(pick(logprobs=20).top) == 5


@pytest.mark.parametrize(
    ("sampling", "prompt", "answer", "best"),
    [
        # 2.0 / 1.5 is below 1.5; -1 x 1.5 would be above nothing.
        ({"repetition_penalty": 1.5}, (0,), (), 1),
        ({"repetition_penalty": 1.5}, (), (0,), 1),
        ({"repetition_penalty": 1.3}, (0,), (), 0),
        ({"repetition_penalty": 0.5}, (1,), (), 1),
        ({"presence_penalty": 0.6}, (), (0,), 1),
        ({"presence_penalty": 0.6}, (0,), (), 0),
        ({"presence_penalty": 0.4}, (), (0, 0, 0), 0),
        ({"frequency_penalty": 0.2}, (), (0, 0, 0), 1),
        ({"frequency_penalty": 0.2}, (), (0, 0), 0),
        ({"presence_penalty": -1.0}, (), (1,), 1),
    ],
)
def test_penalties_move_the_best(
    sampling: dict[str, Any], prompt: tuple[int, ...], answer: tuple[int, ...], best: int
) -> None:
    logits = torch.tensor([2.0, 1.5, -1.0])
    assert pick(logits, prompt=prompt, answer=answer, **sampling).id == best
    assert logits.tolist() == [2.0, 1.5, -1.0]


def test_repetition_makes_negative_logits_lower() -> None:
    logits = torch.tensor([-1.0, -1.2])
    assert pick(logits, prompt=(0,), repetition_penalty=1.3).id == 1


@pytest.mark.parametrize("penalty", [0.6, 1.1, 1.7])
def test_the_repetition_penalty_is_that_of_transformers(penalty: float) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        logits = torch.randn(50, generator=generator)
        ids = tuple(logits.topk(6).indices.tolist())
        wanted = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([ids]), logits[None])[0]
        choice = pick(logits, prompt=ids[:2], answer=ids[2:], repetition_penalty=penalty)
        assert choice.id == int(wanted.argmax())


def test_an_end_is_ordinary_when_asked() -> None:
    ends = frozenset({1, 3, 99})
    assert pick(eos_ids=ends).id == 1
    assert pick(eos_ids=ends, ignore_eos=True).id == 4
    assert set(drawn(50, ignore_eos=True)) >= {1, 3}


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        ({"top_k": 2}, {1, 3}),
        ({"top_k": 99}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.39}, {1}),
        ({"top_p": 0.41}, {1, 3}),
        ({"top_p": 0.86}, {1, 3, 4, 2}),
        # Of the three best, 0.25 + 0.4 is 0.76: among them two are enough for 0.7.
        ({"top_k": 3, "top_p": 0.7}, {1, 3}),
        ({"min_p": 0.45}, {1, 3, 4}),
        ({"min_p": 0.99}, {1}),
        ({"top_p": 1e-9}, {1}),
        ({"temperature": 1e-300}, {1}),
        ({"temperature": 0.5, "min_p": 0.2}, {1, 3, 4}),
    ],
)
def test_filters_leave_exactly_these(sampling: dict[str, Any], allowed: set[int]) -> None:
    assert set(drawn(150, **sampling)) == allowed


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_as_often_as_they_are_probable(temperature: float) -> None:
    draws = 2000
    weights = [p ** (1 / temperature) for p in PROBABILITIES]
    counts = drawn(draws, temperature=temperature)
    expected = [draws * weight / sum(weights) for weight in weights]
    chi = sum((counts[at] - want) ** 2 / want for at, want in enumerate(expected))
    # 18.5 is exceeded once in a thousand by chance, with four degrees of freedom.
    assert chi < 18.5


def test_filtered_tokens_keep_their_odds() -> None:
    counts = drawn(2000, top_k=2)
    assert counts[1] / 2000 == pytest.approx(0.4 / 0.65, abs=0.03)


def test_chance_spreads_evenly_over_positions_and_seeds() -> None:
    for values in ([uniform(5, at) for at in range(2000)], [uniform(at, 5) for at in range(2000)]):
        tenths = Counter(int(value * 10) for value in values)
        assert sum((tenths[at] - 200) ** 2 / 200 for at in range(10)) < 27.9
        assert all(0 <= value < 1 for value in values)


def test_chance_is_the_same_on_every_machine() -> None:
    drawn_here = [uniform(seed, at) for seed, at in ((0, 0), (0, 1), (2**64 - 1, 9))]
    assert drawn_here == [0.8297507273053486, 0.5000223135740745, 0.8360602595049237]


@settings(deadline=None)
@given(seed=st.integers(0, 2**64 - 1), position=st.integers(0, 2**31))
def test_the_same_question_has_the_same_answer(seed: int, position: int) -> None:
    asked: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "seed": seed, "position": position}
    assert pick(**asked) == pick(LOGITS.clone(), **asked)


@pytest.mark.parametrize("depth", [0.0, *DEPTHS[:-1]])
def test_top_p_finds_its_line_however_deep_it_lies(depth: float) -> None:
    # One best token, and a flat rest so far below it that holds half of what there is.
    rest = max(4, round(math.exp(min(depth + 0.5, 8.0))))
    logits = torch.full((rest + 1,), -depth - 0.5)
    logits[0] = 0.0
    flat = rest * math.exp(-depth - 0.5)
    top_p = (1 + flat / 2) / (1 + flat)
    # A draw so near to 1 falls on the last of what is left.
    at = next(at for at in range(1_000_000) if uniform(7, at) > 0.9999)
    last = pick(logits, temperature=1.0, top_p=top_p, seed=7, position=at).id
    assert 0.4 * rest < last <= 0.5 * rest + 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_are_our_fault(value: float) -> None:
    with pytest.raises(NotFinite):
        pick(torch.tensor([0.0, value, 1.0]))


def test_huge_finite_logits_are_no_fault() -> None:
    assert pick(torch.tensor([3e38, 3e38, 1.0]), temperature=1.0).id in {0, 1}


@pytest.mark.parametrize("token", [-1, 5])
def test_an_id_outside_the_vocabulary_is_named(token: int) -> None:
    with pytest.raises(BadRequest, match=f"token id {token} "):
        pick(prompt=(token,), repetition_penalty=1.1)
    with pytest.raises(BadRequest, match=f"token id {token} "):
        pick(answer=(token,), presence_penalty=1.0)
