"""Answers that must fit a grammar: which tokens may come next.

The grammar is about the text that is shown: the library is given the same bytes of each token that
`TextStream` adds up. Special tokens have none and never fit.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection, Sequence

import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from torch import Tensor

from tessella.engine.grammar_definition import definition_of
from tessella.engine.grammar_trial import LIMITS, refusal, try_grammar
from tessella.engine.tokenizer import Tokenizer

# Grammars that a tokenizer remembers the trial of. A text is at most 64 KiB.
MAX_REMEMBERED = 64
# Characters of a forced text that are looked at for a token: a constant may have 64 Ki of them.
MAX_FORCED_CHARS = 64


class Grammar:
    """Where one answer is in its grammar. A function of the ids alone. Not for several threads."""

    def __init__(self, fresh: LLMatcher, tokens: int) -> None:
        self._fresh = fresh
        self._tokens = tokens
        self._matcher = fresh.deep_copy()

    @property
    def may_end(self) -> bool:
        """Whether the text so far is whole."""
        return self._matcher.is_accepting()

    @property
    def complete(self) -> bool:
        """Whether the text so far is whole, and nothing can follow it."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def allowed(self, vocab: int, ends: Collection[int]) -> Tensor:
        """`[vocab]` of bool: the tokens that may come next.

        `ends` are allowed exactly if the text may end. Rows without a token never are. Raises
        BadRequest if that leaves nothing, or the grammar turned out too complex.
        """
        mask = torch.zeros(vocab, dtype=torch.bool)
        whole = self.may_end
        if not self._matcher.is_stopped():
            fits = bytearray(self._matcher.compute_logit_bias())
            self._check()
            known = min(vocab, self._tokens)
            mask[:known] = torch.frombuffer(fits, dtype=torch.uint8)[:known] != 0
        mask[[one for one in ends if 0 <= one < vocab]] = whole
        if not bool(mask.any()):
            raise refusal("no token of this model fits the grammar here")
        return mask

    def advance(self, one: int) -> None:
        """Take a token that does not end the answer. Raises BadRequest if it does not fit."""
        self._take([one])

    def rebuild(self, ids: Sequence[int]) -> None:
        """Be where a fresh grammar is after these ids. Raises BadRequest if they do not fit."""
        self._matcher = self._fresh.deep_copy()
        self._take(ids)

    def _take(self, ids: Sequence[int]) -> None:
        for one in ids:
            if not (0 <= one < self._tokens) or self._matcher.is_stopped():
                raise refusal(f"token {one} does not fit the grammar")
            self._matcher.consume_token(one)
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise refusal(self._matcher.get_error())


def open_grammar(tokenizer: Tokenizer, grammar: str) -> Grammar:
    """The grammar at its beginning.

    Raises BadRequest, naming response_format, for one that cannot be used, and Busy if too many
    others are asked about at the same time. Blocks: for a fraction of a second the first time, and
    for some 20 s at worst. Safe to use from threads.
    """
    return _compiler_of(tokenizer).open(grammar)


class _Compiler:
    """Grammars over one vocabulary, whose preparation takes a quarter of a second."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        pieces = _Pieces(tokenizer)
        self._tokens = pieces.eos_token_id
        self._strips_space = tokenizer.strips_first_space
        self._vocabulary = LLTokenizer(TokenizerWrapper(pieces))
        # Complaints by grammar, the one that was asked for last at the end.
        self._tried: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, grammar: str) -> Grammar:
        """Compiled anew: copies of one would wait for each other, and share its limits."""
        definition = definition_of(grammar, self._strips_space)
        if complaint := self._complaint(definition):
            raise refusal(complaint)
        limits = LLParserLimits(**LIMITS)
        matcher = LLMatcher(self._vocabulary, definition, log_level=0, limits=limits)
        if matcher.is_error():
            raise refusal(matcher.get_error())
        return Grammar(matcher, self._tokens)

    def _complaint(self, definition: str) -> str:
        with self._lock:
            if (known := self._tried.get(definition)) is not None:
                self._tried.move_to_end(definition)
                return known
        complaint = try_grammar(definition, self._tokens)
        with self._lock:
            self._tried[definition] = complaint
            while len(self._tried) > MAX_REMEMBERED:
                self._tried.popitem(last=False)
        return complaint


_compilers: weakref.WeakKeyDictionary[Tokenizer, _Compiler] = weakref.WeakKeyDictionary()
_compilers_lock = threading.Lock()


def _compiler_of(tokenizer: Tokenizer) -> _Compiler:
    with _compilers_lock:
        if tokenizer not in _compilers:
            _compilers[tokenizer] = _Compiler(tokenizer)
        return _compilers[tokenizer]


class _Pieces:
    """What llguidance asks of a tokenizer. It keeps none alive: it dies with one."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary = tokenizer.backend.get_vocab(with_added_tokens=True)
        count = max(vocabulary.values(), default=-1) + 1
        self._tokenizer = weakref.ref(tokenizer)
        self._pieces = [tokenizer.piece(one) for one in range(count)]
        # An end of our own: which ids of the model end an answer is the session's to say.
        self.tokens = [*self._pieces, b""]
        self.eos_token_id = count
        self._ids = {piece: one for one, piece in reversed([*enumerate(self._pieces)])}
        self._longest = max(map(len, self._pieces), default=0)

    def __call__(self, text: str) -> list[int]:
        """The ids of a text that the grammar forces, as the model would have learned it."""
        if not isinstance(text, str):
            raise TypeError("text, not bytes")  # asked once: the library then sends text
        # The library needs the first, once it is sure that no longer piece could stand there.
        text = text[: max(MAX_FORCED_CHARS, 2 * self._longest)]
        data = text.encode()
        tokenizer = self._tokenizer()
        ids = [] if tokenizer is None else tokenizer.encode_plain(text, begins=False)
        pieces = [self._pieces[one] for one in ids]
        return ids if all(pieces) and b"".join(pieces) == data else self._longest_first(data)

    def _longest_first(self, data: bytes) -> list[int]:
        """Ids of the longest pieces, one after the other, as far as there are any."""
        ids: list[int] = []
        while data:
            sizes = range(min(self._longest, len(data)), 0, -1)
            size = next((size for size in sizes if data[:size] in self._ids), 0)
            if not size:
                break
            ids.append(self._ids[data[:size]])
            data = data[size:]
        return ids
