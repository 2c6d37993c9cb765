"""Filters that streams carry: the pictures of `codecnn filter -m`, and refusals of everything that is not one."""

import base64
import hashlib
import io
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from codecnn import api as verbs
from codecnn import signalling
from codecnn.base.errors import CodecnnError, ModelError, UnsupportedError
from codecnn.filtering import stream_qps
from codecnn.models import create_model, save_weights, weights_path
from codecnn.pictures.files import open_video
from codecnn.signalling.nnpf import (
    ONNX_TAG,
    WEIGHTS_TAG,
    active_filters,
    describe_weights,
    embedding_uri,
    hash_uri,
    insert_messages,
    load_carried,
    read_messages,
)
from tests.helpers.fuzzing import fuzz
from tests.helpers.networks import SMALL, awaken
from tests.helpers.nnpf_messages import BASE
from tests.helpers.video_files import FFMPEG, assert_same

PREFIX = "data:application/zip;base64,"


def planes_of(path: Path):
    with open_video(path) as video:
        return list(video)


@pytest.mark.parametrize("name", ["hevc_radl", "vvc_cra"])
def test_embedded_weights_filter_like_named_ones(name, streams, yuv_weights, tmp_path):
    carrying = tmp_path / f"carrying{streams[name].suffix}"
    written = signalling.write_filter(streams[name], yuv_weights, carrying, mode="payload", unfiltered=(4, 7))
    assert written.filtered == 33
    own, named, decoded = (tmp_path / f"{each}.y4m" for each in ("own", "named", "decoded"))
    result = verbs.filter(carrying, own, frames=14)
    assert any("12 of 14 pictures" in note for note in result.notes)
    verbs.filter(streams[name], named, model=yuv_weights, qp=stream_qps(streams[name], 14), frames=14)
    argv = [*FFMPEG, "-threads", "1", "-i", str(streams[name]), "-frames:v", "14", "-strict", "-1", str(decoded)]
    subprocess.run(argv, check=True)
    changed = 0
    for n, (filtered, expected, plain) in enumerate(zip(*map(planes_of, (own, named, decoded)), strict=True)):
        assert_same(filtered, plain if n in (4, 7) else expected)
        changed += not np.array_equal(expected.y, plain.y)
    assert changed == 14, "the network changes every picture"


def test_weights_are_found_by_their_hash(run, streams, tmp_path):
    carrying, own, named = tmp_path / "carrying.265", tmp_path / "own.y4m", tmp_path / "named.y4m"
    argv = ("-m", "low_cost_5", "-o", carrying, "--float")
    assert run("nnpf", "write", streams["hevc_open"], *argv)[0] == 0
    status, text, notes = run("filter", "-i", carrying, "-o", own, "-f", "3", "--json")
    assert status == 0, notes
    assert json.loads(text)["runtime"]["precision"] == "float32"
    assert "3 of 3 pictures" in notes
    qps = ",".join(map(str, stream_qps(streams["hevc_open"], 3)))
    argv = ("-m", "low_cost_5", "--float", "-q", qps, "-o", named, "-f", "3")
    assert run("filter", "-i", streams["hevc_open"], *argv)[0] == 0
    for filtered, expected in zip(planes_of(own), planes_of(named), strict=True):
        assert_same(filtered, expected)


def test_integers_are_carried_by_default(streams, tmp_path):
    written = signalling.write_filter(streams["hevc_open"], "low_cost_5", tmp_path / "out.265")
    assert written.weights == weights_path("low_cost_5.int8")
    described = written.characteristics
    digest = hashlib.sha256(written.weights.read_bytes()).digest()
    assert described.nnpfc_uri == f"ni:///sha-256;{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"
    assert (described.nnpfc_parameter_type_idc, described.nnpfc_num_kmac_operations_idc) == (0, 5)
    # 22,557 parameters: more than 2048 << 3 and fewer than 2048 << 4.
    assert described.nnpfc_num_parameters_idc == 4
    assert (described.nnpfc_inp_order_idc, described.nnpfc_auxiliary_inp_idc, described.nnpfc_overlap) == (0, 1, 2)
    assert (described.nnpfc_patch_width_minus1, described.nnpfc_patch_height_minus1) == (63, 63)


def test_a_stream_without_filters_is_filtered_with_chosen_weights(run, streams, yuv_weights, tmp_path):
    out = tmp_path / "out.y4m"
    status, _, text = run("filter", "-i", streams["hevc_open"], "-o", out)
    assert status == 0
    assert "low_cost_yuv_17.hevc_video_mc" in text
    carrying = tmp_path / "carrying.265"
    assert run("nnpf", "write", streams["hevc_open"], "-m", yuv_weights, "-o", carrying)[0] == 0
    status, _, text = run("filter", "-i", carrying, "-o", out)
    assert status == 1
    assert "-m" in text
    assert run("filter", "-i", carrying, "-m", yuv_weights, "-o", out, "-f", "1")[0] == 0
    status, _, text = run("filter", "-i", carrying, "-o", out, "--exact")
    assert status == 1
    assert "--exact or --float needs weights" in text


