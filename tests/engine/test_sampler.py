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
from tessella.engine.sampler import DEPTHS, Choice, check_bias, choose, uniform

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
    allowed: torch.Tensor | None = None,
    **sampling: Any,
) -> Choice:
    return choose(
        logits,
        prompt=prompt,
        answer=answer,
        sampling=Sampling(**sampling),
        eos_ids=eos_ids,
        position=position,
        allowed=allowed,
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


def only(*ids: int) -> torch.Tensor:
    return torch.tensor([at in ids for at in range(len(PROBABILITIES))])


@pytest.mark.parametrize(
    ("sampling", "best"),
    [
        ({"logit_bias": ((0, 3.0),)}, 0),
        ({"logit_bias": ((1, -100.0),)}, 3),
        ({"logit_bias": ((1, -1.0), (3, -1.0))}, 4),
        ({"logit_bias": ((1, 0.0),)}, 1),
    ],
)
def test_a_bias_is_added_to_what_the_model_gives(sampling: dict[str, Any], best: int) -> None:
    choice = pick(logprobs=1, **sampling)
    assert choice.id == best
    # What is told stays the model's own.
    assert choice.logprob == pytest.approx(math.log(PROBABILITIES[best]))
    assert [token for token, _ in choice.top] == [1]
    assert choice.top[0][1] == pytest.approx(math.log(0.4))
    assert pick().id == 1


def test_a_bias_comes_before_the_penalties() -> None:
    asked: dict[str, Any] = {"prompt": (0,), "repetition_penalty": 1.5}
    # (1 - 2) x 1.5 is below -1.4, and 1 / 1.5 - 2 is above.
    assert pick(torch.tensor([1.0, -1.4]), logit_bias=((0, -2.0),), **asked).id == 1
    # (1 + 1) / 1.5 is below 1.5, and 1 / 1.5 + 1 is above.
    assert pick(torch.tensor([1.0, 1.5]), logit_bias=((0, 1.0),), **asked).id == 1


def test_a_bias_moves_the_odds() -> None:
    counts = drawn(1000, logit_bias=((0, math.log(8.0)),))
    assert counts[0] / 1000 == pytest.approx(0.4 / 1.35, abs=0.05)


def test_a_bias_outside_the_vocabulary_is_named() -> None:
    sampling = Sampling(logit_bias=((4, 1.0), (5, 1.0)))
    check_bias(sampling, 6)
    with pytest.raises(BadRequest, match="logit_bias names 5, the vocabulary has 5 ids"):
        check_bias(sampling, 5)
    with pytest.raises(BadRequest, match="logit_bias names 5,"):
        pick(logit_bias=((5, 1.0),))


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 1.0},
        {"temperature": 2.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.99},
        {"temperature": 1.0, "min_p": 0.01},
        {"temperature": 1e-300},
        {"temperature": 1.0, "logit_bias": ((1, 100.0),), "presence_penalty": 2.0},
    ],
)
@pytest.mark.parametrize("ids", [(0,), (0, 2), (2, 4), (0, 1, 2, 3, 4)])
def test_what_is_not_allowed_never_comes(ids: tuple[int, ...], sampling: dict[str, Any]) -> None:
    found = {
        pick(position=at, allowed=only(*ids), answer=(1,), seed=3, **sampling).id
        for at in range(80)
    }
    assert found <= set(ids)
    if sampling.get("temperature") == 1.0 and "logit_bias" not in sampling:
        assert found == set(ids)


def test_what_is_left_keeps_its_odds() -> None:
    counts = Counter(
        pick(allowed=only(1, 3), position=at, temperature=1.0, seed=7).id for at in range(1000)
    )
    assert counts[1] / 1000 == pytest.approx(0.4 / 0.65, abs=0.05)


def test_the_far_end_of_a_draw_is_one_that_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessella.engine.sampler.uniform", lambda *_: 1.0)
    assert pick(allowed=only(0, 2), temperature=1.0).id == 2


def test_a_request_that_leaves_nothing_is_told() -> None:
    with pytest.raises(BadRequest, match="rules all of them out"):
        pick(allowed=only())
    with pytest.raises(BadRequest, match="rules all of them out"):
        pick(allowed=only(1), eos_ids=frozenset({1}), ignore_eos=True, temperature=1.0)


def test_an_end_that_is_asked_for_is_one_even_where_the_models_are_ignored() -> None:
    ends = frozenset({1, 3})
    assert pick(eos_ids=ends, ignore_eos=True).id == 4
    assert pick(eos_ids=ends, ignore_eos=True, stop_ids=(3,)).id == 3


@pytest.mark.parametrize("penalty", [1e-9, 0.5, 2.0])
def test_penalties_make_no_number_infinite(penalty: float) -> None:
    logits = torch.tensor([3e38, -3e38, 2.9e38, 0.0])
    choice = pick(logits, prompt=(0, 1), repetition_penalty=penalty, temperature=1.0)
    assert choice.id == (0 if penalty < 1 else 2)


@settings(deadline=None)
@given(
    values=st.lists(st.floats(-1e30, 1e30), min_size=2, max_size=12),
    ids=st.sets(st.integers(0, 11), min_size=1),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    bias=st.floats(-100, 100),
    seed=st.integers(0, 2**32),
)
def test_a_choice_is_always_one_that_may_come(
    values: list[float], ids: set[int], temperature: float, bias: float, seed: int
) -> None:
    few = {one % len(values) for one in ids}
    allowed = torch.tensor([at in few for at in range(len(values))])
    asked: dict[str, Any] = {"temperature": temperature, "logit_bias": ((0, bias),), "seed": seed}
    choice = pick(torch.tensor(values), allowed=allowed, top_p=0.9, **asked)
    assert choice.id in few
    assert choice == pick(torch.tensor(values), allowed=allowed, top_p=0.9, **asked)
