"""``partition`` on thousands of twin nodes: rules of ``stallward.agent.sharing``, compiled."""
