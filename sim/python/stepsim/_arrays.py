"""Whether NumPy and the compiled part of the package understand each other's arrays."""

import numpy


def check_arrays(core):
    """Sends one array there and back.

    A binding that is older than NumPy reads the fields of arrays where they no longer are, without
    an error of its own: all numbers of an array come out as its first one.

    Raises ImportError: the array comes back as another one.
    """
    sent = [3, 1, 2]
    try:
        came = core.copied(numpy.array(sent)).tolist()
    except Exception as error:  # pylint: disable=broad-except  (whatever it is, arrays fail)
        came = f"{type(error).__name__}: {error}"
    if came != sent:
        raise ImportError(
            f"stepsim was built with pybind11 {core.pybind11_version}, which cannot read the arrays "
            f"of NumPy {numpy.__version__} ({sent} came back as {came}): every batch and column "
            "would be wrong. Build it again for this environment: python3 -m pip install "
            "--force-reinstall --no-deps . in the folder of Stepsim, which brings pybind11 2.12 or "
            'newer along. Or take the older NumPy: python3 -m pip install "numpy<2"'
        )
