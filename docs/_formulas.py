"""Formulas of docstrings and pages as MathML, which browsers draw without a script.

In the source a formula is inline code in plain notation: ``a_i = 2 alpha sigmoid(beta psi_i
gamma_i)``. Code is a formula if it has an operator between spaces, a power, an absolute value, a
sum or a function with an argument, and nothing but signs, numbers, single letters and the words
below. All other code stays code.
"""

import dataclasses
import html
import re

#: letters; all names but eps are those of HTML
GREEK = frozenset({
    *("alpha", "beta", "gamma", "delta", "eta", "theta", "kappa", "lambda", "mu", "pi"),
    *("rho", "sigma", "tau", "phi", "chi", "psi", "eps"),
})  # fmt: skip
FUNCTIONS = frozenset({
    *("argmax", "ceil", "clip", "exp", "floor", "ln", "log", "logsigmoid", "loss", "max", "mean"),
    *("min", "relu", "sg", "sigmoid", "sign", "softmax", "softplus", "sqrt", "sum"),
    *("Beta", "Bernoulli", "CE", "Dir", "KL"),
})  # fmt: skip
#: other words, also as indices; two other letters are two indices
NAMES = frozenset({
    *("acc", "classes", "conf", "count", "diag", "difference", "distance", "etf", "gap"),
    *("growth", "in", "integral", "lin", "margin", "neg", "pos", "present", "rate", "sd"),
    *("BD", "BE", "ID", "NLL", "OOD", "dL", "dW"),
})  # fmt: skip
WORDS = GREEK | FUNCTIONS | NAMES
SIGNS = {"<-": "←", "<=": "≤", ">=": "≥", "!=": "≠", "+-": "±", "-": "−", "*": "⊙", "~": "∼"}
SHOWN = {**SIGNS, "||": "‖", ".": "·", "eps": "ε", "in": "∈", "integral": "∫", "sum": "∑"}
BETWEEN = SIGNS.keys() | {"+", "/", "=", "<", ">", "in", ",", ":"}
OPERATOR = r"(?:<-|<=|>=|!=|\+-|[-+*/=<>~])"
PART = re.compile(
    rf"\s+|\d+(?:\.\d+)?(?:e-?\d+)?|[A-Za-z]+|\|\||{OPERATOR}|[|,:(){{}}\[\]]|\.(?=\))|(?<=[\w'])'"
    r"|(?<=[\w'|)\]}])[_^](?=[\w({|])"
)
MARK = re.compile(rf"(?:^| ){OPERATOR} |\^|\|.+\||\bsum_|\b(?:{'|'.join(FUNCTIONS)})\(")
#: of a page: blocks of code, paragraphs that are code, code within text, other tags, and symbols
PIECE = re.compile(
    r'<div class="highlight"><pre><span></span><code>(?P<block>[^<]+)</code></pre></div>'
    r"|<pre.*?</pre>|<p><code>(?P<alone>[^<]+)</code>(?P<end>[.,;:]?)</p>"
    r"|<code>(?P<inline>[^<]+)</code>|<code.*?</code>|<[^>]+>"
    rf"|(?<![\w/.=-])(?P<symbol>(?:[A-Za-z]|{'|'.join(GREEK)})_[a-z0-9]{{1,2}})(?![\w/(=]|[.-]\w)",
    re.DOTALL,
)
#: characters of a formula that fit a line of a phone
LINE = 32


def is_formula(code: str) -> bool:
    """Whether code is a formula in the notation of this project."""
    words = re.findall(r"(_?)([A-Za-z]+)", code)
    known = (len(word) <= 1 + len(index) or word in WORDS for index, word in words)
    return bool(not PART.sub("", code) and MARK.search(code) and all(known))


def typeset(page: str) -> str:
    """Return the HTML of a page with MathML in place of formulas, and of letters with an index."""
    # a line does not break between a formula and the sign behind or the bracket before it
    page = re.sub(r"</math>(?=[.,;:)\]])", "</math>&NoBreak;", PIECE.sub(_typeset, page))
    return re.sub(r"(?<=[(\[])<math>", "&NoBreak;<math>", page)


def _typeset(found: re.Match[str]) -> str:
    code = html.unescape(found["block"] or found["alone"] or found["inline"] or "").strip()
    lines = code.split("\n") if found["block"] else [" ".join(code.split())]
    # behind some spaces stands the number of the equation
    numbered = [re.sub(" {3,}", "\n", line.strip()).partition("\n") for line in lines]
    if found["symbol"]:
        return mathml(found["symbol"])
    if not all(is_formula(formula) for formula, _, _ in numbered):
        return found[0]
    if found["inline"]:
        return mathml(lines[0])
    return "".join(
        f'<p class="formula">{mathml(formula)}{found["end"] or f"&emsp;{number}"}</p>'
        for formula, _, number in numbered
    )


