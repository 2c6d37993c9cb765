"""An example of every command, which its --help ends with, and what is said of a wrong one points to."""

EXAMPLES = {
    "demo": "codecnn demo -o demo",
    "doctor": "codecnn doctor",
    "info": "codecnn info clip_416x240_30_10bit.yuv",
    "partition": "codecnn partition stream.266 -o cus.parquet",
    "view": "codecnn view stream.266 -m low_cost_17 --original original_416x240_10bit.yuv -o view.html",
    "dataset build": "codecnn dataset build datasets/demo.yaml -o stores/demo -j 2",
    "dataset verify": "codecnn dataset verify stores/demo",
    "dataset stats": "codecnn dataset stats stores/demo",
    "labels": "codecnn labels -i pictures -o labels.parquet --cost dct",
    "modes predict": "codecnn modes predict -i pictures -o modes.parquet --top 8 --cost dct",
    "check": "codecnn check configs/demo.yaml store=stores/demo",
    "train": "codecnn train configs/demo.yaml store=stores/demo training.steps=20000 -o runs/mine",
    "compare": "codecnn compare runs/a/best.safetensors runs/b/best.safetensors",
    "evaluate": "codecnn evaluate clip_416x240_30.yuv -m low_cost_17 -q 22,27,32,37,42 -o results",
    "jvet": "codecnn jvet results/ai results/ra results/ldb -o results/jvet",
    "filter": "codecnn filter -m low_cost_17 -i stream.266 -o filtered.y4m",
    "correlate": "codecnn correlate stores/demo -o correlation",
    "models": "codecnn models",
    "complexity": "codecnn complexity rdn blocks=4 growth=24",
    "export": "codecnn export -m low_cost_17 -o low_cost_17.onnx",
}
"""By the command's name, behind its group's."""
