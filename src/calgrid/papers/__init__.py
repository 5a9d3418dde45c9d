"""One folder for each paper: study, tables, claims, printed numbers, figures and their code.

Nothing outside imports a module of a paper; ``figures.yaml`` of a paper names those that draw.
"""
