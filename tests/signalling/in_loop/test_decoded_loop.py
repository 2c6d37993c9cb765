"""Streams with a filter in the loop, decoded: all samples are those of the encoder, and no stream decodes without it.

`loop/loop.266` of tests/data was coded by `python tests/data/make.py loop`; the other streams need libvvenc.
"""

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from codecnn.base.errors import FormatError, MissingFileError, ModelError, UnsupportedError
from codecnn.codec import decode_pictures, read_pictures
from codecnn.evaluation import Entry
from codecnn.filtering import QP_OFFSETS, load_filter
from codecnn.filtering.decisions import (
    DecisionReader,
    DecisionWriter,
    LoopParameters,
    read_parameters,
    write_parameters,
)
from codecnn.pictures.files import VideoFormat, open_raw, open_video
from codecnn.signalling.in_loop import LoopFilter, evaluate_in_loop
from codecnn.vvc.syntax import OUTPUT_MD5_UUID, SeiMessage, SliceExtensionWriter, access_units, add_sei
from codecnn.vvc.syntax import read_pictures as parsed_pictures
from tests.helpers.clips import write_clip
from tests.helpers.commands import result_of
from tests.helpers.cut_streams import units_of, vvc_type
from tests.helpers.filters import toward_entry
from tests.helpers.loop_stream import BEHIND, FORMAT, code_loop_stream, loop_clip, loop_decisions, write_loop_network

STREAM, WEIGHTS = "loop/loop.266", "loop/small.int8.safetensors"
PLANES = ("rec_y", "rec_u", "rec_v")
SIZE = FORMAT.height, FORMAT.width


@pytest.fixture
def stream(golden_file):
    return golden_file(STREAM)


@pytest.fixture
def weights(golden_file):
    return golden_file(WEIGHTS)


@dataclasses.dataclass
class Messages:
    """User data of a picture, MD5 of the output included, and its decision."""

    number: int
    user_data: bytes | None
    decision: bytes | None


def with_extensions(stream, path, change):
    """Write the stream with the extensions of slice headers that `change` returns by picture number and extension."""
    writer, written = SliceExtensionWriter(), b""
    units = access_units(stream.read_bytes())
    for number, (picture, unit) in enumerate(zip(parsed_pictures(stream.read_bytes()), units, strict=True)):
        written += writer.write(unit, change(number, picture.slice_extension))
    path.write_bytes(written)
    return path


def test_decoded_pictures_are_those_of_the_encoder(stream, weights):
    digest, states = hashlib.md5(), []
    for picture in decode_pictures(stream, PLANES, LoopFilter(weights)):
        states.append((picture.hash, picture.slice_type))
        for plane in picture.planes.values():
            digest.update(plane.astype("<u2").tobytes())
    assert states == [("ok", "I")] + [("ok", "B")] * 4
    assert digest.hexdigest() == stream.with_suffix(".md5").read_text().split()[0]


def test_the_stream_has_the_decisions_and_the_network_that_were_coded(stream, weights, tmp_path):
    reader = None
    for picture, coded in zip(parsed_pictures(stream.read_bytes()), loop_decisions(), strict=True):
        data = picture.slice_extension
        assert (picture.loop_filter is not None) == (picture.poc == 0)
        if reader is None:
            parameters, data = read_parameters(data)
            reader = DecisionReader(parameters)
        decision, behind = reader.read(data, picture.slices[0].header.slice_qp_y, SIZE)
        assert behind == (picture.output_md5 is not None) == (picture.poc in BEHIND)
        assert (decision.modes, decision.scales) == (coded.modes, coded.scales)
        assert decision.qp_offset == coded.qp_offset
        assert all(np.array_equal(decision.flags[name], flags) for name, flags in coded.flags.items())
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    assert reader.parameters == LoopParameters(
        "int8", sha256[:16], 64, ("y", "u", "v"), QP_OFFSETS["full"], "by_picture"
    )
    assert write_loop_network(tmp_path).read_bytes() == weights.read_bytes()


def test_command_decodes_and_checks(run, stream, weights, tmp_path):
    output = tmp_path / "out_200x136_10bit.yuv"
    facts = result_of(run, "decode", stream, "-m", weights, "-o", output, "--check")
    assert (facts["ok"], facts["differs"], facts["none"]) == (5, 0, 0)
    digest = hashlib.md5(output.read_bytes()).hexdigest()
    assert digest == stream.with_suffix(".md5").read_text().split()[0]
    status, _, err = run("decode", stream, "-o", output)
    assert status == 1
    message = " ".join(err.split())
    assert "SHA-256" in message
    assert "-m" in message
    status, _, err = run("decode", stream, "-m", "low_cost_5", "--check")
    assert status == 1
    assert "coded with" in " ".join(err.split())


