"""Stores of supplied streams and pictures: equal to stores of the encoder, and each check failing once."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from codecnn.api.config import load_recipe
from codecnn.base.errors import ConfigError, EncoderError, FormatError, MissingFileError
from codecnn.dataset import build_store, open_store, verify_store
from codecnn.evaluation import evaluate, summarise_rows
from codecnn.models import as_card
from codecnn.pictures.files import VideoFormat, open_raw
from tests.helpers.clips import write_clip
from tests.helpers.filters import rate_rows, toward_entry
from tests.helpers.video_files import FFMPEG

FORM = VideoFormat(96, 64, "420", 8)
CLIP = "clip_96x64_8bit.yuv"


def write_recipe(folder: Path, text: str, name: str = "recipe.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def build(folder: Path, text: str, store: Path, **options):
    recipe = write_recipe(folder, f"name: lab\n{text}")
    return build_store(load_recipe(recipe), folder, store, **options)


@pytest.fixture(scope="module")
def coded(tmp_path_factory):
    """Return a folder with a clip of four pictures, the first three coded by both encoders, and the stores by codec."""
    folder = tmp_path_factory.mktemp("lab")
    write_clip(folder / CLIP, FORM, 4)
    write_clip(folder / "other_96x64_8bit.yuv", FORM, 4, seed=3, edges=90)
    stores = {}
    for codec, params in (("vvc", "{}"), ("hevc", "{hash: 1}")):
        text = f"codec: {codec}\npreset: faster\nctu_size: 32\nqp: [27, 37]\nparams: {params}\n"
        text += f"sequences: [{{source: {CLIP}, name: clip, frames: 3, split: test}}]\n"
        stores[codec] = build(folder, text, folder / f"store_{codec}")
        for unit in stores[codec].units:
            stream = unit.path("bitstream")
            (folder / f"clip_{unit.qp}{stream.suffix}").write_bytes(stream.read_bytes())
        if codec == "vvc":
            for unit in stores[codec].units:
                (folder / f"decoded{unit.qp}_96x64_10bit.yuv").write_bytes(unit.decoded_path.read_bytes())
                (folder / "original_96x64_10bit.yuv").write_bytes(unit.original_path.read_bytes())
    return folder, stores


def sequence(streams: str, **keys) -> str:
    entry = {"source": CLIP, "name": "clip", "frames": 3, "split": "test"} | keys
    listed = ", ".join(f"{key}: {value}" for key, value in entry.items() if value is not None)
    return f"codec: streams\nctu_size: 32\nsequences: [{{{listed}, streams: [{streams}]}}]\n"


def plain_rows(store, units):
    """Return the CTU rows of some units without their keys and names."""
    keys = {unit.key for unit in units}
    rows = [row for row in store.ctus().to_pylist() if row["unit"] in keys]
    return [{name: value for name, value in row.items() if name not in ("unit", "sequence", "group")} for row in rows]


@pytest.mark.parametrize(("codec", "suffix"), [("vvc", "266"), ("hevc", "265")])
def test_store_of_streams_equals_that_of_the_encoder(coded, tmp_path, codec, suffix):
    folder, stores = coded
    store = build(folder, sequence(f"clip_*.{suffix}"), tmp_path / "store")
    assert all(problem is None for _, problem in verify_store(store))
    assert [unit.qp for unit in store.units] == [27, 37]
    for unit, coded_unit in zip(store.units, stores[codec].units, strict=True):
        for file in ("original", "bitstream", "decoded"):
            assert unit.path(file).read_bytes() == coded_unit.path(file).read_bytes()
        assert unit.bits == coded_unit.bits == sum(picture.bits for picture in unit.pictures)
        for picture, logged in zip(unit.pictures, coded_unit.pictures, strict=True):
            assert (picture.poc, picture.slice_type, picture.qp) == (logged.poc, logged.slice_type, logged.qp)
            for plane in ("psnr_y", "psnr_u", "psnr_v"):
                assert getattr(picture, plane) == pytest.approx(getattr(logged, plane), abs=1e-4)
        assert unit.given.model_dump() == {
            "file": f"clip_{unit.qp}.{suffix}",
            "codec": codec,
            "ctu_size": 32,
            "md5s": 3,
        }
        if codec == "vvc":
            np.testing.assert_array_equal(unit.block_planes(), coded_unit.block_planes())
        else:
            assert unit.block_planes() is None
    rows, encoder_rows = plain_rows(store, store.units), plain_rows(stores[codec], stores[codec].units)
    if codec == "hevc":
        encoder_rows = [row | {"depth_mean": None, "depth_max": None} for row in encoder_rows]
    assert rows == encoder_rows


@pytest.mark.parametrize(("codec", "suffix"), [("vvc", "266"), ("hevc", "265")])
@pytest.mark.parametrize("container", ["mp4", "mkv", "ts"])
def test_streams_in_containers(coded, tmp_path, codec, suffix, container):
    """The container's stream is extracted: the same pictures, slice QPs and CUs; parameter sets may be repeated."""
    folder, stores = coded
    for qp in (27, 37):
        middle, path = tmp_path / f"clip_{qp}.mp4", tmp_path / f"clip_{qp}.{container}"
        copy = ["-c", "copy"]
        subprocess.run([*FFMPEG, "-i", folder / f"clip_{qp}.{suffix}", *copy, middle], check=True)
        if path != middle:
            subprocess.run([*FFMPEG, "-ignore_editlist", "1", "-i", middle, *copy, path], check=True)
            middle.unlink()
    store = build(folder, sequence(f"{tmp_path}/clip_*.{container}"), tmp_path / "store")
    assert all(problem is None for _, problem in verify_store(store))
    for unit, coded_unit in zip(store.units, stores[codec].units, strict=True):
        assert unit.path("bitstream").suffix == f".{suffix}"
        assert unit.decoded_path.read_bytes() == coded_unit.decoded_path.read_bytes()
        assert unit.given.file == f"clip_{unit.qp}.{container}"
        assert unit.given.codec == codec
        assert [(p.slice_type, p.qp) for p in unit.pictures] == [(p.slice_type, p.qp) for p in coded_unit.pictures]
        assert unit.bits == 8 * unit.path("bitstream").stat().st_size >= coded_unit.bits
        if codec == "vvc":
            np.testing.assert_array_equal(unit.block_planes(), coded_unit.block_planes())


