"""Keys of a model description: typed look-ups under several names, and one clear line where one is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nest.errors import InvalidProblem

LARGEST = 2**40
"""No length of a model reaches it; what does is a mistake, and would only make sums overflow elsewhere."""

MOST_LAYERS = 20_000
"""Layers that a model may have."""

_WHOLE = re.compile(r"[0-9][0-9_]*")


class Keys:
    """A table of a description.

    Parameters
    ----------
    table
        Keys and values, as parsed.
    where
        Path of the table in the file; empty at the top.
    reader
        What reads it, as errors and notes name it: a class of Hugging Face, or a format.
    partial
        Whether the file leaves out what equals the reader's default, as nested tables of Hugging Face do.
    notes
        Where assumptions are written down; shared with the nested tables.
    """

    def __init__(
        self,
        table: Mapping[str, object],
        where: str = "",
        reader: str = "",
        *,
        partial: bool = False,
        notes: list[str] | None = None,
    ) -> None:
        self.table, self.where, self.reader, self.partial = table, where, reader, partial
        self.notes: list[str] = [] if notes is None else notes

    def read_by(self, reader: str) -> Keys:
        """Return the same keys, read by another class."""
        return Keys(self.table, self.where, reader, partial=self.partial, notes=self.notes)

    def path(self, name: str) -> str:
        """Return the path of a key in the file."""
        return f"{self.where}.{name}" if self.where else name

    def note(self, text: str) -> None:
        """Write down an assumption, once."""
        if text not in self.notes:
            self.notes.append(text)

    def named(self, *names: str) -> str | None:
        """Return the first of the names that has a value; null is none."""
        return next((name for name in names if self.table.get(name) is not None), None)

    def __contains__(self, name: str) -> bool:
        return self.table.get(name) is not None

    def whole(self, *names: str, least: int = 1, most: int = LARGEST) -> int | None:
        """Return a whole number under the first name that has a value, or None.

        Raises
        ------
        InvalidProblem
            If the value is no whole number from ``least`` to ``most``.
        """
        name = self.named(*names)
        return None if name is None else self._checked(name, self.table[name], least, most)

    def size(self, *names: str, default: int | None = None, most: int = LARGEST) -> int:
        """Return a size without which nothing can be said.

        A class default is taken, and noted, only where the file leaves defaults out.

        Raises
        ------
        InvalidProblem
            If it is missing, naming the key and the class.
        """
        found = self.whole(*names, most=most)
        if found is not None:
            return found
        if default is not None and self.partial:
            self.note(f"{self.path(names[0])}: not in the file, {default} by default of {self.reader}")
            return default
        raise self.missing(*names, default=default)

    def option(self, name: str, default: int, *others: str, least: int = 0) -> int:
        """Return a whole number that has a default; the default is noted."""
        found = self.whole(name, *others, least=least)
        if found is None:
            self.note(f"{self.path(name)}: not in the file, {default} by default of {self.reader}")
            return default
        return found

    def flag(self, name: str, default: bool, *, noted: bool = False) -> bool:
        """Return a flag; with ``noted``, a default that is taken is written down."""
        value = self.table.get(name)
        if value is None:
            if noted:
                spelt = str(default).lower()
                self.note(f"{self.path(name)}: not in the file, {spelt} by default of {self.reader}")
            return default
        if not isinstance(value, bool):
            raise InvalidProblem(self.path(name), f"{value!r} is no truth value", "give true or false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        value = self.table.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise InvalidProblem(self.path(name), f"{value!r} is no text", "give a name")
        return value

    def number(self, name: str, default: float) -> float:
        """Return a number that need not be whole."""
        value = self.table.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidProblem(self.path(name), f"{value!r} is no number", "give a number")
        return float(value)

    def items(self, name: str) -> Sequence[object]:
        """Return a list; empty where there is none."""
        value = self.table.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise InvalidProblem(self.path(name), f"{value!r} is no list", "give a list")
        return value

    def nested(self, *names: str, reader: str = "", partial: bool | None = None) -> Keys | None:
        """Return a nested table under the first name that has one, or None."""
        name = self.named(*names)
        if name is None:
            return None
        value = self.table[name]
        if not isinstance(value, Mapping):
            raise InvalidProblem(self.path(name), f"{value!r} is no table", "give keys and values")
        inherited = self.partial if partial is None else partial
        return Keys(value, self.path(name), reader or self.reader, partial=inherited, notes=self.notes)

    def missing(self, *names: str, default: int | None = None) -> InvalidProblem:
        """Return the error for a missing key."""
        others = f" (or {', '.join(names[1:4])})" if names[1:] else ""
        would = "" if default is None else f"; {self.reader} would take {default}: write it if that is meant"
        return InvalidProblem(
            self.path(names[0]), f"missing, and {self.reader} needs it", f"give {names[0]}{others}{would}"
        )

    def _checked(self, name: str, value: object, least: int, most: int) -> int:
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, str) and "$" in value:
            raise InvalidProblem(self.path(name), f"{value} has no value in the file", "write the number in its place")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidProblem(self.path(name), f"{value!r} is no whole number from {least} to {most}", "correct it")
        return value


LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "layer_num", "num_blocks", "depth", "layers")
WIDTH = ("hidden_size", "n_embd", "n_embed", "d_model", "dim", "hidden_dim", "width", "embed_dim", "hidden")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "head_num", "heads", "attn_heads", "attention_heads")
KV_HEADS = (
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "n_kv_heads",
    "kv_n_heads",
    "multi_query_group_num",
    "num_query_groups",
)
FEED = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff", "feedforward", "ff_intermediate_size")
VOCABULARY = ("vocab_size", "padded_vocab_size")
HEAD_WIDTH = ("head_dim", "kv_channels", "attention_head_dim", "d_kv", "attn_size")
SEQUENCE = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length")
EXPERTS = (
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "num_routed_experts",
    "moe_num_experts",
    "num_moe_experts",
    "expert_num",
)
EXPERT_WIDTH = ("moe_intermediate_size", "moe_ffn_hidden_size")
SHARED = ("n_shared_experts", "num_shared_experts")
CHOSEN = (
    "num_experts_per_tok",
    "experts_per_token",
    "moe_top_k",
    "top_k_experts",
    "moe_router_topk",
    "topk",
    "n_activated_experts",
)
