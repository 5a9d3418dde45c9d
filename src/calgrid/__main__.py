"""``python -m calgrid`` is the ``calgrid`` command."""

import sys

from calgrid.cli import main

sys.exit(main())
