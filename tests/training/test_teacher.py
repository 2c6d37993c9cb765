"""Distillation: teacher pictures against plain filtering, and targets that move from the teacher to the originals."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from codecnn.api.config import checked
from codecnn.base.errors import MissingFileError, ModelError
from codecnn.dataset import TrainingBatches
from codecnn.filtering import FloatFilter, filter_luma, load_filter
from codecnn.models import create_model, load_model, save_weights
from codecnn.training import FilterSettings, Trainer, filter_loss, warmup_cosine
from codecnn.training.filter import Teacher, filter_task, original_share
from codecnn.training.settings import ComponentSettings, TeacherSettings
from tests.helpers.networks import SMALL, awaken
from tests.helpers.training import rows, train_filter, weights_of

SETTINGS = FilterSettings(
    steps=6, batch=4, patch=64, learning_rate=2e-3, warmup=2, ema=0.5, validate_every=3, seed=3, threads=1, device="cpu"
)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Files of two networks with random weights."""
    folder = tmp_path_factory.mktemp("teachers")
    for seed in (0, 1):
        model = awaken(create_model("rdn", **SMALL), seed, std=0.1)
        save_weights(folder / f"{seed}.safetensors", model, "rdn", {"qps": [32, 42]})
    return [str(folder / f"{seed}.safetensors") for seed in (0, 1)]


def _taught_luma(unit):
    with unit.pictures_of("teacher") as video:
        return video[0].y.astype(int)


def test_teacher_pictures_are_filtered_pictures(tiny_store, weights):
    units = Teacher(TeacherSettings(weights=weights[:1]), "cpu").teach(tiny_store.units)
    model = load_model(weights[0])[0]
    for unit in units:
        with unit.decoded() as decoded:
            picture = decoded[0]
        expected = filter_luma(model, picture.y, unit.qp, picture.bit_depth)
        np.testing.assert_array_equal(_taught_luma(unit), expected)
        assert np.any(expected != picture.y)
        with unit.pictures_of("teacher") as video:
            np.testing.assert_array_equal(video[0].u, picture.u)


def test_the_whole_card_of_a_teacher_is_part_of_its_key(weights, tmp_path):
    """The training QPs on the card decide which QP the network receives."""
    for suffix in (".safetensors", ".json"):
        shutil.copy(Path(weights[0]).with_suffix(suffix), tmp_path / f"w{suffix}")
    settings = TeacherSettings(weights=[str(tmp_path / "w.safetensors")])
    before = Teacher(settings, "cpu").key
    assert Teacher(TeacherSettings(weights=weights[:1]), "cpu").key == before
    card = json.loads((tmp_path / "w.json").read_text())
    (tmp_path / "w.json").write_text(json.dumps(card | {"qps": [32]}))
    assert Teacher(settings, "cpu").key != before


def test_a_luma_teacher_and_a_yuv_teacher_are_averaged(tiny_store, weights, tmp_path):
    """Luma is the mean of both; chroma comes from the network that filters it."""
    coloured = awaken(create_model("low_cost_yuv_17"), std=0.1)
    save_weights(tmp_path / "yuv.safetensors", coloured, "low_cost_yuv_17", {"qps": [32, 42]})
    teacher = Teacher(TeacherSettings(weights=[weights[0], str(tmp_path / "yuv.safetensors")]), "cpu")
    assert teacher.outputs == ("y", "u", "v")
    unit = tiny_store.split("train")[0]
    with unit.decoded() as decoded:
        picture = decoded[0]
    filtered = teacher.picture(unit, 0, picture)
    luma, alone = load_model(weights[0])[0], FloatFilter(coloured)(picture, unit.qp)
    np.testing.assert_array_equal(filtered.u, alone.u)
    np.testing.assert_array_equal(filtered.v, alone.v)
    mean = (filter_luma(luma, picture.y, unit.qp, picture.bit_depth).astype(float) + alone.y) / 2
    assert np.abs(filtered.y - mean).max() <= 1


