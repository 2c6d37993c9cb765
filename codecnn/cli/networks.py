"""Commands on networks: list, complexity, and export to other formats."""

from collections.abc import Sequence
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Column, Table

from codecnn.api.groups import FileName
from codecnn.api.networks import ExportOptions, export
from codecnn.base.errors import ConfigError, UsageError
from codecnn.base.options import argument, option, record, verb
from codecnn.cli.commands import command
from codecnn.cli.console import out, print_facts, print_json, print_table

if TYPE_CHECKING:
    from codecnn.models import Card, ShippedWeights


@record
class ModelsOptions:
    """Options of `models`."""

    name: Annotated[str | None, argument("Name of weights, e.g. low_cost_17; all by default.")] = None
    _: KW_ONLY
    stream: Annotated[
        FileName | None,
        option("--for", kind=Path, help="Stream for which to list the weights that `filter` chooses by --effort."),
    ] = None


@verb(ModelsOptions)
def models(options: ModelsOptions) -> "list[ShippedWeights]":
    """List the weights that `filter` and `evaluate` take by name, and the architectures that `train` takes.

    With a name, one of the weights is described, with the QPs that `filter` gives them. With --for the weights that
    `filter` chooses for a stream are listed, with the time that a picture of 1920x1080 takes on this machine, without
    decoding.
    """
    from codecnn.models import shipped_weights, weights_path

    shipped = sorted(shipped_weights(), key=lambda weights: (weights.card.kmac_per_pixel or 0.0, weights.name))
    if options.name is None:
        return shipped
    if options.stream is not None:
        raise UsageError("give the name of weights, or --for STREAM")
    path = weights_path(options.name)
    named = [weights for weights in shipped if weights.path == path]
    if not named:
        raise ConfigError(f"{options.name} is none of the shipped weights: codecnn models lists them")
    return named


