"""The shipped controllers; importing this package registers them."""

from stallward.agent.controllers import excite, latd, none, onnx, psi_hold, remote, static, storm

__all__ = ["excite", "latd", "none", "onnx", "psi_hold", "remote", "static", "storm"]
