"""Recipes of codecnn and the files, splits and formats that they find in the collections they name."""

from pathlib import Path

import pytest

from codecnn import plan_dataset
from codecnn.api.config import load_config, load_recipe
from codecnn.base.errors import ConfigError, MissingFileError
from codecnn.dataset import expand
from codecnn.pictures.files import guess_format

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
SEALED = ["video_sealed", "video_sealed2", "video_sealed3"]

JVET_FILES = """
A1/Tango2_3840x2160_60fps_10bit_420 A1/FoodMarket4_3840x2160_60fps_10bit_420
A1/Campfire_3840x2160_30fps_10bit_420_bt709_videoRange A2/CatRobot1_3840x2160p_60_10b_709_420
A2/DaylightRoad2_3840x2160_60fps_10bit_420 A2/ParkRunning3_3840x2160_50fps_10bit_420
B/MarketPlace_1920x1080_60fps_10bit_420 B/RitualDance_1920x1080_60fps_10bit_420 B/Cactus_1920x1080_50
B/BasketballDrive_1920x1080_50 B/BQTerrace_1920x1080_60 C/BasketballDrill_832x480_50 C/BQMall_832x480_60
C/PartyScene_832x480_50 C/RaceHorsesC_832x480_30 D/BasketballPass_416x240_50 D/BQSquare_416x240_60
D/BlowingBubbles_416x240_50 D/RaceHorses_416x240_30 E/FourPeople_1280x720_60 E/Johnny_1280x720_60
E/KristenAndSara_1280x720_60 F/ArenaOfValor_1920x1080_60_8bit_420 F/BasketballDrillText_832x480_50
F/SlideEditing_1280x720_30 F/SlideShow_1280x720_20
"""
BVI_FILES = """
AAdvertisingMassagesBangkokVidevo_3840x2176_25fps DAdvertisingMassagesBangkokVidevo_480x272_25fps
BBangkokMarketVidevo_1920x1088_25fps CBangkokMarketVidevo_960x544_25fps ABasketballGoalScoredS1Videvo_3840x2176_25fps
DBasketballGoalScoredS2Videvo_480x272_25fps ABasketballS1YonseiUniversity_3840x2176_30fps
DBasketballS1YonseiUniversity_480x272_30fps
"""
AOM_FILES = """
DAncientThoughtS14_480x272_24fps AAncientThoughtS2_3840x2176_24fps CMidnightSun_960x544_24fps
AMidnightSun_3840x2176_24fps
"""
UVG_FILES = """
Beauty_3840x2160 Bosphorus_3840x2160_120fps_420_8bit_YUV CityAlley_3840x2160_50fps_8bit
FlowerFocus_3840x2160_50fps_10bit FlowerKids_3840x2160_50fps_8bit FlowerPan_3840x2160_50fps_8bit HoneyBee_3840x2160
Jockey_3840x2160 Lips_3840x2160_120fps_8bit RaceNight_3840x2160_50fps_8bit ReadySteadyGo_3840x2160
RiverBank_3840x2160_50fps_8bit ShakeNDry_3840x2160_120fps_420_10bit_YUV SunBath_3840x2160_50fps_8bit
Twilight_3840x2160_50fps_8bit YachtRide_3840x2160
"""
JVET, BVI, AOM, UVG = JVET_FILES.split(), BVI_FILES.split(), AOM_FILES.split(), UVG_FILES.split()


@pytest.fixture
def collections(tmp_path):
    names = [f"JVET/{name}.yuv" for name in JVET]
    names += [f"DIV2K/DIV2K_train_HR/{number:04}.png" for number in (1, 2, 800)]
    names += [f"DIV2K/DIV2K_valid_HR/{number:04}.png" for number in (801, 900)]
    names += [f"BVI-DVC/part/Videos/{name}_10bit_420.mp4" for name in BVI]
    names += [f"BVI-AOM/{name}_10bit_420_x264_compressed.mkv" for name in AOM]
    names += [f"UVG/{name}_RAW/{name}.yuv" for name in UVG]
    names += [f"TVD/{name}" for name in ("Video/street.mp4", "Video/river.mp4", "tracking/TVD-01.mp4", "readme.txt")]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def expand_splits(recipe, root):
    sources = expand(load_recipe(DATASETS / recipe, [f"root={root}"]), DATASETS)
    return {split: [source for source in sources if source.spec.split == split] for split in ("train", "val", "test")}


