"""The machines with cgroup v2 in which the tests of this folder run."""
