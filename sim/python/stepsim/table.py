"""Rows with named columns."""


class Table:
    """What has `columns`: {name: NumPy array [row]}."""

    def __getitem__(self, column):
        """Returns a column, a NumPy array [row]."""
        try:
            return self.columns[column]
        except KeyError:
            raise KeyError(f"no column '{column}'; there are {', '.join(self.columns)}") from None

    def to_pandas(self):
        """Returns the rows as a pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(self.columns)