@pytest.fixture(scope="module")
def mixed(coded, tmp_path_factory):
    """Return a store of streams of both codecs, and of decoded pictures without a stream."""
    folder, _ = coded
    text = sequence("clip_*.266").removesuffix("]\n")
    text += f",\n  {{source: {CLIP}, name: h, group: clip, frames: 3, split: train, streams: [clip_27.265]}}"
    text += f",\n  {{source: {CLIP}, name: y, group: clip, frames: 3, split: train, streams: [\n"
    text += "    {decoded: decoded27_96x64_10bit.yuv, slice_qp: 27},\n"
    text += '    {decoded: "decoded37*.yuv", slice_qp: [37, 38, 38], bit_depth: 10, size: 96x64}]}]\n'
    text = text.replace("group: clip, frames: 3, split: train", "frames: 3, split: test")
    return build(folder, text, tmp_path_factory.mktemp("mixed") / "store")


def test_decoded_pictures_have_stated_qps_and_no_bits(coded, mixed):
    units = [unit for unit in mixed.units if unit.name == "y"]
    assert [[picture.qp for picture in unit.pictures] for unit in units] == [[27, 27, 27], [37, 38, 38]]
    for unit, coded_unit in zip(units, coded[1]["vvc"].units, strict=True):
        assert unit.decoded_path.read_bytes() == coded_unit.decoded_path.read_bytes()
        assert (unit.bits, unit.has("bitstream"), unit.block_planes()) == (None, False, None)
        assert unit.psnr_y == pytest.approx(coded_unit.psnr_y, abs=1e-4)
        assert {picture.bits for picture in unit.pictures} == {None}
    # Records are read as they were written.
    lines = (mixed.folder / "units.jsonl").read_text().splitlines()
    assert [json.dumps(unit.to_json()) for unit in open_store(mixed.folder).units] == lines
    assert mixed.manifest.recipe.qp == [27, 37]


