"""The command that decodes VVC streams."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from codecnn.api.decoding import DecodeOptions, decode
from codecnn.base.errors import FormatError
from codecnn.cli.commands import command
from codecnn.cli.console import err, out, print_facts, print_json

if TYPE_CHECKING:
    from codecnn.codec import CheckedPicture


def _print_pictures(options: DecodeOptions, as_json: bool) -> DecodeOptions:
    """Let --check print a line for each picture, on standard error if the pictures go to standard output."""
    console = err if str(options.output) == "-" else out

    def show(picture: "CheckedPicture") -> None:
        console.print(_line(picture), markup=False, highlight=False, soft_wrap=True)

    return options if as_json else replace(options, picture=show)


@command("decode", decode, "codecnn decode stream.266 -o decoded.y4m", before=_print_pictures)
def show_decoded(options: DecodeOptions, pictures: "list[CheckedPicture]", as_json: bool) -> None:
    """Print how many pictures equal their hashes; FormatError if some do not."""
    from codecnn.codec import summary_of, unproven

    counts = summary_of(pictures)
    facts: dict[str, Any] = {
        "stream": str(options.stream),
        "output": None if options.output is None else str(options.output),
    }
    if as_json:
        print_json(facts | counts | {"pictures": [asdict(picture) for picture in pictures]})
    elif str(options.output) != "-":
        text = (
            f"{len(pictures)}; {counts['ok']} equal their hash, {counts['differs']} differ, {counts['none']} have none"
        )
        print_facts(facts | {"pictures": text}, False)
    wrong = [str(picture.poc) for picture in unproven(pictures)]
    if wrong:
        listed = ", ".join(wrong[:10]) + (", ..." if len(wrong) > 10 else "")
        raise FormatError(
            f"{options.stream}: {len(wrong)} of {len(pictures)} pictures differ from their hash, or have none and "
            f"depend on missing pictures: POC {listed}"
        )


def _line(picture: "CheckedPicture") -> str:
    """Return the line of a picture for --check."""
    qps = ",".join(map(str, sorted(set(picture.slice_qps))))
    missing = f"  depends on missing pictures: POC {', '.join(map(str, picture.missing))}" if picture.missing else ""
    return f"POC {picture.poc:<6} {picture.slice_type}  QP {qps:<4} {picture.hash}{missing}"
