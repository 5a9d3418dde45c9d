// The theme puts wide tables into boxes that scroll: the keyboard reaches them too.
document$.subscribe(() =>
  requestAnimationFrame(() => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) box.tabIndex = 0;
  }),
);
