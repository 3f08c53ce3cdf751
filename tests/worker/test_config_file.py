"""The settings of a node: every key from every source, and what is refused by name."""

from __future__ import annotations

from dataclasses import fields
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from tessella.core.addresses import parse_peer
from tessella.core.errors import BadAddress, BadConfig
from tessella.core.identity import Identity
from tessella.core.layers import LayerRange
from tessella.core.schedule import Span
from tessella.settings.kinds import plain
from tessella.worker.settings.pages import keys, markdown, node_file
from tessella.worker.settings.reading import (
    KEYS,
    NodeSettings,
    missing,
    read_node_settings,
    usual_file,
)
from tessella.worker.settings.tables import TABLES

PEER = Identity(b"p" * 32).peer_id
ADDR = f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}"
DOCUMENT = Path(__file__).parents[2] / "docs" / "config.md"

# For every key: as TOML has it, as a variable has it, and what comes of it.
EVERY: dict[str, tuple[str, str, object]] = {
    "orchestrator_url": (f'["{ADDR}"]', ADDR, (parse_peer(ADDR),)),
    "keypair_path": ('"~/k"', "~/k", Path.home() / "k"),
    "default_model": ('"org/name"', " org/name ", "org/name"),
    "vram_mb": ("2048", "2048", 2048),
    "weights": ('"./w.gguf"', "./w.gguf", "./w.gguf"),
    "models_dir": ('"./models"', "./models", Path("models")),
    "hub": ('"https://h.example/"', "https://h.example", "https://h.example"),
    "model_cache_prune": ('"dry-run"', "dry-run", "dry-run"),
    "chat_template": ('"/t.jinja"', "/t.jinja", Path("/t.jinja")),
    "api_enabled": ("false", "off", False),
    "api_host": ('"localhost"', "localhost", "localhost"),
    "api_port": ("0", "0", 0),
    "p2p_host": ('"::1"', "::1", "::1"),
    "p2p_port": ("1", "1", 1),
    "public_ip": ('"203.0.113.7"', "203.0.113.7", "203.0.113.7"),
    "public_api_port": ("443", "443", 443),
    "public_p2p_port": ("444", "444", 444),
    "public_api_url": ('"https://p.example"', "https://p.example/", "https://p.example"),
    "allow_private_addrs": ('["10.0.0.0/8"]', "10.0.0.0/8", (ip_network("10.0.0.0/8"),)),
    "callback_allowed_hosts": ('["A.example", "::1"]', "a.example,::1", ("a.example", "::1")),
    "kademlia_enabled": ("true", "yes", True),
    "bootstrap_peers": (f'["{ADDR}"]', ADDR, (parse_peer(ADDR),)),
    "lan_discovery": ("false", "false", False),
    "registration_grace_secs": ("0", "0", 0.0),
    "layer_range": ('"0:8"', "0:8", LayerRange(0, 8)),
    "device": ('"cuda"', "CUDA", "cuda"),
    "dtype": ('"bf16"', "bf16", "bf16"),
    "quantization": ('"none"', "None", "none"),
    "kv_cache_type": ('"bf16"', "bf16", "bf16"),
    "context_size": ("4096", "4096", 4096),
    "parallel_slots": ("2", "2", 2),
    "max_sessions": ("8", "8", 8),
    "max_input_tokens": ("512", "512", 512),
    "max_concurrent_hop_bodies": ("4", "4", 4),
    "prefill_chunk": ("64", "64", 64),
    "p2p_inference_timeout_secs": ("2.5", "2.5", 2.5),
    "drain_secs": ("1", "1", 1.0),
    "wal_checkpoint_interval_secs": ("60", "60", 60.0),
    "audits": ("false", "no", False),
    "audit_ring_mb": ("0", "0", 0),
    "canary_mode": ('"scale"', "scale", "scale"),
    "auto_pause": ("true", "1", True),
    "auto_pause_percent": ("30", "30", 30),
    "pause_schedule": (
        '["mon-fri 09:00-17:30", "sat"]',
        "mon-fri 09:00-17:30, sat",
        (Span.parse("mon-fri 09:00-17:30"), Span.parse("sat")),
    ),
    "log_format": ('"json"', "JSON", "json"),
    "oom_streak": ("5", "5", 5),
    "streak_window_secs": ("10", "10", 10.0),
}


def written(directory: Path, text: str) -> Path:
    path = directory / "some.toml"
    path.write_text(text)
    return path


def standing(name: str, value: str) -> str:
    """A file in which one key has this value, where it belongs."""
    section = KEYS.by_name[name].section
    return f"[{section}]\n{name} = {value}\n" if section else f"{name} = {value}\n"


def value_of(settings: NodeSettings, name: str) -> object:
    tables = {"": settings.mesh, "worker": settings.worker, "gpu": settings.gpu}
    return getattr(tables[KEYS.by_name[name].section], name)


