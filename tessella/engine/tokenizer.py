"""Text to token ids and back, for one model, and the same ids that transformers gives."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import tokenizers

from tessella.core.errors import BadRequest
from tessella.core.tool_calls import ToolFormat
from tessella.engine.chat_template import ChatTemplate
from tessella.engine.pieces import pieces_of

# An emoji joined from parts is at most some ten characters; a run that is longer is let go.
MAX_HELD_CHARS = 32


class Tokenizer:
    """A vocabulary, its chat template, and the ids that end an answer. Safe to use from threads."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        template: ChatTemplate | None = None,
        special_tokens: Mapping[str, str] | None = None,
        eos_ids: Iterable[int] = (),
    ) -> None:
        """`special_tokens` are the names that a template may use, as `bos_token`, and their texts.

        Raises UnsupportedModel for a decoder that we do not know.
        """
        # Some checkpoints were saved while they padded and cut batches for training.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._pieces = pieces_of(backend)
        self._template = template
        self._special_tokens = dict(special_tokens or {})
        self.eos_ids = frozenset(eos_ids)

    def with_template(self, source: str) -> Tokenizer:
        """The same vocabulary with another chat template, an operator's own.

        Raises BadWeights for one that is too long or cannot be compiled.
        """
        template = ChatTemplate(source)
        template.compile()
        return Tokenizer(
            self._backend,
            template=template,
            special_tokens=self._special_tokens,
            eos_ids=self.eos_ids,
        )

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The library's own tokenizer, for those who need its vocabulary. Not to be changed."""
        return self._backend

    @property
    def vocab_size(self) -> int:
        """Tokens that there are, added ones included. A model may have more rows than that."""
        return self._backend.get_vocab_size(with_added_tokens=True)

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest one: no text of n tokens has more than n times that."""
        return max(map(len, self._backend.get_vocab(with_added_tokens=True)), default=1)

    @property
    def has_chat_template(self) -> bool:
        """Whether `encode_chat` can work."""
        return self._template is not None

    @property
    def supports_tools(self) -> bool:
        """Whether the chat template writes tools into a prompt."""
        return self._template is not None and self._template.supports_tools

    @property
    def tool_format(self) -> ToolFormat | None:
        """How the model writes calls of tools; None without tools, or if we cannot read them."""
        return None if self._template is None else self._template.tool_format

    @cached_property
    def marker_ids(self) -> dict[str, int]:
        """The markers of `tool_format` that are tokens of their own. An answer shows them."""
        markers = () if self.tool_format is None else self.tool_format.markers
        found = {marker: self._backend.token_to_id(marker) for marker in markers}
        return {marker: one for marker, one in found.items() if one is not None}

    @cached_property
    def _skipped(self) -> frozenset[int]:
        added = self._backend.get_added_tokens_decoder().items()
        special = frozenset(one for one, token in added if token.special)
        return special - set(self.marker_ids.values())

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text, with the beginning and end marks that the vocabulary asks for.

        A special token spelled out in the text is that token. Raises BadRequest for text that is
        not Unicode.
        """
        # The call for one text keeps the interpreter to itself, for seconds if that is long.
        (found,) = self._backend.encode_batch_fast(
            [_unicode(text)], add_special_tokens=add_special_tokens
        )
        ids: list[int] = found.ids
        return ids

    def encode_plain(self, text: str, *, begins: bool = True) -> list[int]:
        """The ids of a text in which no spelling is a special or added token, without marks.

        Text that goes on from other text, and so does not begin anything, has no space put before
        its first word where the vocabulary would. Raises BadRequest for text that is not Unicode.
        """
        pieces = self._split(_unicode(text))
        if pieces and not begins:
            # Some vocabularies put a space before every text, some only where there is none.
            alike = " x" if text[0] in " ▁" else "x"
            pieces[0] = pieces[0][len("".join(self._split(alike))) - len(alike) :]
        model = self._backend.model
        return [token.id for piece in pieces if piece for token in model.tokenize(piece)]

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """The ids of a conversation, as the model's template writes it, up to where it answers.

        A message has a `role` and a `content`, both strings, and may have a `name`, `tool_calls`
        of an `id`, a `name` and `arguments` as JSON text, and a `tool_call_id`. A special token
        spelled out in a message is that token, as with transformers. Raises BadRequest if there is
        no template, or it refuses the conversation, and UnsupportedField for tools it cannot write.
        """
        prompt = self.render_chat(
            messages, tools=tools, add_generation_prompt=add_generation_prompt
        )
        return self.encode(prompt, add_special_tokens=False)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] = (),
        add_generation_prompt: bool = True,
    ) -> str:
        """The text that `encode_chat` encodes."""
        if self._template is None:
            raise BadRequest("this model has no chat template: send a prompt instead")
        return self._template.render(
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            special_tokens=self._special_tokens,
        )

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids. Special tokens are left out, and so are ids without a token."""
        stream = TextStream(self)
        return "".join([stream.push(one) for one in ids]) + stream.finish()

    def token(self, one: int) -> str | None:
        """The vocabulary's own spelling of an id."""
        return self._backend.id_to_token(one) if one >= 0 else None

    def piece(self, one: int) -> bytes:
        """What an id adds to a text, in UTF-8. It may be a part of a character, or nothing."""
        token = None if one in self._skipped else self.token(one)
        return b"" if token is None else self._pieces.of_token(token)

    @property
    def strips_first_space(self) -> bool:
        """Whether a text loses the space before its first word."""
        return self._pieces.strip_first_space

    def _split(self, text: str) -> list[str]:
        if self._backend.normalizer is not None:
            text = self._backend.normalizer.normalize_str(text)
        if self._backend.pre_tokenizer is None:
            return [text] if text else []
        return [piece for piece, _ in self._backend.pre_tokenizer.pre_tokenize_str(text)]


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise BadRequest(f"text with half of a surrogate pair at {exc.start}") from exc
    return text


