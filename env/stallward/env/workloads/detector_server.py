r"""The detector: for each request it reads an image from disk and runs a network on it.

A client sends ``NUMBER\n`` and gets ``ok BOXES\n`` or ``error CAUSE\n``. One request is served
at a time, in the order of arrival over all connections.

Run: ``python -m stallward.env.workloads.detector_server --data DIR --socket PATH``

With ``--threads 2`` two threads share the work on each image.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stallward.agent.inference import import_runtime
from stallward.env.workloads.command_line import run_program
from stallward.env.workloads.detector_images import read_image
from stallward.env.workloads.services.line_server import serve

MODEL_NAME = "detector.onnx"


def open_session(model: Path, threads: int = 1) -> Any:
    """Open the model with prepacking off, which would copy the weights into anonymous memory.

    So the weights stay pages of the mapped file.

    Args:
        model: The model.
        threads: How many threads share the work on each image. They sleep while there is none.
    """
    onnxruntime = import_runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


class Detector:
    """The model and its images.

    Args:
        data: A folder written by ``detector_data``.
        threads: How many threads share the work on each image.
    """

    def __init__(self, data: Path, threads: int = 1) -> None:
        self._session = open_session(data / MODEL_NAME, threads)
        self._images = sorted(data.glob("image-*.ppm"))
        if not self._images:
            raise FileNotFoundError(f"no image-*.ppm in {data}")

    def answer(self, request: bytes) -> bytes:
        """Run the model on the image whose number (modulo the number of images) is requested."""
        try:
            path = self._images[int(request) % len(self._images)]
            (scores,) = self._session.run(None, {"image": read_image(path)})
        except (ValueError, OSError) as error:
            return f"error {type(error).__name__}\n".encode()
        return f"ok {int((scores > 0).sum())}\n".encode()


def main(*, data: Path, socket: Path, threads: int = 1) -> None:
    """Serve until killed."""
    detector = Detector(data, threads)
    detector.answer(b"0")
    serve(detector.answer, socket)


if __name__ == "__main__":
    run_program(__doc__, main)
