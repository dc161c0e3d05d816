"""Whether a library has the parts that an adapter takes hold of."""

import importlib.metadata
import inspect
import warnings

from ..errors import InputError


class Parts:
    """The parts of a library that an adapter calls or overrides though they are not public.

    Args:
        library: The name of its distribution.
        tested: [] The versions that the adapter was tested with, as "5.24".
        needs: [] (class or module, name of the part, names of the arguments that are relied on).
    """

    def __init__(self, library, tested, needs):
        self._library, self._tested, self._needs = library, tested, needs

    def check(self):
        """Warns where the version is another one than was tested. Raises InputError where a part is
        not there, or takes other arguments: nothing would tell then that batches go astray."""
        version = importlib.metadata.version(self._library)
        tested = f"tested with {' and '.join(self._tested)}"
        for owner, name, arguments in self._needs:
            part = inspect.getattr_static(owner, name, None)
            missing = f"no {name}" if not hasattr(owner, name) else None
            if missing is None and arguments:
                taken = inspect.signature(getattr(part, "__func__", part)).parameters
                lacking = [one for one in arguments if one not in taken]
                missing = f"a {name} without {', '.join(lacking)}" if lacking else None
            if missing:
                raise InputError(
                    f"{self._library} {version} has {missing} in {owner.__name__}, which this adapter "
                    f"relies on ({tested}): install {self._library}=={self._tested[-1]}.*, or batch by "
                    "stepsim.torch.BatchSampler in a loop of your own"
                )
        if not any(version == one or version.startswith(one + ".") for one in self._tested):
            warnings.warn(
                f"stepsim's adapter was not {tested.replace('tested', f'tested with {self._library} {version}, only', 1)}; "
                "it has the parts that are needed",
                stacklevel=3,
            )
