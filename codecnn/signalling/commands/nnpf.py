"""Commands on neural-network post-filter messages in streams: write and read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from codecnn.base.errors import ConfigError
from codecnn.cli.application import EXAMPLES, app
from codecnn.cli.console import err, out, print_facts, print_json
from codecnn.cli.options import Exact, Json, Model

if TYPE_CHECKING:
    from codecnn.signalling.nnpf import FilterStream, Message

nnpf_app = typer.Typer(
    help="Write filters into VVC and HEVC streams as neural-network post-filter SEI messages (H.274), and read them.",
    no_args_is_help=True,
)
app.add_typer(nnpf_app, name="nnpf")
EXAMPLES |= {
    "nnpf write": "codecnn nnpf write stream.266 -m low_cost_yuv_17 -o filtered.266",
    "nnpf read": "codecnn nnpf read filtered.266",
}

_LONGEST_TEXT = 200
"""Characters of a text that is printed in full; --json has all."""


@nnpf_app.command("write")
def write(
    stream: Annotated[Path, typer.Argument(metavar="STREAM", help="Stream of VVC or HEVC, also in MP4, MKV or TS.")],
    model: Model,
    output: Annotated[Path, typer.Option("-o", "--output", help="Byte stream to write: .266 for VVC, .265 for HEVC.")],
    mode: Annotated[
        Literal["uri", "payload"],
        typer.Option(
            "--mode",
            help="uri names the weights by their SHA-256 (about 120 bytes at each picture where decoding can start); "
            "payload embeds the weights.",
        ),
    ] = "uri",
    exact: Exact = None,
    off: Annotated[
        str, typer.Option("--off", help="Pictures that stay unfiltered, by number in output order, e.g. 0,4-7.")
    ] = "",
    repeat: Annotated[
        bool | None,
        typer.Option(
            "--repeat/--no-repeat",
            help="Repeat the messages at every picture at which decoding can start (default: for --mode uri).",
            show_default=False,
        ),
    ] = None,
    patch: Annotated[
        str | None,
        typer.Option(
            "--patch", metavar="WxH", help="Patches of decoders in luma samples, e.g. 256x256 (default: the picture)."
        ),
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option("--overlap", help="Luma samples around a patch, as in the file of --onnx (default: as needed)."),
    ] = None,
    onnx: Annotated[
        str | None,
        typer.Option(
            "--onnx",
            metavar="URI",
            help="Name an ONNX file (codecnn export --format nnpfc) for other decoders instead of the weights.",
        ),
    ] = None,
    adapt: Annotated[
        Path | None,
        typer.Option("--adapt", metavar="UPDATE", help="Update of the weights for this stream, from codecnn adapt."),
    ] = None,
    number: Annotated[int, typer.Option("--id", help="nnpfc_id of the filter: 0 to 255, or from 512 on.")] = 0,
    replace: Annotated[
        bool, typer.Option("--replace", help="Remove post-filter messages that the stream has.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a filter into a stream, without coding it again: codecnn filter -i OUTPUT then needs no weights.

    The first picture of each coded video sequence gets the characteristics (NNPFC: inputs, outputs, patches, cost,
    network) and a persistent activation (NNPFA), as prefix SEI NAL units. All other NAL units stay byte for byte, so
    that decoders without post-filters decode the same pictures.
    """
    from codecnn.pictures.files import parse_size
    from codecnn.signalling import write_filter

    result = write_filter(
        stream,
        model,
        output,
        mode=mode,
        exact=exact,
        number=number,
        unfiltered=_numbers(off),
        every_irap=repeat,
        onnx_uri=onnx,
        patch=None if patch is None else parse_size(patch),
        overlap=overlap,
        replace=replace,
        update=adapt,
    )
    facts: dict[str, Any] = {
        "stream": str(output),
        "weights": str(result.weights),
        "network": _network(result.characteristics),
        "pictures": result.pictures,
        "filtered": result.filtered,
        "messages": result.messages,
        "bytes_added": result.bytes_added,
    }
    print_facts(facts, as_json)


@nnpf_app.command("read")
def read(
    stream: Annotated[Path, typer.Argument(metavar="STREAM", help="Stream of VVC or HEVC, also in MP4, MKV or TS.")],
    as_json: Json = False,
) -> None:
    """Print the post-filter messages of a stream: every syntax element by its name in H.274, picture by picture.

    Pictures are listed in decoding order with their POC and their number in output order. The last lines say which
    pictures are filtered.
    """
    from codecnn.signalling.nnpf import active_filters, read_messages

    parsed = read_messages(stream)
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
        print_json({"stream": str(stream), "codec": parsed.codec, "pictures": pictures, "active": active})
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


def _numbers(text: str) -> set[int]:
    """Parse numbers and ranges, e.g. "0,4-7"."""
    numbers: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ConfigError(f"--off {part!r} is no number or range of pictures, e.g. 0,4-7")
        if int(last or first) >= 10**7:
            raise ConfigError(f"--off {part!r} names more pictures than a stream has")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers
