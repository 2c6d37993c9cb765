"""Commands on neural-network post-filter messages in streams: write and read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codecnn.api.groups import FileName
from codecnn.base.options import argument, record, verb
from codecnn.cli.application import app
from codecnn.cli.commands import command
from codecnn.cli.console import err, out, print_facts, print_json
from codecnn.signalling import WriteOptions, WrittenFilter, write_filter

if TYPE_CHECKING:
    from codecnn.signalling.nnpf import FilterStream, Message

nnpf_app = typer.Typer(
    help="Write filters into VVC and HEVC streams as neural-network post-filter SEI messages (H.274), and read them.",
    no_args_is_help=True,
)
app.add_typer(nnpf_app, name="nnpf")

_LONGEST_TEXT = 200
"""Characters of a text that is printed in full; --json has all."""


@command(
    "nnpf write",
    write_filter,
    "codecnn nnpf write stream.266 -m low_cost_yuv_17 -o filtered.266",
    group=nnpf_app,
)
def show_written(options: WriteOptions, result: WrittenFilter, as_json: bool) -> None:
    """Print the network, and the bytes that were added."""
    facts: dict[str, Any] = {
        "stream": str(options.output),
        "weights": str(result.weights),
        "network": _network(result.characteristics),
        "pictures": result.pictures,
        "filtered": result.filtered,
        "messages": result.messages,
        "bytes_added": result.bytes_added,
    }
    print_facts(facts, as_json)


@record
class ReadOptions:
    """Options of `read`."""

    stream: Annotated[FileName, argument("Stream of VVC or HEVC, also in MP4, MKV or TS.", "STREAM", kind=Path)]


@verb(ReadOptions)
def read(options: ReadOptions) -> "FilterStream":
    """Print the post-filter messages of a stream: every syntax element by its name in H.274, picture by picture.

    Pictures are listed in decoding order with their POC and their number in output order. The last lines say which
    pictures are filtered.
    """
    from codecnn.signalling.nnpf import read_messages

    return read_messages(options.stream)


@command("nnpf read", read, "codecnn nnpf read filtered.266", group=nnpf_app)
def show_messages(options: ReadOptions, parsed: "FilterStream", as_json: bool) -> None:
    """Print the messages."""
    from codecnn.signalling.nnpf import active_filters

    pictures = [
        {
            "access_unit": number,
            "cvs": picture.cvs,
            "poc": picture.poc,
            "output_position": picture.position,
            "nal_unit_type": picture.type,
            "messages": [_json(message) for message in picture.messages],
            "ignored": picture.skipped,
        }
        for number, picture in enumerate(parsed.pictures)
        if picture.messages or picture.skipped
    ]
    active = _active(parsed)
    if as_json:
        print_json({"stream": str(options.stream), "codec": parsed.codec, "pictures": pictures, "active": active})
        return
    for number, picture in enumerate(parsed.pictures):
        for reason in picture.skipped:
            err.print(
                f"codecnn: access unit {number}: ignored: {reason}", markup=False, highlight=False, soft_wrap=True
            )
        for message in picture.messages:
            _print(f"access unit {number}, POC {picture.poc}, picture {picture.position}: {_kind(message)}")
            for name, value in message.present().items():
                _print(f"  {name:48} {_text(value)}")
    if not pictures:
        _print("no post-filter messages")
    elif isinstance(active, str):
        err.print(f"codecnn: {active}", markup=False, highlight=False, soft_wrap=True)
    else:
        filtered = sum(bool(each) for each in active)
        updated = sum(any(filter_.update is not None for filter_ in each) for each in active_filters(parsed))
        _print(f"filtered: {filtered} of {len(active)} pictures" + (f", {updated} with an update" * (updated > 0)))
        if 0 < filtered < len(active):
            _print(f"unfiltered: {', '.join(str(n) for n, each in enumerate(active) if not each)}")


def _active(stream: "FilterStream") -> list[list[int]] | str:
    """Return the ids of the filters of each picture, or why they cannot be told."""
    from codecnn.base.errors import FormatError
    from codecnn.signalling.nnpf import active_filters

    try:
        return [[each.characteristics.nnpfc_id for each in filters] for filters in active_filters(stream)]
    except FormatError as error:
        return str(error)


def _json(message: "Message") -> dict[str, Any]:
    return {"message": _kind(message).split()[0]} | message.present()


def _kind(message: "Message") -> str:
    from codecnn.signalling.nnpf import Characteristics

    if isinstance(message, Characteristics):
        kind = "" if message.nnpfc_base_flag else f"update of filter {message.nnpfc_id}; "
        return f"NNPFC ({kind}{', '.join(message.purposes)}; {_network(message)})"
    return "NNPFA"


def _network(message: Any) -> str:
    from codecnn.signalling.nnpf import describe_network

    return describe_network(message)


def _print(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def _text(value: Any) -> str:
    """Format a value; flags are 0 and 1 as in the standard, and long texts are cut."""
    if isinstance(value, list):
        return " ".join(map(_text, value))
    if isinstance(value, bool):
        return str(int(value))
    text = str(value)
    printable = "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST_TEXT])
    return printable if len(text) <= _LONGEST_TEXT else f"{printable}... ({len(text)} characters)"
