"""The deterministic layer between every controller and the kernel."""
