"""Batches of the loader against a plain reference, in all planes, sampling modes, mixes and processes."""

import hashlib
import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy import stats
from torch.utils.data import DataLoader

from codecnn.api.config import FilterConfig, checked
from codecnn.base.division import ceil_div
from codecnn.base.errors import ConfigError, MissingFileError, StoreError
from codecnn.base.planes import BLOCK_PLANES, CELL_FILES, CELL_PLANES, LUMA_FILES, QP_SCALE, TEMPORAL_PLANES, file_of
from codecnn.dataset import (
    FILE_PLANES,
    LOADER_PLANES,
    CtuPatches,
    PackedBatches,
    Patch,
    PatchReader,
    ResidentBatches,
    Sampler,
    TrainingBatches,
    as_floats,
    as_tensors,
    iterate,
    unpack,
)
from codecnn.dataset import patches as patch_module
from codecnn.pictures.files import VideoFormat
from codecnn.training import FilterSettings, filter_loss
from codecnn.training.filter import data_key, validation_units
from tests.helpers.networks import SMALL
from tests.helpers.store_units import hashes, make_unit
from tests.helpers.training import train_filter

torch.set_num_threads(1)  # tensors are small, and idle threads slow other processes down

SHAPES = {"wide": (136, 72), "small": (40, 52), "tall": (96, 200)}
QPS = (22, 37)
PICTURES = 3
CTU = 64


def write_unit(folder, name, qp, bit_depth, rng, size=None):
    width, height = size or SHAPES[name]
    form = VideoFormat(width, height, "420", bit_depth)
    samples = form.picture_bytes // form.dtype.itemsize
    files = {"block_planes": f"{name}_{qp}_blocks.npy"}
    for file in ("original", "decoded", "unfiltered", "prediction", "residual", "teacher"):
        files[file] = f"{name}.yuv" if file == "original" else f"{name}_{qp}_{file}.yuv"
        data = rng.integers(0, 1 << bit_depth, (PICTURES, samples)).astype(form.dtype)
        if not (folder / files[file]).exists():
            (folder / files[file]).write_bytes(data.tobytes())
    for file, names in LUMA_FILES.items():
        files[file] = f"{name}_{qp}_{file}.yuv"
        data = rng.integers(0, 1 << bit_depth, (PICTURES, len(names), height, width)).astype(form.dtype)
        (folder / files[file]).write_bytes(data.tobytes())
    cells = rng.integers(-1, 4, (PICTURES, len(BLOCK_PLANES), ceil_div(height, 4), ceil_div(width, 4)), dtype=np.int8)
    np.save(folder / files["block_planes"], cells)
    files["transforms"] = f"{name}_{qp}_transforms.npy"
    shape = (PICTURES, len(CELL_FILES["transforms"]), *cells.shape[2:])
    np.save(folder / files["transforms"], rng.integers(-1, 2, shape, dtype=np.int8))
    files["strengths"] = f"{name}_{qp}_strengths.npy"
    np.save(folder / files["strengths"], rng.integers(0, 3, (PICTURES, 2, *cells.shape[2:]), dtype=np.int8))
    pictures = [(poc, poc, 30.0 + poc, "IBP"[poc]) for poc in range(PICTURES)]
    return make_unit(folder, name, qp, pictures=pictures, format=form, **files)


def write_rows(folder, rows):
    """Write the columns of ctus.parquet that the sampler reads."""
    names = ("unit", "poc", "x", "y", "w", "h", "mse_y")
    pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), folder / "ctus.parquet")
    return [dict(zip(names, row, strict=True)) for row in rows]


def write_ctus(folder, units, rng):
    rows = [
        (unit.key, poc, x, y, min(CTU, unit.format.width - x), min(CTU, unit.format.height - y), rng.gamma(1, 20))
        for unit in units
        for poc in range(PICTURES)
        for y in range(0, unit.format.height, CTU)
        for x in range(0, unit.format.width, CTU)
    ]
    return write_rows(folder, rows)


def make_units(folder, bit_depth=10, names=tuple(SHAPES)):
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(bit_depth)
    return [write_unit(folder, name, qp, bit_depth, rng) for name in names for qp in QPS]


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    return make_units(tmp_path_factory.mktemp("loader") / "ten")


