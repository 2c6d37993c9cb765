"""Pictures to label, from files or from a store, with the pictures that their references are taken from."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codecnn.dataset import Store
from codecnn.errors import ConfigError, FormatError, MissingFileError, TableError
from codecnn.labels.table import Source
from codecnn.runs import sha256_file
from codecnn.video import STILL_SUFFIXES, Video, convert, open_video, stills_in

SPLITS = ("train", "val")
"""The parts of a store that are labelled unless others are asked for."""


@dataclass(frozen=True)
class Input:
    """A file of pictures to label, and the file of the same pictures decoded, where references come from it.

    `options` are those of `open_video`, for both; `qps` holds the QP of every decoded picture where it is known;
    `split` is what a store's recipe says.
    """

    name: str
    picture: Path
    count: int
    decoded: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)
    qps: tuple[int, ...] | None = None
    split: str | None = None

    def facts(self) -> dict[str, Any]:
        """What a table says of its inputs: all that `input_from_facts` needs, and the SHA-256 of the files."""
        facts = {"name": self.name, "picture": str(self.picture), "sha256": sha256_file(self.picture)}
        if self.decoded is not None:
            facts |= {"decoded": str(self.decoded), "decoded_sha256": sha256_file(self.decoded)}
        more = {"count": self.count, "options": self.options, "qps": self.qps, "split": self.split}
        return facts | {name: value for name, value in more.items() if value is not None}


def input_from_facts(facts: dict[str, Any], table: Path) -> Input:
    """The input that a table's metadata describes, from `Input.facts`.

    Raises TableError where the facts are not whole or a file has not the content that was labelled, MissingFileError
    where it is gone.
    """
    try:
        entry = Input(
            name=str(facts["name"]),
            picture=Path(facts["picture"]),
            count=int(facts["count"]),
            decoded=Path(facts["decoded"]) if "decoded" in facts else None,
            options=dict(facts["options"]),
            qps=tuple(facts["qps"]) if "qps" in facts else None,
            split=facts.get("split"),
        )
        hashes = (facts["sha256"], facts.get("decoded_sha256"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TableError(f"{table} does not say which files were labelled: make it again") from error
    for path, expected in zip((entry.picture, entry.decoded), hashes, strict=True):
        if path is None:
            continue
        if not path.is_file():
            raise MissingFileError(f"{path}, which {table} labels, does not exist: a relative path is from here")
        if sha256_file(path) != expected:
            raise TableError(f"{path} has other content than when {table} was made: label it again")
    return entry


def file_inputs(path: Path, decoded: Path | None = None, *, qp: int | None = None, **options: Any) -> list[Input]:
    """The pictures of a path, and of the path of their decoded versions where there is one.

    A folder is its still pictures by name, each of its own size; its decoded versions then are a folder with as many.
    `options` are those of `open_video`, for both; `frames` of a folder are its first files. `qp` is that of the decoded
    pictures. Raises MissingFileError, FormatError where the two do not hold as many pictures, ConfigError for a QP
    without decoded pictures.
    """
    if qp is not None and decoded is None:
        raise ConfigError(f"QP {qp} is that of decoded pictures, but {path} has none beside it")
    files = _files(path, options.get("frames"))
    others = [None] * len(files) if decoded is None else _files(decoded, options.get("frames"))
    if len(others) != len(files):
        raise FormatError(f"{path} holds {len(files)} files, {decoded} {len(others)} decoded ones")
    given = {key: value for key, value in options.items() if value is not None}
    inputs = []
    for file, other in zip(files, others, strict=True):
        count = _count(file, given)
        if other is not None and (found := _count(other, given)) != count:
            raise FormatError(f"{file} holds {count} pictures, {other} {found} decoded ones")
        inputs.append(Input(file.stem, file, count, other, given, None if qp is None else (qp,) * count))
    return inputs


def store_inputs(store: Store, splits: Sequence[str] = SPLITS) -> list[Input]:
    """The units of a store's `splits`: originals, and the decoded pictures as references.

    Where the store holds the pictures before the codec's loop filters, references come from those: they are what the
    decoder predicts from. Raises StoreError for a split without pictures.
    """
    inputs = []
    for unit in (unit for split in splits for unit in store.split(split)):
        form = unit.format
        options = {"size": f"{form.width}x{form.height}", "bit_depth": form.bit_depth, "chroma": form.chroma}
        decoded = unit.path("unfiltered" if unit.has("unfiltered") else "decoded")
        qps = tuple(picture.qp for picture in unit.pictures)
        inputs.append(Input(unit.name, unit.original_path, len(qps), decoded, options, qps, unit.split))
    return inputs


def read_inputs(inputs: Iterable[Input], first: int = 0) -> Iterator[Source]:
    """The pictures of all inputs, in order; `first` is the number of the first input.

    Where a picture and its decoded version differ in bit depth, the one of fewer bits is raised to that of the other.
    """
    for number, entry in enumerate(inputs, first):
        qps = entry.qps or (None,) * entry.count
        with _open(entry.picture, entry.options) as video:
            if entry.decoded is None:
                for frame, picture in enumerate(video):
                    yield Source(entry.name, frame, picture.y, picture.y, picture.bit_depth, None, number)
                continue
            with _open(entry.decoded, entry.options) as decoded:
                pictures = zip(video, decoded, qps, strict=True)
                for frame, (picture, other, qp) in enumerate(pictures):
                    depth = max(picture.bit_depth, other.bit_depth)
                    planes = convert(picture, depth).y, convert(other, depth).y
                    yield Source(entry.name, frame, *planes, depth, qp, number)


def _open(file: Path, options: dict[str, Any]) -> Video:
    # A still has no header that bit depth or size could contradict: the depth is what it is converted to.
    still = file.suffix.lower() in STILL_SUFFIXES
    return open_video(file, **{key: value for key, value in options.items() if not still or key == "bit_depth"})


def _count(file: Path, options: dict[str, Any]) -> int:
    if file.suffix.lower() in STILL_SUFFIXES and file.is_file():
        return 1
    with _open(file, options) as video:
        return len(video)


def _files(path: Path, frames: int | None) -> list[Path]:
    return stills_in(path)[:frames] if path.is_dir() else [path]
