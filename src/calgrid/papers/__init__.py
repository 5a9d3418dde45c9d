"""Tables, figures and report of a study, with the papers' beside ours.

One folder for each paper: study, tables, claims, printed numbers, figures and their code. Modules
beside the folders: ``declared`` (what a folder says), ``cells`` (numbers in its tables), ``render``
(tables as shown), ``claims`` (tests and verdicts), ``lists`` (printed figures and ours);
``tables``, ``figures`` and ``report`` write a study.
"""
