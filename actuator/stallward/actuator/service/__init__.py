"""The service process: serves gRPC apart from the loop, so that no client can disturb it."""
