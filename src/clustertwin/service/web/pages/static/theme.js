// Set the theme before the first paint: the reader's choice, else the system's setting.
const chosen = localStorage.getItem("theme");
const dark = window.matchMedia("(prefers-color-scheme: dark)");
document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");

function switchTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  document.dispatchEvent(new Event("twin:theme"));
}
dark.addEventListener("change", () => { if (!localStorage.getItem("theme")) switchTheme(); });
document.addEventListener("click", (event) => { if (event.target.closest("[data-theme-switch]")) switchTheme(); });
