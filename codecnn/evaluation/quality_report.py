"""Qualities of videos as files: JSON, CSV with a row for each picture, HTML with a chart for each metric."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

from codecnn.base.errors import ConfigError
from codecnn.base.files import write_csv, write_text
from codecnn.evaluation.quality import VideoQuality

_SUFFIXES = (".html", ".json", ".csv")


def check_report_name(output: Path) -> None:
    """Raise ConfigError unless a name ends as that of a report."""
    if output.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"{output} is written as a table or a chart: end its name in {', '.join(_SUFFIXES)}")


def write_qualities(output: Path, original: Path, qualities: Sequence[VideoQuality]) -> None:
    """Write qualities in the form that the suffix of a file names: .html, .json or .csv.

    Args:
        output: File to write.
        original: The original.
        qualities: Qualities of one or more videos.
    """
    suffix = output.suffix.lower()
    if suffix == ".json":
        content = {"original": str(original), "videos": [each.as_json() for each in qualities]}
        write_text(output, json.dumps(content, indent=2) + "\n")
    elif suffix == ".csv":
        write_csv(
            output,
            [
                {"video": str(each.video), "picture": number}
                | {name: values[number] for name, values in each.pictures.items()}
                for each in qualities
                for number in range(len(next(iter(each.pictures.values()))))
            ],
        )
    else:
        write_text(output, _page(original, qualities))


def _page(original: Path, qualities: Sequence[VideoQuality]) -> str:
    from jinja2 import Environment, PackageLoader

    names = list(dict.fromkeys(name for each in qualities for name in each.pictures))
    rows = [
        {
            "video": each.video.name,
            "cells": [f"{each.mean[name]:.4f}" if name in each.mean else "" for name in names],
        }
        for each in qualities
    ]
    template = Environment(loader=PackageLoader("codecnn.evaluation"), autoescape=True).get_template("quality.html.j2")
    return template.render(
        original=original.name,
        pictures=len(next(iter(qualities[0].pictures.values()))),
        names=names,
        rows=rows,
        charts=[{"name": name, "svg": _chart(name, qualities)} for name in names],
    )


def _chart(name: str, qualities: Sequence[VideoQuality]) -> str:
    """Draw a metric over the pictures, one line for each video, as SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.add_subplot()
    for each in qualities:
        if name in each.pictures:
            axes.plot(each.pictures[name], label=each.video.name, linewidth=1)
    axes.set_xlabel("picture")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue().partition("?>")[2].partition('dtd">')[2]