def test_all_recipes_are_valid():
    recipes = sorted(DATASETS.glob("*.yaml"))
    assert len(recipes) >= 9
    for recipe in recipes:
        assert load_recipe(recipe).name == recipe.stem
        lines = [line for line in recipe.read_text().splitlines() if line.startswith("#")]
        assert any("codecnn dataset build" in line for line in lines)


def listed_repositories(recipe, split=None):
    """Repositories of a recipe's sources, by datasets/SOURCES.tsv."""
    rows = [line.split("\t") for line in (DATASETS / "SOURCES.tsv").read_text("utf-8").splitlines()[1:]]
    repositories = {row[0]: row[1] for row in rows}
    sequences = [spec for spec in load_recipe(DATASETS / recipe).sequences if split in (None, spec.split)]
    return {repositories[f"scenes/{spec.source}"] for spec in sequences}


@pytest.mark.parametrize("name", SEALED)
def test_the_sealed_test_shares_no_repository_with_the_training(name):
    sealed = listed_repositories(f"{name}.yaml")
    windows = [line.split("\t")[1] for line in (DATASETS / "video_windows.tsv").read_text("utf-8").splitlines()[1:]]
    assert len(sealed) >= 8
    assert not sealed & (listed_repositories("video_scenes.yaml") | set(windows))
    for earlier in SEALED[: SEALED.index(name)]:
        assert not sealed & listed_repositories(f"{earlier}.yaml"), earlier
    shared = listed_repositories("video_scenes.yaml", "val") & listed_repositories("video_scenes.yaml", "train")
    assert shared == {"williamyang1991/Rerender_A_Video"}, "three clips of different authors"


def test_the_clips_that_test_the_choice_of_weights_share_no_repository_with_others():
    rows = [line.split("\t") for line in (DATASETS / "SOURCES.tsv").read_text("utf-8").splitlines()[1:]]
    test = {row[1] for row in rows if row[0].startswith("scenes/test_people/")}
    assert len(test) == 8
    assert not test & {row[1] for row in rows if not row[0].startswith("scenes/test_people/")}
    recipes = "".join(path.read_text("utf-8") for path in DATASETS.glob("*.yaml"))
    assert not [name for name in test if name in recipes]


def test_no_training_recipe_holds_a_reserved_clip():
    reserved = ("park_joy", "blue_sky", "sparks", "src01", "akiyo", "container", "BasketballPass")
    for path in DATASETS.glob("*.yaml"):
        recipe = load_recipe(path)
        taught = [spec.source for spec in recipe.sequences if spec.split in ("train", "val")]
        assert not [name for name in taught if any(word in name for word in reserved)], path.name


def test_jvet_recipe(collections):
    splits = expand_splits("jvet_ctc.yaml", collections / "JVET")
    assert (len(splits["train"]), len(splits["val"])) == (0, 0)
    assert sorted(source.path.relative_to(collections / "JVET").as_posix() for source in splits["test"]) == sorted(
        f"{name}.yuv" for name in JVET
    )
    for source in splits["test"]:
        assert source.spec.class_ == source.path.parent.name
        form = guess_format(source.path, bit_depth=source.spec.bit_depth)
        deep = source.spec.class_ in ("A1", "A2") or source.name in ("MarketPlace", "RitualDance")
        assert form.bit_depth == (10 if deep else 8)
        assert source.spec.step == 8
    for configuration in ("ra", "ldb"):
        recipe = load_recipe(DATASETS / "jvet_ctc.yaml", [f"configuration={configuration}", "ctc=true"])
        assert {spec.step for spec in recipe.sequences} == {1}
        assert recipe.settings(32).ctc
    with pytest.raises(ConfigError, match="step of xx"):
        load_recipe(DATASETS / "jvet_ctc.yaml", ["sequences=[{source: a.yuv, step: {xx: 2}}]"])
    with pytest.raises(ConfigError, match="ctc is for the codecs"):
        load_recipe(DATASETS / "jvet_ctc.yaml", ["codec=hevc", "ctc=true"])
    chosen = load_recipe(DATASETS / "jvet_ctc.yaml", [f"root={collections}/JVET", "classes=[C, D]"])
    assert {source.spec.class_ for source in expand(chosen, DATASETS)} == {"C", "D"}
    none = load_recipe(DATASETS / "jvet_ctc.yaml", [f"root={collections}/JVET", "classes=[X]"])
    with pytest.raises(ConfigError, match="classes X"):
        expand(none, DATASETS)


