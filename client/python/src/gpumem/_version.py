"""The version of the package: that of libgpumem it was made with."""

__version__ = "0.1.0"