def test_every_key_is_in_the_table_of_these_tests() -> None:
    assert list(EVERY) == list(KEYS.by_name)
    assert sum(len(fields(table)) for table in TABLES.values()) == len(KEYS.by_name)


@pytest.mark.parametrize("name", EVERY)
def test_every_key_is_reached_from_the_file_and_from_the_environment(
    name: str, tmp_path: Path
) -> None:
    in_toml, as_text, wanted = EVERY[name]
    from_file = read_node_settings(written(tmp_path, standing(name, in_toml)), {}, {})
    assert value_of(from_file, name) == wanted
    assert from_file.sources[name] == "file"
    for variable in KEYS.by_name[name].variables:
        from_environment = read_node_settings(None, {variable: as_text}, {})
        assert value_of(from_environment, name) == wanted
        assert from_environment.sources[name] == "environment"
    assert f"TESSELLA_{name.upper()}" in KEYS.by_name[name].variables


def test_a_file_with_all_keys_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    parts = [standing(name, "X").partition("\n")[0] for name in EVERY]
    lines: list[str] = []
    for name, head in zip(EVERY, parts, strict=True):
        lines += [head] if head.startswith("[") and head not in lines else []
        lines.append(f"{name} = {EVERY[name][0]}")
    read = read_node_settings(written(tmp_path, "\n".join(lines)), {}, {})
    assert set(read.sources.values()) == {"file"}
    values = {name: plain(value_of(read, name)) for name in EVERY}
    again = read_node_settings(written(tmp_path, node_file(values)), {}, {})
    assert (again.mesh, again.worker, again.gpu) == (read.mesh, read.worker, read.gpu)


def test_the_example_says_the_defaults_and_each_of_its_keys_may_be_set(tmp_path: Path) -> None:
    example = node_file({})
    read = read_node_settings(written(tmp_path, example), {}, {})
    bare = read_node_settings(None, {}, {})
    assert read.effective() == bare.effective()
    names = tuple(f"# {name} = " for name in KEYS.by_name)
    lines = [line[2:] if line.startswith(names) else line for line in example.splitlines()]
    every = read_node_settings(written(tmp_path, "\n".join(lines)), {}, {})
    assert set(every.sources.values()) == {"file"}


@pytest.mark.parametrize(
    ("in_file", "variable", "flag", "value", "source"),
    [
        (None, None, None, None, "default"),
        (1, None, None, 1, "file"),
        (1, "2", None, 2, "environment"),
        (1, "2", 3, 3, "flag"),
        (1, "", None, 1, "file"),
        (None, "2", 3, 3, "flag"),
    ],
)
def test_flag_before_environment_before_file_before_default(
    in_file: int | None,
    variable: str | None,
    flag: int | None,
    value: int | None,
    source: str,
    tmp_path: Path,
) -> None:
    file = None if in_file is None else written(tmp_path, f"[worker]\nvram_mb = {in_file}\n")
    environ = {} if variable is None else {"TESSELLA_VRAM_MB": variable}
    read = read_node_settings(file, environ, {"vram_mb": flag})
    assert (read.worker.vram_mb, read.sources["vram_mb"]) == (value, source)
    assert read.file == file


@pytest.mark.parametrize("name", EVERY)
def test_a_key_in_another_section_is_told_where_it_belongs(name: str, tmp_path: Path) -> None:
    own = KEYS.by_name[name].section
    for section in ("", "worker", "gpu"):
        if section != own:
            head = f"[{section}]\n" if section else ""
            file = written(tmp_path, f"{head}{name} = {EVERY[name][0]}\n")
            with pytest.raises(BadConfig) as caught:
                read_node_settings(file, {}, {})
            stands = f"in [{section}]" if section else "at the top"
            belongs = f"in [{own}]" if own else "at the top"
            line = f"{file}: {name} stands {stands}, and belongs {belongs}"
            assert str(caught.value).startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("orchestrator = 'x'", "'orchestrator' is not known; the nearest is orchestrator_url"),
        ("[worker]\nvram = 1", "'vram' is not known; the nearest is vram_mb in [worker]"),
        ("[workers]\nvram_mb = 1", "[workers] is no section; there are [worker], [gpu]"),
        ("hf_token = 'hf_s3cret'", "'hf_token' is read from the environment alone: HF_TOKEN"),
        ("tessella_home = '/h'", "is read from the environment alone: TESSELLA_HOME"),
    ],
)
def test_what_is_not_known_in_a_file_is_named(text: str, line: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(BadConfig) as caught:
        read_node_settings(file, {}, {})
    assert line in str(caught.value)
    assert str(file) in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("TESSELLA_VRAM", "TESSELLA_VRAM_MB"),
        ("TESSELLA_ORCHESTRATOR", "TESSELLA_ORCHESTRATOR_URL"),
        ("TESSELLA_HF_TOKEN", "HF_TOKEN"),
        ("TESSELLA_HOM", "TESSELLA_HOME"),
    ],
)
def test_a_variable_that_is_not_known_is_refused_with_the_nearest(
    variable: str, nearest: str
) -> None:
    with pytest.raises(BadConfig) as caught:
        read_node_settings(None, {variable: "s3cret"}, {})
    assert str(caught.value).endswith(f"{variable}, which is not known; the nearest is {nearest}")


