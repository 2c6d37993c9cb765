"""Weights in folders and on the Hugging Face hub: which file of several is meant, and download.

A folder, or a repository of a hub, that holds one weights file stands for that file. Integer forms beside it belong to
it. Only weights (.safetensors) and cards (.json) are downloaded, and nothing of them is executed.
"""

import contextlib
import functools
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from codecnn.base.errors import CodecnnError, MissingFileError, ModelError, ToolMissingError
from codecnn.base.files import read_json

HUB_PREFIX = "hf:/"
"""Start of weights on a hub, hf://owner/name; `Path` leaves one of the two slashes."""

FORMS = ("", ".int8", ".int16")
"""Suffixes of the file names of float weights and of their integer forms."""

_REFERENCE = re.compile(r"hf:/+(?P<repository>[^/@]+/[^/@]+)(?:/(?P<file>[^@]+))?(?:@(?P<revision>.+))?")


def is_on_hub(weights: Path | str) -> bool:
    """Return whether weights are named by a hub, as hf://owner/name[/file][@revision]."""
    return str(weights).startswith(HUB_PREFIX)


def stem_of_forms(name: str) -> str:
    """Return the name that a weights file or card shares with its integer forms: "a" for "a.int8.safetensors"."""
    stem = PurePosixPath(name).with_suffix("")
    return str(stem.with_suffix("") if stem.suffix in FORMS[1:] else stem)


def folder_weights(folder: Path) -> Path:
    """Return the weights file of a folder that holds one, the float form if there are several forms of it.

    Raises:
        MissingFileError: The folder holds no weights file.
        ModelError: The folder holds several.
    """
    names = [path.name for path in folder.iterdir()]
    if not any(name.endswith(".safetensors") for name in names) and (reason := unfinished_run(folder)):
        raise MissingFileError(reason)
    return folder / _only_weights(names, str(folder))


def unfinished_run(folder: Path) -> str | None:
    """Return why the folder of a training has no weights yet; None if it is another folder."""
    if not (folder / "checkpoint.pt").is_file() or (folder / "best.safetensors").exists():
        return None
    when = ""
    with contextlib.suppress(CodecnnError, KeyError, TypeError):
        settings = read_json(folder / "config.json")["training"]
        when = f" at step {min(settings['validate_every'], settings['steps'])}"
    return f"{folder} has no weights yet: its training writes them after its first validation{when}"


@functools.cache
def hub_weights(reference: str) -> Path:
    """Download weights, their card and integer forms from the Hugging Face hub, unless its cache has them.

    A reference that was downloaded means the same files until the process ends.

    Args:
        reference: hf://owner/name[/file][@revision]; the file may be left out if the repository holds one weights file
            outside of folders.

    Returns:
        The weights file in the cache of `huggingface_hub`.

    Raises:
        ToolMissingError: The package huggingface_hub is not installed.
        MissingFileError: The reference is malformed, or the hub does not give the file.
        ModelError: The repository holds several weights files.
    """
    match = _REFERENCE.fullmatch(reference)
    shown = re.sub("^hf:/+", "hf://", reference)
    if match is None:
        raise MissingFileError(f"{shown} does not name weights on a hub: write hf://owner/name[/file][@revision]")
    repository, file, revision = match["repository"], match["file"], match["revision"]
    if file is not None and (not file.endswith(".safetensors") or ".." in file.split("/")):
        raise ModelError(f"{shown}: weights are read from .safetensors files only: name one of the repository")
    if find_spec("huggingface_hub") is None:
        raise ToolMissingError(f"{shown} needs the package huggingface_hub: pip install 'codecnn[hub]'")
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        HTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    try:
        names = [sibling.rfilename for sibling in HfApi().model_info(repository, revision=revision).siblings or ()]
    except HfHubHTTPError as error:
        raise MissingFileError(f"{shown} cannot be downloaded: {_refusal(error, revision)}") from error
    except HFValidationError as error:
        raise MissingFileError(f"{shown} does not name weights on a hub: {_first_line(error)}") from error
    except (HTTPError, OfflineModeIsEnabled) as error:  # no connection
        folder = _cached_folder(repository, revision)
        if folder is None or not (file is None or (folder / file).is_file()):
            reason = f"the hub cannot be reached ({_first_line(error)}): try again later"
            raise MissingFileError(f"{shown} was not downloaded before, and {reason}") from error
        return folder_weights(folder) if file is None else folder / file
    name = file or _only_weights([name for name in names if "/" not in name], f"hf://{repository}")
    if name not in names:
        raise MissingFileError(f"hf://{repository} has no file {name}: {_listed(names)}")
    forms = [each for each in names if stem_of_forms(each) == stem_of_forms(name) and each != name]
    try:
        for form in forms:
            if form.endswith((".safetensors", ".json")):
                hf_hub_download(repository, form, revision=revision)
        return Path(hf_hub_download(repository, name, revision=revision))
    except HfHubHTTPError as error:
        raise MissingFileError(f"{shown} cannot be downloaded: {_refusal(error, revision)}") from error
    except (HTTPError, LocalEntryNotFoundError) as error:
        raise MissingFileError(f"{shown} was not downloaded ({_first_line(error)}): try again later") from error


def _refusal(error: Exception, revision: str | None) -> str:
    """Return why the hub does not give a file."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return "its owner gives access on request: ask on its page, and log in with hf auth login"
    if isinstance(error, RepositoryNotFoundError):
        return "the hub has no such repository, or it is private and you are not logged in (hf auth login)"
    return (
        f"the repository has no revision {revision}" if isinstance(error, RevisionNotFoundError) else _first_line(error)
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _cached_folder(repository: str, revision: str | None) -> Path | None:
    """Return the folder of a repository in the cache of huggingface_hub, or None (layout: its guide "manage-cache")."""
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = Path(HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    reference = cache / "refs" / (revision or "main")
    commit = reference.read_text(encoding="utf-8").strip() if reference.is_file() else revision
    folder = cache / "snapshots" / (commit or "main")
    return folder if folder.is_dir() else None


def _only_weights(names: Iterable[str], where: str) -> str:
    """Return the name of the only weights file, its float form if there are several forms."""
    files = sorted(name for name in names if name.endswith(".safetensors"))
    stems = sorted({stem_of_forms(name) for name in files})
    if not stems:
        raise MissingFileError(f"{where} holds no weights: name a .safetensors file, or a folder with one")
    if len(stems) > 1:
        raise ModelError(f"{where} holds the weights {', '.join(stems[:10])}: add the name of one of the files")
    return next(name for form in FORMS for name in files if name == f"{stems[0]}{form}.safetensors")


def _listed(names: Iterable[str]) -> str:
    files = sorted(name for name in names if name.endswith(".safetensors"))
    return f"it has {', '.join(files[:10])}" if files else "it has no .safetensors file"
