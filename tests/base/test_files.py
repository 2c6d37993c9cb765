"""Atomic files: links, permissions, long names, what killed processes left; the check of outputs against inputs."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from codecnn.base.errors import ConfigError, OutputError
from codecnn.base.files import atomic_path, write_text
from codecnn.base.leftovers import ABANDONED_DAYS, companion_path, part_path, remove_leftovers, temporary_folder
from codecnn.base.outputs import check_outputs, claim_results
from tests.helpers.leftovers import name_of_a_dead_process


def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path):
    target, link = tmp_path / "disk" / "data.json", tmp_path / "link.json"
    link.symlink_to(Path("disk") / "data.json")
    for text in ("first", "second"):
        write_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert [path.name for path in target.parent.iterdir()] == ["data.json"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_permissions_are_those_of_the_old_file_or_of_the_umask(tmp_path, mode):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("x")
    old.chmod(mode)
    before = os.umask(0o027)
    try:
        write_text(old, "y")
        write_text(new, "y")
    finally:
        os.umask(before)
    assert (old.stat().st_mode & 0o777, new.stat().st_mode & 0o777) == (mode, 0o640)


@pytest.mark.parametrize("name", ["x" * 255, "é" * 125 + ".json", "a" * 250 + ".yuv"])
def test_names_of_255_bytes_are_written(tmp_path, name):
    write_text(tmp_path / name, "x")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    for path in (part_path(tmp_path / name), companion_path(tmp_path / name, ".sums.npz")):
        path.write_text("x")
    assert companion_path(tmp_path / name, ".parts") != companion_path(tmp_path / f"{name[:-1]}z", ".parts")
    assert companion_path(Path("u.json"), ".sums.npz") == Path("u.json.sums.npz")


def test_an_unwritable_output_is_named_as_the_user_did(tmp_path):
    folder, protected = tmp_path / "folder", tmp_path / "protected"
    folder.mkdir()
    folder.chmod(0o555)
    protected.write_text("x")
    protected.chmod(0o444)
    # Root may write everywhere but into /sys.
    for path in (folder / "out.json", protected) if os.geteuid() else (Path("/sys/out.json"),):
        with pytest.raises(OutputError) as error:
            write_text(path, "y")
        assert str(error.value).startswith(f"{path} cannot be written")
        assert ".part-" not in str(error.value)
    assert protected.read_text() == "x"


def test_leftovers_of_dead_processes_are_removed(tmp_path):
    """Leftovers of living processes, of other machines unless they are old, and foreign names stay."""
    dead = name_of_a_dead_process(tmp_path / "out.yuv")
    own = part_path(tmp_path / "out.yuv")
    pid = dead.name.split("-")[2]
    other, old = (tmp_path / f"out.yuv.part-0000000{n}-{pid}-0123abcd" for n in (1, 2))
    foreign = [
        tmp_path / name for name in ("song.part-1", "out.yuv.part-0123456789ab", f"x{dead.name}y", "out.yuv.part")
    ]
    for path in (dead, own, other, old, *foreign):
        path.write_text("half")
    past = time.time() - (ABANDONED_DAYS + 1) * 24 * 3600
    os.utime(old, (past, past))
    dead.with_name(f"folder{dead.name}").mkdir()
    write_text(tmp_path / "any.json", "x")
    assert {path.name for path in tmp_path.iterdir()} == {
        path.name for path in (own, other, tmp_path / "any.json", *foreign)
    }


def test_temporary_folders_of_dead_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = (
        "import os, tempfile; "
        "from codecnn.base.leftovers import temporary_folder; tempfile.tempdir = os.environ['TMPDIR'];"
        "open(temporary_folder('streams').name + '/x', 'w'); os.kill(os.getpid(), 9)"
    )
    keep = "folder = temporary_folder('streams');"
    code = code.replace("open(temporary_folder('streams').name", f"{keep} open(folder.name")
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("codecnn-streams-")
    (tmp_path / "codecnn-streams-mine").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folder("decoded") as folder:
        remove_leftovers(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([Path(folder).name, "codecnn-streams-mine"])


def test_two_writers_leave_one_whole_file(tmp_path):
    path, texts = tmp_path / "out", ["a" * 100_000, "b" * 100_000]
    writers = [threading.Thread(target=lambda text=text: [write_text(path, text) for _ in range(5)]) for text in texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path):
    write_text(tmp_path / "out", "old")

    def fail():
        with atomic_path(tmp_path / "out") as part:
            part.write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out", "old")]


def test_outputs_are_compared_with_inputs_and_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, clip = tmp_path / "in", tmp_path / "clip"
    folder.mkdir()
    clip.write_text("x")
    (folder / "a").write_text("x")
    (tmp_path / "linked").symlink_to(folder)
    refused = [
        (["clip"], [clip]),
        (["in/../clip"], [clip]),
        (["linked/a"], ["in/a"]),
        (["linked/new"], ["in"]),
        (["in"], ["linked"]),
        (["in"], ["linked/a"]),
        (["new", "./new"], []),
        (["linked/new", "in/new"], []),
    ]
    for outputs, inputs in refused:
        with pytest.raises(ConfigError, match=r"the same file|lies in"):
            check_outputs(outputs, inputs)
    check_outputs(["new", "in/new", "-", None, "/dev/null"], ["clip", "in/a", "-", None, "/dev/null", "missing"])


def test_results_replace_no_files_of_others(tmp_path):
    claim_results(tmp_path / "new", ("report.html",))
    (tmp_path / "new" / "report.html").touch()
    claim_results(tmp_path / "new", ("report.html",))
    (tmp_path / "notes.txt").touch()
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(ConfigError, match=r"report\.html would be replaced"):
        claim_results(tmp_path, ("results.json", "report.html"))
    assert {path.name for path in tmp_path.iterdir()} == {"new", "notes.txt", "report.html"}


def test_commands_with_a_folder_of_results_keep_files_of_others(tmp_path, tiny_store, run):
    for name, arguments in {
        "results.csv": ("evaluate", tiny_store.folder, "-m", "low_cost_5"),
        "correlation.json": ("correlate", tiny_store.folder),
    }.items():
        (tmp_path / name).write_text("mine")
        status, _, message = run(*arguments, "-o", tmp_path)
        assert status == 1, message
        assert f"{name} would be replaced" in " ".join(message.split())
        assert [path.name for path in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()


def test_a_write_protected_folder_is_refused_before_any_work(tmp_path, monkeypatch):
    """Root may write everywhere, so the system's answer is replaced."""
    protected = tmp_path / "protected"
    protected.mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != protected and access(path, mode))
    for output in (protected / "out.mkv", protected / "new" / "out.mkv", protected):
        with pytest.raises(OutputError, match="protected is write-protected"):
            check_outputs([output])
    (tmp_path / "link.mkv").symlink_to(protected / "out.mkv")
    with pytest.raises(OutputError, match="protected is write-protected"):
        check_outputs([tmp_path / "link.mkv"])
    check_outputs([tmp_path / "out.mkv", "-", None])