@pytest.fixture(scope="module")
def embedded(yuv_weights):
    return replace(BASE, nnpfc_tag_uri=WEIGHTS_TAG, nnpfc_uri=embedding_uri(yuv_weights))


def packed(weights: bytes, card: bytes, names=("weights.safetensors", "card.json")) -> str:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(names[0], weights)
        archive.writestr(names[1], card)
    return PREFIX + base64.b64encode(file.getvalue()).decode()


def changed_card(weights: Path, **changes: object) -> str:
    card = json.loads(weights.with_suffix(".json").read_text())
    return packed(weights.read_bytes(), json.dumps(card | changes).encode())


def test_embedded_weights_load(embedded, yuv_weights):
    assert load_carried(embedded, "stream").outputs == ("y", "u", "v")
    assert load_carried(replace(embedded, nnpfc_uri=changed_card(yuv_weights)), "stream").outputs == ("y", "u", "v")


def test_hostile_weights_are_refused_in_one_sentence(embedded, yuv_weights, tmp_path, monkeypatch):
    weights, card = yuv_weights.read_bytes(), yuv_weights.with_suffix(".json").read_bytes()
    marker = tmp_path / "run"
    code = tmp_path / "evil.py"
    code.write_text(f"from pathlib import Path\nPath({str(marker)!r}).write_text('x')\ndef Net(**options): ...\n")
    pickle = b"cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    layers = awaken(create_model("rdn", **SMALL | {"blocks": 4}))
    save_weights(tmp_path / "deep.safetensors", layers, "rdn", {})
    limits = {"MAX_WEIGHTS_BYTES": 40_000, "MAX_CARD_BYTES": 2 * len(card), "MAX_LAYERS": 12, "MAX_KMAC": 500.0}
    for name, limit in limits.items():
        monkeypatch.setattr(f"codecnn.signalling.nnpf.carriage.{name}", limit)
    cases = {
        "sha256 differs": packed(weights[:-4] + b"\0\0\0\0", card),
        "no architecture": changed_card(yuv_weights, network="evil:Net"),
        "no architecture ": changed_card(yuv_weights, network=["rdn"]),
        "does not fit": changed_card(yuv_weights, options={"features": 4096, "blocks": 10**9}),
        "does not fit ": changed_card(yuv_weights, options={"features": 10**9}),
        "refused": changed_card(yuv_weights, options={"features": -1}),
        "refused ": changed_card(yuv_weights, options={"planes": 3}),
        "task": changed_card(yuv_weights, task="modes"),
        "damaged": PREFIX + "????",
        "damaged ": PREFIX + base64.b64encode(pickle).decode(),
        "damaged  ": packed(weights, card, ("../weights.safetensors", "card.json")),
        "more than": packed(bytes(40_001), card),
        "more than ": packed(weights, card + b" " * len(card) + b" "),
        "not a whole": changed_card_of(pickle, yuv_weights),
        "layers, more than": packed(*(tmp_path.joinpath(f"deep.{s}").read_bytes() for s in ("safetensors", "json"))),
    }
    for reason, uri in cases.items():
        with pytest.raises(CodecnnError, match=reason.strip()) as refused:
            load_carried(replace(embedded, nnpfc_uri=uri), "stream")
        assert "\n" not in str(refused.value), reason
        assert str(refused.value).startswith("stream, filter 3"), reason
    assert not marker.exists()


def changed_card_of(content: bytes, weights: Path) -> str:
    """Pack a file of any content with a card that fits it."""
    card = json.loads(weights.with_suffix(".json").read_text())
    return packed(content, json.dumps(card | {"sha256": hashlib.sha256(content).hexdigest()}).encode())


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"nnpfc_tag_uri": ONNX_TAG, "nnpfc_uri": "file:///etc/passwd"}, UnsupportedError, "kind"),
        ({"nnpfc_uri": "file:///etc/passwd"}, UnsupportedError, "opens no others"),
        ({"nnpfc_uri": "https://example.org/a.zip"}, UnsupportedError, "opens no others"),
        ({"nnpfc_uri": hash_uri("00" * 32)}, ModelError, "do not come with codecnn"),
        ({"nnpfc_mode_idc": 0, "nnpfc_payload_byte": b"\1"}, UnsupportedError, "15938-17"),
        ({"nnpfc_purpose": 4}, UnsupportedError, "resolution resampling"),
        ({"nnpfc_num_input_pics_minus1": 1}, UnsupportedError, "from 2 pictures"),
        ({"nnpfc_inp_order_idc": 0}, ModelError, "nnpfc_inp_order_idc 0"),
        ({"nnpfc_auxiliary_inp_idc": 0}, ModelError, "nnpfc_auxiliary_inp_idc 0"),
    ],
)
def test_other_filters_are_refused(changes, error, reason, embedded):
    with pytest.raises(error, match=reason):
        load_carried(replace(embedded, **changes), "stream")