def test_statistics_of_supplied_units(mixed, run):
    status, out, _ = run("dataset", "stats", mixed.folder, "--json")
    stats = json.loads(out)
    assert status == 0
    assert stats["given"] == {
        "streams": {"hevc": 1, "vvc": 2},
        "decoded": 2,
        "stream_pictures": 9,
        "md5s": 9,
        "ctu_sizes": [32],
    }
    assert [row["bits_per_sample"] for row in stats["rows"]] == [None, None]
    _, out, _ = run("dataset", "stats", mixed.folder)
    assert "unknown encoder, decoded by ffmpeg" in out
    line = "supplied units: 1 hevc and 2 vvc streams with CTUs of 32, slice QPs read from their headers, 9 of 9 "
    line += "pictures verified by MD5; 2 decoded pictures without a stream, slice QPs as stated in the recipe"
    assert line in out.replace("\n", " ")


def test_results_without_bits_have_no_bd_rate(mixed, tmp_path):
    with mixed.units[0].originals() as originals:
        planes = [np.array(picture.y) for picture in originals]
    (results,) = evaluate([toward_entry(planes, right=0.5)], mixed, "test", tmp_path)
    assert results.codec == "hevc and unknown and vvc"
    assert results.mean_gain("y") > 0
    assert set(results.bd_rate_per_sequence["y"].values()) == {None}
    assert "no BD-rate for y: its bits are unknown: state bits or bitstream in the recipe" in results.notes
    assert {row.bits is None for row in results.sequences if row.name == "y"} == {True}
    assert (tmp_path / "report.html").is_file()
    rows = rate_rows("y", 0.1)
    assert summarise_rows(rows, as_card({}), mixed, "test").bd_rate["y"] == pytest.approx(-2.28, abs=0.01)
    rows[1] = rows[1].model_copy(update={"bits": None})
    assert summarise_rows(rows, as_card({}), mixed, "test").bd_rate["y"] is None


def test_unchanged_streams_keep_their_units(coded, tmp_path):
    folder, _ = coded
    store = build(folder, sequence("clip_*.266"), tmp_path / "store")
    keys = {unit.qp: unit.key for unit in store.units}
    streams = "clip_27.266, {decoded: decoded37_96x64_10bit.yuv, slice_qp: 37}"
    again = build(folder, sequence(streams), store.folder, prune=True)
    assert again.units[0].key == keys[27]
    assert again.units[1].key != keys[37]
    other = build(
        folder,
        sequence("clip_27.266, {decoded: decoded37_96x64_10bit.yuv, slice_qp: [37, 38, 38]}"),
        store.folder,
        prune=True,
    )
    assert other.units[0].key == keys[27]
    assert other.units[1].key != again.units[1].key


def test_name_in_patterns_is_that_of_the_sequence(coded, tmp_path):
    folder, _ = coded
    store = build(folder, sequence('"{name}_*.265"'), tmp_path / "store")
    assert [unit.given.file for unit in store.units] == ["clip_27.265", "clip_37.265"]


