"""A teacher: its pictures against plain filtering, made once, and targets that pass from it to the originals."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from codecnn.config import checked
from codecnn.dataset import TrainingBatches
from codecnn.errors import MissingFileError, ModelError
from codecnn.filtering import FloatFilter, filter_luma, load_filter
from codecnn.models import create_model, load_model, save_weights
from codecnn.training import FilterSettings, Trainer, filter_loss, warmup_cosine
from codecnn.training.filter import filter_task
from codecnn.training.filter._teacher import Teacher, original_share
from codecnn.training.settings import ComponentSettings, TeacherSettings
from tests.helpers.networks import SMALL, awaken
from tests.helpers.training import rows, train_filter, weights_of

SETTINGS = FilterSettings(
    steps=6, batch=4, patch=64, learning_rate=2e-3, warmup=2, ema=0.5, validate_every=3, seed=3, threads=1, device="cpu"
)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The files of two networks of random weights."""
    folder = tmp_path_factory.mktemp("teachers")
    for seed in (0, 1):
        model = awaken(create_model("rdn", **SMALL), seed, std=0.1)
        save_weights(folder / f"{seed}.safetensors", model, "rdn", {"qps": [32, 42]})
    return [str(folder / f"{seed}.safetensors") for seed in (0, 1)]


def _taught_luma(unit):
    with unit.pictures_of("teacher") as video:
        return video[0].y.astype(int)


def test_a_teacher_s_pictures_are_its_filtered_ones(tiny_store, weights):
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


def test_a_teacher_of_luma_and_one_of_all_planes_teach_together(tiny_store, weights, tmp_path):
    """Luma is the mean of both, chroma what the one makes that filters it."""
    coloured = awaken(create_model("low_cost_yuv_17"), std=0.1)
    save_weights(tmp_path / "yuv.safetensors", coloured, "low_cost_yuv_17", {"qps": [32, 42]})
    teacher = Teacher(TeacherSettings(weights=[weights[0], str(tmp_path / "yuv.safetensors")]), "cpu")
    assert teacher.outputs == ("y", "u", "v")
    unit = tiny_store.split("train")[0]
    with unit.decoded() as decoded:
        picture = decoded[0]
    made = teacher.picture(unit, 0, picture)
    luma, alone = load_model(weights[0])[0], FloatFilter(coloured)(picture, unit.qp)
    np.testing.assert_array_equal(made.u, alone.u)
    np.testing.assert_array_equal(made.v, alone.v)
    mean = (filter_luma(luma, picture.y, unit.qp, picture.bit_depth).astype(float) + alone.y) / 2
    assert np.abs(made.y - mean).max() <= 1


def test_chroma_has_teachers_of_its_own(tiny_store, weights, tmp_path):
    """Networks of `chroma` say nothing about luma, however much they filter it; those of luma alone are none."""
    coloured = awaken(create_model("low_cost_yuv_17"), std=0.1)
    save_weights(tmp_path / "yuv.safetensors", coloured, "low_cost_yuv_17", {"qps": [32, 42]})
    settings = TeacherSettings(weights=weights[:1], chroma=[str(tmp_path / "yuv.safetensors")])
    teacher = Teacher(settings, "cpu")
    assert teacher.outputs == ("y", "u", "v")
    unit = tiny_store.split("train")[0]
    with unit.decoded() as decoded:
        picture = decoded[0]
    made, alone = teacher.picture(unit, 0, picture), FloatFilter(coloured)(picture, unit.qp)
    np.testing.assert_array_equal(made.y, filter_luma(load_model(weights[0])[0], picture.y, unit.qp, picture.bit_depth))
    np.testing.assert_array_equal(made.u, alone.u)
    np.testing.assert_array_equal(made.v, alone.v)
    assert teacher.key != Teacher(TeacherSettings(weights=[*settings.weights, *settings.chroma]), "cpu").key
    with pytest.raises(ModelError, match="cannot teach chroma"):
        Teacher(TeacherSettings(weights=weights[:1], chroma=weights[1:]), "cpu")


def test_components_weigh_in_loss_and_score(tiny_store):
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


def test_of_several_and_of_all_symmetries_it_is_the_mean(tiny_store, weights):
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
        made = [
            undo(own.luma(np.ascontiguousarray(turn(y)), unit.qp, decoded[0].bit_depth)).astype(float)
            for own in filters
            for turn, undo in zip(turned, back, strict=True)
        ]
    (taught,) = Teacher(TeacherSettings(weights=weights, symmetries=True), "cpu").teach([unit])
    # Ours is rounded once, the plain mean is of pictures that are rounded already.
    assert np.abs(_taught_luma(taught) - np.mean(made, axis=0)).max() < 1.01
    assert np.mean(_taught_luma(taught) - np.mean(made, axis=0)) == pytest.approx(0, abs=0.05)