@pytest.fixture(scope="module")
def eight_bit(tmp_path_factory):
    return make_units(tmp_path_factory.mktemp("loader") / "eight", 8, ("wide", "small"))


def whole_plane(unit, picture, name):
    """Read a whole plane as floats through the unit's methods."""
    form = unit.format
    if name in CELL_PLANES:
        plane = CELL_PLANES[name]
        cells = np.maximum(unit.cells(plane.file)[picture, plane.index].astype(int), 0)
        if name == "qp_depth":
            cells = cells + 4 * np.maximum(unit.cells(plane.file)[picture, CELL_PLANES["depth"].index], 0)
        cells = cells / np.float32(plane.scale)
        return np.kron(cells, np.ones((4, 4)))[: form.height, : form.width]
    if name in ("prev_y", "next_y"):
        picture = min(max(picture + (1 if name == "next_y" else -1), 0), PICTURES - 1)
        return whole_plane(unit, picture, "rec_y")
    if name in TEMPORAL_PLANES:
        names = LUMA_FILES[file_of(name)]
        samples = np.fromfile(unit.path(file_of(name)), form.dtype)
        planes = samples.reshape(PICTURES, len(names), form.height, form.width)
        return planes[picture, names.index(name)] / 2**form.bit_depth
    kind, component = name.split("_")
    files = {"rec": "decoded", "orig": "original", "unf": "unfiltered", "pred": "prediction", "resid": "residual"}
    return unit.pictures_of(files.get(kind, kind))[picture].planes["yuv".index(component)] / 2**form.bit_depth


def transformed(plane, transform):
    plane = plane.T if transform & 1 else plane
    plane = np.flipud(plane) if transform & 2 else plane
    return np.fliplr(plane) if transform & 4 else plane


def expected_patch(unit, patch, name, size, halo, transform):
    """Cut a plane of a patch from the picture padded by NumPy."""
    plane = whole_plane(unit, patch.picture, name)
    factor = 2 if name[-2:] in ("_u", "_v") and name not in CELL_PLANES else 1
    halo = 0 if name.startswith(("orig", "teacher")) else halo // factor
    padded = np.pad(plane, size, mode="edge")
    y, x = size + patch.y // factor - halo, size + patch.x // factor - halo
    side = size // factor + 2 * halo
    return transformed(padded[y : y + side, x : x + side], transform)


