"""Names of classes: numbers in the order of text, and other orders of the same names."""

import pytest

from calgrid.class_names import first_difference, in_order_of_numbers, is_other_order, unlike


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["1", "10", "2"], ["1", "2", "10"]),
        (["class_1", "class_10", "class_2"], ["class_1", "class_2", "class_10"]),
        (["a1b10", "a1b9"], ["a1b9", "a1b10"]),
        (["1", "2", "10"], None),  # chosen by somebody
        (["01", "02", "10"], None),
        (["n01440764", "n01443537"], None),
        (["DC-10", "DC-3", "A310"], None),
        (["cat", "dog"], None),
    ],
)
def test_only_numbers_in_the_order_of_text_have_another_order(names, expected):
    assert in_order_of_numbers(names) == expected


def test_the_first_difference_of_two_orders_is_named():
    assert is_other_order(["a", "c", "b"], ("a", "b", "c"))
    assert not is_other_order(["a", "b"], ("a", "b"))
    assert not is_other_order(["a", "d"], ("a", "b"))
    assert first_difference("acb", "abc") == "class 1 is 'c' instead of 'b'"


def test_a_name_that_looks_like_a_known_one_is_told_apart():
    said = unlike(["caf\u00e9"], ["tea", "cafe\u0301"])
    assert said == r" ('caf\xe9' and 'cafe\u0301' look the same: rename one of them)"
    assert unlike(["coffee"], ["tea"]) == ""
