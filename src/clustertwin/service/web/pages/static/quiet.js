// Times that a person picks are their own clock's; the service counts seconds.
document.addEventListener("htmx:configRequest", (event) => {
  const { parameters } = event.detail;
  if (parameters.begins) parameters.begins_s = new Date(parameters.begins).getTime() / 1000;
  delete parameters.begins;
});
