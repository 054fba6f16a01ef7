// Names and roles that the theme leaves out, for screen readers and keyboards.
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-nav__container > label").forEach((label) => {
    label.setAttribute("aria-label", label.previousElementSibling.textContent.trim());
  });
  document.querySelectorAll("pre > code").forEach((code) => { code.tabIndex = 0; });
  document.querySelectorAll(".md-code__nav").forEach((nav, index) => {
    nav.setAttribute("aria-label", `Example ${index + 1}`);
  });
});
