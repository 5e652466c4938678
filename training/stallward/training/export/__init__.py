"""Export of a policy to one ONNX file with its card."""
