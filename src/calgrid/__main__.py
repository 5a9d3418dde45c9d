"""``python -m calgrid`` is the ``calgrid`` command."""

import sys

from calgrid import forkserver

code = forkserver.run()
if code is None:
    from calgrid.cli.main import main

    code = main()
sys.exit(code)