def test_separate_chroma_teachers(tiny_store, weights, tmp_path):
    """Networks of `chroma` do not teach luma, even if they filter it; luma networks are refused there."""
    coloured = awaken(create_model("low_cost_yuv_17"), std=0.1)
    save_weights(tmp_path / "yuv.safetensors", coloured, "low_cost_yuv_17", {"qps": [32, 42]})
    settings = TeacherSettings(weights=weights[:1], chroma=[str(tmp_path / "yuv.safetensors")])
    teacher = Teacher(settings, "cpu")
    assert teacher.outputs == ("y", "u", "v")
    unit = tiny_store.split("train")[0]
    with unit.decoded() as decoded:
        picture = decoded[0]
    filtered, alone = teacher.picture(unit, 0, picture), FloatFilter(coloured)(picture, unit.qp)
    np.testing.assert_array_equal(
        filtered.y, filter_luma(load_model(weights[0])[0], picture.y, unit.qp, picture.bit_depth)
    )
    np.testing.assert_array_equal(filtered.u, alone.u)
    np.testing.assert_array_equal(filtered.v, alone.v)
    assert teacher.key != Teacher(TeacherSettings(weights=[*settings.weights, *settings.chroma]), "cpu").key
    with pytest.raises(ModelError, match="cannot teach chroma"):
        Teacher(TeacherSettings(weights=weights[:1], chroma=weights[1:]), "cpu")


def test_component_weights_apply_to_loss_and_score(tiny_store):
    settings = SETTINGS.model_copy(update={"components": ComponentSettings(y=1, u=2, v=3)})
    task = filter_task(tiny_store, "low_cost_yuv_17", {}, settings)
    batch = next(task.batches(range(1), 0, 1, torch.device("cpu")))
    weights = {"y": 1, "u": 2, "v": 3}
    assert task.loss(task.model, batch).item() == filter_loss(task.model, batch, "picture", components=weights).item()
    with torch.no_grad():
        for name, parameter in task.model.named_parameters():
            parameter.add_(0.05 * torch.randn_like(parameter) if name.startswith("tail") else 0)
    result = task.validate(task.model, torch.device("cpu"))
    means = [result.figures[name] for name in ("gain_mean_db", "gain_u_mean_db", "gain_v_mean_db")]
    assert len(set(means)) == 3
    assert result.score == pytest.approx(np.average(means, weights=[1, 2, 3]))


def test_target_is_the_mean_over_networks_and_symmetries(tiny_store, weights):
    unit = next(unit for unit in tiny_store.units if unit.split == "test")  # of odd size
    filters = [FloatFilter(load_model(path)[0]) for path in weights]
    with unit.decoded() as decoded:
        y = decoded[0].y
        turned = [lambda plane, k=k, t=t: np.rot90(plane.T if t else plane, k) for k in range(4) for t in (False, True)]
        back = [
            lambda plane, k=k, t=t: np.rot90(plane, -k).T if t else np.rot90(plane, -k)
            for k in range(4)
            for t in (False, True)
        ]
        filtered = [
            undo(filter_.luma(np.ascontiguousarray(turn(y)), unit.qp, decoded[0].bit_depth)).astype(float)
            for filter_ in filters
            for turn, undo in zip(turned, back, strict=True)
        ]
    (taught,) = Teacher(TeacherSettings(weights=weights, symmetries=True), "cpu").teach([unit])
    # The teacher rounds once; the plain mean is over rounded pictures.
    assert np.abs(_taught_luma(taught) - np.mean(filtered, axis=0)).max() < 1.01
    assert np.mean(_taught_luma(taught) - np.mean(filtered, axis=0)) == pytest.approx(0, abs=0.05)


def test_teacher_in_bfloat16(tiny_store, weights):
    unit = next(unit for unit in tiny_store.units if unit.split == "test")
    plain, quick = (TeacherSettings(weights=weights[:1], precision=precision) for precision in ("float32", "bfloat16"))
    assert Teacher(plain, "cpu").key == Teacher(TeacherSettings(weights=weights[:1]), "cpu").key
    ours = load_filter(weights[0], precision="bfloat16")
    with unit.decoded() as decoded:
        filtered = Teacher(quick, "cpu").picture(unit, 0, decoded[0]).y
        assert not np.array_equal(filtered, Teacher(plain, "cpu").picture(unit, 0, decoded[0]).y)
        np.testing.assert_array_equal(filtered, ours.luma(decoded[0].y, unit.qp, decoded[0].bit_depth))
    assert Teacher(quick, "cpu").key != Teacher(plain, "cpu").key


