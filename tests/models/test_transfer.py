"""Transfer of tensors by name and shape, added planes, wrappers, renames, pickles, parameter groups, frozen parts."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from codecnn.base.errors import MissingFileError, ModelError
from codecnn.models import (
    convert_checkpoint,
    create_model,
    freeze,
    load_model,
    load_partial,
    named_outputs,
    parameter_groups,
    save_weights,
)
from codecnn.models.transfer import adapt_planes
from codecnn.modes.networks import create_mode_network, save_mode_network
from tests.helpers.networks import awaken, random_planes

SMALL = {"features": 8, "blocks": 2, "layers": 2, "growth": 4}


def network(planes=("rec_y", "qp"), seed=0, **options):
    """Return an RDN with random weights in multiples of 1/64, so that sums of few products are exact."""
    model = create_model("rdn", **SMALL | options, planes=planes)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-24, 25, parameter.shape, generator=generator) / 64)
    return model.eval()


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first.keys() | second.keys())


def statuses(report):
    return {name: count for name, count in report.as_dict()["counts"].items() if count}


@pytest.mark.parametrize("wrap", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.module."])
def test_prefixes_of_wrappers_are_removed(wrap):
    old, new = network(), network(seed=1)
    report = load_partial(new, {wrap + name: tensor for name, tensor in old.state_dict().items()})
    assert same(old.state_dict(), new.state_dict())
    assert statuses(report) == {"loaded": len(old.state_dict())}


def test_a_wrapper_inside_and_wrappers_around_the_network():
    old = network()
    tensors = {name.replace("blocks.0.", "blocks.0._orig_mod."): tensor for name, tensor in old.state_dict().items()}
    averaged = torch.optim.swa_utils.AveragedModel(network(seed=1))
    report = load_partial(averaged, tensors, partial=True)
    assert same(old.state_dict(), averaged.module.state_dict())
    assert report.names("missing") == ["n_averaged"]
    compiled = torch.compile(network(seed=2), backend="eager")
    load_partial(compiled, tensors)
    assert same(old.state_dict(), compiled._orig_mod.state_dict())


def test_two_tensors_of_one_name_are_refused():
    tensors = network().state_dict()
    with pytest.raises(ModelError, match=r"two tensors .* 'head.weight'"):
        load_partial(network(), tensors | {"module.head.weight": tensors["head.weight"]})


def test_a_file_and_the_report(tmp_path):
    old, new = network(), network(seed=1)
    save_weights(tmp_path / "w.safetensors", old, "rdn", {})
    report = load_partial(new, tmp_path / "w.safetensors")
    assert same(old.state_dict(), new.state_dict())
    table = json.loads(json.dumps(report.as_dict()))
    assert table["source"] == str(tmp_path / "w.safetensors")
    assert [row["name"] for row in table["tensors"]] == list(new.state_dict())
    lines = str(report).splitlines()
    assert lines[0] == f"{tmp_path / 'w.safetensors'}: {len(lines) - 1} loaded"
    assert lines[1].split() == ["loaded", "head.weight"]
    card = json.loads((tmp_path / "w.json").read_text())
    (tmp_path / "w.json").write_text(json.dumps(card | {"sha256": "0" * 64}))
    with pytest.raises(ModelError, match="sha256"):
        load_partial(new, tmp_path / "w.safetensors")
    with pytest.raises(MissingFileError, match="none"):
        load_partial(new, tmp_path / "none.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "w.safetensors").read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"cut\.safetensors is not a whole"):
        load_partial(new, tmp_path / "cut.safetensors")


def test_tensors_that_do_not_fit_are_listed_and_nothing_changes():
    new = network(seed=1)
    before = copy.deepcopy(new.state_dict())
    tensors = network().state_dict()
    del tensors["tail.bias"]
    tensors["head2.weight"] = torch.zeros(9, 8, 3, 3)
    tensors["head2.bias"] = torch.zeros(8, dtype=torch.int64)
    tensors["extra"] = torch.zeros(3)
    with pytest.raises(ModelError) as refused:
        load_partial(new, tensors)
    for part in (
        "head2.weight skipped (9, 8, 3, 3) in the file, (8, 8, 3, 3) in the network",
        "head2.bias skipped (8,) int64 in the file, (8,) in the network",
        "tail.bias missing (1,)",
        "extra unexpected (3,)",
    ):
        assert part in str(refused.value)
    assert same(before, new.state_dict())

    report = load_partial(new, tensors, partial=True)
    unfit = ["head2.weight", "head2.bias", "tail.bias"]
    assert report.names("skipped") == unfit[:2]
    assert (report.names("missing"), report.names("unexpected")) == (["tail.bias"], ["extra"])
    for name, tensor in new.state_dict().items():
        assert torch.equal(tensor, (before if name in unfit else tensors)[name]), name
    assert statuses(report) == {"loaded": len(before) - 3, "skipped": 2, "missing": 1, "unexpected": 1}
    with pytest.raises(ModelError, match="no tensor of"):
        load_partial(new, {"other": torch.zeros(3)}, partial=True)


def test_only_the_first_differences_are_listed():
    with pytest.raises(ModelError, match=r"and \d\d more \(partial loads what fits\)") as refused:
        load_partial(network(), {"other": torch.zeros(3)})
    assert str(refused.value).count("missing") == 4


@pytest.mark.parametrize(
    "rename", [{"trunk": "blocks", "first": "head"}, [(r"^trunk\.(\d)\.", r"blocks.\1."), (r"^first\b", "head")]]
)
def test_renames(rename):
    old, new = network(), network(seed=1)
    tensors = {
        name.replace("blocks.", "trunk.").replace("head.", "first."): tensor
        for name, tensor in old.state_dict().items()
    }
    report = load_partial(new, tensors, rename=rename)
    assert same(old.state_dict(), new.state_dict())
    assert report.names("renamed") == [name for name in old.state_dict() if name.startswith(("blocks.", "head."))]
    assert "from first.weight" in str(report)


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"hea": "x"}, "'hea' changes no name"),
        ({"head": "head2"}, "two tensors .* 'head2.weight'"),
        ([("(", "x")], "no regular expression"),
        ([("head", r"\9")], "no regular expression"),
    ],
)
def test_impossible_renames_are_refused(rename, message):
    with pytest.raises(ModelError, match=message):
        load_partial(network(), network().state_dict(), rename=rename)


@pytest.mark.parametrize("shuffle", [1, 2])
@pytest.mark.parametrize(
    ("before", "after"),
    [(["rec_y"], ["rec_y", "qp"]), (["rec_y"], ["qp", "rec_y"]), (["rec_y", "qp"], ["qp", "rec_y"])],
)
def test_added_and_moved_planes_change_nothing(tmp_path, before, after, shuffle):
    old = network(before, shuffle=shuffle)
    save_weights(tmp_path / "w.safetensors", old, "rdn", {})
    new = network(after, seed=1, shuffle=shuffle)
    with pytest.raises(ModelError, match="adapt_first"):
        load_partial(new, tmp_path / "w.safetensors")
    state = torch.get_rng_state()
    report = load_partial(new, tmp_path / "w.safetensors", adapt_first=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert report.names("adapted") == ["head.weight", "gain.log_gain"][: 1 + ("qp" not in before)]
    assert not report.names("missing")

    generator = torch.Generator().manual_seed(3)
    side = 24 + 2 * old.halo
    planes = {"rec_y": torch.randint(0, 256, (2, 1, side, side), generator=generator) / 256}
    planes["qp"] = torch.full((2, 1, 1, 1), 37 / 64)
    with torch.no_grad():
        # Sums of the first convolution are exact, so that their order, which oneDNN may change, does not matter.
        first_old, first_new = (model.head(model.unshuffle(model.stack(planes))) for model in (old, new))
        assert torch.equal(first_old, first_new)
        assert torch.equal(old(planes), new(planes))
        assert not torch.equal(old(planes), planes["rec_y"][:, :, old.halo : -old.halo, old.halo : -old.halo])


def test_planes_given_with_a_table_and_convolutions_by_name():
    old, new = network(["rec_y"]), network(seed=1)
    tensors = old.state_dict()
    with pytest.raises(ModelError, match=r"head.weight skipped \(8, 1, 3, 3\) in the file"):
        load_partial(new, tensors, adapt_first=True)
    report = load_partial(new, tensors, planes=["rec_y"], adapt_first=["head"])
    assert report.names("adapted") == ["head.weight", "gain.log_gain"]
    assert torch.equal(new.head.weight[:, :1], old.head.weight)
    assert not new.head.weight[:, 1:].any()
    assert torch.equal(new.gain(torch.tensor([0.0, 0.3, 1.0])), torch.ones(3))
    with pytest.raises(ModelError, match="'fusion9'"):
        load_partial(new, tensors, planes=["rec_y"], adapt_first=["fusion9"])


def test_a_plane_that_would_be_lost_is_an_error():
    old, new = network(["rec_y", "qp"]), network(["rec_y"], seed=1)
    with pytest.raises(ModelError, match="the plane 'qp'"):
        load_partial(new, old.state_dict(), planes=old.planes, adapt_first=True)
    report = load_partial(new, old.state_dict(), planes=old.planes, adapt_first=True, partial=True)
    assert report.names("unexpected") == ["gain.log_gain"]
    assert torch.equal(new.head.weight, old.head.weight[:, :1])
    kept = network(["rec_y"], seed=2)
    report = load_partial(kept, old.state_dict(), planes=old.planes, partial=True)
    assert report.names("skipped") == ["head.weight"]
    assert torch.equal(kept.head.weight, network(["rec_y"], seed=2).head.weight)


def test_a_mode_network_from_its_file(tmp_path):
    options = {"features": 4, "blocks": 1, "layers": 1, "growth": 2, "hidden": 5}
    torch.manual_seed(0)
    old = create_mode_network(**options)
    save_mode_network(tmp_path / "m.safetensors", old, "modes", {})
    new = create_mode_network(**options | {"modes": 35})
    report = load_partial(new, tmp_path / "m.safetensors", adapt_first=True, partial=True)
    assert report.names("skipped") == ["tail.weight", "tail.bias"]
    assert torch.equal(new.hidden.weight, old.hidden.weight)


def test_weights_of_channels_follow_their_planes():
    weight = torch.arange(2 * 8 * 3 * 3).reshape(2, 8, 3, 3).float()
    adapted = adapt_planes(weight, ["rec_y", "qp"], ["unf_y", "qp", "rec_y"], name="head.weight")
    expected = np.zeros((2, 12, 3, 3), np.float32)
    expected[:, 4:8] = weight[:, 4:8]
    expected[:, 8:12] = weight[:, 0:4]
    np.testing.assert_array_equal(adapted.numpy(), expected)
    for planes in (["a", "b", "c"], ["a", "b", "c", "d"]):
        with pytest.raises(ModelError, match=rf"head.weight \(2, 8, 3, 3\) .* {', '.join(planes)}$"):
            adapt_planes(weight, planes, planes, name="head.weight")


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt"])
def test_a_pickle_is_refused_and_never_runs(tmp_path, suffix):
    source, target, canary = tmp_path / f"w{suffix}", tmp_path / "w.safetensors", tmp_path / "canary"
    state = {"head.weight": torch.zeros(3), "evil": Canary(canary)}
    for write in (torch.save, lambda value, path: path.write_bytes(pickle.dumps(value, protocol=2))):
        write(state, source)
        with pytest.raises(ModelError, match=r"can run code: convert .*convert_checkpoint"):
            load_partial(network(), source)
        with pytest.raises(ModelError, match="is refused"):
            convert_checkpoint(source, target)
        assert not canary.exists()
        assert not target.exists()
    pickle.loads(pickle.dumps(Canary(canary))).close()
    assert canary.exists(), "an unpickled canary writes its file"


def test_a_checkpoint_of_plain_tensors_is_converted(tmp_path):
    old, new = network(), network(seed=1)
    state = {f"module.{name}": tensor for name, tensor in old.state_dict().items()}
    torch.save({"epoch": 3, "nested": {"state": state}, "lr": 0.1}, tmp_path / "run.ckpt")
    target = tmp_path / "w.safetensors"
    refusals = {None: "tables within it: nested", "nested.other": r"nothing at 'nested\.other'"}
    for key, message in (refusals | {"epoch": "not a table of tensors at 'epoch'"}).items():
        with pytest.raises(ModelError, match=message):
            convert_checkpoint(tmp_path / "run.ckpt", target, key=key)
    assert not target.exists()
    assert convert_checkpoint(tmp_path / "run.ckpt", target, key="nested.state") == list(state)
    load_partial(new, target)
    assert same(old.state_dict(), new.state_dict())
    with pytest.raises(MissingFileError, match=r"w\.json"):
        load_model(target)
    whole = torch.arange(3)
    torch.save({"whole": whole, "part": whole[1:]}, tmp_path / "tied.pt")
    assert convert_checkpoint(tmp_path / "tied.pt", target) == ["whole", "part"]
    assert load_file(target)["part"].tolist() == [1, 2]
    for content in (b"", b"no pickle at all"):
        (tmp_path / "bad.pt").write_bytes(content)
        with pytest.raises(ModelError, match=r"bad\.pt is refused"):
            convert_checkpoint(tmp_path / "bad.pt", target)
    with pytest.raises(MissingFileError):
        convert_checkpoint(tmp_path / "none.pt", target)


def test_groups_hold_every_parameter_once():
    model = network()
    groups = parameter_groups(model, {"*.bias": {"weight_decay": 0.0}, "head*": {"lr": 1e-4}})
    assert [group["name"] for group in groups] == ["*.bias", "head*", "rest"]
    held = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for parameter in model.parameters())
    optimiser = torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.1)
    settings = {group["name"]: (group["lr"], group["weight_decay"]) for group in optimiser.param_groups}
    assert settings == {"*.bias": (1e-3, 0.0), "head*": (1e-4, 0.1), "rest": (1e-3, 0.1)}
    assert {id(parameter) for parameter in groups[1]["params"]} == {id(model.head.weight), id(model.head2.weight)}
    assert [group["name"] for group in parameter_groups(model, {"*": {"lr": 1.0}})] == ["*"]
    assert len(parameter_groups(torch.compile(model, backend="eager"), {"head.*": {}})[0]["params"]) == 2


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"heads.*": {"lr": 1.0}}, r"'heads\.\*'"),
        ({"head.*": {}, "head.weight": {}}, "'head.weight' is left without"),
        ({"head.*": {"learning_rate": 1.0}}, "'learning_rate'"),
    ],
)
def test_groups_without_effect_are_errors(groups, message):
    with pytest.raises(ModelError, match=message):
        parameter_groups(network(), groups)


def test_frozen_parameters_stay_as_they_are():
    model = network()
    before = copy.deepcopy(model.state_dict())
    frozen = freeze(model, ["head*", "blocks.0.*"])
    assert frozen == [name for name in before if name.startswith(("head", "blocks.0."))]
    optimiser = torch.optim.AdamW(parameter_groups(model, {}), lr=0.1, weight_decay=0.1)
    side = 16 + 2 * model.halo
    loss = model({"rec_y": torch.rand(1, 1, side, side), "qp": torch.full((1, 1, 1, 1), 0.5)}).square().mean()
    loss.backward()
    optimiser.step()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) == (name in frozen), name
    with pytest.raises(ModelError, match="'heads'"):
        freeze(model, ["heads"])
    with pytest.raises(ModelError, match="leaves no parameter"):
        freeze(model, ["*"])


def with_norms():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.Conv2d(4, 1, 3), nn.BatchNorm2d(1)
    )


def test_a_frozen_batch_norm_stays_in_evaluation():
    model = with_norms()
    freeze(model, ["0.*", "1.*", "2.*"])
    copied = copy.deepcopy(model)
    for network in (model, copied):
        before = copy.deepcopy(network.state_dict())
        network.train()
        assert [module.training for module in network] == [True, False, False, True, True]
        network(torch.rand(3, 1, 9, 9)).sum().backward()
        moved = {name.split(".")[0] for name, tensor in network.state_dict().items() if not tensor.equal(before[name])}
        assert moved == {"4"}
    assert copied[1].train.__self__ is copied[1]
    model = with_norms()
    freeze(model, ["1.bias"])
    assert model.train()[1].training, "a batch norm with one frozen parameter still learns"


@pytest.mark.parametrize(
    ("name", "planes"),
    [("low_cost_17", ["rec_y", "qp"]), ("low_cost_yuv_17", ["rec_y", "rec_u", "rec_v", "qp"])],
)
def test_a_plane_of_one_value_is_added_to_networks_of_luma_and_of_all_components(name, planes):
    """A luma plane has four channels in the YUV networks, a chroma plane has one."""
    sizes = {"features": 8, "blocks": 1}
    old = awaken(create_model(name, **sizes, planes=planes), std=0.1)
    new = create_model(name, **sizes, planes=[planes[0], "slice_type", *planes[1:]])
    report = load_partial(new, old.state_dict(), planes=old.channels, adapt_first=True)
    assert report.names("adapted") == ["head.weight"]
    given = random_planes(old, 32, 32)
    for value in (0.0, 1.0):
        typed = given | {"slice_type": torch.full((1, 1, 1, 1), value)}
        for plane, same in zip(named_outputs(new(typed)).values(), named_outputs(old(given)).values(), strict=True):
            torch.testing.assert_close(plane, same)


def test_vectors_beyond_a_range_of_qps_start_at_zero_and_are_left_out():
    plain = create_model("low_cost_5")
    ranged = create_model("low_cost_5", qp_range=[22, 42])
    nn.init.ones_(ranged.modulations[0].beyond.weight)
    names = [f"modulations.{index}.beyond.weight" for index in range(6)]
    report = load_partial(ranged, plain.state_dict(), adapt_first=True)
    assert [tensor.name for tensor in report.tensors if tensor.status == "adapted"] == names
    assert not any(modulation.beyond.weight.any() for modulation in ranged.modulations)
    report = load_partial(plain, ranged.state_dict(), adapt_first=True)
    assert [tensor.name for tensor in report.tensors if tensor.status == "adapted"] == names
    with pytest.raises(ModelError, match=r"beyond\.weight unexpected"):
        load_partial(plain, ranged.state_dict())
