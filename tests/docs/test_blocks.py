"""Every block of code in the documentation says what it is: python runs (test_examples.py), sh and yaml are read here.

A block of `sh` is marked as not to run: its commands take stores and hours. Each is read by the command line itself,
though, its file and its overrides by the configuration's own check, so that no option or key is one that there is not.
"""

import re
import shlex

import pytest
import yaml

from codecnn.api.config import FilterConfig, checked, load_config, load_recipe
from codecnn.dataset import Recipe
from tests.helpers.commands import read_command
from tests.helpers.documentation import BLOCKS, ROOT

KINDS = {"python", "sh", "yaml", "text", "{toctree}", "{eval-rst}"}


def commands(text):
    """The commands of a block, their lines joined and comments left out, as lists of words."""
    joined = text.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def of(kind):
    return [
        pytest.param(page, text, id=f"{page.name}-{number}")
        for number, (page, found, text) in enumerate(BLOCKS)
        if found == kind
    ]


def test_every_block_says_what_it_is():
    unmarked = [f"{page.name}: {text.splitlines()[0]}" for page, kind, text in BLOCKS if kind not in KINDS]
    assert unmarked == [], f"mark them as one of {', '.join(sorted(KINDS))}: text is what is no code"


@pytest.mark.parametrize(("page", "text"), of("sh"))
def test_the_command_line_takes_every_command(page, text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for words in commands(text):
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), words
        elif words[0] == "python":
            script = (ROOT / words[1]).read_text("utf-8")
            known = script + "".join(path.read_text("utf-8") for path in (ROOT / "tools").rglob("*.py"))
            assert all(f'"{word}"' in known for word in words if word.startswith("--")), words
        elif words[0] in ("codecnn", "torchrun"):
            command, values = read_command(words[words.index("codecnn") + 1 :])
            overrides = [value for value in values.get("overrides") or () if "PATH" not in value]
            file = next((ROOT / word for word in words if word.startswith(("configs/", "datasets/"))), None)
            if file is not None and file.is_file():
                (load_recipe if command in ("build", "plan") else load_config)(file, overrides)
        else:
            assert words[0] in (
                "aws",
                "tensorboard",
                "wandb",
                "mlflow",
                "hf",
                "mpv",
                "ffmpeg",
                "pip",
                "python3",
                ".",
            ), words


@pytest.mark.parametrize(("page", "text"), of("yaml"))
def test_recipes_and_configurations_are_ones(page, text, monkeypatch):
    value = yaml.safe_load(text)
    fields = {field.alias or name for name, field in Recipe.model_fields.items()}
    if value.keys() <= fields:
        whole = {"name": "mine", "sequences": [{"source": "clip_64x32.yuv", "split": "train"}]} | value
        checked(
            Recipe, whole if whole.get("codec") == "streams" or "rate" in whole else {"qp": [32]} | whole, page.name
        )
    else:
        own = yaml.safe_load((ROOT / "configs/demo.yaml").read_text("utf-8")) | {"store": "stores/demo"}
        if "stores" in value:
            del own["store"]
        whole = own | value | {"training": own["training"] | value.get("training", {})}
        checked(FilterConfig, whole, page.name)


def test_a_command_that_there_is_not_is_seen():
    with pytest.raises(Exception, match="No such option"):
        read_command(["filter", "--modle", "low_cost_5", "-i", "a.yuv", "-o", "b.yuv"])
    assert commands("codecnn info a.yuv   # why\n\ncodecnn \\\n  doctor\n") == [
        ["codecnn", "info", "a.yuv"],
        ["codecnn", "doctor"],
    ]
