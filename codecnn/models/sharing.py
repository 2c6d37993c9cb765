"""A folder by which weights are shared: the files of the weights and a README.md that hubs show as a model card.

The head of README.md has the keys that the Hugging Face hub reads (https://huggingface.co/docs/hub/model-cards).
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from codecnn.base.errors import MissingFileError, ModelError
from codecnn.base.files import atomic_path, read_json, write_text
from codecnn.base.rate_modes import RATE_MODES, rate_mode
from codecnn.base.user_code import is_reference
from codecnn.models.card import Card, as_card, card_path, check_sha256
from codecnn.models.locations import FORMS, stem_of_forms
from codecnn.models.zoo import path_of_sha256

README = "README.md"
SHIPPED_LICENCE = "bsd-3-clause"
"""Licence of the weights that come with codecnn, by its identifier on the hub."""
UNKNOWN_LICENCE = "unknown"
"""Identifier on the hub of a licence that nobody has stated."""
_TASKS = ("filter", "integer")
"""Tasks of the cards of filters."""
_HUB_TASK = "image-to-image"


def shared_files(weights: Path) -> list[Path]:
    """List the files by which weights are shared: tensors and card, and those of integer forms beside them."""
    stem = stem_of_forms(weights.name)
    names = [
        weights.name,
        *(f"{stem}{form}.safetensors" for form in FORMS[1:] if weights.name == f"{stem}.safetensors"),
    ]
    files = [weights.with_name(name) for name in dict.fromkeys(names) if weights.with_name(name).is_file()]
    return [path for file in files for path in (file, card_path(file))]


def write_shared(weights: Path, folder: Path) -> dict[str, Any]:
    """Write the folder by which weights are shared: their files and README.md.

    Args:
        weights: The weights file, float or integer; its card lies beside it.
        folder: Folder to write into.

    Returns:
        "weights", "licence" and "integers" (the integer forms that are shared too; None if the weights are integers)
        of the folder.

    Raises:
        MissingFileError: The weights or a card do not exist.
        ModelError: The weights are not those of a filter, or a file is not what its card says.
    """
    card = _checked_card(weights)
    files = shared_files(weights)
    for file in files[2::2]:
        _checked_card(file)
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        with atomic_path(folder / file.name) as part:
            shutil.copyfile(file, part)
    integers = [file.name for file in files[2::2]]
    licence = UNKNOWN_LICENCE if path_of_sha256(str(card.sha256)) is None else SHIPPED_LICENCE
    write_text(folder / README, model_card(weights.stem, weights.name, card, licence, integers))
    is_float = weights.name == f"{stem_of_forms(weights.name)}.safetensors"
    return {"weights": weights.name, "licence": licence, "integers": integers if is_float else None}


def _checked_card(weights: Path) -> Card:
    """Read the card of the weights of a filter, and compare the hash of the file."""
    for file in (weights, card_path(weights)):
        if not file.is_file():
            raise MissingFileError(f"{file} does not exist")
    content = read_json(card_path(weights))
    if not isinstance(content, dict) or content.get("task", "filter") not in _TASKS:
        raise ModelError(f"{weights} holds no filter: only filters are written for hubs")
    card = as_card(content)
    check_sha256(weights, card.sha256)
    return card


def model_card(name: str, file: str, card: Card, licence: str, integers: Sequence[str]) -> str:
    """Return the README.md of shared weights: head, what they are, figures, and commands.

    Args:
        name: Name of the weights.
        file: Name of the weights file.
        card: Its card.
        licence: Licence, by its identifier on the hub.
        integers: Names of the files of integer forms.
    """
    codecs = sorted({codec for store in card.trained_on or () for codec in store.codecs})
    head: dict[str, Any] = {
        "license": licence,
        "library_name": "codecnn",
        "pipeline_tag": _HUB_TASK,
        "tags": ["video-compression", "in-loop-filter", "image-restoration", *codecs],
    }
    results = _results(card)
    if results:
        head["metrics"] = ["psnr", "bd-rate"] if any(each["type"] == "bd-rate" for each in results) else ["psnr"]
        dataset = {"type": "codecnn-test-set", "name": _tested_on(card)}
        result = {"task": {"type": _HUB_TASK}, "dataset": dataset, "metrics": results}
        head["model-index"] = [{"name": name, "results": [result]}]
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---",
        f"# {name}",
        _purpose(card, codecs),
        _table(("property", "value"), _facts(card, integers)),
        *_training(card),
        *_figures(card),
        *_use(file, card),
    ]
    return "\n\n".join(parts) + "\n"


def _purpose(card: Card, codecs: Sequence[str]) -> str:
    material = f" decoded {', '.join(each.upper() for each in codecs)}" if codecs else " decoded"
    text = f"A convolutional network that reduces the coding error of{material} pictures, for codecnn."
    note = card.get("note")
    return f"{text} {note}" if isinstance(note, str) else text


def _facts(card: Card, integers: Sequence[str]) -> list[tuple[str, str]]:
    qps = "any" if card.qps is None else f"{min(card.qps)} to {max(card.qps)}"
    rows = [("architecture", f"`{card.network}`"), ("input planes", _code(card.options.get("planes", ())))]
    rows += [] if card.kmac_per_pixel is None else [("cost", f"{card.kmac_per_pixel:.1f} kMAC/pixel")]
    rows += [] if card.parameters is None else [("parameters", f"{card.parameters:,}")]
    rows += [("slice QPs of training", qps)]
    return rows + ([("integer forms", _code(integers))] if integers else [])


def _training(card: Card) -> list[str]:
    if not card.trained_on:
        return []
    columns = (
        "pictures",
        "share of the patches of a stage",
        "codec",
        "encoder",
        "preset",
        "configuration",
        "sequences",
    )
    rows = [
        (
            each.name,
            f"{each.share:.0%}",
            each.codec.upper(),
            each.encoder,
            each.preset,
            each.configuration,
            str(sum(each.sequences.values())),
        )
        for each in card.trained_on
    ]
    return ["## Training", _table(columns, rows)]


def _results(card: Card) -> list[dict[str, Any]]:
    """Return the results of the test of luma as the hub lists them."""
    gain, rate = (None, None) if card.test is None else card.test.luma
    results: list[dict[str, Any]] = []
    if gain is not None:
        results.append({"type": "psnr", "value": round(gain, 4), "name": "PSNR gain of luma, dB"})
    if rate is not None:
        results.append({"type": "bd-rate", "value": round(rate, 3), "name": "BD-rate of luma, %"})
    return results


def _test_settings(card: Card) -> Mapping[str, Any]:
    test = card.get("test")
    settings = test.get("settings") if isinstance(test, Mapping) else None
    return settings if isinstance(settings, Mapping) else {}


def _tested_on(card: Card) -> str:
    test = card.get("test")
    encoder = test.get("encoder") if isinstance(test, Mapping) else None
    settings = _test_settings(card)
    pictures = None if card.test is None or card.test.store is None else f"{card.test.store.pictures} pictures"
    bits = None if card.test is None or card.test.bits is None else f"{card.test.bits}-bit integers"
    facts = [pictures, encoder, settings.get("preset"), settings.get("configuration"), bits]
    return ", ".join(str(each) for each in facts if each) or "test pictures"


def _figures(card: Card) -> list[str]:
    """Return the results of the test, or those of validation for weights without a test."""
    if card.test is None:
        validation = card.get("validation")
        gains = validation.get("gain_db") if isinstance(validation, Mapping) else None
        if not isinstance(gains, Mapping) or not gains:
            return []
        row = ("luma", *(_decibels(value) for value in gains.values()))
        text = "PSNR gain in dB on validation pictures, by QP. These weights have not been tested on other pictures."
        return ["## Figures", text, _table(("component", *(f"QP {qp}" for qp in gains)), [row])]
    names = {"y": "luma", "u": "U", "v": "V"}
    filtered = [name for name in names if any(card.test.gain_db.get(name, {}).values())]
    qps = list(dict.fromkeys(qp for name in filtered for qp in card.test.gain_db[name]))
    rate = _test_settings(card).get("rate")
    mode = next((mode for name, mode in RATE_MODES.items() if name == rate), rate_mode(None))
    columns = ("component", *(qp if qp == "mean" else mode.text(qp) for qp in qps), "BD-rate")
    rows = [
        (
            names[name],
            *(_decibels(card.test.gain_db[name].get(qp)) for qp in qps),
            "" if (rate := card.test.bd_rate.get(name)) is None else f"{rate:+.2f} %",
        )
        for name in filtered
    ]
    parts = ["## Figures", f"PSNR gain in dB by QP, and BD-rate: {_tested_on(card)}.", _table(columns, rows)]
    if (means := card.test.over_classes) is not None:
        interval = means.bd_rate_y_ci95
        bounds = "" if interval is None else f" (95 % interval {interval[0]:+.2f} to {interval[1]:+.2f})"
        parts.append(
            f"Mean of {means.classes} classes of pictures: {means.gain_db:+.3f} dB, BD-rate Y {means.bd_rate_y:+.2f} "
            f"%{bounds}."
        )
    return parts


def _use(file: str, card: Card) -> list[str]:
    trust = f" --trust {card.network}" if is_reference(str(card.network)) else ""
    parts = ["## Use", "With codecnn, in a copy of this folder:"]
    parts.append(f"```sh\ncodecnn filter -i video.mp4 -m {file} -o better.mkv{trust}\n```")
    parts.append("From the hub, with the package `huggingface_hub`; OWNER/NAME is this repository:")
    parts.append(
        f"```sh\ncodecnn filter -i video.mp4 -m hf://OWNER/NAME -o better.mkv{trust}\n"
        f"codecnn evaluate original.y4m -m hf://OWNER/NAME -q 22,27,32,37 -o results{trust}\n```"
    )
    if trust:
        parts.append(f"The network is code of its author, `{card.network}`, which must be in the current folder.")
    parts.append("The weights are tensors (safetensors) with a card (JSON), and contain no code.")
    return parts


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown; cells are text of one line without bars."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '/').replace(chr(10), ' ') for cell in line)} |" for line in lines
    )


def _code(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names) if isinstance(names, Sequence) else ""


def _decibels(value: Any) -> str:
    return f"{value:+.3f}" if isinstance(value, int | float) else ""
