// Looks at the table of functions of the kernel driver.
const log = [];
window.onerror = (message) => log.push(`error: ${message}`);
setTimeout(() => {
  const head = [...document.querySelectorAll("#functions h2")].at(-1);
  log.push(`driver: ${head.textContent}: ${head.nextElementSibling.querySelector("tbody td").textContent}`);
  const place = document.createElement("pre");
  place.id = "log";
  place.textContent = log.join("\n");
  document.body.append(place);
}, 50);