def test_weights_for_an_ordinary_stream_are_refused(run, golden_file):
    status, _, err = run("decode", golden_file("vvc/tinyclip128x64_ld_qp37.266"), "-m", "low_cost_5", "--check")
    assert status == 1
    assert "leave out -m" in " ".join(err.split())


def test_the_stream_never_decodes_without_the_filter(stream):
    with pytest.raises(UnsupportedError, match="coded with a CNN filter in the loop: decode it with `codecnn decode`"):
        list(decode_pictures(stream))
    with pytest.raises(UnsupportedError, match="pass hook=codecnn"):
        list(read_pictures(stream, ("rec_y",), pictures="intra"))
    # The picture before the in-loop filters of an intra picture does not depend on the filter.
    assert len(list(read_pictures(stream, ("unf_y",), pictures="intra"))) == 1
    with pytest.raises(MissingFileError, match="SHA-256"):
        list(decode_pictures(stream, (), LoopFilter()))
    with pytest.raises(ModelError, match="are not the weights"):
        list(decode_pictures(stream, (), LoopFilter("low_cost_17")))


def test_intra_pictures_are_filtered_too(stream, weights):
    (picture,) = read_pictures(stream, PLANES, pictures="intra", hook=LoopFilter(weights))
    first = next(iter(read_pictures(stream, PLANES, hook=LoopFilter(weights))))
    assert picture[0] == first[0] == 0
    for name, plane in first[1].items():
        np.testing.assert_array_equal(picture[1][name], plane)


def test_other_decisions_differ_from_the_hash(stream, weights, tmp_path):
    """A changed scale of the third picture changes this picture and those predicted from it."""
    qps = [picture.slices[0].header.slice_qp_y for picture in parsed_pictures(stream.read_bytes())]
    parameters, first = read_parameters(next(parsed_pictures(stream.read_bytes())).loop_filter)
    reader, writer = DecisionReader(parameters), DecisionWriter(parameters)

    def changed(number, data):
        decision, behind = reader.read(data if number else first, qps[number], SIZE)
        if number == 2:
            modes = dict.fromkeys("yuv", "on")
            flags = {name: np.ones_like(each) for name, each in decision.flags.items()}
            decision = dataclasses.replace(decision, modes=modes, flags=flags, scales=dict.fromkeys("yuv", 320 / 256))
        code = writer.write(decision, qps[number], behind=behind)
        return code if number else write_parameters(parameters) + code

    path = with_extensions(stream, tmp_path / "changed.266", changed)
    states = [picture.hash for picture in decode_pictures(path, (), LoopFilter(weights))]
    assert states[:3] == ["ok", "ok", "differs"]
    assert "ok" not in states[2:]


def test_a_picture_behind_the_loop_is_compared_with_its_own_md5(stream, weights, tmp_path):
    """Its reference equals the hash in the stream, and the pictures predicted from it stay right."""
    units = access_units(stream.read_bytes())
    kept = b"".join(unit for unit in units_of(units[1]) if vvc_type(unit) != 23)
    units[1] = add_sei(kept, [SeiMessage(5, OUTPUT_MD5_UUID + bytes(16))], [])
    wrong = tmp_path / "wrong.266"
    wrong.write_bytes(b"".join(units))
    pictures = list(decode_pictures(wrong, PLANES, LoopFilter(weights)))
    assert [picture.hash for picture in pictures] == ["ok", "differs", "ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda n, data: data if n else data[:8], FormatError, "POC 0: .* end early"),
        (lambda n, data: data if n else data[:4] + b"\x20" + data[5:], UnsupportedError, "version 1"),
        (lambda n, data: data + b"\1" if n == 2 else data, FormatError, "POC 2: .* not those of its values"),
    ],
)
def test_damaged_extensions_are_errors(stream, weights, tmp_path, change, error, words):
    path = with_extensions(stream, tmp_path / "damaged.266", change)
    with pytest.raises(error, match=words):
        list(decode_pictures(path, (), LoopFilter(weights)))