def mathml(formula: str) -> str:
    """Return a formula as MathML: one element, or several between which a line may break."""
    atoms = _atoms(re.sub(r"\b([A-Za-z]+)(\d+)", r"\1_\2", formula))
    return "".join(f"<math>{''.join(map(str, line))}</math>" for line in _lines(atoms, 0))


@dataclasses.dataclass
class Atom:
    """A sign, number, word or root, and what stands below and above it.

    ``brackets`` is the number of brackets around an operator, behind which a line may break.
    """

    base: str
    below: str = ""
    above: str = ""
    brackets: int | None = None

    def __str__(self) -> str:
        kind = ("sub" if self.below else "") + ("sup" if self.above else "")
        scripts = "".join(f"<mrow>{each}</mrow>" for each in (self.below, self.above) if each)
        return f"<m{kind}>{self.base}{scripts}</m{kind}>" if kind else self.base


def _lines(atoms: list[Atom], brackets: int) -> list[list[Atom]]:
    """Cut a long formula behind operators, those outside of brackets first."""
    characters = html.unescape(re.sub("<[^>]*>", "", "".join(map(str, atoms))))
    deepest = max((each.brackets or 0 for each in atoms), default=0)
    if len(characters) <= LINE or brackets > deepest:
        return [atoms]
    lines: list[list[Atom]] = [[]]
    for atom in atoms:
        lines[-1].append(atom)
        if atom.brackets == brackets:
            lines.append([])
    return [cut for line in lines if line for cut in _lines(line, brackets + 1)]


def _atoms(text: str) -> list[Atom]:
    atoms: list[Atom] = []
    at, brackets, before, space = 0, 0, ",", False
    while at < len(text):
        part = PART.match(text, at)[0]
        at += len(part)
        if part.isspace():
            space = True
            continue
        if space and not {before, part} & BETWEEN:
            atoms.append(Atom('<mspace width="0.17em"/>'))
        if part == "_":
            atoms[-1].below, at = _script(text, at, "(")
        elif part == "^":
            script, at = _script(text, at, "")
            atoms[-1].above += script
        elif part == "'":
            atoms[-1].above += "<mo>′</mo>"
        elif part == "sqrt":
            inner, at = _group(text, at)
            atoms.append(Atom(f"<msqrt>{_row(inner)}</msqrt>"))
        else:
            brackets += (part in "([{") - (part in ")]}")
            infix = part in BETWEEN and before not in BETWEEN | set("([{")
            breaks = brackets if infix and part not in ",:/" else None
            atoms.append(Atom(_element(part, infix), brackets=breaks))
        before, space = part, False
    return atoms


def _row(text: str) -> str:
    return "".join(map(str, _atoms(text)))


def _script(text: str, at: int, kept: str) -> tuple[str, int]:
    """An index or a power, without its brackets unless they are to be kept, and where it ends."""
    if text[at] in "{(":
        inner, end = _group(text, at)
        return _row(text[at:end] if text[at] == kept else inner), end
    end = text.index("|", at + 1) + 1 if text[at] == "|" else PART.match(text, at).end()
    word = text[at:end]
    pair = len(word) == 2 and word.isalpha() and word not in WORDS
    return "".join(map(_row, word if pair else [word])), end


def _group(text: str, at: int) -> tuple[str, int]:
    """What stands between a bracket and its partner, and where it ends."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        if depth == 0:
            return text[at + 1 : end], end + 1
    raise ValueError(f"{text!r} must close each bracket.")


def _element(part: str, infix: bool) -> str:
    shown = SHOWN.get(part, f"&{part};" if part in GREEK else html.escape(part))
    if part[0].isdigit():
        number, _, power = part.partition("e")
        ten = f"<mo>·</mo><msup><mn>10</mn><mn>{power.replace('-', '−')}</mn></msup>"
        return f"<mn>{number}</mn>{ten if power else ''}"
    if (len(part) == 1 and part.isalpha()) or part in GREEK:
        return f"<mi>{shown}</mi>"
    if shown.isalpha():
        return f'<mi mathvariant="normal">{shown}</mi>'
    form = "infix" if infix else "postfix" if part in ")]}" else "prefix"
    space = ' lspace="0.1em" rspace="0.1em"' if part == "/" else "" if infix else ' lspace="0"'
    return f'<mo form="{form}" stretchy="false"{space}>{shown}</mo>'
