from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("layers", [(0, 3), (3, 6)])
async def test_a_node_is_loaded_with_what_its_range_needs(
    open_mesh: Any, autojump_clock: Any, layers: tuple[int, int]
) -> None:
    async with open_mesh([3, 3], context=64, slots=2, prefill_chunk=9999) as mesh:
        node = mesh.nodes[layers[0] // 3]
        status = await mesh.status(node)
        assert status["layer_range"] == list(layers)
        assert status["context_size"] == 64
        assert status["loading"]["loaded_bytes"] == status["weight_bytes"]
        assert status["kv_limit_bytes"] % (2 * 64 * 3) == 0
