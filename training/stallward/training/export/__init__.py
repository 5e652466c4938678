"""One ONNX file and its card."""
