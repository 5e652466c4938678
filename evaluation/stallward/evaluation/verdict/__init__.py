"""The verdict: whether the policy beats the rules, live, on scenarios that none was tuned on."""
