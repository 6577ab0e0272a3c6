"""Methods: each says which entries a cycle keeps. One protocol, one registry, one file each.

A method sees the candidates of one layer (everything but the protected prefix) and returns, per KV head,
the slots to keep. The loop around it is the same for all, so a comparison differs in nothing else. The names stand
in ``engine.settings.METHODS`` and nowhere else; the method ``self-extend`` is ``METHOD`` in ``self_extend.py``.
"""

from __future__ import annotations

from importlib import import_module

from engine.methods.method import Method
from engine.settings import METHODS

REGISTRY: dict[str, Method] = {name: import_module(f"{__name__}.{name.replace('-', '_')}").METHOD for name in METHODS}
