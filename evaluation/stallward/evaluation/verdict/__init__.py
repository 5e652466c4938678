"""Whether the policy is better than the rules, live, where none of them was tuned."""
