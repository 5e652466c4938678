"""The workloads in C, and the module that compiles them."""
