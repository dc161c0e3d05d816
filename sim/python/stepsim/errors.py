"""The errors that the package raises."""


class InputError(ValueError):
    """Something in the input is wrong: a file, a key, a value.

    The message is the command line's own, with the line and a caret where it is about a file.

    Attributes:
        file: The file, option or command that is wrong, or None.
        line, column: The place in the file, from 1, or None.
    """

    def __init__(self, message, file=None, line=None, column=None):
        super().__init__(message)
        self.file = file
        self.line = line
        self.column = column

    def __reduce__(self):
        return type(self), (str(self), self.file, self.line, self.column)


class MachineError(OSError):
    """A fault of the machine and not of the input: a full disk, a missing program."""
