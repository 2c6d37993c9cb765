for (const slider of document.querySelectorAll("input.wipe")) {
  const pair = slider.previousElementSibling;
  const move = () => pair.style.setProperty("--at", slider.value + "%");
  const drag = (event) => {
    const box = pair.getBoundingClientRect();
    slider.value = Math.min(100, Math.max(0, (100 * (event.clientX - box.left)) / box.width));
    move();
  };
  slider.addEventListener("input", move);
  pair.addEventListener("pointerdown", (event) => {
    pair.setPointerCapture(event.pointerId);
    drag(event);
  });
  pair.addEventListener("pointermove", (event) => {
    if (pair.hasPointerCapture(event.pointerId)) drag(event);
  });
  move();
}
const choices = document.querySelectorAll("input.filter");
const choose = (filter) => {
  for (const part of document.querySelectorAll("[data-filter]")) part.hidden = part.dataset.filter !== filter;
  for (const choice of choices) choice.checked = choice.value === filter;
};
for (const choice of choices) choice.addEventListener("change", () => choose(choice.value));
// A browser that restores a page restores its radio buttons too.
if (choices.length) choose([...choices].find((choice) => choice.checked).value);
