"""The verdict: whether the policy beats the rules in live runs of held-out scenarios."""