STREAM = "clip_27.266"
YUV = "{decoded: decoded27_96x64_10bit.yuv, slice_qp: 27}"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (sequence(STREAM, frames=2), ConfigError, "clip_27.266 has 3 pictures, its original 2"),
        (sequence(YUV, frames=2), ConfigError, "10bit.yuv has 3 pictures, its original 2"),
        (sequence(STREAM, size="64x96"), ConfigError, "has pictures of 96x64 420 10 bit, its original .* 64x96 420 10"),
        (sequence(STREAM) + "internal_bit_depth: 8\n", ConfigError, "96x64 420 10 bit, its original .* 8 bit"),
        (sequence(YUV) + "internal_bit_depth: 8\n", ConfigError, "96x64 420 10 bit, its original .* 8 bit"),
        (
            sequence(STREAM) + "configuration: ra\n",
            ConfigError,
            "has I slices only, which contradicts the recipe's configuration ra",
        ),
        (sequence(STREAM, source="other_96x64_8bit.yuv"), ConfigError, "picture 0, differs from its original"),
        (sequence("clip_37.265", source="other_96x64_8bit.yuv"), ConfigError, "picture 0, differs from its original"),
        (sequence(STREAM, start=1), ConfigError, "is nearer to the original one picture earlier than to its own"),
        (sequence(YUV, start=1), ConfigError, "is nearer to the original one picture earlier than to its own"),
        (
            sequence("{decoded: original_96x64_10bit.yuv, slice_qp: 27}"),
            ConfigError,
            "the QP is lower, or the picture is not",
        ),
        (sequence(YUV.replace("qp: 27", "qp: 7")), ConfigError, "the QP is higher"),
        (sequence(YUV.replace("qp: 27", "qp: [27, 27]")), ConfigError, "has 3 pictures, and 2 slice QPs are given"),
        (sequence(f"{STREAM}, clip_27.265"), ConfigError, "'clip' are both of QP 27: give each a sequence of its own"),
        (sequence(f"{STREAM}, {STREAM}"), ConfigError, "has .*clip_27.266 twice"),
        (sequence("none.266"), MissingFileError, "no stream of the sequence 'clip' matches .*none.266"),
        (sequence("recipe.yaml"), ConfigError, "recipe.yaml does not contain its slice QPs"),
        (sequence("{decoded: clip_27.266, slice_qp: 27}"), ConfigError, "clip_27.266 contains its slice QPs"),
        (sequence(STREAM) + "preset: fast\nqp: [27]\n", ConfigError, "codec streams takes no preset, qp"),
        (sequence(STREAM).replace("streams\n", "vvc\nqp: [27]\n"), ConfigError, "codec vvc takes no streams"),
        (sequence("").replace(", streams: []", ""), ConfigError, "codec streams needs streams"),
        (sequence(STREAM, scales="[1, 0.5]"), ConfigError, "has no scales and variants"),
        (sequence("{decoded: x.yuv, slice_qp: 64}"), ConfigError, "slice_qp"),
        (sequence("{decoded: x.yuv, qp: 27}"), ConfigError, "qp"),
    ],
)
def test_wrong_streams_and_recipes_are_refused(coded, tmp_path, text, error, message):
    with pytest.raises(error, match=message):
        build(coded[0], text, tmp_path / "store")
    assert not (tmp_path / "store" / "manifest.json").exists()


def test_interchanged_stated_qps_are_refused(coded, tmp_path):
    """Each is plausible alone: perceptual decisions of an encoder can triple the error."""
    streams = "{decoded: decoded27_96x64_10bit.yuv, slice_qp: 37}, {decoded: decoded37_96x64_10bit.yuv, slice_qp: 27}"
    with pytest.raises(ConfigError, match=r"\'clip\' .* QP 27 .* QP 37"):
        build(coded[0], sequence(streams), tmp_path / "store")


def test_originals_of_another_scale_are_refused(coded, tmp_path):
    """8-bit samples in 16-bit words that are declared as 10-bit have a quarter of the brightness."""
    folder, _ = coded
    samples = np.fromfile(folder / CLIP, np.uint8).astype("<u2")
    (folder / "dark_96x64_10bit.yuv").write_bytes(samples.tobytes())
    with pytest.raises(ConfigError, match="scale"):
        build(folder, sequence(STREAM, source="dark_96x64_10bit.yuv"), tmp_path / "store")


