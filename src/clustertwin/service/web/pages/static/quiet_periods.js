// The form contains local time; the service expects epoch seconds.
document.addEventListener("htmx:configRequest", (event) => {
  const { parameters } = event.detail;
  if (parameters.begins) parameters.begins_s = new Date(parameters.begins).getTime() / 1000;
  delete parameters.begins;
});