def test_variables_of_others_mean_what_they_mean() -> None:
    environ = {"TESSELLA_HOME": "/h", "HF_TOKEN": "hf_x", "TESSELLA_VRAM_MB": " ", "PATH": "/"}
    assert set(read_node_settings(None, environ, {}).sources.values()) == {"default"}


def test_two_variables_that_name_two_meshes_are_refused() -> None:
    environ = {"ORCHESTRATOR_URL": "https://a.example", "TESSELLA_MUSIVUM": ADDR}
    with pytest.raises(BadConfig, match="ORCHESTRATOR_URL and TESSELLA_MUSIVUM"):
        read_node_settings(None, environ, {})


BAD: list[tuple[str, str, str]] = [
    ("orchestrator_url", '""', "an http or https URL, or a list of multiaddrs"),
    ("orchestrator_url", "1", "has to be an http or https URL"),
    ("orchestrator_url", '"tracker1"', "'tracker1'"),
    ("orchestrator_url", '"ftp://x.example"', "neither http nor https"),
    ("orchestrator_url", '"https://u:s3cret@x.example"', "'https://u:***@x.example'"),
    ("orchestrator_url", '"https://x.example/?a=1"', "without ? and #"),
    ("orchestrator_url", f'["https://x.example", "{ADDR}"]', "only one URL"),
    ("default_model", '" "', "has to be a string that is not empty"),
    ("vram_mb", "0", "a whole number, 1 to 67108864"),
    ("vram_mb", "2048.0", "a whole number"),
    ("vram_mb", "99999999999", "a whole number"),
    ("hub", '"huggingface.co"', "neither http nor https"),
    ("model_cache_prune", '"yes"', "one of off, dry-run, on"),
    ("api_host", '"0x7f.1"', "0x7f.1"),
    ("api_port", "65536", "a whole number, 0 to 65535"),
    ("p2p_host", '"node.example"', "'node.example'"),
    ("public_ip", '"example"', "no IP address: 'example'"),
    ("public_ip", '""', "no IP address: ''"),
    ("public_api_port", "0", "1 to 65535"),
    ("public_p2p_port", "70000", "1 to 65535"),
    ("public_api_url", '"//x"', "neither http nor https"),
    ("allow_private_addrs", '"lan"', "true, false or a list of networks"),
    ("allow_private_addrs", '["10.0.0.1/8"]', "10.0.0.1/8 has host bits set"),
    ("callback_allowed_hosts", '["a b"]', "'a b' is no host"),
    ("bootstrap_peers", '["/ip4/1.2.3.4/tcp/1"]', "/p2p/"),
    ("registration_grace_secs", "-1", "a number, at least 0"),
    ("layer_range", '"8:8"', "has to be START:STOP"),
    ("layer_range", "[0, 8]", "has to be START:STOP"),
    ("device", '"tpu"', "one of cuda, metal, cpu, or auto"),
    ("dtype", '"f8"', "'f8'; one of f32, f16, bf16"),
    ("quantization", '"Q8_0"', "the engine keeps no weights in Q8_0"),
    ("quantization", '"int4"', "the engine keeps no weights in INT4"),
    ("quantization", '"Q5_K"', "unknown weight format 'Q5_K'"),
    ("quantization", '"bf16"', "bf16 is no quantization but a dtype"),
    ("kv_cache_type", '"q8_0"', "the engine keeps no keys and values in q8_0"),
    ("kv_cache_type", '"q4_0"', "the engine keeps no keys and values in q4_0"),
    ("kv_cache_type", '"f8"', "unknown KV format 'f8'"),
    ("context_size", "0", "at least 1"),
    ("parallel_slots", "0", "at least 1"),
    ("max_sessions", "0", "at least 1"),
    ("max_input_tokens", "0", "at least 1"),
    ("max_concurrent_hop_bodies", "0", "at least 1"),
    ("prefill_chunk", "0", "at least 1"),
    ("p2p_inference_timeout_secs", "0", "a number, above 0"),
    ("p2p_inference_timeout_secs", "nan", "a number, above 0"),
    ("drain_secs", "inf", "a number, at least 0"),
    ("wal_checkpoint_interval_secs", "0", "a number, above 0"),
    ("canary_mode", '"loud"', "one of off, echo, scale, watermark"),
    ("audit_ring_mb", "-1", "at least 0"),
    ("auto_pause", '"yes"', "true or false"),
    ("auto_pause_percent", "101", "1 to 100"),
    ("pause_schedule", '["whenever"]', "'whenever'"),
    ("pause_schedule", '"mon"', "a list of"),
    ("log_format", '"xml"', "one of text, json, rich"),
    ("oom_streak", "0", "at least 1"),
    ("streak_window_secs", "0", "above 0"),
    ("keypair_path", '""', "a path"),
    ("chat_template", "1", "a path"),
]


