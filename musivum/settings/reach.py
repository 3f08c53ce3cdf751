"""Where a musivum can be reached decides where its nodes may be: what its settings left open."""

from __future__ import annotations

from dataclasses import replace

from musivum.config import MusivumConfig
from p2p.listening import expand
from tessella.core.addresses import judge_addr


def settled(config: MusivumConfig) -> MusivumConfig:
    """The settings with `allow_private_addrs` decided, by the interfaces of this machine.

    Nodes may have private addresses where musivum has no other itself: in a LAN, on one machine,
    or behind a NAT whose public address was not announced.
    """
    if config.allow_private_addrs is not None:
        return config
    ours = (*config.announce, *expand(config.listen))
    is_public = any(judge_addr(addr, allow_private=False) is None for addr in ours)
    return replace(config, allow_private_addrs=not is_public)
