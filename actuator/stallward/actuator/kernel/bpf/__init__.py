"""The bpf system call, BTF and an assembler."""
