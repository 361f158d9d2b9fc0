// Asks every 2 s whether the results have changed, and replaces what is shown without moving it.
(() => {
  "use strict";
  const root = document.documentElement;
  const status = document.getElementById("status");
  let shown = root.dataset.version;

  async function get(path) {
    const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(20000) });
    const text = await answer.text();
    if (!answer.ok) {
      const told = new DOMParser().parseFromString(text, "text/html").body.textContent;
      throw new Error("The results cannot be shown: " + told.trim());
    }
    return text;
  }

  // What has a name and begins nearest to the top of the screen, and where.
  function place() {
    let nearest = null;
    for (const element of document.querySelectorAll("main [id]")) {
      const { top, height } = element.getBoundingClientRect();
      if (height > 0 && (!nearest || Math.abs(top) < Math.abs(nearest.top))) {
        nearest = { id: element.id, top };
      }
    }
    return nearest;
  }

  function replace(text) {
    const page = new DOMParser().parseFromString(text, "text/html");
    const opened = [...document.querySelectorAll("main details[open][id]")].map((d) => d.id);
    const focused = document.activeElement?.id;
    const seen = scrollY > 0 ? place() : null;
    document.querySelector("main").replaceWith(page.querySelector("main"));
    document.title = page.title;
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    const now = seen && document.getElementById(seen.id);
    if (now) scrollBy({ top: now.getBoundingClientRect().top - seen.top, behavior: "instant" });
    shown = page.documentElement.dataset.version;
  }

  async function look() {
    try {
      const version = await get("/version");
      // A selection would be lost.
      if (version !== shown && getSelection().isCollapsed) replace(await get("/"));
      status.textContent = "";
    } catch (error) {
      status.textContent = error instanceof TypeError
        ? "The program that shows this page has ended; below is what it showed last."
        : error.message;
    }
    setTimeout(look, 2000);
  }

  setTimeout(look, 2000);
})();
