"""What the value of a setting of a node may be."""

from __future__ import annotations

from tessella.core.addresses import parse_peer, read_ip
from tessella.core.errors import BadAddress, BadConfig
from tessella.core.formats import KvFormat, WeightFormat
from tessella.core.layers import LayerRange
from tessella.core.schedule import Span
from tessella.core.shapes import DType
from tessella.settings.kinds import AUTO, Kind, choice, list_of, read_text, whole
from tessella.settings.masking import masked
from tessella.web.hosts import read_host
from tessella.worker.config import CANARIES, LOG_FORMATS, PRUNING

NONE = "none"
# A claim of more is a typing error: the largest machines have some TB.
MAX_CLAIM_MB = 64 * 1024 * 1024
_WORDS = [each.value for each in DType]
_LOCALHOST = "127.0.0.1"


def _or_auto(kind: Kind) -> Kind:
    """The kind, or the word that leaves the choice to the node."""
    return Kind(
        f"{kind.told}, or {AUTO}", lambda value: None if value == AUTO else kind.read(value)
    )


def _name(value: object) -> str:
    text = read_text(value).strip()
    if not text:
        raise ValueError
    return text


def _url(value: object) -> str:
    # It brings an HTTP client along, which --help does not need.
    from tessella.web.targets import parse_url

    text = read_text(value).strip()
    try:
        parse_url(text)
    except BadAddress as exc:
        raise BadAddress(masked(str(exc))) from None
    if "?" in text or "#" in text:
        raise BadAddress(f"a URL without ? and #: {text!r}")
    return text.rstrip("/")


def _orchestrator(value: object) -> object:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise ValueError
    found = [part for text in texts for part in read_text(text).replace(",", " ").split()]
    if not found:
        raise ValueError
    if any("://" in text for text in found):
        if len(found) > 1:
            raise BadConfig("several multiaddrs may be told, but only one URL, and not both")
        return _url(found[0])
    return tuple(map(parse_peer, found))


def _host(text: str) -> str:
    try:
        return str(read_host(text))
    except ValueError as exc:
        raise BadAddress(str(exc)) from None


def _ip(value: object) -> str:
    text = read_text(value).strip()
    try:
        return str(read_ip(text))
    except ValueError:
        raise BadAddress(f"no IP address: {text!r}") from None


def _ip_to_listen_on(value: object) -> str:
    return _LOCALHOST if value == "localhost" else _ip(value)


def _dtype(value: object) -> str:
    word = read_text(value)
    if word not in _WORDS:
        raise BadConfig(f"unknown dtype {word!r}; one of {', '.join(_WORDS)}")
    return word


def _layers(value: object) -> LayerRange:
    return LayerRange.parse(read_text(value))


def _quantization(value: object) -> str:
    word = read_text(value)
    if word.lower() == NONE:
        return NONE
    if WeightFormat.parse(word).is_grouped:
        raise BadConfig(f"the engine keeps no weights in {WeightFormat.parse(word).value}")
    raise BadConfig(f"{word} is no quantization but a dtype")


def _kv_cache(value: object) -> str:
    word = read_text(value)
    if word.lower() == AUTO:
        return AUTO
    found = KvFormat.parse(word)
    if found.is_grouped:
        raise BadConfig(f"the engine keeps no keys and values in {found.value}")
    return found.value


NAME = Kind("a string that is not empty", _name)
URL = Kind("an http or https URL", _url)
ORCHESTRATOR = Kind("an http or https URL, or a list of multiaddrs with /p2p/ID", _orchestrator)
CLAIM = whole(1, MAX_CLAIM_MB)
PORT = whole(0, 65535)
PUBLIC_PORT = whole(1, 65535)
PERCENT = whole(1, 100)
COUNT = whole(1)
FROM_ZERO = whole(0)
HOST = Kind("a host name or an IP address", lambda value: _host(read_text(value)))
HOSTS = list_of("a list of host names and IP addresses", _host)
IP = Kind("an IP address", _ip)
LISTEN_IP = Kind("an IP address of this machine, or all of them", _ip_to_listen_on)
DEVICE = _or_auto(choice("cuda", "metal", "cpu"))
SERVING_TYPE = _or_auto(Kind(f"one of {', '.join(_WORDS)}", _dtype))
LAYERS = Kind("START:STOP", _layers)
QUANTIZATION = Kind(f'"{NONE}"', _quantization)
KV_CACHE = Kind(f'the dtype, or "{AUTO}"', _kv_cache)
CANARY = choice(*CANARIES)
PRUNE = choice(*PRUNING)
LOG_FORMAT = choice(*LOG_FORMATS)
SCHEDULE = list_of('a list of "DAY-DAY HH:MM-HH:MM"', Span.parse)
