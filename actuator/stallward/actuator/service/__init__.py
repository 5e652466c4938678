"""The gRPC process; no client can disturb the loop."""
