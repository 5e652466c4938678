"""``partition`` on thousands of twin nodes: ``stallward.agent.sharing`` in compiled code."""