def test_networks_that_are_no_post_filters_are_refused(streams, tmp_path):
    for planes, reason in ((["rec_y", "unf_y", "qp"], "unf_y"), (["rec_y", "depth"], "depth")):
        path = tmp_path / "w.safetensors"
        save_weights(path, awaken(create_model("rdn", planes=planes, **SMALL)), "rdn", {})
        with pytest.raises(ModelError, match=reason):
            signalling.write_filter(streams["hevc_open"], path, tmp_path / "out.265")


def test_patches_that_do_not_cover_the_picture_overlap(streams, yuv_weights, golden_file, tmp_path):
    from codecnn.filtering import load_filter

    stream = read_messages(streams["hevc_open"])
    filter_ = load_filter(yuv_weights)
    described = describe_weights(yuv_weights, filter_, stream.info, patch=(32, 16))
    radius = filter_.geometry.radius
    assert 2 * described.nnpfc_overlap >= radius > 2 * described.nnpfc_overlap - 4
    assert (described.nnpfc_patch_width_minus1, described.nnpfc_patch_height_minus1) == (15, 7)
    with pytest.raises(CodecnnError, match="multiples of 2"):
        describe_weights(yuv_weights, filter_, stream.info, patch=(31, 16))


def test_damaged_messages_are_refused_or_ignored(streams, yuv_weights, tmp_path):
    path = tmp_path / "damaged.266"
    stream = read_messages(streams["vvc_cra"])
    described = replace(
        describe_weights(yuv_weights, _filter(yuv_weights), stream.info, mode="payload"), nnpfc_tag_uri=WEIGHTS_TAG
    )
    content = insert_messages(stream, described, every_irap=False)
    spans = read_messages(_written(tmp_path / "whole.266", content)).removable
    loaded: dict[str, object] = {}

    def case(rng: np.random.Generator) -> None:
        start, end = spans[int(rng.integers(len(spans)))]
        unit = bytearray(content[start:end])
        kind = rng.integers(4)
        # The first bytes decide how the rest is read; most of the unit is text.
        reach = len(unit) if rng.integers(2) else min(len(unit), 160)
        if kind == 0:
            for bit in rng.integers(8 * 6, 8 * reach, size=rng.choice([1, 2, 8])):
                unit[bit // 8] ^= 1 << (bit % 8)
        elif kind == 1:
            del unit[int(rng.integers(6, len(unit))) :]
        elif kind == 2:
            at = int(rng.integers(6, reach))
            unit[at : at + int(rng.integers(1, 30))] = rng.bytes(int(rng.integers(30)))
        else:
            at = int(rng.integers(6, reach))
            unit[at:at] = unit[6:at]
        parsed = read_messages(_written(path, content[:start] + bytes(unit) + content[end:]))
        assert len(parsed.pictures) == 35
        for filters in active_filters(parsed):
            for each in filters:
                uri = str(each.characteristics)
                if uri not in loaded:
                    loaded[uri] = load_carried(each.characteristics, "stream")

    fuzz("post filters", case, both=1)


def _filter(weights: Path):
    from codecnn.filtering import load_filter

    return load_filter(weights)


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_ignored_messages_are_said(run, streams, yuv_weights, tmp_path):
    carrying = tmp_path / "carrying.266"
    signalling.write_filter(streams["vvc_cra"], yuv_weights, carrying, every_irap=False)
    stream = read_messages(carrying)
    start, _ = stream.removable[0]
    content = bytearray(stream.data)
    # nnpfc_purpose behind start code, header, payload_type and payload_size: reserved bits
    assert content[start + 8 : start + 10] == b"\0\1"
    content[start + 8] = 0x10
    damaged = _written(tmp_path / "damaged.266", bytes(content))
    status, text, notes = run("nnpf", "read", damaged)
    assert status == 0
    assert "ignored" in notes
    assert "filtered: 0 of 35" in text
    out = tmp_path / "out.y4m"
    status, _, notes = run("filter", "-i", damaged, "-o", out, "-f", "2")
    assert status == 0
    assert "is ignored" in notes
    assert "0 of 2 pictures" in notes
    argv = ["-threads", "1", "-i", str(streams["vvc_cra"]), "-frames:v", "2", "-strict", "-1", str(tmp_path / "d.y4m")]
    subprocess.run([*FFMPEG, *argv], check=True)
    for filtered, plain in zip(planes_of(out), planes_of(tmp_path / "d.y4m"), strict=True):
        assert_same(filtered, plain)