def test_extensions_of_other_streams_are_no_filter(golden_file, tmp_path):
    stream = golden_file("vvc/tinyclip128x64_ld_qp37.266")
    path = with_extensions(stream, tmp_path / "other.266", lambda n, _: bytes([n]) * n)
    assert {picture.hash for picture in decode_pictures(path)} == {"ok"}
    assert {picture.hash for picture in decode_pictures(path, (), LoopFilter())} == {"ok"}


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"arithmetic": "float"}, UnsupportedError, "computed in float, which gives other samples on other machines"),
        ({"components": ("y",)}, FormatError, "the filter in the loop filters y, and its weights filter y, u, v"),
        ({"weights_id": "0" * 16}, ModelError, "are not the weights that the stream was coded with"),
    ],
)
def test_parameters_that_do_not_fit_are_errors(stream, weights, tmp_path, changes, error, words):
    def other(number, data):
        if number:
            return data
        parameters, code = read_parameters(data)
        return write_parameters(dataclasses.replace(parameters, **changes)) + code

    path = with_extensions(stream, tmp_path / "other.266", other)
    with pytest.raises(error, match=words):
        list(decode_pictures(path, (), LoopFilter(weights)))


# --- with the library -------------------------------------------------------------------------------------------------


def samples_that_differ(folder, form, hook):
    """Decode the stream of a folder; return the number of samples that differ from the encoder's, and the hashes."""
    differing, states = 0, []
    with open_raw(folder / "pictures.yuv", form) as video:
        decoded = list(decode_pictures(folder / "stream.266", PLANES, hook))
        assert len(decoded) == len(video)
        for picture, expected in zip(decoded, video, strict=True):
            states.append(picture.hash)
            for plane, samples in zip(picture.planes.values(), expected.planes, strict=True):
                differing += int(np.count_nonzero(plane != samples))
    return differing, set(states)


def planes_before_the_filter(stream):
    """Decode a stream; return the components of each picture that the filter receives."""
    seen, filter_ = [], LoopFilter()

    def hook(picture, planes):
        seen.append([plane.copy() for plane in planes])
        return filter_(picture, planes)

    assert {picture.hash for picture in decode_pictures(stream, (), hook)} == {"ok"}
    return seen


@pytest.mark.parametrize("decisions", ["none", "ctu"])
@pytest.mark.parametrize("name", ["low_cost_5.int8", "low_cost_yuv_17.int8"])
def test_streams_of_shipped_weights_decode_to_the_pictures_of_the_encoder(vvenc_library, tmp_path, name, decisions):
    """In the loop, behind it and both; the decoder finds the weights by their SHA-256."""
    clip = loop_clip(tmp_path)
    filter_ = load_filter(name)
    with open_video(clip) as video:
        entry = Entry.of(filter_, "own", card=filter_.card, device="cpu")
        options = {"preset": "faster", "decisions": decisions, "choose": True, "picture_hashes": True}
        results = evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path, **options)
    rows = {row.chain: row for row in results.rows}
    coded = VideoFormat(FORMAT.width, FORMAT.height, "420", 10)
    places = [*tmp_path.glob("coded/*_key_*"), *tmp_path.glob("coded/*_intra_*")]
    folders = {tmp_path / rows["in_loop_throughout"].folder, *places}
    assert len(folders) == 3
    for folder in folders:
        assert samples_that_differ(folder, coded, LoopFilter()) == (0, {"ok"})
    behind = tmp_path / rows["in_loop_throughout"].folder / "behind.266"
    # Behind the loop, the pictures before the filter are those of the stream without it.
    with open_raw(tmp_path / rows["without"].folder / "pictures.yuv", coded) as plain:
        for picture, planes in zip(plain, planes_before_the_filter(behind), strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(picture.planes, planes, strict=True))


def test_a_float_filter_is_refused(vvenc_library, tmp_path):
    clip = write_clip(tmp_path / "clip_64x64_30.yuv", VideoFormat(64, 64, "420", 8, 30), 2)
    with open_video(clip) as video:
        entry = toward_entry([4.0 * picture.y for picture in video], "toward", left=0.5, right=0.5)
        results = evaluate_in_loop([entry], {"clip": video}, (37,), vvenc_library, tmp_path, preset="faster")
    (row,) = (row for row in results.rows if row.chain == "in_loop_throughout")
    assert json.loads((tmp_path / row.folder / "card.json").read_text())["weights"]["arithmetic"] == "float"
    with pytest.raises(UnsupportedError, match="computed in float"):
        list(decode_pictures(tmp_path / row.folder / "stream.266", (), LoopFilter()))


def test_coding_again_gives_the_stream_of_the_repository(vvenc_library, stream, weights, tmp_path):
    code_loop_stream(vvenc_library, weights, tmp_path)
    assert (tmp_path / "loop.266").read_bytes() == stream.read_bytes()
    assert (tmp_path / "loop.md5").read_text() == stream.with_suffix(".md5").read_text()
