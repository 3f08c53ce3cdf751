"""The command `tessella-worker`: one node, and what its operator wants to know beforehand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated, NoReturn

import trio
import typer

from tessella.catalogue import models_directory
from tessella.cli import node_options as flags
from tessella.cli.control import add_controls
from tessella.cli.credits import show_credits
from tessella.cli.keys import keys_app
from tessella.cli.logs import configure_logging
from tessella.cli.manifest import manifest
from tessella.cli.model_cache import renew
from tessella.cli.node import Manners, serve
from tessella.cli.node_model import fetch_model
from tessella.cli.node_options import given_by
from tessella.cli.node_settings import complete_settings, config
from tessella.cli.plan import plan
from tessella.cli.signals import run_command
from tessella.ending import run_program
from tessella.keys import load_or_create_key
from tessella.worker.settings import worker_config

PROGRAM = "tessella-worker"

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A node of the mesh: it holds a range of a model's layers, and serves it.",
)
app.add_typer(keys_app, name="keys")
app.command()(config)
app.command()(plan)
app.command()(manifest)
app.command("credits")(show_credits)
add_controls(app)


@app.callback(invoke_without_command=True)
def node(  # noqa: PLR0913 - typer makes a flag of each parameter
    context: typer.Context,
    config: flags.ConfigOption = None,
    orchestrator_url: flags.OrchestratorOption = None,
    kademlia_enabled: flags.KademliaOption = None,
    bootstrap_peers: flags.BootstrapPeersOption = None,
    lan_discovery: flags.LanOption = None,
    default_model: flags.ModelOption = None,
    weights: flags.WeightsOption = None,
    claim_mb: flags.ClaimOption = None,
    vram_gb: flags.VramOption = None,
    listen: flags.ListenOption = None,
    api: flags.ApiListenOption = None,
    no_api: flags.NoApiOption = False,
    public_ip: flags.PublicIpOption = None,
    public_p2p_port: flags.PublicP2pPortOption = None,
    public_api_port: flags.PublicApiPortOption = None,
    public_api_url: flags.PublicApiUrlOption = None,
    allow_private_addrs: flags.PrivateOption = None,
    layer_range: flags.LayersOption = None,
    device: flags.DeviceOption = None,
    dtype: flags.DtypeOption = None,
    quantization: flags.QuantizationOption = None,
    context_size: flags.ContextOption = None,
    parallel_slots: flags.SlotsOption = None,
    p2p_inference_timeout_secs: flags.HopTimeoutOption = None,
    keypair_path: flags.KeypairOption = None,
    chat_template: flags.ChatTemplateOption = None,
    clean_cache: flags.CleanCacheOption = False,
    model_cache_prune: flags.PruneOption = None,
    auto_pause: flags.AutoPauseOption = None,
    log_format: flags.LogFormatOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Events as JSON lines on stdout.")
    ] = False,
    until_stdin_closes: Annotated[
        bool,
        typer.Option("--until-stdin-closes", help="End with whoever holds the other end of stdin."),
    ] = False,
    join_after_stdin: Annotated[bool, typer.Option("--join-after-stdin", hidden=True)] = False,
) -> None:
    """Join a mesh and serve, until Ctrl-C or SIGTERM; then say goodbye, and exit 0.

    Every flag that is left out is as TESSELLA_<KEY> or worker_config.toml say: see
    `tessella-worker config`.
    """
    # Most parameters bear the name of the key that they say.
    given = context.obj = given_by(context.params)
    if context.invoked_subcommand is not None:
        return
    settings = complete_settings(given, os.environ)
    if clean_cache:
        directory = settings.worker.models_dir or models_directory()
        trio.run(renew, directory, settings.mesh.default_model, settings.worker.weights, _say)
    trio.run(fetch_model, settings, _say)
    made = worker_config(settings, listen=listen or (), clean_cache=clean_cache)
    configure_logging(made.log_format)
    identity = load_or_create_key(settings.mesh.keypair_path.expanduser())
    manners = Manners(
        as_json=as_json,
        until_stdin_closes=until_stdin_closes,
        join_after_stdin=join_after_stdin,
    )
    run_command(partial(serve, made, identity, manners))


def _say(text: str) -> None:
    """On stderr: stdout is for events."""
    typer.echo(text, err=True)


def run(args: Sequence[str] | None = None) -> NoReturn:
    """The program: `args`, or the command line."""
    run_program(app, PROGRAM, args)


if __name__ == "__main__":
    run()
