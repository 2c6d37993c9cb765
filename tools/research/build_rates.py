"""Measure the processor time of building training sets, for the table of `codecnn.dataset.rates`.

python tools/research/build_rates.py PICTURES.yaml OUT.jsonl CODEC:PRESET:CONFIGURATION[:PLANE,PLANE]...

CONFIGURATION is ai, ra, ldb, or "ra ctc" and "ldb ctc" for the common test conditions. PICTURES.yaml has the keys `ai`
and `video`, each a list of sequences as in a recipe. Each combination is built at QP 22, 32 and 42 into a temporary
store. A line of OUT.jsonl is a unit: luma samples of all pictures, bytes of the bitstream, and seconds of the encoder,
of rebuilding planes, of temporal planes, and of all other work, processor time of codecnn and its programs.
"""

import json
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from codecnn.dataset import Recipe, build, build_store, unit_coding

QPS = [22, 32, 42]


def main(pictures: str, output: str, *combinations: str) -> None:
    """Build each combination and write its units."""
    sequences = yaml.safe_load(Path(pictures).read_text(encoding="utf-8"))
    for combination in combinations:
        codec, preset, conditions, *planes = combination.split(":")
        configuration, *ctc = conditions.split()
        recipe = Recipe.model_validate(
            {
                "name": "rates",
                "codec": codec,
                "preset": preset,
                "configuration": configuration,
                "ctc": bool(ctc),
                "qp": QPS,
                "ctu_size": 128 if codec == "vvc" and preset not in ("faster", "fast") else 64,
                "times": True,
                "planes": planes[0].split(",") if planes else [],
                "sequences": sequences["ai" if configuration == "ai" else "video"],
            }
        )
        seconds = watch()
        with tempfile.TemporaryDirectory() as folder:
            store = build_store(recipe, Path(pictures).parent, Path(folder) / "store")
            for unit, parts in zip(store.units, seconds, strict=True):
                encoder = unit.encoder_seconds
                assert encoder is not None
                assert unit.bitstream_file is not None
                line = {
                    "combination": combination,
                    "sequence": unit.name,
                    "qp": unit.qp,
                    "samples": unit.format.width * unit.format.height * len(unit.pictures),
                    "bytes": (store.folder / unit.bitstream_file).stat().st_size,
                    "encoder": encoder,
                    "rebuild": parts.get("add_rebuilt_planes", 0.0),
                    "temporal": parts.get("write_temporal_planes", 0.0),
                }
                line["other"] = parts["code_unit"] - sum(line[name] for name in ("encoder", "rebuild", "temporal"))
                with Path(output).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


def watch() -> list[dict[str, float]]:
    """Let a build record the processor time of its steps, a dictionary for each unit in the order of coding."""
    units: list[dict[str, float]] = []
    for module, name in (
        (build, "code_unit"),
        (unit_coding, "add_rebuilt_planes"),
        (unit_coding, "write_temporal_planes"),
    ):
        original = getattr(getattr(module, name), "__wrapped__", getattr(module, name))
        setattr(module, name, _timed(name, original, units))
    return units


def _timed(name: str, work: Callable[..., Any], units: list[dict[str, float]]) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        if name == "code_unit":
            units.append({})
        start = processor_time()
        result = work(*arguments, **options)
        units[-1][name] = processor_time() - start
        return result

    run.__dict__["__wrapped__"] = work
    return run


def processor_time() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main(*sys.argv[1:])