@command("models", models, "codecnn models --for video.mp4")
def show_models(options: ModelsOptions, shipped: "list[ShippedWeights]", as_json: bool) -> None:
    """Print a table of the weights."""
    if options.stream is not None:
        _show_candidates(Path(options.stream), shipped, as_json)
        return
    if options.name is not None:
        _show_weights(shipped[0], as_json)
        return
    from codecnn.models import describe_model, list_models

    if as_json:
        known = list_models()
        by_network: dict[str, list[dict[str, Any]]] = {name: [] for name in known}
        for weights in shipped:
            name = weights.architecture if weights.architecture in known else str(weights.card.network)
            by_network[name].append(_facts(weights))
        print_json(
            [
                {"name": name, "description": describe_model(name), "weights": facts}
                for name, facts in by_network.items()
            ]
        )
        return
    table = Table(
        Column("weights", no_wrap=True),
        Column("*", no_wrap=True),
        Column("kMAC/\npixel", justify="right", no_wrap=True),
        Column("parame-\nters", justify="right", no_wrap=True),
        "planes",
        "trained on",
        Column("inte-\ngers", no_wrap=True),
        Column("BD-rate\nY, %", justify="right"),
        box=None,
        # Every word fits into a terminal of 80 characters.
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for weights in shipped:
        facts = _facts(weights)
        table.add_row(
            weights.full_name,
            "*" if weights.default else "",
            f"{facts['kmac_per_pixel']:.1f}",
            f"{facts['parameters']:,}",
            " ".join(facts["planes"]),
            facts["trained_on"],
            " ".join(suffix.removeprefix("int") for suffix in weights.integers),
            "not tested" if facts["bd_rate"] is None else f"{facts['bd_rate']:+.2f}",
        )
    print_table(table)
    untrained = sorted(set(list_models()) - {weights.architecture for weights in shipped})
    out.print("* The architecture alone, e.g. low_cost_17, names these weights.")
    out.print("BD-rate: on pictures or video of the codec that the weights are trained on; compare it within a codec.")
    out.print("Integers of 8 bits are named with the suffix .int8, e.g. low_cost_17.int8.")
    out.print(f"Architectures without weights, for train and complexity: {', '.join(untrained)}")


def _show_weights(weights: "ShippedWeights", as_json: bool) -> None:
    """Print the facts of one of the shipped weights."""
    from codecnn.codec import describe_qps
    from codecnn.evaluation import trained_on_intra
    from codecnn.filtering import served_codecs
    from codecnn.pictures.files import STANDARD_NAMES

    intra = trained_on_intra(weights.card)
    rules = {codec: describe_qps(codec, all_intra_weights=intra) for codec in served_codecs(weights.full_name)}
    facts = _facts(weights)
    if as_json:
        print_json(facts | {"qps": weights.card.qps, "qp_rules": rules})
        return
    qps = weights.card.qps
    shown: dict[str, Any] = {
        "weights": weights.full_name,
        "trained on": facts["trained_on"],
        "planes": " ".join(facts["planes"]),
        "kMAC/pixel": f"{facts['kmac_per_pixel']:.1f}",
        "parameters": f"{facts['parameters']:,}",
        "integers": " ".join(facts["integers"]) or "none",
        "BD-rate Y": "not tested" if facts["bd_rate"] is None else f"{facts['bd_rate']:+.2f} %",
        "QPs of training": "any" if qps is None else f"{min(qps)} to {max(qps)}",
    }
    for codec, rule in rules.items():
        shown |= {f"QP, {STANDARD_NAMES[codec]}, {kind}": qp for kind, qp in rule.items()}
    print_facts(shown, False)


def _show_candidates(stream: Path, shipped: "list[ShippedWeights]", as_json: bool) -> None:
    """Print the weights that `filter` chooses for a stream at each effort."""
    from codecnn.api.filtering import time_weights
    from codecnn.filtering import candidates, check_lossy

    check_lossy(stream)
    choices = candidates(stream)
    tests = {weights.full_name: weights.card.test for weights in shipped}
    rates = {name: None if test is None else test.luma[1] for name, test in tests.items()}
    times = time_weights(stream, dict.fromkeys(name for choice in choices.values() for name in choice.names))
    if as_json:
        seconds = dict(times)
        print_json(
            [
                {
                    "effort": effort,
                    "weights": choice.weights,
                    "chroma": choice.chroma,
                    "reason": choice.reason,
                    "bd_rate": rates[choice.weights],
                    "seconds_per_1080p_picture": sum(seconds[name] for name in choice.names),
                }
                for effort, choice in choices.items()
            ]
        )
        return
    with_chroma = {weights.full_name for weights in shipped if "rec_u" in weights.card.options["planes"]}
    table = Table("effort", "weights", "chroma", "BD-rate Y of its test, %", box=None)
    for effort, choice in choices.items():
        rate = rates[choice.weights]
        chroma = choice.chroma or ("by the same" if choice.weights in with_chroma else "stays")
        table.add_row(effort, choice.weights, chroma, "not tested" if rate is None else f"{rate:+.2f}")
    print_table(table)
    for reason in dict.fromkeys(choice.reason for choice in choices.values()):
        efforts = ", ".join(effort for effort, choice in choices.items() if choice.reason == reason)
        out.print(f"{efforts}: {reason}", soft_wrap=True, markup=False)
    # Measuring takes seconds, so each time is printed when it is known.
    out.print("Seconds for a picture of 1920x1080 on this machine, without decoding:")
    for name, each in times:
        out.print(f"  {name:28} {each:.2g}", markup=False, highlight=False)


def _facts(weights: "ShippedWeights") -> dict[str, Any]:
    """Return the facts by which a user chooses weights; gain and BD-rate are of luma, or None without a test.

    Mean gain and BD-rate are means over classes of pictures if the test has several.
    """
    card = weights.card
    gain, rate = card.test.luma if card.test else (None, None)
    return {
        "name": weights.name,
        "kmac_per_pixel": card.kmac_per_pixel,
        "planes": card.options["planes"],
        "classes": card.test.over_classes.classes if card.test and card.test.over_classes else None,
        "gain_db": card.test.gain_db["y"] if card.test else None,
        "mean_gain_db": gain,
        "bd_rate": rate,
        "full_name": weights.full_name,
        "architecture": weights.architecture,
        "tag": weights.tag,
        "default": weights.default,
        "parameters": card.parameters,
        "trained_on": _trained_on(card),
        "integers": list(weights.integers),
    }


def _trained_on(card: "Card") -> str:
    """Return codecs and configurations of the training pictures, e.g. "vvc ai, ldb, ra"."""
    configurations: dict[str, set[str]] = {}
    for store in card.trained_on or ():
        configurations.setdefault(store.codec, set()).add(store.configuration)
    return "; ".join(f"{codec} {', '.join(sorted(names))}" for codec, names in sorted(configurations.items()))


@record
class ComplexityOptions:
    """Options of `complexity`."""

    model: Annotated[
        str | None,
        argument(
            "Name of a network, e.g. rdn or my_networks:Net, or weights: a .safetensors file, a folder, hf://OWNER/NAME."
        ),
    ] = None
    overrides: Annotated[
        Sequence[str],
        argument("Options of the network, e.g. blocks=4.", "[OPTION=VALUE]...", kind=str, collect=tuple),
    ] = ()
    all_networks: Annotated[bool, option("--all", help="Show all networks.")] = False


@verb(ComplexityOptions)
def complexity(options: ComplexityOptions) -> list[dict[str, Any]]:
    """Show kMAC/pixel without and with the halo of a 128x128 CTU, parameters, receptive field and peak memory."""
    from codecnn.api.config import parse_overrides
    from codecnn.models import create_model, full_cost, is_on_hub, list_models, load_model

    model = options.model
    if options.all_networks == (model is not None):
        raise UsageError("give the name of a network, or --all")
    if model is None:
        return [{"model": name} | full_cost(create_model(name)) for name in list_models()]
    if not (
        model.endswith(".safetensors") or is_on_hub(model) or (Path(model).is_dir() and model not in list_models())
    ):
        return [{"model": model} | full_cost(create_model(model, **parse_overrides(options.overrides)))]
    if options.overrides:
        raise ConfigError(f"{model} has fixed options: leave out {' '.join(options.overrides)}")
    return [{"model": model} | full_cost(load_model(model)[0])]


@command("complexity", complexity, "codecnn complexity rdn blocks=4 growth=24", trust=True)
def show_complexity(options: ComplexityOptions, costs: list[dict[str, Any]], as_json: bool) -> None:
    """Print the facts of one network, or a Markdown table of all."""
    from codecnn.models import complexity_table

    if not options.all_networks:
        print_facts(costs[0], as_json)
    elif as_json:
        print_json(costs)
    else:
        out.print(complexity_table(), markup=False, highlight=False, soft_wrap=True)


@command("export", export, "codecnn export -m low_cost_17 -o low_cost_17.onnx", trust=True)
def show_exported(options: ExportOptions, facts: dict[str, Any], as_json: bool) -> None:
    """Print facts about the file."""
    from codecnn.models import UNKNOWN_LICENCE

    kind = "folder" if options.form == "hub" else "file"
    facts = {"model": str(options.model), "format": options.form, kind: str(options.output), **facts}
    if not as_json and options.form == "hub":
        facts["integers"] = facts["integers"] and (", ".join(facts["integers"]) or "none")
        if facts["licence"] == UNKNOWN_LICENCE:
            facts["licence"] += ": state yours in README.md before you share the folder"
    for name, value in facts.items():
        if not as_json and name.startswith("largest_difference") and isinstance(value, float):
            facts[name] = f"{value:.1e}"
    print_facts(facts, as_json)
