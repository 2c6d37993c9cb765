"""Stores in object storage: the batches and weights of the folder, and files that are missing, damaged or too large."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest
import torch

import codecnn
from codecnn.base.errors import ConfigError, DiskFullError, MissingFileError, StoreError
from codecnn.dataset import open_store, patch_loader
from tests.helpers.commands import result_of
from tests.helpers.object_storage import serve
from tests.helpers.training import weights_of

ADDRESS = "s3://bucket/stores/tiny"
TRAINING = {"steps": 4, "batch": 4, "patch": 32, "validate_every": 2, "threads": 1}


@pytest.fixture
def bucket(tiny_store, tmp_path, monkeypatch):
    """The tiny store in object storage: yields its folder there and the list of the files that were read."""
    folder = tmp_path / "storage" / "bucket" / "stores" / "tiny"
    shutil.copytree(tiny_store.folder, folder)
    monkeypatch.setenv("CODECNN_CACHE", str(tmp_path / "cache"))
    with serve(tmp_path / "storage") as (endpoint, reads):
        use_endpoint(monkeypatch, endpoint)
        yield folder, reads


def use_endpoint(monkeypatch, endpoint):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)


def batches(store, **options):
    options = {"planes": ("rec_y", "qp", "depth"), "batch": 3, "steps": 5, "patch": 32, "halo": 4} | options
    return list(patch_loader(store, **options))


def assert_equal(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_batches_are_those_of_the_folder(bucket, tiny_store):
    _, reads = bucket
    expected = batches(tiny_store)
    assert_equal(batches(ADDRESS), expected)
    # Only what the batches need is copied, once.
    names = sorted(Path(name).name for name in set(reads))
    units = len(tiny_store.split("train"))
    originals = [unit.original_path.name for unit in tiny_store.split("train")[:1]]
    stored = ["block_planes.npy"] * units + ["decoded.yuv"] * units + originals
    assert names == sorted([*stored, "ctus.parquet", "manifest.json", "units.jsonl"])
    assert len(reads) == len(set(reads))
    assert_equal(batches(ADDRESS, workers=2), expected)
    assert set(reads[len(stored) + 3 :]) == {"bucket/stores/tiny/manifest.json"}


def test_training_gives_the_same_weights(bucket, tiny_store, tmp_path):
    _, reads = bucket
    for name, store in (("folder", tiny_store.folder), ("remote", ADDRESS)):
        config = {"store": str(store), "model": {"name": "low_cost_5"}, "training": TRAINING}
        codecnn.train(config, tmp_path / name)
    assert weights_of(tmp_path / "folder") == weights_of(tmp_path / "remote")
    assert any(name.endswith("decoded.yuv") for name in reads)


def test_commands_take_the_address(bucket, tiny_store, tmp_path, run):
    stats = result_of(run, "dataset", "stats", ADDRESS)
    assert stats == result_of(run, "dataset", "stats", tiny_store.folder)
    for store, output in ((tiny_store.folder, tmp_path / "folder"), (ADDRESS, tmp_path / "remote")):
        result_of(run, "evaluate", store, "-m", "low_cost_5", "-o", output)
        argv = ("labels", "-i", store, "--block-sizes", "16", "-o", output / "labels.parquet")
        assert result_of(run, *argv)["blocks"] > 0
    assert (tmp_path / "folder" / "ctus.parquet").read_bytes() == (tmp_path / "remote" / "ctus.parquet").read_bytes()
    tables = [pq.read_table(tmp_path / name / "labels.parquet") for name in ("folder", "remote")]
    assert tables[0].equals(tables[1])
    checked = result_of(run, "dataset", "verify", ADDRESS)
    assert checked["files"] == len({name for unit in tiny_store.units for name in unit.files}) + 2
    assert checked["damaged"] == {}


def test_a_store_built_again_is_another_copy(bucket):
    folder, _ = bucket
    first = open_store(ADDRESS)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"encoder": "another"}))
    second = open_store(ADDRESS)
    assert first.folder != second.folder
    assert second.manifest.encoder == "another"


def test_files_that_changed_are_not_kept(bucket):
    folder, _ = bucket
    unit = open_store(ADDRESS).units[0]
    path = folder / unit.decoded_file
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(StoreError, match=r"decoded.yuv has other content than when it was built: copy the store"):
        unit.decoded()
    path.unlink()
    with pytest.raises(MissingFileError, match=r"s3://.*decoded.yuv does not exist: copy a complete store there"):
        unit.decoded()
    left = {file.name for file in unit.folder.rglob("*") if file.is_file()} - {".lock"}
    assert left == {"manifest.json", "units.jsonl", "ctus.parquet"}


def test_a_full_cache_is_reported(bucket, monkeypatch):
    unit = open_store(ADDRESS).units[0]
    write = Path.open

    def full(path, mode="r", *args, **options):
        if mode == "wb":
            raise OSError(28, "No space left on device")
        return write(path, mode, *args, **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(DiskFullError, match="no space left"):
        unit.decoded()
    monkeypatch.undo()
    assert not list(unit.folder.rglob("*.yuv*"))


def test_no_store_is_built_at_an_address(tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="built in a folder: build it there and copy the folder to s3://bucket/a"):
        codecnn.build_dataset(tiny_recipe, "s3://bucket/a")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("s3://bucket/stores/other", MissingFileError, "stores/other/manifest.json does not exist"),
        ("s3://bucket/stores/tiny?none=1", ConfigError, "cannot be opened"),
    ],
)
def test_addresses_without_a_store(bucket, address, error, message):
    with pytest.raises(error, match=message):
        codecnn.open_dataset(address)


def test_moto_serves_the_same_batches(tiny_store, tmp_path, monkeypatch):
    """An implementation of S3 by others."""
    pytest.importorskip("moto.server", reason="needs moto: pip install 'moto[server]'")
    from pyarrow import fs

    with (tmp_path / "log").open("w+") as log:
        argv = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            endpoint = None
            while endpoint is None:
                assert process.poll() is None
                time.sleep(0.1)
                lines = (tmp_path / "log").read_text().splitlines()
                endpoint = next((line.split()[-1] for line in lines if "Running on" in line), None)
            with urlopen(endpoint):
                use_endpoint(monkeypatch, endpoint)
            monkeypatch.setenv("CODECNN_CACHE", str(tmp_path / "cache"))
            system = fs.S3FileSystem(endpoint_override=endpoint, allow_bucket_creation=True)
            system.create_dir("bucket")
            fs.copy_files(str(tiny_store.folder), "bucket/stores/tiny", destination_filesystem=system)
            assert_equal(batches(ADDRESS), batches(tiny_store))
        finally:
            process.kill()
            process.wait()
