"""The calls of a training that has no advisor."""


class Plain:
    """What a training calls that has no advisor."""

    def step(self, lengths):
        return self

    def backward(self, loss):
        loss.backward()

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass
