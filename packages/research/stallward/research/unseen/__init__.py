"""Six applications that no controller was made, tuned, trained or chosen with, for one verdict.

Each TOML file here is a scenario; ``stallward verdict --plan`` and ``stallward compare`` take its path.
"""
