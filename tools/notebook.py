"""The notebook's questions, each answered by trainings that differ in one thing, from three seeds.

    python tools/notebook.py questions --store stores/learning --split val --seeds 3 -o runs/questions
    python tools/notebook.py full --store stores/zoo --test stores/zoo_test -o runs/notebook steps=20000

A is RDN(32, 3, 6, 16) (features, blocks, layers, growth), B is RDN(32, 4, 6, 24), C is RDN(64, 4, 6, 24) on
PixelUnshuffle. "questions" asks them of A and C at a quarter of the features and of the growth, which a CPU trains in
less than a minute each, "full" of the notebook's own sizes. The notebook claims 0.15, 0.20 and 0.08 dB for the three
over finished VVC pictures and nothing without the global residual; of its other changes no figures are known. What is
done is not run again, what was interrupted goes on from its checkpoint; table.md is written anew after each row.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools import variants
from tools.variants import TICKET, Variant


def full() -> dict[str, Variant]:
    """The notebook's networks in their own sizes, and what it changed about B."""
    small = {"features": 32, "blocks": 3, "layers": 6, "growth": 16}
    large = small | {"blocks": 4, "growth": 24}
    half = large | {"features": 64, "shuffle": 2}
    return {
        "A": ("rdn", small),
        "B": ("rdn", large),
        "C: down and up": ("rdn", half),
        "C, transposed convolution up": ("rdn", half | {"upsampling": "transposed"}),
        "B without global residual": ("rdn", large | {"global_residual": False}),
        "B without local residual": ("rdn", large | {"local_residual": False}),
        "B, picture instead of residual": ("rdn", large | {"output": "picture"}),
        "B, one 5x5 head": ("rdn", large | {"head": "5x5"}),
    }


A = {"features": 8, "blocks": 3, "layers": 6, "growth": 4}
C = {"features": 16, "blocks": 4, "layers": 6, "growth": 8, "shuffle": 2}
"""A quarter of the notebook's C, but for its growth of 6: a network that is lifted has multiples of four."""
NOTEBOOK_START = {"initialisation": "torch"}
"""As the notebook's networks began: torch's own random weights everywhere, the last convolution included."""
BESIDE = {"planes": ["rec_y", "qp", "depth", "partition"]}

QUESTIONS: dict[str, Variant] = {
    "A": ("rdn", A),
    # How it starts.
    "no warm-up": ("rdn", A, {"warmup": 0}),
    "started as the notebook's": ("rdn", A | NOTEBOOK_START),
    "started so, without global residual": ("rdn", A | NOTEBOOK_START | {"global_residual": False}),
    # Its parts.
    "without global residual": ("rdn", A | {"global_residual": False}),
    "without local residual": ("rdn", A | {"local_residual": False}),
    "picture instead of residual": ("rdn", A | {"output": "picture"}),
    "one 5x5 head": ("rdn", A | {"head": "5x5"}),
    "C, PixelShuffle": ("rdn", C, {"start": {"lift": True}}),
    "C from its own start": ("rdn", C),
    "C from its own start, transposed": ("rdn", C | {"upsampling": "transposed"}),
    # Its sizes.
    "4 features": ("rdn", A | {"features": 4}),
    "16 features": ("rdn", A | {"features": 16}),
    "1 block": ("rdn", A | {"blocks": 1}),
    "5 blocks": ("rdn", A | {"blocks": 5}),
    "3 layers": ("rdn", A | {"layers": 3}),
    "9 layers": ("rdn", A | {"layers": 9}),
    "growth 2": ("rdn", A | {"growth": 2}),
    "growth 8": ("rdn", A | {"growth": 8}),
    # What it learns from, and how.
    "loss: L1": ("rdn", A, {"loss": "l1"}),
    "loss: SATD": ("rdn", A, {"loss": "satd"}),
    "loss: DCT": ("rdn", A, {"loss": "dct"}),
    "SGD": ("rdn", A, {"optimiser": "sgd", "learning_rate": 0.1}),
    "RMSprop": ("rdn", A, {"optimiser": "rmsprop", "learning_rate": 5e-4}),
    "Muon": ("rdn", A, {"optimiser": "muon"}),
    # Planes beside the picture.
    "A, twice": ("rdn", A, {"start": {"weights": "@A"}}),
    "depth and edges from the beginning": ("rdn", A | BESIDE),
    "depth and edges added, all fine-tuned": ("rdn", A | BESIDE, {"start": {"weights": "@A"}}),
    "depth and edges added, the blocks frozen": (
        "rdn",
        A | BESIDE,
        {"start": {"weights": "@A", "freeze": ["blocks.*", "fusion*"]}},
    ),
    # Pruned to a quarter.
    "16 features, growth 8": ("rdn", A | {"features": 16, "growth": 8}),
    "its lottery ticket of A's size": ("rdn", A, {"start": {"weights": f"@{TICKET}16 features, growth 8"}}),
}

RECIPE = {
    "teacher": {"weights": "low_cost_75", "original": [0, 1]},
    "steps": 400,
    "batch": 8,
    "patch": 48,
    "learning_rate": 2e-3,
    "warmup": 50,
    "ema": 0.99,
    "validate_every": 400,
    "validation_pictures": 1,
    "threads": 1,
}
"""Of the questions; what the command line says comes before it. Without the teacher 400 steps gain 0.000 to 0.008 dB,
whatever is asked: within what seeds differ by."""

TABLES = {"questions": QUESTIONS, "full": full()}
CLAIMS = {"A": "+0.15", "B": "+0.20", "C: down and up": "+0.08", "B without global residual": "0"}

if __name__ == "__main__":
    claims = {} if "questions" in sys.argv[1:2] else CLAIMS
    variants.main(sys.argv[1:], TABLES, claims, __doc__, {"questions": RECIPE})
