"""What a shape must compute and move at least, by arithmetic alone. Imports no torch.

Operations are multiplications and additions; a token costs two per weight of every matrix that it passes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.gpu.shapes import Shape

#: Bytes of a number in bfloat16.
SIZE = 2
#: Bytes beside key and value that the pot keeps for each entry: three int64 and a float32.
PROVENANCE = 3 * 8 + 4


def layer_matrices(shape: Shape) -> dict[str, tuple[int, int]]:
    """Rows and columns (out, in) of the matrices of one layer, by their names in transformers."""
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "q_proj": (query, shape.hidden),
        "k_proj": (key, shape.hidden),
        "v_proj": (key, shape.hidden),
        "o_proj": (shape.hidden, query),
        "gate_proj": (shape.inner, shape.hidden),
        "up_proj": (shape.inner, shape.hidden),
        "down_proj": (shape.hidden, shape.inner),
    }


def matrix_weights(shape: Shape) -> int:
    """Weights between embeddings and output layer that every token is multiplied with."""
    return shape.layers * sum(rows * columns for rows, columns in layer_matrices(shape).values())


def table_weights(shape: Shape) -> int:
    """Weights of the embedding table, and of the output layer."""
    return shape.vocabulary * shape.hidden


def parameters(shape: Shape) -> int:
    """All weights: matrices, tables (one where they are tied), and the norms of layers, heads and the end."""
    norms = shape.layers * (2 * shape.hidden + (2 * shape.head_dim if shape.head_norms else 0)) + shape.hidden
    return matrix_weights(shape) + table_weights(shape) * (1 if shape.tied else 2) + norms


def entry_bytes(shape: Shape) -> int:
    """Bytes of keys and values of one token over all layers and KV heads."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * SIZE


def pot_bytes(shape: Shape, capacity: int) -> int:
    """Bytes of the buffers of a pot, provenance included."""
    return capacity * (entry_bytes(shape) + shape.layers * shape.kv_heads * PROVENANCE)


def seen(held: int, count: int) -> int:
    """Entries that ``count`` tokens see which come in on top of ``held``: each all before it, and itself."""
    return count * held + count * (count + 1) // 2


def fills(tokens: int, first: int, later: int) -> Iterable[tuple[int, int]]:
    """(held, count) of every fill of a pot: ``first`` tokens into an empty one, then up to ``first`` again from
    ``later`` entries that a cycle kept."""
    held = 0
    while tokens > 0:
        count = min(tokens, first - held)
        yield held, count
        tokens, held = tokens - count, later


@dataclass(frozen=True)
class Reading:
    """What a reading of ``tokens`` tokens, the prefix included, is made of. ``capacity`` None holds everything."""

    tokens: int
    capacity: int | None
    kept: int = 0
    protected: int = 0
    catalyst: int = 0
    novelty: bool = False

    def fills(self) -> Iterable[tuple[int, int]]:
        """(held, count) of every fill."""
        if self.capacity is None:
            return [(0, self.tokens)]
        return fills(self.tokens, self.capacity - self.catalyst, self.protected + self.kept)


def read_operations(shape: Shape, reading: Reading) -> int:
    """Operations of a reading: weights, attention to what each token sees, the output layer for novelty."""
    attention = 4 * shape.layers * shape.heads * shape.head_dim
    output = 2 * table_weights(shape) if reading.novelty else 0
    entries = sum(seen(held, count) for held, count in reading.fills())
    return reading.tokens * (2 * matrix_weights(shape) + output) + attention * entries


def written_bytes(shape: Shape, entries: int = 0) -> int:
    """Bytes that writing one token moves: every weight but the rows of the embedding table that are not looked up,
    and ``entries`` of the cache."""
    lookup = 0 if shape.tied else table_weights(shape)
    return (parameters(shape) - lookup) * SIZE + entries * entry_bytes(shape)