@pytest.mark.parametrize(("name", "value", "told"), BAD)
def test_a_refused_value_is_named_with_its_key_and_its_source(
    name: str, value: str, told: str, tmp_path: Path
) -> None:
    file = written(tmp_path, standing(name, value))
    with pytest.raises(BadConfig) as caught:
        read_node_settings(file, {}, {})
    line = str(caught.value)
    assert line.startswith(name)
    assert f" in {file}: " in line
    assert told in line
    assert "s3cret" not in line


@pytest.mark.parametrize(
    ("flags", "error", "line"),
    [
        ({"quantization": "Q8_0"}, BadConfig, "quantization in --quantization: the engine"),
        ({"public_ip": "x"}, BadAddress, "public_ip in --public-ip: no IP address"),
        ({"vram_mb": 0}, BadConfig, "vram_mb = 0 in --claim-mb or --vram-gb: has to be"),
    ],
)
def test_a_refused_flag_is_named(flags: dict[str, Any], error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line):
        read_node_settings(None, {}, flags)


@pytest.mark.parametrize(("word", "read"), [("auto", None), ("cpu", "cpu")])
def test_the_choice_may_be_left_to_the_node(word: str, read: str | None) -> None:
    assert read_node_settings(None, {"TESSELLA_DEVICE": word}, {}).worker.device == read


@pytest.mark.parametrize(
    "text", [f"{ADDR},{ADDR}", f" {ADDR}  {ADDR} ", "https://t.example/", "http://[::1]:4080"]
)
def test_a_mesh_is_a_url_or_multiaddrs(text: str) -> None:
    found = read_node_settings(None, {"ORCHESTRATOR_URL": text}, {}).mesh.orchestrator_url
    is_url = "://" in text
    assert found == (text.rstrip("/") if is_url else (parse_peer(ADDR),) * 2)


def test_all_that_is_missing_is_named_with_its_variables() -> None:
    lacking = "; ".join(missing(read_node_settings(None, {}, {})))
    for name in ("orchestrator_url", "kademlia_enabled", "default_model", "vram_mb"):
        assert f"{name} (" in lacking
        assert all(variable in lacking for variable in KEYS.by_name[name].variables)


@pytest.mark.parametrize(
    ("environ", "lacking"),
    [
        ({"ORCHESTRATOR_URL": ADDR}, []),
        ({"TESSELLA_KADEMLIA_ENABLED": "on"}, ["layer_range"]),
        ({"TESSELLA_KADEMLIA_ENABLED": "on", "TESSELLA_LAYER_RANGE": "0:2"}, []),
        ({"TESSELLA_KADEMLIA_ENABLED": "on", "ORCHESTRATOR_URL": "https://x.example"}, []),
    ],
)
def test_a_node_needs_a_mesh(environ: dict[str, str], lacking: list[str]) -> None:
    others = {"TESSELLA_WEIGHTS": "w", "TESSELLA_VRAM_MB": "1"}
    found = missing(read_node_settings(None, environ | others, {}))
    assert [each.partition(" ")[0] for each in found] == lacking


def test_no_password_is_among_what_holds() -> None:
    settings = read_node_settings(None, {"TESSELLA_WEIGHTS": "https://u:s3cret@h/w"}, {})
    assert settings.effective()["weights"] == "https://u:***@h/w"


def test_the_usual_file_is_here_or_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert usual_file() is None
    in_home = tmp_path / "home" / ".config" / "tessella" / "worker_config.toml"
    in_home.parent.mkdir(parents=True)
    in_home.touch()
    assert usual_file() == in_home
    (tmp_path / "worker_config.toml").touch()
    assert usual_file() == Path("worker_config.toml")


def test_the_document_has_every_key_with_its_kind_and_spellings() -> None:
    lines = DOCUMENT.read_text().splitlines()
    for entry in keys():
        one = entry.key
        found = [line for line in lines if line.startswith(f"| `{one.name}` | {one.kind.told}")]
        rows = [line for line in found if f"`TESSELLA_{one.name.upper()}`" in line]
        assert len(rows) == 1, one.name
        assert entry.meaning in rows[0].replace("\\|", "|")
        assert all(f"`{flag}`" in rows[0] for flag in one.flags)
    assert all(f"## `[{section}]`" in markdown() for section in KEYS.sections)
