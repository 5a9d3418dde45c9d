"""Files of ``calgrid new``: a component of each kind, ``loss.py``, and its test, ``test_loss.py``.

In the copy, ``my_component`` and ``MyComponent`` become the component's names.
"""
