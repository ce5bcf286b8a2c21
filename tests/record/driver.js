// Looks at the table of functions of the kernel driver.
const log = [];
window.onerror = (message) => log.push(`error: ${message}`);
opened.then(() => {
  const head = [...document.querySelectorAll("#functions h2")].at(-1);
  log.push(`driver: ${head.textContent}: ${head.nextElementSibling.querySelector("tbody td").textContent}`);
}).catch((error) => log.push(`error: ${error.stack}`)).then(() => {
  document.body.append(Object.assign(document.createElement("pre"), { id: "log", textContent: log.join("\n") }));
});
