"""Adaptation of a small network to a stream: the fit, the command, carriage in the stream, and damage."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from codecnn import api as verbs
from codecnn import signalling
from codecnn.base.errors import CodecnnError, FormatError, ModelError
from codecnn.filtering import load_filter
from codecnn.filtering.integer import WIDEST, IntegerNetwork, filter_reference, save_integer
from codecnn.models.graph import Graph
from codecnn.pictures.files import Picture, open_video
from codecnn.signalling.nnpf import (
    CODER_VARIABLE,
    MODE_NNC,
    WEIGHTS_TAG,
    active_filters,
    describe_weights,
    embedding_uri,
    insert_messages,
    load_carried,
    read_messages,
    update_characteristics,
)
from codecnn.signalling.updates import (
    Collector,
    FitSums,
    Part,
    Update,
    adapted,
    apply_text,
    bit_cost,
    fit_update,
    last_layers,
    read_update,
    read_update_file,
    write_update,
)
from tests.helpers.fuzzing import fuzz, mutate
from tests.helpers.integer_zoo import formula_eight
from tests.helpers.nnpf_messages import BASE
from tests.helpers.video_files import assert_same

OPTIONS = {"features": 8, "blocks": 1, "expansion": 2, "planes": ["rec_y", "rec_u", "rec_v", "qp", "slice_type"]}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """An integer network whose residual is noise, so that an update of its last layer gains."""
    path = tmp_path_factory.mktemp("adaptation") / "small.int8.safetensors"
    network = formula_eight("low_cost_yuv_17", OPTIONS)
    nodes = [
        replace(node, tensors={"gain": node.tensors["gain"] // 4}) if node.op == "output" else node
        for node in network.graph.nodes
    ]
    network = IntegerNetwork(Graph(tuple(nodes)), network.bit_depth, network.bits)
    save_integer(path, network, {"network": "low_cost_yuv_17", "qps": [22, 42]})
    return path


@pytest.fixture(scope="module")
def original(streams):
    return streams["vvc_cra"].parent / "source_64x64_25.y4m"


@pytest.fixture(scope="module")
def update(weights, original, streams, tmp_path_factory):
    path = tmp_path_factory.mktemp("update") / "update.json"
    result = signalling.adapt(weights, original, streams["vvc_cra"], path)
    assert result.output == path
    return path


def pictures_of(path):
    with open_video(path) as video:
        return list(video)


def psnr_gain(before, after, originals):
    def mse(pictures):
        return np.mean([np.square(p.y - 4.0 * o.y).mean() for p, o in zip(pictures, originals, strict=True)])

    return 10 * np.log10(mse(before) / mse(after))


def test_the_file_says_what_the_filter_gains(update, weights, original, streams, tmp_path):
    content = read_update_file(update)
    assert (content.pictures, content.stream) == (35, "vvc_cra.266")
    assert content.rate_change < 0 < content.bits
    # A relative change of the rate moves the squared error by 1.3 of itself; 6 + 1 + 1 weights, dB by 10 log10.
    gain_db = sum(weight * content.gain_db[name] for name, weight in (("y", 6), ("u", 1), ("v", 1))) / 8
    carrying = insert_messages(
        (stream := read_messages(streams["vvc_cra"])), describe_weights(weights, load_filter(weights), stream.info)
    )
    expected = content.bits / (8 * len(carrying)) - gain_db * np.log(10) / 10 / 1.3
    assert content.rate_change == pytest.approx(expected, abs=1e-4)
    before, after = tmp_path / "before.y4m", tmp_path / "after.y4m"
    verbs.filter(streams["vvc_cra"], before, model=weights)
    verbs.filter(streams["vvc_cra"], after, model=weights, update=update)
    originals = pictures_of(original)
    gain = psnr_gain(pictures_of(before), pictures_of(after), originals)
    assert gain == pytest.approx(content.gain_db["y"], abs=0.02)
    assert gain > 0.1


def test_the_stream_carries_the_update(update, weights, streams, run, tmp_path):
    carrying, plain = tmp_path / "carrying.266", tmp_path / "plain.266"
    argv = ("nnpf", "write", streams["vvc_cra"], "-m", weights, "--mode", "payload", "--repeat", "-o")
    status, text, _ = run(*argv, carrying, "--adapt", update, "--json")
    assert status == 0
    assert run(*argv, plain)[0] == 0
    # The bits that the file states are those of the update in the stream.
    assert 8 * (carrying.stat().st_size - plain.stat().st_size) == read_update_file(update).bits
    by_update, by_message = tmp_path / "by_update.y4m", tmp_path / "by_message.y4m"
    verbs.filter(streams["vvc_cra"], by_update, model=weights, frames=5, update=update)
    result = verbs.filter(carrying, by_message, frames=5)
    assert any("with an update of codecnn weights" in note for note in result.notes)
    for filtered, expected in zip(pictures_of(by_message), pictures_of(by_update), strict=True):
        assert_same(filtered, expected)
    status, text, _ = run("nnpf", "read", carrying)
    assert status == 0
    assert "update of codecnn weights" in text
    assert "filtered: 35 of 35 pictures, 35 with an update" in text


def test_base_activations_leave_the_update_out(update, weights, streams, tmp_path):
    parsed = read_messages(streams["vvc_cra"])
    base = describe_weights(weights, load_filter(weights), parsed.info)
    message = update_characteristics(read_update_file(update).update, 0)
    carrying = tmp_path / "carrying.266"
    carrying.write_bytes(insert_messages(parsed, base, update=message))
    assert all(each[0].update == message for each in active_filters(read_messages(carrying)))
    carrying.write_bytes(insert_messages(parsed, base))
    assert all(each[0].update is None for each in active_filters(read_messages(carrying)))


def test_an_update_changes_the_reference_engine_too(update, weights, monkeypatch):
    """The adapted network computes what its plain reference computes, also where its weights had to become coarser."""
    filter_ = load_filter(weights)
    layers = last_layers(filter_, "weights")
    rng = np.random.default_rng(1)
    planes = [rng.integers(0, 1024, (24, 40)), *rng.integers(0, 1024, (2, 12, 20))]
    picture = Picture(tuple(plane.astype(np.uint16) for plane in planes), 10)
    beside = {"slice_type": np.ones((24, 40), np.float32)}
    large = Update(tuple(Part(0, (255,) * layer.size) for layer in layers))
    monkeypatch.setitem(WIDEST, 8, 2**23)
    text = read_update_file(update).update
    coarser = 0
    for changed in (apply_text(filter_, text, "weights"), adapted(filter_, large, "weights")):
        result = changed(picture, 30, beside)
        inputs = {"rec_y": picture.y, "rec_u": picture.planes[1], "rec_v": picture.planes[2], **beside}
        expected = filter_reference(changed.network, inputs, 30, 10)
        for plane, name in zip(result.planes, "yuv", strict=True):
            np.testing.assert_array_equal(plane, expected[name])
        assert not np.array_equal(result.y, filter_(picture, 30, beside).y)
        coarser += sum(a.shifts != b.shifts for a, b in zip(last_layers(changed, "w"), layers, strict=True))
    assert coarser, "no network was made coarser"


def test_sums_predict_the_squared_error(weights, original, streams):
    """The quadratic function agrees with pictures that the adapted network filters."""
    filter_ = load_filter(weights)
    layers = last_layers(filter_, "weights")
    sums = FitSums.empty(layers)
    collector = Collector(filter_, layers, sums)
    rng = np.random.default_rng(2)
    beside = {"slice_type": np.zeros((64, 64), np.float32)}
    pairs = []
    for picture, noise in zip(pictures_of(original)[:3], (8, 20, 50), strict=True):
        truth = Picture(tuple(4 * plane.astype(np.uint16) for plane in picture.planes), 10)
        noisy = tuple(np.clip(p + rng.normal(0, noise, p.shape), 0, 1023).astype(np.uint16) for p in truth.planes)
        pairs.append((Picture(noisy, 10), truth))
        collector.add(*pairs[-1], 22, beside)
    fit = fit_update(sums, layers, "00", bit_cost("yuv", 50_000))
    changed = adapted(filter_, fit.update, "weights")
    largest = 0.0
    for index, name in enumerate("yuv"):
        ratios = []
        for noisy, truth in pairs:
            before, after = (
                np.square(each(noisy, 22, beside).planes[index].astype(float) - truth.planes[index]).sum()
                for each in (filter_, changed)
            )
            ratios.append(after / before - 1)
        assert np.mean(ratios) == pytest.approx(fit.change[name], rel=0.25, abs=0.005)
        largest = max(largest, -fit.change[name])
    assert largest > 0.005
    # Every bit is dearer in a smaller stream.
    smaller = fit_update(sums, layers, "00", bit_cost("yuv", 5_000)).update
    assert (0 if smaller is None else smaller.changed) < fit.update.changed


@pytest.fixture(scope="module")
def float_update(yuv_weights, original, streams, tmp_path_factory):
    path = tmp_path_factory.mktemp("float_update") / "update.json"
    assert signalling.adapt(yuv_weights, original, streams["vvc_cra"], path, exact=False, frames=9).output == path
    return path


def test_float_weights_are_adapted_too(float_update, yuv_weights, original, streams, run, tmp_path):
    """The update gains what its file says, and the graph that computes it is the network."""
    content = read_update_file(float_update)
    plain, changed = (tmp_path / name for name in ("plain.y4m", "changed.y4m"))
    argv = ("filter", "-m", yuv_weights, "-i", streams["vvc_cra"], "-f", "9", "--float")
    assert run(*argv, "-o", plain)[0] == 0
    assert run(*argv, "-o", changed, "--update", float_update)[0] == 0
    gain = psnr_gain(pictures_of(plain), pictures_of(changed), pictures_of(original)[:9])
    assert gain == pytest.approx(content.gain_db["y"], abs=0.02)
    assert gain > 0.1
    filter_ = load_filter(yuv_weights)
    unchanged = adapted(filter_, Update((None,) * 3), "weights")
    picture = pictures_of(plain)[0]
    for a, b in zip(unchanged(picture, 37).planes, filter_(picture, 37).planes, strict=True):
        assert np.abs(a.astype(int) - b).max() <= 1
        assert np.mean(a != b) < 0.001
    with pytest.raises(ModelError, match="bfloat16"):
        last_layers(load_filter(yuv_weights, precision="bfloat16"), "weights")


def test_sums_of_float_networks(yuv_weights, original):
    """The columns of the sums are the changes of the samples by each value, for several QPs and bit depths."""
    filter_ = load_filter(yuv_weights)
    layers = last_layers(filter_, "weights")
    assert {(layer.bits, layer.bias_bits) for layer in layers} == {(None, 0)}
    truth = pictures_of(original)[0]
    for qp, shift, dtype in ((22, 0, np.uint8), (37, 2, np.uint16)):
        picture = Picture(tuple((plane.astype(dtype) << shift) for plane in truth.planes), 8 + shift)
        target = Picture(tuple(plane + dtype(1) for plane in picture.planes), 8 + shift)
        sums = FitSums.empty(layers)
        Collector(filter_, layers, sums).add(picture, target, qp, {})
        for index in (0, layers[0].size - 1):
            values = [0] * layers[0].size
            values[index] = 1
            update = Update((Part(6, tuple(values)), None, None))
            before, after = (each.samples(picture, qp)["y"] for each in (filter_, adapted(filter_, update, "w")))
            error = target.y - before
            expected = float(((after - before) * error).sum() * 2**6 / np.square(error).sum())
            assert sums.errors["y"][index] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def _stand_in(path, body):
    """Write a program that is called as `PROGRAM -c SCRIPT TENSORS OUTPUT QP...`."""
    path.write_text(f"#!{sys.executable}\nimport sys, json, numpy as np\n{body}\n")
    path.chmod(0o755)
    return path


def test_updates_for_other_decoders(yuv_weights, original, streams, run, tmp_path, monkeypatch):
    """Tensors, steps and bits of an update that a program codes; a stand-in for it writes the steps it was given."""
    body = """
