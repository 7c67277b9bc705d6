// Light or dark, by the reader's choice or else the system's.
import { $ } from "./format.js";

// themed sets the theme, and calls changed whenever it has been set.
export function themed(changed = () => {}) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = localStorage.getItem("coppice-theme") || "";
  const set = () => {
    document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    changed();
  };
  dark.addEventListener("change", set);
  $("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("coppice-theme", chosen);
    set();
  });
  set();
}
