"""``calgrid schema``: the keys of a configuration for editors."""

import argparse
import json
import sys

from calgrid.configuration.model import Config


def schema(_options: argparse.Namespace) -> None:
    """Print the JSON Schema of configurations: keys, types, ranges, defaults and meanings."""
    sys.stdout.write(json.dumps(Config.model_json_schema(), indent=2) + "\n")