names = dict(np.load(sys.argv[3]))
steps = {name: value[0] * 2.0 ** (-int(qp) // 4) for (name, value), qp in zip(names.items(), sys.argv[5:])}
text = {name: {int(i): int(value[i]) for i in value.nonzero()[0]} for name, value in steps.items()}
open(sys.argv[4], "w").write(json.dumps(text, separators=(",", ":")).replace('"', ""))
"""
    monkeypatch.setenv(CODER_VARIABLE, str(_stand_in(tmp_path / "coder", body)))
    update, carrying, plain = tmp_path / "update.json", tmp_path / "carrying.266", tmp_path / "plain.266"
    onnx = ("--onnx", "file://model3.onnx")
    argv = ("--original", original, "--stream", streams["vvc_cra"], "-f", "9", "-q", "37", "--no-repeat")
    status, _, text = run("adapt", "-m", yuv_weights, *argv, *onnx, "-o", update)
    assert status == 0, text
    argv = ("nnpf", "write", streams["vvc_cra"], "-m", yuv_weights, "--float", *onnx, "--no-repeat", "-o")
    assert run(*argv, carrying, "--adapt", update)[0] == 0
    assert run(*argv, plain)[0] == 0
    assert 8 * (carrying.stat().st_size - plain.stat().st_size) == read_update_file(update).bits
    message = next(each[0].update for each in active_filters(read_messages(carrying)))
    assert (message.nnpfc_mode_idc, message.nnpfc_base_flag, message.nnpfc_tag_uri) == (MODE_NNC, False, None)
    filter_ = load_filter(yuv_weights)
    layers = last_layers(filter_, "weights")
    changes = read_update(read_update_file(update).update, [layer.size for layer in layers], filter_.card.sha256)
    expected = {
        layer.output.upper(): {index: value for index, value in enumerate(part.values) if value}
        for layer, part in zip(layers, changes.parts, strict=True)
        if part is not None
    }
    assert message.nnpfc_payload_byte.decode() == str(expected).replace("'", "").replace(" ", "")
    assert sum(map(len, expected.values())) == read_update_file(update).changed > 0


def test_integers_are_not_adapted_for_an_onnx_file(original, streams, run, tmp_path):
    """Such a file holds float weights, whose change is another one."""
    onnx = ("--exact", "--onnx", "file://model3.onnx", "-o", tmp_path / "x.266")
    for argv in (
        ("adapt", "-m", "low_cost_yuv_17", "--original", original, "--stream", streams["vvc_cra"], *onnx),
        ("nnpf", "write", streams["vvc_cra"], "-m", "low_cost_yuv_17", *onnx),
    ):
        status, _, text = run(*argv)
        assert status == 1
        assert "integers" in text


def test_a_missing_coder_is_a_sentence(float_update, yuv_weights, streams, run, tmp_path, monkeypatch):
    argv = ("nnpf", "write", streams["vvc_cra"], "-m", yuv_weights, "--float", "--onnx", "file://x.onnx")
    failing = _stand_in(tmp_path / "failing", "sys.exit('No module named nncodec')")
    for value, expected in (
        ("", "nnc/bin/pip install nncodec, then set CODECNN_NNCODEC"),
        (str(tmp_path / "nothing"), "cannot be run"),
        (str(failing), "nncodec failed in"),
    ):
        monkeypatch.setenv(CODER_VARIABLE, value)
        status, _, text = run(*argv, "-o", tmp_path / "x.266", "--adapt", float_update)
        assert status == 1
        assert expected in text
        assert "Traceback" not in text
        assert not (tmp_path / "x.266").exists()


def test_an_update_of_luma_alone(weights, original, streams, run, tmp_path):
    """Only luma changes, and chroma does not count."""
    output = tmp_path / "update.json"
    argv = ("adapt", "-m", weights, "--original", original, "--stream", streams["vvc_cra"], "-f", "5", "-o", output)
    status, text, _ = run(*argv, "--components", "y", "--json")
    assert status == 0
    assert list(json.loads(text)["gain"]) == ["y"]
    layers = last_layers(load_filter(weights), "weights")
    update = read_update(
        read_update_file(output).update, [layer.size for layer in layers], load_filter(weights).card.sha256
    )
    assert [part is not None for part in update.parts] == [True, False, False]
    status, _, text = run(*argv, "--components", "y,x")
    assert status == 1
    assert "does not filter 'x': choose components of y, u, v" in text


def test_interrupted_work_continues(weights, original, streams, tmp_path, monkeypatch):
    """Saved sums are used: the pictures before them are not filtered again, and the update is the same."""
    output, whole = tmp_path / "update.json", tmp_path / "whole.json"
    signalling.adapt(weights, original, streams["vvc_cra"], whole)
    monkeypatch.setattr("codecnn.signalling.adaptation._SAVE_SECONDS", -1.0)

    class StopError(Exception):
        pass

    def stop(done, total):
        if done == 3:
            raise StopError

    with pytest.raises(StopError):
        signalling.adapt(weights, original, streams["vvc_cra"], output, progress=stop)
    assert not output.exists()
    assert (tmp_path / "update.json.sums.npz").exists()
    seen = []
    signalling.adapt(weights, original, streams["vvc_cra"], output, progress=lambda done, total: seen.append(done))
    assert seen[0] == 3
    assert output.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "update.json.sums.npz").exists()


def test_what_does_not_pay_is_not_written(update, weights, streams, run, tmp_path):
    """A network that leaves the pictures as they are, against these pictures as original: there is nothing to gain.

    The update of an earlier run is removed.
    """
    filtered, output = tmp_path / "filtered.y4m", tmp_path / "update.json"
    argv = ("-m", weights, "-i", streams["vvc_cra"], "-f", "3", "-o", filtered)
    assert run("filter", *argv)[0] == 0
    rest = ("adapt", "-m", weights, "--original", filtered, "--stream", streams["vvc_cra"], "-f", "3", "-o", output)
    for older in (None, update.read_bytes()):
        if older is not None:
            output.write_bytes(older)
        status, _, text = run(*rest)
        assert status == 3
        assert "no update of this network pays" in text
        assert "update.json is not written" in text
        assert not output.exists()


def test_adapt_replaces_nothing_but_updates(weights, original, streams, run, tmp_path):
    output = tmp_path / "update.json"
    argv = ("adapt", "-m", weights, "--original", original, "--stream", streams["vvc_cra"], "-o", output)
    for path, expected in ((output, "is no update"), (tmp_path / "update.json.sums.npz", "is another file")):
        path.write_text('{"mine": 1}')
        status, _, text = run(*argv)
        assert (status, path.read_text()) == (1, '{"mine": 1}')
        assert expected in text
        path.unlink()


def test_errors_are_sentences(update, weights, original, yuv_weights, streams, run, tmp_path):
    output, card = tmp_path / "update.json", weights.with_suffix(".json")
    rest = ("--original", original, "--stream", streams["vvc_cra"], "-o", output)
    for argv, expected in (
        (("adapt", "-m", weights, *rest[:3], original, *rest[4:]), "no stream of VVC or HEVC"),
        (("adapt", "-m", "low_cost_17.vvc_unf", *rest), "takes the plane unf_y, which a post-filter does not have"),
        (("filter", "-m", yuv_weights, "-i", streams["vvc_cra"], "-o", "x.y4m", "--update", update), "other weights"),
        (("filter", "-m", "low_cost_5", "-i", streams["vvc_cra"], "-o", "x.y4m", "--update", update), "other weights"),
        (
            ("filter", "-m", weights, "-i", streams["vvc_cra"], "-o", "x.y4m", "--update", card),
            "is no update of schema",
        ),
        (("filter", "-i", streams["vvc_cra"], "-o", "x.y4m", "--update", update), "--update needs weights"),
    ):
        status, _, text = run(*argv)
        assert status == 1, text
        assert expected in text
        assert "Traceback" not in text
    content = json.loads(update.read_text())
    for changes in ({"schema": 2}, {"bits": "many"}, {"more": 1}):
        output.write_text(json.dumps(content | changes))
        with pytest.raises(FormatError, match="update"):
            read_update_file(output)


@pytest.fixture(scope="module")
def embedded(weights):
    return replace(
        BASE, nnpfc_tag_uri=WEIGHTS_TAG, nnpfc_uri=embedding_uri(weights), nnpfc_inp_order_idc=3, nnpfc_out_order_idc=3
    )


def test_damaged_updates_are_refused_in_a_sentence(update, weights, embedded):
    text = read_update_file(update).update
    whole = load_carried(embedded, "stream", update=update_characteristics(text, 0))
    sizes = [layer.size for layer in last_layers(whole, "weights")]
    sha256 = load_filter(weights).card.sha256
    assert read_update(text, sizes, sha256).changed > 0

    def case(rng):
        damaged = mutate(text.encode(), rng).decode("latin-1").replace("\0", "")
        load_carried(embedded, "stream", update=update_characteristics(damaged, 0))
        assert damaged == text

    outcomes = fuzz("updates", case)
    assert outcomes["error"] >= 55
    fine = write_update(Update((Part(31, (255,) * sizes[0]), None, None)), sha256)
    with pytest.raises(ModelError, match="refused"):
        load_carried(embedded, "stream", update=update_characteristics(fine, 0))
    foreign = replace(update_characteristics(text, 0), nnpfc_tag_uri="tag:example.org,2026:other")
    with pytest.raises(CodecnnError, match="kind"):
        load_carried(embedded, "stream", update=foreign)