def test_div2k_recipe(collections):
    splits = expand_splits("div2k.yaml", collections / "DIV2K")
    assert [source.name for source in splits["train"]] == ["0001", "0002", "0800"]
    assert [source.name for source in splits["val"]] == ["0801", "0900"]
    with pytest.raises(MissingFileError, match="DIV2K_train_HR"):
        expand_splits("div2k.yaml", collections)


def test_bvi_dvc_recipe_keeps_scenes_together(collections):
    splits = expand_splits("bvi_dvc.yaml", collections / "BVI-DVC")
    scenes = {split: {source.name.split("_")[0][1:] for source in sources} for split, sources in splits.items()}
    assert scenes["train"] == {"BasketballS1YonseiUniversity"}
    assert scenes["val"] == {
        "AdvertisingMassagesBangkokVidevo",
        "BangkokMarketVidevo",
        "BasketballGoalScoredS1Videvo",
        "BasketballGoalScoredS2Videvo",
    }
    assert sum(map(len, splits.values())) == len(BVI)


def test_bvi_aom_recipe_keeps_the_shots_of_a_film_together(collections):
    splits = expand_splits("bvi_aom.yaml", collections / "BVI-AOM")
    scenes = {split: {source.name.split("_")[0][1:] for source in sources} for split, sources in splits.items()}
    assert scenes == {"train": {"MidnightSun"}, "val": {"AncientThoughtS14", "AncientThoughtS2"}, "test": set()}


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        ("bvi_dvc.yaml", "BCityScapesS1IRIS_1920x1088_24fps_10bit_420.yuv"),
        ("bvi_aom.yaml", "BMidnightSun_1920x1088_50fps_10bit_420_x264_compressed.yuv"),
    ],
)
def test_raw_video_of_bvi_is_found(recipe, name, tmp_path):
    with (tmp_path / name).open("wb") as file:
        file.truncate(64 * 1920 * 1088 * 3)  # a sparse file
    (tmp_path / f"{name}.md5").touch()
    sources = expand(load_recipe(DATASETS / recipe, [f"root={tmp_path}"]), DATASETS, planning=True)
    (found,) = [source for source in sources if source.planned is None]
    assert found.path.name == name
    assert str(guess_format(found.path)) == "1920x1088 420 10 bit"


def test_uvg_recipe(collections):
    splits = expand_splits("uvg.yaml", collections / "UVG")
    assert sorted(source.path.stem for source in splits["test"]) == sorted(UVG)
    assert (len(splits["train"]), len(splits["val"])) == (0, 0)
    for source in splits["test"]:
        form = guess_format(source.path, fps=source.spec.fps)
        assert str(form) == f"3840x2160 420 {10 if '10bit' in source.path.stem else 8} bit"
        assert form.fps == (50 if "50fps" in source.path.stem else 120)


def test_tvd_recipe_leaves_out_the_videos_for_tracking(collections):
    splits = expand_splits("tvd.yaml", collections / "TVD")
    assert [source.name for source in splits["train"]] == ["river", "street"]


@pytest.mark.parametrize(
    ("recipe", "overrides", "sequences", "pictures"),
    [
        ("bvi_dvc.yaml", [], 800, 8 * 800),
        ("bvi_dvc.yaml", ["configuration=ra"], 800, 64 * 800),
        ("bvi_aom.yaml", ["configuration=ldb"], 956, 64 * 956),
        ("tvd.yaml", ["configuration=ra"], 86, 65 * 86),
        ("uvg.yaml", ["configuration=ra"], 16, 14 * 600 + 2 * 300),
        ("jvet_ctc.yaml", ["configuration=ra", "ctc=true", "classes=[D]"], 4, 500 + 600 + 500 + 300),
    ],
)
def test_plan_without_the_files(recipe, overrides, sequences, pictures, tmp_path):
    plan = plan_dataset(DATASETS / recipe, overrides=[f"root={tmp_path}", *overrides])
    points = len(load_recipe(DATASETS / recipe).points)
    assert plan.planned == sequences
    assert (plan.total.units, plan.total.pictures) == (points * sequences, points * pictures)
    with pytest.raises(MissingFileError, match="root=FOLDER"):
        expand(load_recipe(DATASETS / recipe, [f"root={tmp_path}", *overrides]), DATASETS)