def test_stream_of_two_sequences_is_refused(coded, tmp_path):
    text = sequence("clip_*.266").removesuffix("]\n")
    text += f", {{source: {CLIP}, name: again, split: test, streams: [clip_27.266]}}]\n"
    with pytest.raises(ConfigError, match=r"clip_27\.266 .* \'again\'"):
        build(coded[0], text, tmp_path / "store")


@pytest.mark.parametrize("suffix", ["266", "265"])
def test_pictures_with_another_md5_are_refused(coded, tmp_path, suffix):
    """Only the hash in the last SEI message is changed."""
    folder, _ = coded
    stream = bytearray((folder / f"clip_27.{suffix}").read_bytes())
    stream[-9] ^= 0x10
    (folder / f"damaged.{suffix}").write_bytes(stream)
    with pytest.raises(EncoderError, match=rf"damaged\.{suffix}"):
        build(folder, sequence(f"damaged.{suffix}"), tmp_path / "store")


def test_truncated_stream_is_refused(coded, tmp_path):
    folder, _ = coded
    whole = (folder / "clip_27.265").read_bytes()
    (folder / "cut.265").write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises((ConfigError, FormatError, EncoderError), match=r"cut\.265"):
        build(folder, sequence("cut.265"), tmp_path / "store")


def test_random_access_stream(golden_file, own_golden, tmp_path):
    """Coding order differs from output order, each picture has its slice QP, and other configurations are refused."""
    stream = golden_file("vvc/tinyclip128x64_ra_qp37.266")
    (tmp_path / "ra.266").write_bytes(stream.read_bytes())
    source = own_golden / "sources" / "tinyclip_128x64_17f_8b420.yuv"
    text = f"codec: streams\nctu_size: 64\nsequences: [{{source: {source}, size: 128x64, streams: [ra.266]}}]\n"
    store = build(tmp_path, text + "configuration: ra\n", tmp_path / "store")
    (unit,) = store.units
    assert len({picture.qp for picture in unit.pictures}) > 2
    assert unit.qp == min(picture.qp for picture in unit.pictures) == 37
    assert sum(picture.bits for picture in unit.pictures) == unit.bits == 8 * stream.stat().st_size
    with pytest.raises(ConfigError, match="configuration ai"):
        build(tmp_path, text, tmp_path / "ai")
    with pytest.raises(ConfigError, match="it is ra, not ldb"):
        build(tmp_path, text + "configuration: ldb\n", tmp_path / "ldb")
    with open_raw(unit.decoded_path, unit.format) as decoded:
        assert len(decoded) == 17


OWN = "codec: streams\nctu_size: 32\ninternal_bit_depth: 8\n{keys}\nsequences:\n"
OWN += f"  - {{{{source: {CLIP}, name: clip, frames: 3, split: test, streams: [{{streams}}]}}}}\n"
SCALE = "qp_scale: {from: [0, 252], to: [0, 63]}\ncheck: false"
QUANTISERS = {40: 10, 80: 20, 120: 30, 160: 40}
"""Quantisers of a codec with 256 steps, and their QPs."""


def bits_of(quantiser):
    return [8 * number * (2000 - 10 * quantiser) for number in (1, 2, 10)]


