// Adds a copy button to each code block. Of a console session, only the commands are copied.
"use strict";

function copiedText(block) {
  const text = block.querySelector("pre").innerText;
  if (!block.parentElement.classList.contains("highlight-console")) return text;
  return text.split("\n").filter((line) => line.startsWith("$ ")).map((line) => `${line.slice(2)}\n`).join("");
}

document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(copiedText(block));
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => (button.textContent = "Copy"), 2_000);
    });
    block.append(button);
  }
});