class TextStream:
    """The text of an answer, told as its tokens come. The joined deltas are `decode` of all ids.

    A delta never ends inside a character, nor inside an emoji that is joined from several. The work
    for a token depends on that token alone.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip = tokenizer.strips_first_space
        self._held = ""

    def push(self, one: int) -> str:
        """What may be shown after this id: often a word, sometimes nothing."""
        return self._take(self._utf8.decode(self._tokenizer.piece(one)))

    def finish(self) -> str:
        """What was still held back. Nothing may be pushed afterwards."""
        rest = self._take(self._utf8.decode(b"", final=True)) + self._held
        self._held = ""
        return rest

    def _take(self, text: str) -> str:
        if self._strip and text:
            text = text.removeprefix(" ")
            self._strip = False
        text = self._held + text
        cut = open_emoji(text)
        self._held = text[cut:]
        return text[:cut]


_JOINER = 0x200D
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_PICTURES = (range(0x2600, 0x27C0), range(0x1F000, 0x1FB00))
_VARIANTS = (range(0xFE00, 0xFE10), range(0xE0020, 0xE0080))


def open_emoji(text: str) -> int:
    """Where the emoji starts that a text ends with, and that more text may go on; else its length.

    Flags are two letters, and a family is people joined with U+200D: on their own the parts are
    other pictures.
    """
    lowest = max(0, len(text) - MAX_HELD_CHARS)
    start = len(text)
    while start > lowest and _in_emoji(ord(text[start - 1])):
        start -= 1
    before = flag_letters = 0
    for at in range(start, len(text)):
        code = ord(text[at])
        is_flag = code in _FLAG_LETTERS
        joined = before == _JOINER or _extends(code) or (is_flag and flag_letters % 2 == 1)
        if not joined:
            start = at
        flag_letters = flag_letters * joined + 1 if is_flag else 0
        before = code
    return start


def _in_emoji(code: int) -> bool:
    return _extends(code) or any(code in pictures for pictures in _PICTURES)


def _extends(code: int) -> bool:
    return code == _JOINER or code in _SKIN_TONES or any(code in extra for extra in _VARIANTS)