@pytest.fixture(scope="module")
def own_codec(tmp_path_factory):
    """Return a folder with a clip, coded by a codec of the user: uniform quantisation of the samples."""
    folder = tmp_path_factory.mktemp("own")
    write_clip(folder / CLIP, FORM, 3)
    for quantiser in QUANTISERS:
        step, bits = quantiser // 8, bits_of(quantiser)
        with open_raw(folder / CLIP, FORM) as clip:
            planes = [np.array(plane) for picture in clip for plane in picture.planes]
        decoded = b"".join(np.minimum(plane // step * step + step // 2, 255).astype(np.uint8) for plane in planes)
        (folder / f"q{quantiser}_96x64_8bit.yuv").write_bytes(decoded)
        for number, count in zip((1, 2, 10), bits, strict=True):
            (folder / f"q{quantiser}_{number}.bin").write_bytes(bytes(count // 8))
        (folder / f"q{quantiser}.csv").write_text("poc,bits\n" + "".join(f"{n},{b}\n" for n, b in enumerate(bits)))
        (folder / f"q{quantiser}.txt").write_text("".join(f"{b}\n" for b in bits))
        (folder / f"q{quantiser}.bin").write_bytes(bytes(sum(bits) // 8))
    (folder / "q41_96x64_8bit.yuv").write_bytes((folder / "q40_96x64_8bit.yuv").read_bytes())
    return folder


def own_recipe(extra, keys=SCALE, quantisers=tuple(QUANTISERS)):
    entries = [f"{{decoded: q{q}_96x64_8bit.yuv, slice_qp: {q}{extra.format(q=q)}}}" for q in quantisers]
    return OWN.format(keys=keys, streams=", ".join(entries))


@pytest.mark.parametrize(
    ("extra", "by_picture"),
    [
        (", bits: q{q}.csv", True),
        (", bits: q{q}.txt", True),
        (", bitstream: 'q{q}_*.bin'", True),
        (", bitstream: q{q}.bin", False),
    ],
)
def test_own_codec_has_qps_bits_and_bd_rate(own_codec, tmp_path, extra, by_picture):
    store = build(own_codec, own_recipe(extra), tmp_path / "store")
    assert [unit.qp for unit in store.units] == list(QUANTISERS.values())
    for unit, quantiser in zip(store.units, QUANTISERS, strict=True):
        assert unit.bits == sum(bits_of(quantiser))
        expected = bits_of(quantiser) if by_picture else [None] * 3
        assert [picture.bits for picture in unit.pictures] == expected
        assert {picture.qp for picture in unit.pictures} == {unit.qp}
    with store.units[0].originals() as originals:
        planes = [np.array(picture.y) for picture in originals]
    (results,) = evaluate([toward_entry(planes, right=0.5)], open_store(tmp_path / "store"), "test", tmp_path / "r")
    assert results.bd_rate["y"] < -1
    assert [row.bits for row in results.sequences] == [sum(bits_of(q)) for q in QUANTISERS]
    written = json.loads((tmp_path / "r" / "results.json").read_text())
    assert written["settings"]["qp_scale"] == {"from": [0, 252], "to": [0, 63]}
    assert written["settings"]["check"] is False
    assert any("check: false" in note for note in written["notes"])
    assert "BD-rate" in (tmp_path / "r" / "report.html").read_text()


def test_list_of_bits_and_scale_on_which_more_is_better(own_codec, tmp_path):
    keys = "qp_scale: {from: [100, 0], to: [0, 50]}\ncheck: false"
    entries = [
        f"{{decoded: q{q}_96x64_8bit.yuv, slice_qp: {quality}, bits: {bits_of(q)}}}"
        for q, quality in ((40, 90.5), (160, 20))
    ]
    store = build(own_codec, OWN.format(keys=keys, streams=", ".join(entries)), tmp_path / "store")
    assert [unit.qp for unit in store.units] == [5, 40]  # 4.75 and 40
    assert [unit.bits for unit in store.units] == [sum(bits_of(40)), sum(bits_of(160))]


def test_error_that_does_not_fit_the_qp_passes_without_the_check(own_codec, tmp_path):
    recipe = own_recipe("", keys="qp_scale: {from: [0, 252], to: [0, 21]}\ncheck: false")
    assert [unit.qp for unit in build(own_codec, recipe, tmp_path / "store").units] == [3, 7, 10, 13]


def test_changed_bits_scale_and_check_make_other_units(own_codec, tmp_path):
    recipes = [
        own_recipe(", bits: [1, 2, 3]", quantisers=(40,)),
        own_recipe(", bits: [1, 2, 4]", quantisers=(40,)),
        own_recipe("", quantisers=(40,)),
        own_recipe("", SCALE.partition("\n")[0], quantisers=(40,)),
        own_recipe("", "qp_scale: {from: [0, 255], to: [0, 51]}\ncheck: false", quantisers=(40,)),
    ]
    keys = [build(own_codec, text, tmp_path / f"{n}").units[0].key for n, text in enumerate(recipes)]
    assert len(set(keys)) == 5


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (own_recipe("", keys="check: false"), "slice_qp 80 of q80_96x64_8bit.yuv is not a whole number from 0 to 63"),
        (own_recipe("", keys="qp_scale: {from: [0, 100], to: [0, 63]}"), "slice_qp 120 is outside of qp_scale"),
        (own_recipe("", keys="qp_scale: {from: [5, 5], to: [0, 63]}"), "no length"),
        (own_recipe("", keys="qp_scale: {from: [0, 255], to: [0, 70]}"), "less than or equal to 63"),
        (own_recipe(", bits: [1, 2]"), "has 3 pictures, and the bits of 2 are given"),
        (own_recipe(", bits: [1, 2, 3], bitstream: q{q}.bin"), "give either bits or bitstream"),
        (own_recipe(f", bits: {CLIP}"), "does not have the bits of each picture"),
        (own_recipe(", bits: none.csv"), "matches .*none.csv"),
        (own_recipe("", quantisers=(40, 41)), "are both of QP 10"),
        (
            own_recipe("", keys="qp_scale: {from: [0, 252], to: [0, 21]}"),
            "QP is higher; qp_scale converts .* check: false",
        ),
        ("codec: vvc\nqp: [22]\ncheck: false\nsequences: [{source: a.yuv}]\n", "check is for the codec streams"),
    ],
)
def test_own_codec_that_does_not_fit(own_codec, tmp_path, recipe, message):
    with pytest.raises((ConfigError, MissingFileError), match=message):
        build(own_codec, recipe, tmp_path / "store")


def test_evaluate_takes_streams_with_their_original(coded, tmp_path, run):
    """The results are those of the encoder's own store, and a stream without an original is refused."""
    folder, stores = coded
    streams = [folder / f"clip_{qp}.266" for qp in (27, 37)]
    command = ("evaluate", *streams, "-m", "low_cost_5", "--float", "-o", tmp_path / "results")
    status, _, err = run(*command)
    assert status == 1
    sentence = " ".join(err.split())
    assert "clip_27.266 is coded video (VVC), and evaluate codes originals: name the pictures" in sentence
    assert "--original FILE" in sentence
    status, text, err = run(*command, "--original", folder / CLIP, "-f", 3, "--json")
    assert status == 0, err
    rows = json.loads(text)["sequences"]
    units = {unit.qp: unit for unit in stores["vvc"].units}
    assert [row["qp"] for row in rows] == [27, 37]
    for row in rows:
        assert (row["bits"], row["pictures"]) == (units[row["qp"]].bits, 3)
        assert row["psnr_y"] == pytest.approx(units[row["qp"]].psnr_y, abs=1e-4)
    refused = {
        ("--original", folder / CLIP, "--preset", "fast"): "leave out --codec, --preset, --configuration and --ctc",
        ("--original", folder / CLIP, "-f", 3, "-q", 30): "has no pictures at QP 30: it has 27, 37",
    }
    for options, message in refused.items():
        status, _, err = run(*command, *options)
        assert status == 1
        assert message in " ".join(err.split())


def test_evaluate_warns_of_originals_that_are_coded(coded, tmp_path, run, caplog):
    folder, _ = coded
    path = tmp_path / "clip.mp4"
    subprocess.run([*FFMPEG, "-i", folder / "clip_37.265", "-c", "copy", path], check=True)
    options = ("-m", "low_cost_5", "--preset", "faster", "-q", 37, "-f", 1, "-o", tmp_path / "results")
    assert run("evaluate", path, *options)[0] == 0
    assert "clip.mp4 is coded video (HEVC): its decoded pictures are coded again" in caplog.text
