"""Labels of pictures: available neighbours, ranking, the table and the command."""

import json
import resource
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from skimage.io import imsave

from codecnn.base.errors import ConfigError, FormatError
from codecnn.modes.labels import (
    Labels,
    LabelSettings,
    Source,
    file_inputs,
    label_blocks,
    label_pictures,
    label_settings,
    parse_block_sizes,
    rank_modes,
    read_inputs,
    write_labels,
)
from codecnn.vvc.intra import block_costs_reference, block_positions, blocks_at, reference_lines


def _picture(width: int = 80, height: int = 72, seed: int = 0) -> np.ndarray:
    """Return a 10-bit picture of waves, an edge and noise."""
    y, x = np.mgrid[:height, :width]
    noise = np.random.default_rng(seed).normal(0, 12, (height, width))
    luma = 500 + 200 * np.sin((x + 2 * y) / 9) + 150 * (x > y) + noise
    return np.clip(np.rint(luma), 0, 1023).astype(np.uint16)


def _source(plane: np.ndarray, references: np.ndarray | None = None, name: str = "waves") -> Source:
    return Source(name, 0, plane, plane if references is None else references, 10)


def _rows(sources, settings: LabelSettings, **options) -> list[dict]:
    return [row for _, batch, _ in label_pictures(sources, settings, **options) for row in batch.to_pylist()]


