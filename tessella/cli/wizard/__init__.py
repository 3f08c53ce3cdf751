"""The first start of a node without a configuration: questions, and the file that they make.

talk       how it asks and speaks; tests answer from a list
machine    devices, free memory, free ports
questions  what musivum is asked, over HTTP and over libp2p
bodies     its answers, checked
doors      whoever knows a mesh: a musivum, or the swarm
offers     models and what they lack: pure
claims     what to offer: pure
meshes     the question for the mesh
work       the questions for model, device and claim
places     the questions for weights, key and ports
answers    the file: pure
program    all of it, in order
"""

from __future__ import annotations

from tessella.cli.wizard.program import run_wizard

__all__ = ["run_wizard"]