@pytest.mark.parametrize("configuration", ["ai", "ra"])
def test_plan_without_files_is_that_with_files_of_the_stated_sizes(configuration, tmp_path):
    path, overrides = (
        DATASETS / "jvet_ctc.yaml",
        [f"configuration={configuration}", "classes=[C,D]", f"root={tmp_path}"],
    )
    missing = plan_dataset(path, overrides=overrides)
    for source in expand(load_recipe(path, overrides), DATASETS, planning=True):
        (planned,) = source.spec.planned
        width, height = map(int, planned.size.split("x"))
        with (tmp_path / f"{source.path.stem.replace('*', '')}.yuv").open("wb") as file:
            file.truncate(planned.pictures * width * height * 3 // 2)  # a sparse file
    there = plan_dataset(path, overrides=overrides)
    assert (missing.planned, there.planned) == (8, 0)
    assert missing.total == there.total


def test_planned_files_must_have_a_size(tmp_path):
    for planned in ("{pictures: 3}", "{size: 64, pictures: 3}", "{size: 64x64, pictures: 0}"):
        with pytest.raises(ConfigError, match="planned"):
            load_recipe(DATASETS / "tvd.yaml", [f"sequences=[{{source: a.yuv, planned: [{planned}]}}]"])


def test_mixed_recipe(collections):
    splits = expand_splits("mixed.yaml", collections)
    assert len(splits["train"]) == 3 + 3
    assert [source.path.suffix for source in splits["val"]] == [".png", ".png", ".mp4", ".mp4"]


def test_exclusion_of_all_files_is_refused(collections):
    recipe = load_recipe(
        DATASETS / "div2k.yaml", [f"root={collections}/DIV2K", "sequences=[{source: DIV2K_train_HR, exclude: ['0*']}]"]
    )
    with pytest.raises(ConfigError, match="excluded"):
        expand(recipe, DATASETS)


def test_recipes_and_configurations_of_codecnn_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_recipe("datasets/demo.yaml", ["qp=[37]"]).name == "demo"
    assert load_config("configs/demo.yaml").model.name == "rdn"
    with pytest.raises(MissingFileError, match=r"^datasets/none\.yaml does not exist$"):
        load_recipe("datasets/none.yaml")
    Path("datasets").mkdir()
    Path("datasets/demo.yaml").write_text((DATASETS / "demo.yaml").read_text().replace("name: demo", "name: own"))
    assert load_recipe("datasets/demo.yaml").name == "own", "a file of the user comes first"


def test_paths_of_overrides_start_at_the_current_folder(tmp_path, monkeypatch):
    """Like store=; those in the file start at the recipe's folder."""
    recipe = tmp_path / "recipes" / "r.yaml"
    recipe.parent.mkdir()
    recipe.write_text(
        "name: x\ncodec: vtm\nroot: pictures\nqp: [32]\ntools: {encoder: bin/enc, decoder: bin/dec, cfg: [a.cfg]}\n"
        "sequences: [{source: a.png}]\n"
    )
    monkeypatch.chdir(tmp_path)
    plain = load_recipe(recipe)
    assert (plain.root, plain.tools.encoder, plain.tools.cfg) == ("pictures", "bin/enc", ["a.cfg"])
    overrides = ["root=mine", "tools.encoder=build/enc", "tools.cfg=[b.cfg, c.cfg]"]
    changed = load_recipe(Path("recipes/r.yaml"), overrides)
    assert changed.root == str(tmp_path / "mine")
    assert changed.tools.encoder == str(tmp_path / "build" / "enc")
    assert changed.tools.cfg == [str(tmp_path / name) for name in ("b.cfg", "c.cfg")]
    assert changed.tools.decoder == "bin/dec"
    names = load_recipe(recipe, ["tools={encoder: vvencapp, decoder: ./dec}"])
    assert (names.tools.encoder, names.tools.decoder) == ("vvencapp", str(tmp_path / "dec"))
