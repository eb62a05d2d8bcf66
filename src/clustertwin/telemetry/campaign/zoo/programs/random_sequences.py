"""Make random biological sequences from a seed: genome, reads, proteins or an alignment -> FASTA or FASTQ on stdout."""

from __future__ import annotations

import argparse
import sys

import numpy as np
from numpy.typing import NDArray

Letters = NDArray[np.uint8]  # ASCII

BASES, AMINO_ACIDS = (np.frombuffer(text, np.uint8) for text in (b"ACGT", b"ACDEFGHIKLMNPQRSTVWY"))
_QUALITY = "I"


def text_of(letters: Letters) -> str:
    return letters.tobytes().decode()


def fasta(name: str, letters: Letters) -> str:
    text = text_of(letters)
    return f">{name}\n" + "\n".join(text[i : i + 80] for i in range(0, len(text), 80)) + "\n"


def mutated(letters: Letters, alphabet: Letters, rate: float, rng: np.random.Generator) -> Letters:
    changed = rng.random(len(letters)) < rate
    return np.where(changed, alphabet[rng.integers(len(alphabet), size=len(letters))], letters)


def genome(length: int, seed: int) -> Letters:
    return np.random.default_rng(seed).choice(BASES, length)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("kind", choices=("genome", "reads", "long-reads", "proteins", "alignment", "phylip", "nexus"))
    options.add_argument("--count", type=int, default=1)
    options.add_argument("--length", type=int, default=1_000_000)
    options.add_argument("--read-length", type=int, default=150)
    options.add_argument("--error", type=float, default=0.02)
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    rng, write = np.random.default_rng(chosen.seed + 1), sys.stdout.write
    if chosen.kind == "genome":
        write(fasta("genome", genome(chosen.length, chosen.seed)))
    elif chosen.kind in ("reads", "long-reads"):
        source = genome(chosen.length, chosen.seed)
        for number in range(chosen.count):
            start = rng.integers(chosen.length - chosen.read_length)
            read = text_of(mutated(source[start : start + chosen.read_length], BASES, chosen.error, rng))
            write(f"@read{number}\n{read}\n+\n{_QUALITY * len(read)}\n")
    elif chosen.kind == "proteins":
        ancestors = [rng.choice(AMINO_ACIDS, chosen.length) for _ in range(10)]
        for number in range(chosen.count):
            write(fasta(f"protein{number}", mutated(ancestors[number % 10], AMINO_ACIDS, chosen.error, rng)))
    else:
        _write_tree_data(chosen.kind, chosen.count, chosen.length, chosen.error, rng)


def _write_tree_data(kind: str, count: int, length: int, error: float, rng: np.random.Generator) -> None:
    """Sequences that descend from each other, so that there is a tree to find."""
    alphabet = AMINO_ACIDS if kind == "alignment" else BASES
    rows = [rng.choice(alphabet, length)]
    while len(rows) < count:
        rows.append(mutated(rows[int(rng.integers(len(rows)))], alphabet, error, rng))
    write = sys.stdout.write
    if kind == "alignment":
        for number, row in enumerate(rows):
            write(fasta(f"seq{number}", row))
    elif kind == "phylip":
        write(f"{count} {length}\n" + "".join(f"taxon{n:<6d} {text_of(row)}\n" for n, row in enumerate(rows)))
    else:
        matrix = "".join(f"taxon{n} {text_of(row)}\n" for n, row in enumerate(rows))
        size = f"dimensions ntax={count} nchar={length};"
        write(f"#NEXUS\nbegin data;\n{size}\nformat datatype=dna;\nmatrix\n{matrix};\nend;\n")


if __name__ == "__main__":
    main()
