"""Makes the detector's model and images from a seed.

The model is a convolutional network in ONNX. Its weights are in a separate file, page aligned, so
that ONNX Runtime maps them, and the kernel can evict and re-read them. Every inference reads all
weights. The images are binary PPM files of 224 x 224 pixels (150,543 bytes).

Run: ``python -m stallward.env.workloads.detector_data DIR --images 1000 --seed 1``
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import onnx
from onnx import helper

from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.detector_images import IMAGE_SIDE_PIXELS, write_images

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL_NAME = "detector.onnx"
WEIGHTS_NAME = "detector.weights"
WIDTH = 1024
DEPTH = 36
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conv:
    """One convolution; ``kernel`` is square, ``pad`` is on every side."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    pad: int


def _layers(width: int, depth: int) -> Iterator[_Conv]:
    """Generate a stem that shrinks 224 pixels to 2, then ``depth`` wide layers of weights."""
    yield _Conv(inputs=3, outputs=16, kernel=7, stride=4, pad=3)
    for outputs in (32, 64, 128):
        yield _Conv(inputs=outputs // 2, outputs=outputs, kernel=3, stride=2, pad=1)
    yield _Conv(inputs=128, outputs=width, kernel=3, stride=4, pad=1)
    for _ in range(depth):
        yield _Conv(inputs=width, outputs=width, kernel=1, stride=1, pad=0)


def write_model(folder: Path, *, seed: int, width: int = WIDTH, depth: int = DEPTH) -> None:
    """Write the model and its external weights (156 MB at the default width and depth).

    Args:
        folder: The folder for ``detector.onnx`` and ``detector.weights``.
        seed: The seed of the random weights.
        width: How many channels each wide layer has.
        depth: How many wide layers the model has.
    """
    rng = np.random.default_rng(seed)
    nodes: list[Any] = []
    tensors: list[Any] = []
    value = "image"
    with (folder / WEIGHTS_NAME).open("wb") as weights:
        for index, layer in enumerate((*_layers(width, depth), _head(width))):
            shape = (layer.outputs, layer.inputs, layer.kernel, layer.kernel)
            scale = np.float32(np.sqrt(2.0 / (layer.inputs * layer.kernel**2)))
            array = rng.standard_normal(shape, dtype=np.float32) * scale
            offset = _append_aligned(weights, array)
            tensors.append(_external(f"w{index}", array, offset))
            nodes.append(_conv_node(value, index, layer))
            nodes.append(helper.make_node("LeakyRelu", [f"c{index}"], [f"a{index}"], alpha=0.1))
            value = f"a{index}"
    side = IMAGE_SIDE_PIXELS
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", floats, [1, 3, side, side])],
        [helper.make_tensor_value_info(value, floats, None)],
        initializer=tensors,
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(
        helper.make_model(graph, opset_imports=[opset], ir_version=8),
        str(folder / MODEL_NAME),
    )


def _head(width: int) -> _Conv:
    return _Conv(inputs=width, outputs=85, kernel=1, stride=1, pad=0)


def _append_aligned(file: Any, array: NDArray[np.float32]) -> int:
    """Append ``array`` at the next page boundary; return its offset in bytes."""
    file.write(b"\0" * (-file.tell() % _PAGE_BYTES))
    offset: int = file.tell()
    file.write(array.tobytes())
    return offset


def _external(name: str, array: NDArray[np.float32], offset: int) -> Any:
    tensor = onnx.TensorProto(
        name=name,
        data_type=onnx.TensorProto.FLOAT,
        dims=array.shape,
        data_location=onnx.TensorProto.EXTERNAL,
    )
    where = {"location": WEIGHTS_NAME, "offset": str(offset), "length": str(array.nbytes)}
    for key, value in where.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def _conv_node(value: str, index: int, layer: _Conv) -> Any:
    return helper.make_node(
        "Conv",
        [value, f"w{index}"],
        [f"c{index}"],
        kernel_shape=[layer.kernel, layer.kernel],
        strides=[layer.stride, layer.stride],
        pads=[layer.pad] * 4,
    )


def write_data(
    folder: Path,
    /,
    *,
    images: int = 1000,
    seed: int = 1,
    width: Annotated[int, "channels of each wide layer"] = WIDTH,
    depth: Annotated[int, "how many wide layers"] = DEPTH,
) -> None:
    """Make the model and the images in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder, seed=seed, width=width, depth=depth)
    write_images(folder, count=images, seed=seed)


if __name__ == "__main__":
    run_program(__doc__, write_data)
