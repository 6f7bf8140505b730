"""Vocabularies: of tokenizers that files only name, and padded as trainers pad them."""

from __future__ import annotations

from nest.errors import InvalidProblem
from nest.families.keys import Keys

TOKENIZERS = {
    "gpt2bpetokenizer": 50257,
    "gpt2": 50257,
    "gpt-neox-20b": 50277,
    "20b_tokenizer.json": 50277,
    "deepseek-v3": 128815,
    "meta-llama-3-8b": 128256,
    "meta-llama-3-70b": 128256,
    "meta-llama-3.1-8b": 128256,
    "meta-llama-3.1-70b": 128256,
    "meta-llama-3.1-405b": 128256,
    "llama-2-7b-hf": 32000,
}
"""Tokens of well-known tokenizers, added ones included, by the last part of their name in lower case."""


def tokens_of(tokenizer: str) -> int | None:
    """Return the tokens of a tokenizer that a file names, or None if it is not known."""
    return TOKENIZERS.get(tokenizer.rstrip("/").rpartition("/")[2].lower())


def padded(vocabulary: int, multiple: int) -> int:
    """Return the vocabulary, rounded up to a multiple."""
    return -(-vocabulary // multiple) * multiple


def chosen(keys: Keys, name: str, given: int | None, tokenizers: tuple[str, ...]) -> int:
    """Return the vocabulary of a file that may leave it to a tokenizer.

    Parameters
    ----------
    name
        Key of the vocabulary.
    given
        What the user says, None if nothing.
    tokenizers
        What the file says about the tokenizer; empty texts where it says nothing.

    Raises
    ------
    InvalidProblem
        If nothing says it, or file and user disagree.
    """
    own = keys.whole(name)
    if own is not None and given not in (None, own):
        raise InvalidProblem("--vocab", f"{given}, but {keys.path(name)} is {own}", "leave one of them out")
    if own is not None or given is not None:
        return own or given or 0
    for tokenizer in tokenizers:
        found = tokens_of(tokenizer)
        if found is not None:
            keys.note(f"{keys.path(name)}: not in the file, {found} tokens of the tokenizer {tokenizer!r}")
            return found
    known = ", ".join(repr(tokenizer) for tokenizer in tokenizers if tokenizer)
    why = f"the tokenizer {known} is not known" if known else "the file names no tokenizer"
    raise InvalidProblem(keys.path(name), f"missing, and {why}", "give the vocabulary with --vocab N")
