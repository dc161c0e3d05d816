"""Checks the lengths of samples that users hand in, whatever they hold them in."""

from .errors import InputError

_LONGEST = 1 << 30


def checked_lengths(lengths):
    """Returns lengths as an int64 array [sample].

    Args:
        lengths: The tokens of each sample, from 1: a list, a NumPy array, a tensor on any device,
            a pandas Series, a column of a Hugging Face dataset, or any other sequence of numbers.
            Real numbers are taken where they are whole.

    Raises:
        InputError: They are not whole numbers from 1 to 2^30, not one number a sample, or none.
    """
    import numpy

    if hasattr(lengths, "detach"):  # A tensor, maybe on a GPU.
        if lengths.is_floating_point() and lengths.element_size() < 4:
            raise InputError(
                f"lengths: {lengths.dtype} cannot hold lengths exactly; expected whole numbers"
            )
        lengths = lengths.detach().cpu().numpy()
    elif isinstance(lengths, dict) or isinstance(lengths, (str, bytes)):
        raise InputError(f"lengths: expected a number a sample, not a {type(lengths).__name__}")
    try:
        array = numpy.asarray(lengths)
    except (TypeError, ValueError) as error:  # Lists of several sizes, for one.
        raise InputError(f"lengths: expected a number a sample: {error}") from None
    if array.dtype == object or array.dtype.kind not in "iufb":
        try:
            array = numpy.asarray(list(lengths))
        except (TypeError, ValueError):
            pass
    if array.ndim != 1:
        raise InputError(
            f"lengths: expected one number a sample, got an array of shape {array.shape}"
            + ("; of tokens take len() of each sample" if array.ndim > 1 else "")
        )
    if array.size == 0:
        raise InputError("lengths: there are no samples")
    if array.dtype.kind not in "iuf":
        first = array[0].item() if hasattr(array[0], "item") else array[0]
        hint = "; take len() of each sample" if hasattr(first, "__len__") else ""
        raise InputError(
            f"lengths: expected whole numbers, got {type(first).__name__} ({first!r:.40}){hint}"
        )
    if array.dtype.kind == "f":
        wrong = ~numpy.isfinite(array) | (array != numpy.floor(array))
        if wrong.any():
            where = int(wrong.argmax())
            raise InputError(f"lengths: sample {where} has {array[where]}, no whole number")
    wrong = (array < 1) | (array > _LONGEST)
    if wrong.any():
        where = int(wrong.argmax())
        raise InputError(
            f"lengths: sample {where} has {array[where]} tokens; expected 1 to {_LONGEST}"
        )
    return numpy.ascontiguousarray(array, dtype=numpy.int64)
