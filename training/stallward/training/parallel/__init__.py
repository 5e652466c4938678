"""Many independent jobs at once: in processes of this machine, or as tasks on Ray."""
