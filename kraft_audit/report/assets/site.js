"use strict";
// Search, filter, sorting and paging of a table that is there in full: without this script every row is shown.
for (const table of document.querySelectorAll("table[data-paged]")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const size = Number(table.dataset.paged);
  const tools = document.getElementById(table.dataset.tools);
  const search = tools.querySelector("input[type=search]");
  const filter = tools.querySelector("select");
  const [back, forward] = tools.querySelectorAll("button");
  const status = tools.querySelector("[role=status]");
  let shown = rows;
  let page = 0;
  const texts = new Map(rows.map((row) => [row, row.dataset.find.toLowerCase()]));

  const turn = (to) => {
    const last = Math.max(0, Math.ceil(shown.length / size) - 1);
    page = Math.min(Math.max(0, to), last);
    shown.forEach((row, place) => { row.hidden = place < page * size || place >= (page + 1) * size; });
    back.disabled = page === 0;
    forward.disabled = page === last;
    const from = shown.length ? page * size + 1 : 0;
    status.textContent = `${from} to ${Math.min(shown.length, (page + 1) * size)} of ${shown.length}`;
  };
  const select = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = rows.filter((row) => {
      const fits = (!filter.value || row.dataset.standing === filter.value) && words.every((word) => texts.get(row).includes(word));
      row.classList.toggle("out", !fits);
      return fits;
    });
    turn(0);
  };
  const sort = (heading) => {
    const place = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") !== "descending";
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[place].dataset.value ?? row.cells[place].textContent.trim();
    const numeric = heading.dataset.kind === "number";
    rows.sort((a, b) => (numeric ? Number(value(b)) - Number(value(a)) : value(b).localeCompare(value(a))) * (down ? 1 : -1));
    body.append(...rows);
    select();
  };
  for (const button of table.tHead.querySelectorAll("th button")) {
    button.addEventListener("click", () => sort(button.closest("th")));
  }
  search.addEventListener("input", select);
  filter.addEventListener("change", select);
  back.addEventListener("click", () => turn(page - 1));
  forward.addEventListener("click", () => turn(page + 1));
  tools.hidden = false;
  select();
  table.classList.add("ready");
}
// A command beside a button that copies it.
for (const button of document.querySelectorAll("button.copy")) {
  const command = button.parentElement.querySelector("code");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command);
      button.textContent = "Selected";
    }
  });
  button.hidden = false;
}
// What is folded stays off the paper: one button unfolds all of it. A link into a folded part opens that part.
const unfold = document.querySelector("button.unfold");
if (unfold) {
  unfold.addEventListener("click", () => { for (const folded of document.querySelectorAll("details")) folded.open = true; });
  unfold.hidden = false;
}
const reveal = () => {
  const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  for (let folded = target && target.closest("details"); folded; folded = folded.parentElement.closest("details")) folded.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();
