from __future__ import annotations

import subprocess
import sys

import pytest

from tessella.cli.extras import worker_extra
from tessella.core.errors import BadConfig


@pytest.mark.parametrize("module", ["torch", "tokenizers.models", "gguf"])
def test_what_the_extra_brings_is_named_with_the_lock_file(module: str) -> None:
    with (
        pytest.raises(BadConfig, match=r"-r requirements\.lock") as caught,
        worker_extra(),
    ):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert module.partition(".")[0] in str(caught.value)


def test_any_other_missing_module_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError), worker_extra():
        raise ModuleNotFoundError("No module named 'tessela'", name="tessela")


WITHOUT_TORCH = """
import sys
for name in ("torch", "numpy", "safetensors", "tokenizers", "gguf", "huggingface_hub", "musivum"):
    sys.modules[name] = None
from tessella.cli.{module} import run
import trio
loaded = [name for name in ("torch", "libp2p", "httpx") if sys.modules.get(name)]
assert not loaded, loaded
run({args!r})
"""


@pytest.mark.mesh
@pytest.mark.parametrize(
    ("module", "args", "status", "said"),
    [
        ("main", ["--help"], 0, ""),
        ("worker", ["--help"], 0, ""),
        ("main", ["models", "list"], 0, ""),
        ("main", ["up", "--prompt", "hi", "--model", "/tmp"], 78, "-r requirements.lock"),
        ("worker", ["plan", "--weights", "/tmp"], 78, "-r requirements.lock"),
        ("main", ["peers", "--musivum", "/ip4/127.0.0.1/tcp/1/p2p/{peer}"], 75, "unreachable"),
    ],
)
def test_commands_work_without_torch_as_far_as_they_can(
    module: str, args: list[str], status: int, said: str
) -> None:
    peer = "12D3KooWDzNsCV5QoV5c9fEsMpwUb3iJkb68MjQJ38twfK2ziNk4"
    code = WITHOUT_TORCH.format(module=module, args=[arg.format(peer=peer) for arg in args])
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in ran.stderr
    assert ran.returncode == status
    assert said in ran.stderr