def test_only_missing_pictures_are_computed(tiny_store, weights, capsys):
    teacher = Teacher(TeacherSettings(weights=weights), "cpu")
    units = teacher.teach(tiny_store.units)
    paths = [unit.path("teacher") for unit in units]
    assert len({path.parent for path in paths}) == 1
    before = paths[0].read_bytes()
    times = [path.stat().st_mtime_ns for path in paths]
    paths[0].unlink()
    capsys.readouterr()
    teacher.teach(tiny_store.units)
    assert "teacher: 0 of 1 units are filtered" in capsys.readouterr().err
    assert paths[0].read_bytes() == before
    assert [path.stat().st_mtime_ns for path in paths[1:]] == times[1:]
    other = Teacher(TeacherSettings(weights=weights[:1]), "cpu")
    assert other.key != teacher.key
    assert Teacher(TeacherSettings(weights=weights, symmetries=True), "cpu").key != teacher.key


def test_targets_move_from_teacher_to_original(tiny_store, weights):
    settings = SETTINGS.model_copy(update={"steps": 10, "teacher": TeacherSettings(weights=weights[:1])})
    task = filter_task(tiny_store, "rdn", SMALL, settings)
    plain = TrainingBatches(
        task.sources, batch=4, steps=10, size=64, halo=4, seed=3, planes=("rec_y", "qp", "teacher_y")
    )
    for step, batch in enumerate(task.batches(range(10), 0, 1, torch.device("cpu"))):
        share = original_share(settings.teacher, step, 10, 2)
        expected = plain[step]["teacher_y"] * (1 - share) + plain[step]["orig_y"] * share
        torch.testing.assert_close(batch["orig_y"], expected)
        assert "teacher_y" not in batch


def test_share_of_the_original_rises_as_the_learning_rate_falls():
    settings = TeacherSettings(weights=["any"], original=(0.25, 0.75))
    shares = [original_share(settings, step, 12, 2) for step in range(13)]
    assert shares[:3] == [0.25] * 3
    assert shares[7] == pytest.approx(0.5)
    assert shares[12] == pytest.approx(0.75)
    assert all(a <= b for a, b in pairwise(shares))
    assert original_share(settings, 0, 1, 200) == 0.25
    # The schedule of the learning rate determines the expected share.
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = warmup_cosine(optimiser, FilterSettings(steps=12, warmup=2))
    for step in range(12):
        if step >= 2:
            expected = 0.25 + 0.5 * (1 - schedule.get_last_lr()[0])
            assert original_share(settings, step, 12, 2) == pytest.approx(expected)
        optimiser.step()
        schedule.step()


def test_a_network_that_starts_as_its_teacher_has_no_loss(tiny_store, weights, tmp_path):
    losses = {}
    for original in (0.0, 1.0):
        teacher = {"weights": weights[:1], "original": (original, original)}
        start = {"weights": weights[0]}
        settings = FilterSettings(
            **SETTINGS.model_dump() | {"learning_rate": 1e-6, "start": start, "teacher": teacher, "border": 8}
        )
        train_filter(tiny_store, "rdn", SMALL, settings, tmp_path / str(original))
        losses[original] = rows(tmp_path / str(original))[-1]["loss"]
    # With a border the network has all context; the rest is rounding and clipping of the teacher pictures.
    assert losses[0.0] < 0.01
    assert losses[1.0] > 0.5


def test_a_run_with_a_teacher_resumes_to_the_same_weights(tiny_store, weights, tmp_path):
    settings = FilterSettings(**SETTINGS.model_dump() | {"teacher": {"weights": weights}, "optimiser": "muon"})
    train_filter(tiny_store, "rdn", SMALL, settings, tmp_path / "whole")
    half, step = tmp_path / "half", Trainer.step

    def until_four(self, batch):
        if self.state.step == 4:
            raise KeyboardInterrupt
        step(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", until_four)
        with pytest.raises(KeyboardInterrupt):
            train_filter(tiny_store, "rdn", SMALL, settings, half)
    train_filter(tiny_store, "rdn", SMALL, settings, half, resume=True)
    assert weights_of(half) == weights_of(tmp_path / "whole")


def test_a_teacher_is_given_by_name_or_with_options():
    named = checked(FilterSettings, {"teacher": "low_cost_75"}, "a test").teacher
    assert named == TeacherSettings(weights=["low_cost_75"])
    assert checked(FilterSettings, {"teacher": ["a", "b"]}, "a test").teacher.weights == ["a", "b"]
    whole = checked(FilterSettings, {"teacher": {"weights": "a", "symmetries": True}}, "a test").teacher
    assert whole == TeacherSettings(weights=["a"], symmetries=True)
    assert checked(FilterSettings, {"teacher": {"weights": "a", "chroma": "b"}}, "a test").teacher.chroma == ["b"]
    with pytest.raises(MissingFileError, match="no_such"):
        Teacher(TeacherSettings(weights=["no_such"]), "cpu")