def _coding_order(width: int, height: int, ctu: int) -> dict[tuple[int, int], int]:
    """Number the 4x4 units by traversing the CTUs row by row and the quadtree of each."""
    order: dict[tuple[int, int], int] = {}

    def walk(x: int, y: int, size: int) -> None:
        if size == 4:
            order[x // 4, y // 4] = len(order)
            return
        half = size // 2
        for dy in (0, half):
            for dx in (0, half):
                walk(x + dx, y + dy, half)

    for y in range(0, height, ctu):
        for x in range(0, width, ctu):
            walk(x, y, ctu)
    return order


@pytest.mark.parametrize(("side", "ctu"), [(4, 32), (8, 16), (16, 64), (32, 32)])
def test_references_are_coded_earlier_and_substituted_from_the_bottom_left(side: int, ctu: int) -> None:
    plane = np.random.default_rng(2).integers(0, 1024, (72, 80)).astype(np.uint16)
    order = _coding_order(80, 72, ctu)
    positions = block_positions(80, 72, side, side)
    assert len(positions) == (80 // side) * (72 // side)
    lines = reference_lines(plane, positions, side, side, 10, ctu)
    for (x, y), line in zip(positions.tolist(), lines, strict=True):
        places = [(x - 1, y + j) for j in range(2 * side - 1, -2, -1)] + [(x + i, y - 1) for i in range(2 * side)]
        values: list[int | None] = []
        for px, py in places:
            available = 0 <= px < 80 and 0 <= py < 72 and order[px // 4, py // 4] < order[x // 4, y // 4]
            values.append(int(plane[py, px]) if available else None)
        latest = next((value for value in values if value is not None), 512)
        expected = []
        for value in values:
            latest = latest if value is None else value
            expected.append(latest)
        assert line.tolist() == expected


def test_references_without_neighbours_are_half_the_range() -> None:
    plane = np.zeros((16, 16), np.uint8)
    assert (reference_lines(plane, np.array([[0, 0]]), 8, 8, 8) == 128).all()
    with pytest.raises(ConfigError, match="8x8 do not lie in CTUs of 48"):
        reference_lines(plane, np.array([[0, 0]]), 8, 8, 8, 48)


def test_blocks_at_positions() -> None:
    plane = np.arange(12 * 20).reshape(12, 20)
    positions = block_positions(20, 12, 8, 4)
    assert positions.tolist() == [[0, 0], [8, 0], [0, 4], [8, 4], [0, 8], [8, 8]]
    np.testing.assert_array_equal(blocks_at(plane, positions, 8, 4)[3], plane[4:8, 8:16])


def test_labels_are_the_cheapest_modes_of_the_reference() -> None:
    original, decoded = _picture(), _picture(seed=1)
    settings = LabelSettings(((4, 4), (8, 8), (16, 8)), ("dct", "hadamard"), top=4, full=True)
    rows = _rows([_source(original, decoded)], settings, jobs=3)
    assert len(rows) == 20 * 18 + 10 * 9 + 5 * 9
    for width, height in settings.block_sizes:
        block_rows = [row for row in rows if (row["w"], row["h"]) == (width, height)][::7]
        positions = np.array([(row["x"], row["y"]) for row in block_rows])
        lines = reference_lines(decoded, positions, width, height, 10)
        blocks = blocks_at(original, positions, width, height)
        for cost in settings.costs:
            expected = block_costs_reference(lines, blocks, 10, cost)
            np.testing.assert_allclose([row[f"costs_{cost}"] for row in block_rows], expected, rtol=2e-6)
            order = expected.argsort(1, kind="stable")
            ranked = np.take_along_axis(expected, order, 1)
            np.testing.assert_allclose([row[f"cost_{cost}"] for row in block_rows], ranked[:, 0], rtol=2e-6)
            np.testing.assert_allclose(
                [row[f"margin_{cost}"] for row in block_rows], ranked[:, 1] - ranked[:, 0], atol=0.02
            )
            clear = (ranked[:, 1:5] > ranked[:, :4] * 1.0001).all(1)
            assert clear.sum() > len(block_rows) / 2
            tops = np.array([row[f"top_{cost}"] for row in block_rows])
            np.testing.assert_array_equal(tops[clear], order[clear, :4])
            assert [row[f"mode_{cost}"] for row in block_rows] == tops[:, 0].tolist()


def test_lower_mode_wins_equal_costs() -> None:
    costs = np.array([[3.0, 1.0, 1.0 - 1e-7, 1.0], [0.0, 0.0, 1e-9, 5.0], [7.0, 2.0, 3.0, 2.0 - 1e-3]])
    modes, values = rank_modes(costs, 2, exact=False)
    assert modes.tolist() == [[1, 2], [0, 1], [3, 1]]
    assert values[0].tolist() == [1.0, 1.0 - 1e-7]
    assert rank_modes(costs, 2, exact=True)[0].tolist() == [[2, 1], [0, 1], [3, 1]]


def test_only_dct_costs_are_equal_within_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = np.full((1, 67), 2.0)
    costs[0, [5, 9]] = 1, 1 - 1e-7
    monkeypatch.setattr("codecnn.modes.labels.table.block_costs", lambda *_: costs)
    (row,) = _rows([_source(_picture(16, 16))], LabelSettings(((16, 16),), ("dct", "sad")))
    assert (row["mode_dct"], row["mode_sad"]) == (5, 9)


def test_transposed_picture_has_transposed_labels() -> None:
    """Mode m becomes 68 - m if the same neighbours are available and the best mode is clear; planar and DC stay."""
    plane = _picture(64, 64)
    settings = LabelSettings(((4, 4), (8, 8), (16, 16)), top=2, ctu_size=64)
    transposed = {(row["y"], row["x"], row["w"]): row for row in _rows([_source(plane.T.copy())], settings)}
    compared = set()
    for row in _rows([_source(plane)], settings):
        x, y, side = row["x"], row["y"], row["w"]
        line = reference_lines(plane, np.array([[x, y]]), side, side, 10, 64)
        transposed_line = reference_lines(plane.T, np.array([[y, x]]), side, side, 10, 64)
        if (line != transposed_line[:, ::-1]).any() or row["margin_dct"] < 0.01:
            continue
        mode, expected = row["mode_dct"], transposed[x, y, side]
        assert expected["mode_dct"] == (mode if mode < 2 else 68 - mode)
        assert expected["cost_dct"] == pytest.approx(row["cost_dct"], rel=1e-5)
        compared.add(mode)
    assert len(compared) > 12


def test_labels_do_not_depend_on_threads_and_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [_source(_picture(seed=seed), name=f"p{seed}") for seed in range(3)]
    settings = LabelSettings(((4, 4), (32, 32)), ("hadamard",))
    expected = _rows(sources, settings)
    monkeypatch.setattr("codecnn.modes.labels.table._TASK_SAMPLES", 512)
    assert _rows(sources, settings, jobs=4) == expected
    assert [row["picture"] for row in expected][:: len(expected) // 3] == ["p0", "p1", "p2"]


def test_pictures_are_read_as_they_are_needed() -> None:
    read = []

    def sources():
        for number in range(50):
            read.append(number)
            yield _source(_picture(16, 16), name=str(number))

    running = threading.active_count()
    labels = label_pictures(sources(), LabelSettings(((16, 16),), ("hadamard",)), jobs=2)
    next(labels)
    assert len(read) < 8
    labels.close()
    assert threading.active_count() <= running + 2


def test_table_has_row_groups_and_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codecnn.modes.labels.table.ROW_GROUP", 100)
    sources = [_source(_picture(), name="a"), _source(_picture(seed=1), name="b")]
    settings = LabelSettings(((8, 8), (16, 16)), ("hadamard", "sse"))
    calls: list[tuple[int, int]] = []
    inputs = [{"picture": "a"}]
    rows = write_labels(
        tmp_path / "l.parquet", sources, settings, total=2, inputs=inputs, progress=lambda *pair: calls.append(pair)
    )
    table = pq.read_table(tmp_path / "l.parquet")
    assert rows == len(table) == 2 * (90 + 20)
    assert table.to_pylist() == _rows(sources, settings)
    groups = pq.ParquetFile(tmp_path / "l.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [100, 100, 20]
    assert calls == [(1, 2), (2, 2)]
    facts = json.loads(table.schema.metadata[b"codecnn"])
    assert facts["labels"] == 2
    assert facts["inputs"] == inputs
    assert facts["settings"]["costs"] == ["hadamard", "sse"]


def test_interrupted_table_is_removed(tmp_path: Path) -> None:
    def sources():
        yield _source(_picture())
        raise FormatError("the second picture is damaged")

    with pytest.raises(FormatError, match="damaged"):
        write_labels(tmp_path / "l.parquet", sources(), LabelSettings(((16, 16),), ("hadamard",)))
    assert list(tmp_path.iterdir()) == []


def test_folders_are_paired_with_decoded_pictures(tmp_path: Path) -> None:
    for folder, change in (("in", 0), ("out", 9)):
        (tmp_path / folder).mkdir()
        for name, height in (("a", 32), ("b", 48)):
            grey = np.clip(_picture(40, height)[..., None] // 4 + change, 0, 255).astype(np.uint8)
            imsave(tmp_path / folder / f"{name}.png", np.repeat(grey, 3, 2), check_contrast=False)
    inputs = file_inputs(tmp_path / "in", tmp_path / "out", qp=30, bit_depth=10, size=None, chroma=None)
    sources = list(read_inputs(inputs))
    assert [(source.name, source.original.shape) for source in sources] == [("a", (32, 40)), ("b", (48, 40))]
    for source in sources:
        assert source.bit_depth == 10
        assert source.references.astype(int).mean() > source.original.mean() + 20
    assert [(source.qp, source.input) for source in sources] == [(30, 0), (30, 1)]
    assert len(file_inputs(tmp_path / "in", frames=1)) == 1
    with pytest.raises(ConfigError, match="QP 30 is that of decoded pictures"):
        file_inputs(tmp_path / "in", qp=30)
    (tmp_path / "out" / "b.png").unlink()
    with pytest.raises(FormatError, match="2 files"):
        file_inputs(tmp_path / "in", tmp_path / "out")


def test_originals_are_converted_to_the_bit_depth_of_decoded_pictures(tmp_path: Path) -> None:
    plane = _picture(32, 16)
    (plane >> 2).astype(np.uint8).tofile(tmp_path / "in_32x16_400_8bit.yuv")
    plane.tofile(tmp_path / "out_32x16_400_10bit.yuv")
    inputs = file_inputs(tmp_path / "in_32x16_400_8bit.yuv", tmp_path / "out_32x16_400_10bit.yuv")
    (source,) = read_inputs(inputs)
    assert source.bit_depth == 10
    np.testing.assert_array_equal(source.original, plane >> 2 << 2)
    np.testing.assert_array_equal(source.references, plane)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """Raw clip of three pictures of 32x32."""
    path = tmp_path / "clip_32x32_400_10bit.yuv"
    np.stack([_picture(32, 32, seed=seed) for seed in range(3)]).tofile(path)
    return path


def test_command_writes_a_table(tmp_path: Path, clip: Path, run) -> None:
    output = tmp_path / "l.parquet"
    options = ["--block-sizes", "8,16x8", "--cost", "hadamard,dct", "-f", "2", "--top", "5"]
    status, output_text, _ = run("labels", "-i", clip, "-o", output, "--json", *options)
    assert status == 0
    assert json.loads(output_text) == {"labels": str(output), "pictures": 2, "blocks": 2 * (16 + 8)}
    table = pq.read_table(output)
    assert sorted(set(table["frame"].to_pylist())) == [0, 1]
    assert {len(modes) for modes in table["top_dct"].to_pylist()} == {5}
    facts = json.loads(table.schema.metadata[b"codecnn"])
    assert len(facts["inputs"][0]["sha256"]) == 64


def test_returned_table_equals_the_written_one(tmp_path: Path, clip: Path, tiny_store) -> None:
    settings = {"block_sizes": "8,16", "cost": "hadamard"}
    returned = label_blocks(clip, **settings, frames=2)
    written = label_blocks(clip, tmp_path / "l.parquet", **settings, frames=2)
    assert (returned.pictures, returned.blocks, written) == (2, 40, Labels(2, 40))
    assert pq.read_table(tmp_path / "l.parquet").equals(returned.table)
    assert returned.table.schema.metadata.keys() == {b"codecnn"}
    of_store = label_blocks(tiny_store.folder, splits=["val"], block_sizes="64", cost="sad")
    assert (of_store.pictures, sorted(set(of_store.table["qp"].to_pylist()))) == (2, [32, 42])
    with pytest.raises(ConfigError, match="qp, size"):
        label_blocks(tiny_store.folder, qp=32, size="8x8")
    with pytest.raises(ConfigError, match="'val'"):
        label_blocks(clip, splits=["val"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"block_sizes": ((8, 8), (8, 8))}, "at least one block size, each once"),
        ({"block_sizes": ((7, 8),)}, "7x8"),
        ({"block_sizes": ((64, 64),), "ctu_size": 32}, "64x64 do not fit into CTUs of 32"),
        ({"costs": ("dct", "haar")}, "'haar'"),
        ({"top": 68}, "top 68"),
        ({"ctu_size": 100}, "CTU size 100"),
        ({"standard": "hevc"}, "64x64"),
        ({"standard": "hevc", "block_sizes": ((8, 8),)}, "CTU size 128 is not one of hevc's 16, 32, 64"),
    ],
)
def test_invalid_settings_are_refused(values, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LabelSettings(**values)


def test_settings_from_text() -> None:
    assert label_settings() == LabelSettings()
    hevc = label_settings("hevc", cost="dct,sad", top=1)
    assert (hevc.block_sizes, hevc.ctu_size) == (((4, 4), (8, 8), (16, 16), (32, 32)), 64)
    assert hevc.costs == ("dct", "sad")
    with pytest.raises(ConfigError, match="'av1'"):
        label_settings("av1")
    assert parse_block_sizes("4,16x8") == ((4, 4), (16, 8))
    for text in ("", "4,", "8x8x8", "-4", "x8", "²"):
        with pytest.raises(ConfigError, match="is not a number such as 8"):
            parse_block_sizes(text)


def test_invalid_pictures_are_refused() -> None:
    settings = LabelSettings(((16, 16),), ("hadamard",))
    with pytest.raises(FormatError, match="12x12"):
        _rows([_source(_picture(12, 12))], settings)
    with pytest.raises(FormatError, match="32x16 and the decoded one 16x16"):
        _rows([_source(_picture(32, 16), _picture(16, 16))], settings)
    with pytest.raises(ConfigError, match="not of 16"):
        _rows([Source("deep", 0, _picture(), _picture(), 16)], settings)


@pytest.mark.slow
def test_a_picture_of_3840x2160_takes_less_than_4_gib(tmp_path: Path) -> None:
    path = tmp_path / "big_3840x2160_400_10bit.yuv"
    _picture(3840, 2160).tofile(path)
    argv = [sys.executable, "-m", "codecnn", "labels", "-i", str(path), "-o", str(tmp_path / "l.parquet")]
    subprocess.run(argv, check=True)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 4 * 2**20  # KiB
    assert pq.read_metadata(tmp_path / "l.parquet").num_rows == sum(
        (3840 // n) * (2160 // n) for n in (4, 8, 16, 32, 64)
    )


@pytest.mark.gpu
def test_gpu_labels_equal_those_of_the_cpu() -> None:
    settings = LabelSettings(((4, 4), (16, 16), (64, 64)), ("dct", "hadamard"), ctu_size=64)
    source = _source(_picture(128, 128))
    for cpu_row, gpu_row in zip(*(_rows([source], settings, device=device) for device in ("cpu", "cuda")), strict=True):
        assert cpu_row["mode_hadamard"] == gpu_row["mode_hadamard"]
        assert cpu_row["cost_dct"] == pytest.approx(gpu_row["cost_dct"], rel=1e-5)


def test_rate_labels_depend_on_the_qp_and_need_it() -> None:
    original, decoded = _picture(), _picture(seed=1)
    settings = LabelSettings(((8, 8),), ("rate",), full=True)
    modes = {}
    for qp in (22, 37):
        rows = _rows([Source("waves", 0, original, decoded, 10, qp)], settings)[::7]
        positions = np.array([(row["x"], row["y"]) for row in rows])
        lines = reference_lines(decoded, positions, 8, 8, 10)
        expected = block_costs_reference(lines, blocks_at(original, positions, 8, 8), 10, "rate", qp=qp)
        np.testing.assert_allclose([row["costs_rate"] for row in rows], expected, rtol=0.01)
        modes[qp] = [row["mode_rate"] for row in rows]
    assert modes[22] != modes[37]
    with pytest.raises(ConfigError, match=r"waves: .* 'rate'"):
        _rows([_source(original)], settings)
