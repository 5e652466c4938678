// A click on an arm in the legend shows or dims it in every chart.
for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    for (const part of document.querySelectorAll(`[data-arm="${CSS.escape(button.dataset.for)}"]`)) {
      part.classList.toggle("dimmed", !on);
    }
  });
}
