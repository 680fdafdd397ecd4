"""The vocabulary every part shares: values, protocols, errors. Knows no torch, no grpc, no HTTP."""
