"""What pip calls: meson-python, but without its hook for metadata alone, which in Debian's version
0.12 builds everything a first time. pip then builds once and takes the metadata from the wheel."""

from mesonpy import build_sdist, build_wheel, get_requires_for_build_wheel

__all__ = ["build_sdist", "build_wheel", "get_requires_for_build_wheel"]
