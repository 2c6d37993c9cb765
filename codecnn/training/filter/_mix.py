"""Several stores as one training set, each with its share of the patches."""

from collections import Counter
from collections.abc import Sequence

from codecnn.dataset import Store, Unit, codecs, encoder_settings
from codecnn.errors import StoreError
from codecnn.models import TrainedOn
from codecnn.runs import sha256_json

Mix = Sequence[tuple[Store, float]]
"""Stores, and the share of the training patches that comes from each; shares need not add up to 1."""


def data_key(mix: Mix) -> str:
    """sha256 that names the data: the store's own key where there is one store, else over all keys and shares."""
    if len(mix) == 1:
        return mix[0][0].data_key
    total = sum(share for _, share in mix)
    return sha256_json([[store.data_key, round(share / total, 12)] for store, share in mix])


def validation_units(mix: Mix) -> tuple[Unit, ...]:
    """The split "val" of all stores that have one, whatever their shares. StoreError where none has."""
    units = tuple(unit for store, _ in mix for unit in store.units if unit.split == "val")
    if not units:
        raise StoreError(f"no pictures in the split 'val' of {', '.join(str(store.folder) for store, _ in mix)}")
    return units


def trained_on(mix: Mix) -> list[TrainedOn]:
    """What a card says of the stores of a mix; the shares are of all patches, and add up to 1."""
    total = sum(share for _, share in mix)
    return [_trained_on(store, share / total) for store, share in mix]


def _trained_on(store: Store, share: float) -> TrainedOn:
    recipe, units = store.manifest.recipe, store.split("train")
    sequences = {unit.name: unit for unit in units}.values()
    return TrainedOn(
        name=recipe.name,
        share=share,
        encoder=store.manifest.encoder,
        codec=" and ".join(codecs(store, "train")),
        preset=recipe.preset,
        configuration=recipe.configuration,
        loop_filters=recipe.loop_filters,
        ctu_size=recipe.ctu_size,
        params=recipe.params,
        sequences=dict(sorted(Counter(unit.class_ or "" for unit in sequences).items())),
        varied=sum(unit.variant is not None for unit in sequences),
        settings=encoder_settings(units),
        **({} if units[0].in_loop is None else {"in_loop": units[0].in_loop.to_json()}),
    )