def test_its_pictures_may_be_made_in_bfloat16(tiny_store, weights):
    unit = next(unit for unit in tiny_store.units if unit.split == "test")
    plain, quick = (TeacherSettings(weights=weights[:1], precision=one) for one in ("float32", "bfloat16"))
    assert Teacher(plain, "cpu").key == Teacher(TeacherSettings(weights=weights[:1]), "cpu").key
    ours = load_filter(weights[0], precision="bfloat16")
    with unit.decoded() as decoded:
        made = Teacher(quick, "cpu").picture(unit, 0, decoded[0]).y
        assert not np.array_equal(made, Teacher(plain, "cpu").picture(unit, 0, decoded[0]).y)
        np.testing.assert_array_equal(made, ours.luma(decoded[0].y, unit.qp, decoded[0].bit_depth))
    assert Teacher(quick, "cpu").key != Teacher(plain, "cpu").key


def test_pictures_are_made_once_and_only_what_is_missing_again(tiny_store, weights):
    teacher = Teacher(TeacherSettings(weights=weights), "cpu")
    units = teacher.teach(tiny_store.units)
    paths = [unit.path("teacher") for unit in units]
    assert len({path.parent for path in paths}) == 1
    before = paths[0].read_bytes()
    times = [path.stat().st_mtime_ns for path in paths]
    paths[0].unlink()
    teacher.teach(tiny_store.units)
    assert paths[0].read_bytes() == before
    assert [path.stat().st_mtime_ns for path in paths[1:]] == times[1:]
    other = Teacher(TeacherSettings(weights=weights[:1]), "cpu")
    assert other.key != teacher.key
    assert Teacher(TeacherSettings(weights=weights, symmetries=True), "cpu").key != teacher.key


def test_the_target_passes_from_the_teacher_to_the_original(tiny_store, weights):
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


def test_the_original_s_share_rises_as_the_rate_falls():
    settings = TeacherSettings(weights=["any"], original=(0.25, 0.75))
    shares = [original_share(settings, step, 12, 2) for step in range(13)]
    assert shares[:3] == [0.25] * 3
    assert shares[7] == pytest.approx(0.5)
    assert shares[12] == pytest.approx(0.75)
    assert all(a <= b for a, b in pairwise(shares))
    assert original_share(settings, 0, 1, 200) == 0.25
    # The share is told by the learning rate's own schedule, which knows nothing of it.
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = warmup_cosine(optimiser, FilterSettings(steps=12, warmup=2))
    for step in range(12):
        if step >= 2:
            expected = 0.25 + 0.5 * (1 - schedule.get_last_lr()[0])
            assert original_share(settings, step, 12, 2) == pytest.approx(expected)
        optimiser.step()
        schedule.step()


def test_what_starts_as_its_teacher_has_nothing_to_learn_from_it(tiny_store, weights, tmp_path):
    losses = {}
    for original in (0.0, 1.0):
        teacher = {"weights": weights[:1], "original": (original, original)}
        start = {"weights": weights[0]}
        settings = FilterSettings(
            **SETTINGS.model_dump() | {"learning_rate": 1e-6, "start": start, "teacher": teacher, "border": 8}
        )
        train_filter(tiny_store, "rdn", SMALL, settings, tmp_path / str(original))
        losses[original] = rows(tmp_path / str(original))[-1]["loss"]
    # With all context; what is left is that the teacher's pictures are rounded and clipped.
    assert losses[0.0] < 0.01
    assert losses[1.0] > 0.5


def test_a_taught_run_resumes_to_the_same_weights(tiny_store, weights, tmp_path):
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


def test_a_teacher_is_named_alone_or_with_its_options():
    named = checked(FilterSettings, {"teacher": "low_cost_75"}, "a test").teacher
    assert named == TeacherSettings(weights=["low_cost_75"])
    assert checked(FilterSettings, {"teacher": ["a", "b"]}, "a test").teacher.weights == ["a", "b"]
    whole = checked(FilterSettings, {"teacher": {"weights": "a", "symmetries": True}}, "a test").teacher
    assert whole == TeacherSettings(weights=["a"], symmetries=True)
    assert checked(FilterSettings, {"teacher": {"weights": "a", "chroma": "b"}}, "a test").teacher.chroma == ["b"]
    with pytest.raises(MissingFileError, match="no_such"):
        Teacher(TeacherSettings(weights=["no_such"]), "cpu")
