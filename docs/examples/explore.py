"""Example: look at a store, its pictures, and the gain of shipped weights.

The parts between `# %%` are the cells of a notebook: VS Code, Spyder and PyCharm run them one by one, and `jupytext
--to ipynb explore.py` converts the file. It also runs as a script: python docs/examples/explore.py
"""

# %% [markdown]
# Code two pictures of scikit-image at four QPs. A store shows its pictures, bits and PSNR by split and QP.

# %%
from pathlib import Path

import codecnn

Path("explore.yaml").write_text(
    """
name: explore
preset: faster
qp: [22, 27, 32, 37]
sequences:
  - {source: "skimage:camera.png", split: test, scales: [0.5]}
  - {source: "skimage:coffee.png", split: test, scales: [0.5]}
""",
    encoding="utf-8",
)
store = codecnn.build_dataset("explore.yaml", "stores/explore")
store

# %% [markdown]
# A picture shows itself.

# %%
unit = store.split("test")[-1]
decoded = unit.decoded()[0]
decoded

# %% [markdown]
# The weights have a card, which states what they are and what they gain.

# %%
network, card = codecnn.load_model("low_cost_5")
card

# %% [markdown]
# Results show BD-rates and gains, and convert to a table of pandas or Arrow.

# %%
results = codecnn.evaluate(store, ["low_cost_5", "low_cost_17"], "results/explore")
results

# %%
rows = results.to_arrow()
gains = rows["psnr_y_filtered"].to_numpy() - rows["psnr_y"].to_numpy()
print(f"{rows.num_rows} rows, mean gain {gains.mean():+.3f} dB")

# %% [markdown]
# The CUs of a coded picture: position, size, mode, QP, and the tools of prediction and transform.

# %%
cus = codecnn.read_blocks(unit.path("bitstream"))
print(f"{len(cus)} CUs, {(cus.mip == 1).sum()} of them predicted by a matrix")
cus
