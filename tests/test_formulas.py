"""Formulas of the documentation site: which code is one, and what becomes of it."""

import html
import re

import pytest
from docs._formulas import LINE, is_formula, mathml, typeset


def bare(text):
    """MathML without attributes, and without what only groups."""
    return re.sub(r' \w+="[^"]*"|</?mrow>', "", text)


@pytest.mark.parametrize(
    ("formula", "inside"),
    [
        ("gamma + eps", "<mi>&gamma;</mi><mo>+</mo><mi>ε</mi>"),
        ("a <= b", "<mi>a</mi><mo>≤</mo><mi>b</mi>"),
        ("2 x", "<mn>2</mn><mspace/><mi>x</mi>"),
        ("exp(-x)", "<mi>exp</mi><mo>(</mo><mo>−</mo><mi>x</mi><mo>)</mo>"),
        ("p_ik", "<msub><mi>p</mi><mi>i</mi><mi>k</mi></msub>"),
        ("lambda_pos", "<msub><mi>&lambda;</mi><mi>pos</mi></msub>"),
        ("W2'", "<msubsup><mi>W</mi><mn>2</mn><mo>′</mo></msubsup>"),
        ("n^(-1/3)", "<msup><mi>n</mi><mo>−</mo><mn>1</mn><mo>/</mo><mn>3</mn></msup>"),
        ("z_(1)", "<msub><mi>z</mi><mo>(</mo><mn>1</mn><mo>)</mo></msub>"),
        ("x^|g|", "<msup><mi>x</mi><mo>|</mo><mi>g</mi><mo>|</mo></msup>"),
        (
            "sum_{i != j} b",
            "<msub><mo>∑</mo><mi>i</mi><mo>≠</mo><mi>j</mi></msub><mspace/><mi>b</mi>",
        ),
        ("sqrt((a))", "<msqrt><mo>(</mo><mi>a</mi><mo>)</mo></msqrt>"),
        ("1e-9", "<mn>1</mn><mo>·</mo><msup><mn>10</mn><mn>−9</mn></msup>"),
    ],
)
def test_plain_notation_becomes_mathml(formula, inside):
    assert bare(mathml(formula)) == f"<math>{inside}</math>"


def test_letters_are_italic_and_words_are_not():
    letter, word = re.findall("<mi[^>]*>", mathml("softmax(z)"))[::-1]
    assert "normal" not in letter
    assert "normal" in word


def test_a_minus_between_operands_has_space_and_a_sign_has_none():
    between, sign = (re.search("<mo[^>]*>−", mathml(each))[0] for each in ("a - b", "exp(-b)"))
    assert 'form="infix"' in between
    assert 'form="prefix"' in sign


def test_long_formulas_break_behind_operators_outside_of_brackets_first():
    long = "mean(CE) + alpha (lambda_pos mean_i relu(M - m)^2 + lambda_neg relu(M - m)^2)"
    lines = [
        html.unescape(re.sub("<[^>]*>", "", line)) for line in mathml(long).split("</math>")[:-1]
    ]
    assert lines == ["mean(CE)+", "α(λposmeanirelu(M−m)2+", "λnegrelu(M−m)2)"]
    assert max(map(len, lines)) <= LINE
    assert mathml("mean(CE) + 1").count("<math>") == 1


@pytest.mark.parametrize(
    "code",
    [
        *("low=0.1", "(N, K)", "[0, gamma_max]", "calgrid new loss", "table(name)", "ens3(ce,ts)"),
        *("int | None", "docs/_site.py", "lambda_d", "min_delta", "-n", "1e-06", "mixup+ls", "^"),
        *("features(x) -> (N, d)", "score_a - score_b", "schedule: {name: triangular}"),
    ],
)
def test_code_stays_code(code):
    assert not is_formula(code)
    page = f"<p>x <code>{html.escape(code, quote=False)}</code></p>"
    assert typeset(page) == page


def test_code_of_blocks_tags_and_attributes_stays_and_symbols_in_text_do_not():
    page = (
        '<pre>a_i = b ^ 2</pre><a title="p_y">fedlas_ls, see mit_a.py</a><code class="x">p_y</code>'
    )
    assert typeset(page) == page
    assert typeset("<p>with p_y.</p>") == f"<p>with {mathml('p_y')}&NoBreak;.</p>"


def test_formulas_alone_and_in_blocks_have_paragraphs_and_keep_sign_and_number():
    assert typeset("<p><code>a &lt;\nb</code>,</p>") == (
        f'<p class="formula">{mathml("a < b")}&NoBreak;,</p>'
    )
    block = '<div class="highlight"><pre><span></span><code>{}\n</code></pre></div>'
    first, second = mathml("a = b"), mathml("b = 1")
    assert typeset(block.format("a = b      (8), (9)\nb = 1")) == (
        f'<p class="formula">{first}&emsp;(8), (9)</p><p class="formula">{second}&emsp;</p>'
    )
    assert typeset(block.format("a = b\nprint(b)")) == block.format("a = b\nprint(b)")
