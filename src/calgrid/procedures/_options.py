"""The check that hyper-parameters of procedures share."""

from calgrid.errors import ConfigError


def require(holds: bool, procedure: str, name: str, bounds: str, value: float) -> None:
    """Raise ConfigError unless a hyper-parameter keeps its bounds.

    Parameters
    ----------
    holds : whether it does; False for NaN too, as comparisons with it are.
    bounds : what the value must be, for example "at least 0".
    """
    if not holds:
        raise ConfigError(f"procedure '{procedure}': {name} must be {bounds}, got {value}.")
