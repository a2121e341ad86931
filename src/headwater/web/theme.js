// Light, dark, or as the system says. The choice is remembered on this machine.

import { say } from "./element.js";

const PLACE = "headwater.theme";
const CHOICES = ["system", "light", "dark"];

function chosen() {
    const choice = localStorage.getItem(PLACE);
    return CHOICES.includes(choice) ? choice : "system";
}

function apply(button) {
    const choice = chosen();
    if (choice === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    say(button, { system: "Auto", light: "Light", dark: "Dark" }[choice]);
    button.title = `Colours: ${choice}. Press to change.`;
}

export function startTheme(button) {
    apply(button);
    button.addEventListener("click", () => {
        localStorage.setItem(PLACE, CHOICES[(CHOICES.indexOf(chosen()) + 1) % CHOICES.length]);
        apply(button);
    });
}
