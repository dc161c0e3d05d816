"""For PyTorch training loops."""
