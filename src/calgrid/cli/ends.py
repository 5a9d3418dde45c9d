"""How commands end, and how the processes of one training know each other."""

#: exit code of an error that the user can fix
EXIT_USER = 2
#: exit code of a run that was stopped and can be continued (EX_TEMPFAIL)
EXIT_STOPPED = 75
#: exit code after Ctrl-C (128 + SIGINT)
EXIT_INTERRUPTED = 130
#: in the environment of each process that ``torchrun`` has started
OF_TORCHRUN = "TORCHELASTIC_RUN_ID"
