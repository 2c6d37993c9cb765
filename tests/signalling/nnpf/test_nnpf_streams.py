"""Post-filter messages in streams: where they stand, what stays as it is, and which pictures they activate."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from codecnn.base.errors import ConfigError, FormatError
from codecnn.signalling.nnpf import (
    Activation,
    Characteristics,
    FilterStream,
    PictureUnits,
    activation,
    active_filters,
    insert_messages,
    read_messages,
    write_message,
)
from tests.helpers.cut_streams import units_of
from tests.helpers.nnpf_messages import BASE
from tests.helpers.subpicture_headers import coded_picture, parameter_sets
from tests.helpers.video_files import FFMPEG

GOLDEN = ("vvc/tinyclip128x64_ra_qp37.266", "vvc/tinyclip128x64_ld_qp37.266", "hevc/clip_rab_amp_qp32.265")


def types_of(unit: bytes, codec: str) -> tuple[int, int, int]:
    """Read nal_unit_type, nuh_layer_id and nuh_temporal_id_plus1 of a unit with its start code."""
    first, second = unit.lstrip(b"\0")[1:3]
    if codec == "vvc":
        return second >> 3, first & 63, second & 7
    return first >> 1 & 63, (first & 1) << 5 | second >> 3, second & 7


def is_filter_unit(unit: bytes, codec: str) -> bool:
    kind = types_of(unit, codec)[0]
    return kind == {"vvc": 23, "hevc": 39}[codec] and unit.lstrip(b"\0")[3] in (210, 211)


def pictures_of(path: Path) -> bytes:
    """Hash the pictures that ffmpeg decodes."""
    argv = [*FFMPEG, "-threads", "1", "-i", str(path), "-f", "md5", "-"]
    return subprocess.run(argv, check=True, capture_output=True).stdout


@pytest.fixture
def all_streams(streams, golden_file):
    return [*streams.values(), *(golden_file(name) for name in GOLDEN)]


def test_other_units_stay_byte_for_byte(all_streams, tmp_path):
    for path in all_streams:
        before = read_messages(path)
        out = tmp_path / path.name
        out.write_bytes(insert_messages(before, BASE, unfiltered=(0, 5)))
        codec, units = before.codec, units_of(out.read_bytes())
        kept = [unit.rstrip(b"\0") for unit in units if not is_filter_unit(unit, codec)]
        assert kept == [unit.rstrip(b"\0") for unit in units_of(path.read_bytes())], path
        assert len(kept) < len(units)
        assert pictures_of(out) == pictures_of(path)
        # With the messages removed, the file is the one before.
        cleared = read_messages(out)
        content, at = b"", 0
        for start, end in cleared.removable:
            content, at = content + cleared.data[at:start], end
        assert content + cleared.data[at:] == before.data


def test_messages_follow_parameter_sets_and_precede_their_picture(all_streams, tmp_path):
    for path in all_streams:
        stream = read_messages(path)
        codec = stream.codec
        out = tmp_path / path.name
        out.write_bytes(insert_messages(stream, BASE, unfiltered=(1,)))
        units = units_of(out.read_bytes())
        kinds = [types_of(unit, codec) for unit in units]
        filter_units = 0
        for n, unit in enumerate(units):
            if not is_filter_unit(unit, codec):
                continue
            filter_units += 1
            following = next(m for m in range(n, len(units)) if not is_filter_unit(units[m], codec))
            kind, layer, temporal = kinds[following]
            assert kind in ({19, 0, 1, 2, 3, 7, 8, 9, 10} if codec == "vvc" else set(range(22))), path
            is_header = codec == "vvc" and kind == 19
            picture = kinds[following + 1][0] if is_header else kind
            first_bit = 1 if is_header else units[following].lstrip(b"\0")[3] >> 7
            assert first_bit == 1, "the first slice of its picture"
            assert kinds[n][1:] == (layer, temporal) == (0, temporal)
            if unit.lstrip(b"\0")[3] == 210:
                assert picture in ({7, 8, 9, 10} if codec == "vvc" else set(range(16, 22)))
        assert filter_units >= 2
        written = read_messages(out)
        active = active_filters(written)
        assert [bool(each) for each in active] == [n != 1 for n in range(len(active))]


def test_payload_needs_emulation_prevention(streams, tmp_path):
    from dataclasses import replace

    path = streams["vvc_cra"]
    stream = read_messages(path)
    message = replace(
        BASE,
        nnpfc_mode_idc=0,
        nnpfc_tag_uri=None,
        nnpfc_uri=None,
        nnpfc_payload_byte=bytes([0, 0, 0, 1, 0, 0, 3, 0, 0]),
    )
    assert b"\0\0\1" in write_message(message)
    out = tmp_path / "out.266"
    out.write_bytes(insert_messages(stream, message))
    assert len(units_of(out.read_bytes())) == len(units_of(path.read_bytes())) + sum(
        len(picture.messages) for picture in read_messages(out).pictures
    )
    assert read_messages(out).pictures[0].messages[0] == message
    assert pictures_of(out) == pictures_of(path)


def activations(stream: FilterStream) -> dict[int | None, list[bool | None]]:
    """Persistence of the activations of each picture, by position in output order."""
    return {
        picture.position: [m.nnpfa_persistence_flag for m in picture.messages if isinstance(m, Activation)]
        for picture in stream.pictures
        if any(isinstance(m, Activation) for m in picture.messages)
    }


def test_leading_pictures_have_activations_of_their_own(streams, tmp_path):
    stream = read_messages(streams["hevc_radl"])
    starts = [picture.position for picture in stream.pictures if picture.starts_cvs]
    radl = [picture.position for picture in stream.pictures if picture.type in (6, 7)]
    assert len(starts) == 3
    assert radl, "the stream has sequences that begin with RADL pictures"
    assert all(any(position == start - n for start in starts for n in (1, 2, 3)) for position in radl)
    out = tmp_path / "out.265"
    out.write_bytes(insert_messages(stream, BASE, every_irap=False))
    written = read_messages(out)
    assert activations(written) == {position: [True] for position in (*starts, *radl)}
    assert all(len(filters) == 1 for filters in active_filters(written))
    # Without their own messages they precede the persistent activation in output order.
    for picture in written.pictures:
        if picture.type in (6, 7):
            picture.messages.clear()
    assert [n for n, filters in enumerate(active_filters(written)) if not filters] == sorted(radl)


@pytest.mark.parametrize("name", ["hevc_open", "vvc_cra"])
def test_pictures_that_are_never_output_have_no_messages(name, streams, tmp_path):
    content = units_of(streams[name].read_bytes())
    stream = read_messages(streams[name])
    irap = {"vvc": (9,), "hevc": (21,)}[stream.codec]
    rasl = {"vvc": (3,), "hevc": (8, 9)}[stream.codec]
    assert any(picture.type in rasl for picture in stream.pictures)
    out = tmp_path / f"out{streams[name].suffix}"
    out.write_bytes(insert_messages(stream, BASE))
    repeated = read_messages(out)
    described = [p.type for p in repeated.pictures if any(isinstance(m, Characteristics) for m in p.messages)]
    assert len(described) > 1
    assert set(described[1:]) == set(irap)
    out.write_bytes(insert_messages(stream, BASE, every_irap=False))
    assert sum(len(p.messages) for p in read_messages(out).pictures) == 2
    # Cut at the second IRAP picture, whose RASL pictures cannot be decoded then.
    first = next(n for n, unit in enumerate(content) if types_of(unit, stream.codec)[0] in irap)
    sets = [u for u in content if types_of(u, stream.codec)[0] in {"vvc": (15, 16), "hevc": (32, 33, 34)}[stream.codec]]
    aps = [u for u in content[:first] if stream.codec == "vvc" and types_of(u, "vvc")[0] == 17]
    cut = tmp_path / f"cut{streams[name].suffix}"
    cut.write_bytes(b"".join((*sets, *aps, *content[first:])))
    parsed = read_messages(cut)
    left_out = [picture for picture in parsed.pictures if picture.poc is None]
    assert left_out
    assert all(picture.type in rasl for picture in left_out)
    out.write_bytes(insert_messages(parsed, BASE, unfiltered=(1,)))
    written = read_messages(out)
    assert not any(picture.messages for picture in written.pictures if picture.poc is None)
    assert [bool(filters) for filters in active_filters(written)][:3] == [True, False, True]


def test_all_slices_decide_the_type_of_a_picture(tmp_path):
    stream = parameter_sets() + coded_picture((9, 9), 8) + coded_picture((2, 3), 4, [4]) + coded_picture((2, 2), 6, [2])
    stream += coded_picture((8, 0), 12, [-4]) + coded_picture((0, 9), 13, [-1]) + coded_picture((8, 8), 0)
    path = tmp_path / "subpictures.266"
    path.write_bytes(stream)
    pictures = [
        (picture.poc, picture.cvs, picture.starts_cvs, picture.type) for picture in read_messages(path).pictures
    ]
    assert pictures == [
        (8, 0, True, 9),
        (None, 0, False, 3),
        (6, 0, False, 2),
        (12, 0, False, 0),
        (13, 0, False, 0),
        (0, 1, True, 8),
    ]


def picture(position: int, *messages: object, cvs: int = 0) -> PictureUnits:
    return PictureUnits(cvs, position == 0, 0, 0, 0, list(messages), [], position, position)


def active_positions(*pictures: PictureUnits) -> list[int]:
    stream = FilterStream(Path("stream.266"), "vvc", b"", pictures, (), False, None)
    return [n for n, filters in enumerate(active_filters(stream)) if filters]


def test_activation_holds_in_output_order():
    on, once = activation(3, persistent=True), activation(3, persistent=False)
    off = Activation(nnpfa_target_id=3, nnpfa_cancel_flag=True)
    # Decoding order 0, 4, 2, 1, 3: the message of picture 4 has no effect on 1 to 3.
    assert active_positions(picture(0, BASE), picture(4, on), picture(2, once), picture(1), picture(3)) == [2, 4]
    assert active_positions(picture(0, BASE, on), picture(4), picture(2, off), picture(1), picture(3)) == [0, 1]
    assert active_positions(picture(0, BASE, on), picture(2, off), picture(1), picture(3, once), picture(4)) == [
        0,
        1,
        3,
    ]
    other = picture(2, BASE, cvs=1)
    assert active_positions(picture(0, BASE, on), picture(1), other) == [0, 1], "a new sequence ends it"
    with pytest.raises(FormatError, match="does not describe"):
        active_positions(picture(0, on), picture(1, BASE))
    update = Characteristics(
        nnpfc_purpose=1,
        nnpfc_id=3,
        nnpfc_base_flag=False,
        nnpfc_mode_idc=0,
        nnpfc_property_present_flag=False,
        nnpfc_payload_byte=b"\1",
    )
    from dataclasses import replace

    for activated, expected in ((on, None), (replace(on, nnpfa_target_base_flag=False), update)):
        pictures = (picture(0, BASE, update, activated),)
        (filters,) = active_filters(FilterStream(Path("stream.266"), "vvc", b"", pictures, (), False, None))
        assert [(each.characteristics, each.update) for each in filters] == [(BASE, expected)]


def test_refusals_of_insertion(streams, tmp_path):
    path = streams["vvc_cra"]
    stream = read_messages(path)
    with pytest.raises(ConfigError, match="picture 35"):
        insert_messages(stream, BASE, unfiltered=(35,))
    out = tmp_path / "out.266"
    out.write_bytes(insert_messages(stream, BASE))
    with pytest.raises(ConfigError, match="--replace"):
        insert_messages(read_messages(out), BASE)
    assert insert_messages(read_messages(out), BASE, replace=True) == out.read_bytes()


def test_commands_write_and_read(run, streams, yuv_weights, tmp_path):
    out = tmp_path / "out.265"
    status, text, _ = run("nnpf", "write", streams["hevc_radl"], "-m", yuv_weights, "-o", out, "--off", "2-3", "--json")
    facts = json.loads(text)
    assert status == 0
    assert (facts["pictures"], facts["filtered"]) == (35, 33)
    status, text, _ = run("nnpf", "read", out)
    assert status == 0
    assert "unfiltered: 2, 3" in text
    assert "filtered: 33 of 35 pictures" in text
    shown = dict(re.findall(r"^  (nnpf\S+)\s+(.*)$", text, re.MULTILINE))
    status, text, _ = run("nnpf", "read", out, "--json")
    read = json.loads(text)
    messages = [message for each in read["pictures"] for message in each["messages"]]
    described = next(message for message in messages if message["message"] == "NNPFC")
    assert described["nnpfc_inp_order_idc"] == 3
    assert described["nnpfc_patch_width_minus1"] == 31
    assert all(
        shown[name] == str(int(value) if isinstance(value, bool) else value)
        for name, value in described.items()
        if name in shown and not isinstance(value, list)
    )
    assert [bool(each) for each in read["active"]] == [n not in (2, 3) for n in range(35)]
    status, text, _ = run("info", out)
    assert "SHA-256" in next(line for line in text.splitlines() if line.startswith("carried post filters"))
    status, text, _ = run("info", streams["hevc_radl"], "--json")
    assert json.loads(text)["carried_post_filters"] == []
    assert run("nnpf", "write", streams["hevc_radl"], "-m", yuv_weights, "-o", tmp_path / "out.266")[0] == 1
    assert run("nnpf", "write", streams["hevc_radl"], "-m", yuv_weights, "-o", out, "--off", "x")[0] == 1