def draw_reference(units, rng, count, size, positions):
    """Draw the patches of a run without options by the fixed sequence of random calls."""
    qps = sorted({unit.qp for unit in units})
    patches = []
    for _ in range(count):
        qp = qps[int(rng.integers(len(qps)))]
        index = int(rng.choice([index for index, unit in enumerate(units) if unit.qp == qp]))
        form = units[index].format
        picture = int(rng.integers(len(units[index].pictures)))
        place = []
        for extent in (form.width, form.height):
            last, step = (extent - 1, size) if positions == "ctu" else (max(extent - size, 0), 8)
            place.append(int(rng.integers(last // step + 1)) * step)
        patches.append(Patch(index, picture, *place))
    return patches


@pytest.mark.parametrize("positions", ["ctu", "random"])
def test_batches_hold_all_planes_of_the_drawn_patches(units, positions):
    data = TrainingBatches(units, batch=8, steps=9, size=64, halo=6, planes=LOADER_PLANES, positions=positions, seed=4)
    seen = set()
    for step in (0, 1, 7):
        rng = np.random.default_rng([4, step])
        patches = draw_reference(units, rng, 8, 64, positions)
        transforms = rng.integers(8, size=8)
        seen |= set(transforms.tolist())
        batch = data[step]
        facts = {"valid", "picture_mse", "picture_mse_u", "picture_mse_v", "weight"}
        assert set(batch) == {*LOADER_PLANES, *facts}
        assert all(tensor.dtype == torch.float32 for tensor in batch.values())
        for i, (patch, transform) in enumerate(zip(patches, transforms, strict=True)):
            unit = units[patch.unit]
            for name in set(LOADER_PLANES) - {"qp", "slice_type"}:
                expected = expected_patch(unit, patch, name, 64, 6, transform)
                np.testing.assert_allclose(batch[name][i, 0], expected, rtol=1e-6, err_msg=name)
            coded = unit.pictures[patch.picture]
            assert batch["qp"][i].item() * QP_SCALE == coded.qp
            assert batch["slice_type"][i].item() == {"I": 0, "B": 1, "P": 1}[coded.slice_type]
            luma, *chroma = (
                0 if psnr is None else 255**2 * 10 ** (-psnr / 10) * 4 ** (10 - 8) / 4**10
                for psnr in (coded.psnr_y, coded.psnr_u, coded.psnr_v)
            )
            assert batch["picture_mse"][i].item() == pytest.approx(luma, rel=1e-6)
            for name, mse in zip(("picture_mse_u", "picture_mse_v"), chroma, strict=True):
                assert batch[name][i].item() == pytest.approx(max(mse, luma / 32), rel=1e-6)
            inside = np.zeros((64, 64))
            inside[: max(unit.format.height - patch.y, 0), : max(unit.format.width - patch.x, 0)] = 1
            np.testing.assert_array_equal(batch["valid"][i, 0], transformed(inside, transform))
    assert seen == set(range(8))


def test_cell_planes_have_scales_and_columns():
    assert all(plane.scale > 0 for plane in CELL_PLANES.values())
    for file, names in CELL_FILES.items():
        assert {plane.column: plane.index for plane in CELL_PLANES.values() if plane.file == file} == {
            name: i for i, name in enumerate(names)
        }


def test_only_requested_planes_are_read(units):
    data = TrainingBatches(units, batch=2, steps=1, size=64, planes=("rec_y",))
    assert set(data[0]) == {"rec_y", "orig_y", "valid", "picture_mse", "weight"}
    assert set(data.reader.files.paths) == {"decoded", "original"}


@pytest.mark.parametrize("name", sorted({"unf_y", "pred_y", "resid_y", *CELL_PLANES}))
def test_missing_plane_is_named(units, name):
    missing = file_of(name)
    bare = units[2].model_copy(update={f"{missing}_file": None})
    with pytest.raises(StoreError, match=f"'small'.* has no plane {name}"):
        TrainingBatches([*units[:2], bare], batch=1, steps=1, planes=("rec_y", name))


def test_invalid_planes_are_refused(units):
    with pytest.raises(ConfigError, match="unknown plane 'rec_z'"):
        PatchReader(units, 64, 2, ("rec_z",))
    with pytest.raises(ConfigError, match="even halo, not 64 and 3"):
        PatchReader(units, 64, 3, ("rec_u",))
    with pytest.raises(ConfigError, match="even positions"):
        PatchReader(units, 64, 2, ("rec_u",)).cut([Patch(0, 0, 8, 3)], [0])
    grey = units[0].model_copy(update={"format": replace(units[0].format, chroma="400")})
    with pytest.raises(StoreError, match=r"'wide'.*no 4:2:0 plane orig_v: it is 400"):
        PatchReader([grey], 64, 2, ("rec_y", "orig_v"))


def test_damaged_files_are_named(tmp_path):
    units = make_units(tmp_path / "s", names=("small",))
    path = units[0].decoded_path
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(StoreError, match=r"small_22_decoded.yuv has \d+ bytes"):
        CtuPatches(units[:1])[0]
    path.unlink()
    with pytest.raises(MissingFileError, match=r"small_22_decoded.yuv"):
        CtuPatches(units[:1])[0]
    np.save(units[1].path("block_planes"), np.zeros((1, 2, 3), np.int8))
    with pytest.raises(StoreError, match=r"small_37_blocks.npy holds int8 \(1, 2, 3\)"):
        CtuPatches(units[1:], planes=("rec_y", "depth"))[0]


def test_number_of_open_files_is_limited(units, monkeypatch):
    plain = TrainingBatches(units, batch=16, steps=1, size=64)[0]
    monkeypatch.setattr(patch_module, "OPEN_FILES", 2)
    data = TrainingBatches(units, batch=16, steps=1, size=64)
    assert equal(data[0], plain)
    assert len(data.reader.files._open) == 2


def equal(a, b):
    assert a.keys() == b.keys()
    return all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


def assert_equal_on_cuda(batch, expected):
    """Compare a batch on CUDA with one on the CPU.

    Samples and the mask `valid` are integers scaled by a power of two and must be equal. Other values may be quotients,
    in which CUDA and the CPU may differ in the last bit.
    """
    assert batch.keys() == expected.keys()
    for name, tensor in batch.items():
        assert tensor.is_cuda
        tolerance = 0 if name in FILE_PLANES or name == "valid" or not tensor.is_floating_point() else 1e-6
        torch.testing.assert_close(tensor.cpu(), expected[name], rtol=tolerance, atol=0)


def test_border_is_valid_at_the_picture_edge_only(units):
    index = next(index for index, unit in enumerate(units) if unit.name == "wide")
    width, height = units[index].format.width, units[index].format.height
    reader = PatchReader(units, 32, 0, border=5)
    inner, corner = Patch(index, 0, 16, 24), Patch(index, 0, width - 32, 0)
    valid = as_floats(as_tensors(reader.cut([inner, corner, inner, corner], [0, 0, 1, 4])))["valid"].numpy()[:, 0]
    expected = np.zeros((2, 32, 32))
    expected[0, 5:-5, 5:-5] = 1
    expected[1, : -5 if height > 32 else None, 5:] = 1
    np.testing.assert_array_equal(valid, [*expected, expected[0].T, np.fliplr(expected[1])])
    with pytest.raises(ConfigError, match="border of 16"):
        PatchReader(units, 32, 0, border=16)


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_loss_weights_keep_the_mean_of_a_uniform_draw(units, tmp_path, exponent):
    wide = [unit for unit in units if unit.qp == QPS[0]]
    rows = write_ctus(wide[0].folder, wide, np.random.default_rng(7))
    drawn = Sampler([(wide, 1.0)], CTU, "ctu", exponent, keep_objective=True).draw(np.random.default_rng(2), 40_000)
    numbers = {unit.key: number for number, unit in enumerate(wide)}
    area = np.array([row["w"] * row["h"] for row in rows], dtype=float)
    unit = np.array([numbers[row["unit"]] for row in rows])
    even = area / np.bincount(unit, area)[unit] / len(wide)
    value = {(numbers[row["unit"]], row["poc"], row["x"], row["y"]): row["mse_y"] for row in rows}
    mean = np.mean([patch.weight * value[patch[:4]] for patch in drawn])
    assert mean == pytest.approx(np.sum(even * [row["mse_y"] for row in rows]), rel=0.02)
    assert np.mean([patch.weight for patch in drawn]) == pytest.approx(1, abs=0.05 if exponent < 1 else 0.3)


@pytest.mark.parametrize("exponent", [None, 0.5])
@pytest.mark.parametrize("border", [8, 12, 24])
def test_patches_of_the_ctu_grid_have_valid_samples(tmp_path, exponent, border):
    """A border can cover all samples of the last CTUs in pictures of 72x72 and 88x72."""
    rng = np.random.default_rng(3)
    units = [write_unit(tmp_path, name, 22, 8, rng, size=(width, 72)) for name, width in (("small", 72), ("wide", 88))]
    write_ctus(tmp_path, units, rng)
    data = TrainingBatches(
        units, batch=64, steps=4, size=CTU, positions="ctu", error_exponent=exponent, border=border, planes=("rec_y",)
    )
    starts = set()
    for step in range(4):
        patches, _ = data.draw(step)
        starts |= {patch.x for patch in patches}
        assert (data[step]["valid"].sum(dim=(1, 2, 3)) > 0).all()
    # The patch of the last CTU starts earlier only where the border would cover all its samples.
    moved = 64 - ceil_div(border, 8) * 8
    assert starts == {8: {0, 64, moved}, 12: {0, 64, moved}, 24: {0, moved}}[border]


def test_moved_patches_count_the_samples_of_their_ctu(tmp_path):
    rng = np.random.default_rng(3)
    units = [write_unit(tmp_path, "row", 22, 8, rng, size=(416, 240))]
    data = TrainingBatches(units, batch=64, steps=1, size=128, positions="ctu", border=32, augment=False)
    patches, _ = data.draw(0)
    last = next(index for index, patch in enumerate(patches) if patch.x == 352 and patch.y == 0)
    columns = data[0]["valid"][last, 0].any(dim=0).nonzero().flatten() + 352
    assert columns.tolist() == list(range(384, 416))
    # A border that leaves valid samples in all CTUs moves none.
    plain, _ = TrainingBatches(units, batch=64, steps=1, size=128, positions="ctu", augment=False).draw(0)
    small, _ = TrainingBatches(units, batch=64, steps=1, size=128, positions="ctu", border=24, augment=False).draw(0)
    assert small == plain


def test_loss_is_finite_without_valid_chroma_samples(units):
    """An odd border can leave a single valid luma column, and none of 4:2:0 chroma."""
    index = next(index for index, unit in enumerate(units) if unit.name == "small")
    planes = ("rec_y", "rec_u", "rec_v", "orig_u", "orig_v")
    batch = as_floats(as_tensors(PatchReader(units, 32, 0, planes, border=7).cut([Patch(index, 0, 32, 0)], [0])))
    columns = batch["valid"].any(dim=2).flatten().nonzero().flatten()
    assert columns.tolist() == [7]

    class Unchanged(torch.nn.Module):
        def forward(self, batch):
            return {name: batch[f"rec_{name}"] for name in "yuv"}

    loss = filter_loss(Unchanged(), batch, "picture")
    assert torch.isfinite(loss)
    assert loss > 0


@pytest.mark.parametrize("depth", ["eight", "ten", "both"])
@pytest.mark.parametrize("positions", ["ctu", "random"])
def test_resident_batches_equal_loaded_ones(units, eight_bit, depth, positions):
    chosen = {"eight": eight_bit, "ten": units, "both": units + eight_bit}[depth]
    data = TrainingBatches(chosen, batch=24, steps=4, size=64, halo=4, planes=LOADER_PLANES, positions=positions)
    resident = ResidentBatches(data, "cpu")
    assert len(resident) == 4
    assert all(equal(resident[step], data[step]) for step in (2, 0, 3))


@pytest.mark.gpu
def test_resident_batches_on_cuda_equal_loaded_ones(units):
    data = TrainingBatches(units, batch=24, steps=4, size=64, halo=4, planes=LOADER_PLANES)
    resident = ResidentBatches(data, "cuda")
    for step in range(4):
        assert_equal_on_cuda(resident[step], data[step])
    assert_equal_on_cuda(next(iterate(data, range(1), workers=1, device="cuda")), data[0])


def test_all_qps_share_the_resident_original(units):
    data = TrainingBatches(units, batch=1, steps=1, planes=("rec_y",))
    memory = ResidentBatches(data, "cpu")._memory
    luma = sum(width * height for width, height in SHAPES.values()) * PICTURES
    assert {name: tensor.numel() for name, tensor in memory.items()} == {"samples": luma * (1 + len(QPS))}


def test_planes_larger_than_the_memory_are_refused(units):
    data = TrainingBatches(units, batch=1, steps=1)
    with pytest.raises(ConfigError, match=r"0\.00 GiB on cpu"):
        ResidentBatches(data, "cpu", memory_share=1e-9)


def test_batches_do_not_depend_on_workers_or_first_step(units):
    data = TrainingBatches(units, batch=4, steps=30, size=64, planes=("rec_y", "qp", "depth", "rec_u"), seed=2)
    expected = [data[step] for step in range(30)]
    for workers, start in ((0, 20), (1, 11), (2, 0)):
        batches = list(iterate(data, range(start, 30), workers=workers))
        assert len(batches) == 30 - start
        assert all(equal(a, b) for a, b in zip(batches, expected[start:], strict=True))


def test_spawned_process_receives_paths_and_gives_the_same_batches(units):
    data = TrainingBatches(units, batch=4, steps=3, size=64)
    batch = data[0]
    pictures = sum(unit.decoded_path.stat().st_size for unit in units)
    assert len(pickle.dumps(data)) < min(20_000, pictures / 10)
    loader = DataLoader(PackedBatches(data), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    first = next(iter(loader))
    packed = data.integers(0)
    assert equal(unpack(*first), packed)
    assert equal(data[0], batch)


def test_files_are_never_changed(units):
    before = hashes(units[0].folder)
    data = TrainingBatches(units, batch=16, steps=8, size=64, planes=LOADER_PLANES)
    resident = ResidentBatches(data, "cpu")
    kept = {name: tensor.clone() for name, tensor in resident._memory.items()}
    for step in range(8):
        for batch in (data[step], resident[step]):
            for tensor in batch.values():
                tensor.fill_(-1)
    assert hashes(units[0].folder) == before
    assert all(torch.equal(resident._memory[name], tensor) for name, tensor in kept.items())
    for file, unit in (("decoded", 0), ("original", 1), ("block_planes", 2)):
        assert not data.reader.files.plane(file, unit, 0, 0).flags.writeable


def draw_many(sampler, count=20_000, seed=1):
    return sampler.draw(np.random.default_rng(seed), count)


def agrees(observed, weights):
    """Return whether counts agree with weights, by a chi-square test (deterministic for a fixed seed)."""
    weights = np.asarray(weights, float)
    return stats.chisquare(observed, weights / weights.sum() * np.sum(observed)).pvalue > 1e-3


def test_qps_then_sequences_are_drawn_uniformly(units):
    uneven = [unit for unit in units if not (unit.name == "tall" and unit.qp == 22)]
    drawn = [patch.unit for patch in draw_many(Sampler([(uneven, 1)], 64, "random"))]
    counts = np.bincount(drawn, minlength=len(uneven))
    assert agrees(counts, [1 / 4 if unit.qp == 22 else 1 / 6 for unit in uneven])
    assert not agrees(counts, np.ones(len(uneven)))


@pytest.mark.parametrize("exponent", [0, 0.5, 1])
def test_ctus_are_drawn_by_error_within_a_qp(tmp_path, exponent):
    units = make_units(tmp_path / "s")
    rows = write_ctus(units[0].folder, units, np.random.default_rng(3))
    patches = draw_many(Sampler([(units, 1)], CTU, "ctu", exponent))
    for qp in QPS:
        chosen = [row for row in rows if row["unit"].endswith(str(qp))]
        numbers = {(row["unit"], row["poc"], row["x"], row["y"]): index for index, row in enumerate(chosen)}
        drawn = [numbers[units[p.unit].key, p.picture, p.x, p.y] for p in patches if units[p.unit].qp == qp]
        assert abs(len(drawn) - len(patches) / 2) < 300
        counts = np.bincount(drawn, minlength=len(chosen))
        assert agrees(counts, [row["mse_y"] ** exponent * row["w"] * row["h"] for row in chosen])
        assert not agrees(counts, [row["mse_y"] ** (exponent + 0.2) * row["w"] * row["h"] for row in chosen])


def test_random_patches_hold_the_centre_of_the_drawn_ctu(tmp_path):
    units = make_units(tmp_path / "s", names=("tall",))
    rows = [row for unit in units for row in ((unit.key, 1, 64, 128, 32, 64, 1.0), (unit.key, 2, 0, 0, 64, 64, 0.0))]
    write_rows(units[0].folder, rows)
    patches = draw_many(Sampler([(units, 1)], 64, "random", 1.0), 2000)
    assert {patch.picture for patch in patches} == {1}
    # The CTU's centre is (80, 160) in a picture of 96x200.
    assert {patch.x for patch in patches} == {24, 32}
    counts = np.bincount([patch.y for patch in patches])
    assert np.flatnonzero(counts).tolist() == list(range(104, 137, 8))
    assert agrees(counts[104:137:8], np.ones(5))


def test_tables_without_weights_are_refused(tmp_path):
    units = make_units(tmp_path / "s", names=("small",))
    rows = write_ctus(units[0].folder, units[:1], np.random.default_rng(0))
    with pytest.raises(StoreError, match="small at QP 37"):
        Sampler([(units, 1)], 64, "ctu", 1.0)
    write_rows(units[0].folder, [(*list(row.values())[:-1], 0.0) for row in rows])
    with pytest.raises(StoreError, match="QP 22"):
        Sampler([(units[:1], 1)], 64, "ctu", 1.0)


def test_stores_are_mixed_by_share(units, eight_bit):
    sources = [(units, 0.7), (eight_bit, 0.3)]
    drawn = np.array([patch.unit for patch in draw_many(Sampler(sources, 64, "random"))])
    assert agrees([(drawn < len(units)).sum(), (drawn >= len(units)).sum()], [0.7, 0.3])
    expected = [0.7 / len(units)] * len(units) + [0.3 / len(eight_bit)] * len(eight_bit)
    assert agrees(np.bincount(drawn), expected)
    single = TrainingBatches([(units, 1.0)], batch=8, steps=2, size=64)
    assert equal(single[1], TrainingBatches(units, batch=8, steps=2, size=64)[1])
    mixed = TrainingBatches(sources, batch=8, steps=2, size=64, seed=1)
    scales = {unit.format.bit_depth for unit in mixed.reader.units}
    assert scales == {8, 10}
    assert mixed[1]["rec_y"].max() < 1
    with pytest.raises(ConfigError, match=r"shares must be positive, not 0\.7, 0"):
        Sampler([(units, 0.7), (eight_bit, 0)], 64, "ctu")
    with pytest.raises(StoreError, match="no units"):
        TrainingBatches([(units, 1.0), ([], 1.0)], batch=1, steps=1)


def test_key_of_a_mix_depends_on_stores_and_shares(tiny_store):
    other = replace(tiny_store, manifest=tiny_store.manifest.model_copy(update={"data_key": "other"}))
    assert data_key([(tiny_store, 3)]) == tiny_store.data_key
    keys = {data_key([(tiny_store, 0.7), (other, share)]) for share in (0.3, 0.4)}
    assert len(keys) == 2
    assert data_key([(tiny_store, 7), (other, 3)]) in keys
    none = replace(other, units=tiny_store.split("train"))
    assert validation_units([(none, 1), (tiny_store, 1)]) == tiny_store.split("val")
    qps = len({unit.qp for unit in tiny_store.split("val")})
    doubled = replace(tiny_store, units=tuple(unit for unit in tiny_store.units for _ in range(2)))
    limited = validation_units([(doubled, 1), (none, 1), (doubled, 1)], pictures=1)
    assert len(limited) == 2 * qps, "each store has its pictures"
    with pytest.raises(StoreError, match="no pictures in the split 'val'"):
        validation_units([(none, 1)])


def test_configuration_names_one_store_or_several(tiny_store):
    folder = str(tiny_store.folder)
    model = {"name": "rdn"}
    mix = checked(FilterConfig, {"stores": [{"store": folder, "share": 0.7}], "model": model}, "c").mix()
    assert [(store.data_key, share) for store, share in mix] == [(tiny_store.data_key, 0.7)]
    assert checked(FilterConfig, {"store": folder, "model": model}, "c").mix()[0][1] == 1
    for wrong in ({}, {"store": folder, "stores": [{"store": folder, "share": 1}]}):
        with pytest.raises(ConfigError, match="stores"):
            checked(FilterConfig, wrong | {"model": model}, "c")
    with pytest.raises(ConfigError, match=r"stores\.0\.share"):
        checked(FilterConfig, {"stores": [{"store": folder, "share": 0}], "model": model}, "c")


def test_worker_processes_train_to_the_same_weights(tiny_store, tmp_path):
    settings = FilterSettings(steps=3, batch=2, patch=64, warmup=1, validate_every=3, threads=1, device="cpu")
    weights = set()
    for name, changes in {"plain": {}, "workers": {"workers": 1}}.items():
        train_filter([(tiny_store, 1.0)], "rdn", SMALL, settings.model_copy(update=changes), tmp_path / name)
        model = torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["model"]
        weights.add(hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in model.values())).hexdigest())
    assert len(weights) == 1
    by_error = settings.model_copy(update={"error_exponent": 1.0})
    train_filter([(tiny_store, 0.5), (tiny_store, 0.5)], "rdn", SMALL, by_error, tmp_path / "mix")
    assert (tmp_path / "mix" / "best.safetensors").exists()


@pytest.mark.gpu
def test_training_from_resident_planes_equals_training_from_files(tiny_store, tmp_path):
    settings = FilterSettings(steps=3, batch=2, patch=64, warmup=1, validate_every=3, device="cuda")
    losses = [
        train_filter(
            tiny_store, "rdn", SMALL, settings.model_copy(update={"resident": resident}), tmp_path / str(resident)
        ).last["loss"]
        for resident in (False, True)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def test_unpacking_restores_packed_batches(units):
    batch = TrainingBatches(units, batch=3, steps=1, size=64, planes=LOADER_PLANES).integers(0)
    packed, layout = PackedBatches(TrainingBatches(units, batch=3, steps=1, size=64, planes=LOADER_PLANES))[0]
    assert packed.dtype == torch.uint8
    assert equal(unpack(packed, layout), batch)
    assert as_tensors({"a": np.zeros(2, np.uint16)})["a"].dtype == torch.uint16
