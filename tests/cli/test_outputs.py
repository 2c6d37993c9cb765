"""No command replaces one of its inputs, whichever of its outputs names it and in whichever way."""

import json
import os
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from codecnn.cli.application import app

FILES = {
    "filter": (
        "filter -i {source} -o {output} -m {model} -q {qp} --plane unf_y={plane} --blocks {blocks} "
        "--original {original} --decisions {decisions_file} --update {update}",
        ("source", "qp", "plane", "blocks", "original", "update", "model"),
        ("output", "decisions_file"),
    ),
    "adapt": (
        "adapt -m {model} --original {original} --stream {stream} -o {output}",
        ("model", "original", "stream"),
        ("output",),
    ),
    "nnpf write": (
        "nnpf write {stream} -m {model} -o {output} --adapt {update}",
        ("stream", "model", "update"),
        ("output",),
    ),
    "export": ("export -m {model} -o {output}", ("model",), ("output",)),
    "labels": ("labels -i {source} -o {output} --decoded {decoded}", ("source", "decoded"), ("output",)),
    "modes predict": (
        "modes predict -i {source} -o {output} --decoded {decoded} --model {model}",
        ("source", "decoded", "model"),
        ("output",),
    ),
    "decode": ("decode {stream} -o {output} -m {model}", ("stream", "model"), ("output",)),
    "partition": ("partition {streams} -o {output}", ("streams",), ("output",)),
    "measure": ("measure {original} {videos} -o {output}", ("original", "videos"), ("output",)),
    "view": (
        "view {source} -o {output} --original {original} -m {model}",
        ("source", "original", "model"),
        ("output",),
    ),
}
"""Commands that write files: arguments, and which of their fields are inputs and outputs."""

FOLDERS = {
    "evaluate": (
        "evaluate {sources} -m {models} -o {output} --original {original}",
        ("sources/results.json", "models/report.html", "original/cells/x.json", "original/store/coded/x.yuv"),
    ),
    "evaluate-loop": (
        "evaluate-loop {sources} -m {models} -o {output} --vvenc-library {library}",
        ("sources/in_loop.csv", "models/coded/x.safetensors", "library/in_loop.json"),
    ),
    "jvet": ("jvet {output} -o {output}", ("results/jvet.csv", "results/jvet.xlsx", "results/report.html")),
    "correlate": (
        "correlate {sources} -o {output} --original {original}",
        ("sources/coefficients.csv", "sources/worth.csv", "original/depth_mse.png"),
    ),
    "train": (
        "train {config} store=stores/x training.start.weights={weights} -o {run}",
        ("config/config.json", "weights/best.safetensors"),
    ),
    "dataset build": (
        'dataset build {recipe} sequences=[{{"source":"{source}"}}] -o {store}',
        ("source/originals/x_64x48.yuv", "source/coded/x_64x48.yuv", "source/ctus.parquet"),
    ),
    "partition several": ("partition {streams} {other} -o {output}", ("streams/streams.parquet",)),
}
"""Commands that write into a folder: arguments, and inputs FIELD/NAME that lie in it."""

WITHOUT = {
    *("demo", "doctor", "info", "dataset verify", "dataset stats", "check", "compare", "nnpf read", "models"),
    *("complexity", "dataset plan"),
}
"""Commands that write nothing, or have no inputs."""

NO_FILES = {("export", "store"), ("jvet", "results")}
"""Parameters that name folders of inputs, or that a test of its own covers."""


def commands():
    """Yield the name and the function of every command."""
    groups = [("", app), *((f"{group.name} ", group.typer_instance) for group in app.registered_groups)]
    for prefix, group in groups:
        for command in group.registered_commands:
            yield prefix + (command.name or command.callback.__name__), command.callback


def test_every_command_and_every_path_is_tested():
    known = FILES.keys() | FOLDERS.keys() | WITHOUT
    for name, function in commands():
        assert name in known, f"add {name} to this module, and call codecnn.base.outputs.check_outputs in it"
        templates = " ".join(text for key, (text, *_) in (FILES | FOLDERS).items() if key.split(" --")[0] == name)
        hints = get_type_hints(function).items()
        paths = [each for each, hint in hints if hint is Path or Path in get_args(hint) or "list[pathlib" in str(hint)]
        paths = [each for each in paths if name not in WITHOUT and (name, each) not in NO_FILES]
        assert [each for each in paths if f"{{{each}}}" not in templates] == [], name


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def link(path, target, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    os.link(target, path) if kind == "hard link" else path.symlink_to(target)
    return path


@pytest.mark.parametrize(
    ("name", "source", "output"),
    [(name, source, output) for name, (_, ins, outs) in FILES.items() for source in ins for output in outs],
)
def test_no_file_replaces_an_input(run, tmp_path, name, source, output):
    text, inputs, outputs = FILES[name]
    files = {field: tmp_path / field for field in (*inputs, *outputs)}
    files |= {"model": tmp_path / "model.safetensors", "qp": tmp_path / "qp.txt"}
    for field in inputs:
        files[field].write_bytes(b"37" if field == "qp" else field.encode() * 20)
    before = content(tmp_path)
    for kind in ("hard link", "symbolic link", "the path itself"):
        files[output] = files[source] if kind == "the path itself" else link(tmp_path / kind, files[source], kind)
        status, _, error = run(*(part.format(**files) for part in text.split()))
        assert (status, "same file" in error) == (1, True), (kind, error)
        if kind != "the path itself":
            files[output].unlink()
        assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name, (_, places) in FOLDERS.items() for place in places]
)
def test_no_folder_replaces_an_input(run, tmp_path, name, place):
    field, _, inside = place.partition("/")
    files = dict.fromkeys(("models", "weights", "original", "library"), tmp_path / "w.safetensors")
    files |= {"sources": tmp_path / "x_64x48.yuv", "source": tmp_path / "table.csv", "streams": tmp_path / "a.266"}
    files |= {"other": tmp_path / "other.266", "config": tmp_path / "c.yaml", "recipe": tmp_path / "r.yaml"}
    files[field] = tmp_path / "out" / inside
    texts = {"config": json.dumps({"model": {"name": "rdn"}, "store": "x"}), "recipe": "name: x\nqp: [32]\n"}
    for each, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts.get(each, "x" * 99))
    before = content(tmp_path)
    files |= dict.fromkeys(("output", "store", "run"), tmp_path / "out")
    parts = (part.format(**files) for part in FOLDERS[name][0].split())
    status, _, error = run(*parts)
    assert status == 1, error
    assert any(text in error for text in ("same file", "lies in the output folder", "folder of an evaluation")), error
    assert content(tmp_path) == before
