"""One module for each command: its docstring is the help, ``add_arguments`` adds its options, and
``RUN`` is the module of :mod:`calgrid.cli` with its function.

That module is imported when the command runs; those here import nothing that takes time.
"""
