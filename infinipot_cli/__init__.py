"""infinipot: read documents of any length through a local language model in fixed memory."""


def version() -> str:
    """The installed version; `0+source` where infinipot runs without being installed."""
    from importlib import metadata

    try:
        return metadata.version("infinipot")
    except metadata.PackageNotFoundError:
        return "0+source"
