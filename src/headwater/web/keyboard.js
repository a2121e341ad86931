// Everything can be reached without a mouse. Letters work where nothing is being typed.

import { make } from "./element.js";
import { address } from "./navigation.js";

const GO_MS = 1_500;

let goUntil = 0;

/** `pages` are `{path, letter, title}`; `help` and `theme` are the buttons of the bar. */
export function startKeyboard(pages, { help, theme }) {
    const show = () => showHelp(pages);
    help.addEventListener("click", show);
    const keys = {
        "?": show,
        d: () => theme.click(),
        "/": () => document.querySelector("main [data-key='/']")?.focus(),
        j: () => step(1),
        k: () => step(-1),
        g: () => {
            goUntil = performance.now() + GO_MS;
        },
    };
    document.addEventListener("keydown", (event) => {
        if (
            event.ctrlKey ||
            event.metaKey ||
            event.altKey ||
            document.querySelector("dialog[open]")
        )
            return;
        if (event.key === "Escape") {
            event.preventDefault(); // browsers empty a search field; here it is only left
            return event.target.blur?.();
        }
        if (event.target.closest?.("input, textarea, select")) return;
        const page =
            performance.now() < goUntil && pages.find(({ letter }) => letter === event.key);
        goUntil = 0;
        if (page) location.hash = address(...page.path);
        else if (keys[event.key]) keys[event.key]();
        else if (!press(event.key)) return;
        event.preventDefault();
    });
}

/** A button of the page that names this key. */
function press(key) {
    const button =
        /^[a-z]$/.test(key) && document.querySelector(`main [data-key="${key}"]:not(:disabled)`);
    if (!button) return false;
    button.click();
    return true;
}

/** The next row that can be opened, or the one before. */
function step(by) {
    const stops = [...document.querySelectorAll("main tbody a, main tbody button.plain")];
    const at = stops.indexOf(document.activeElement);
    stops[at < 0 ? 0 : Math.min(Math.max(at + by, 0), stops.length - 1)]?.focus();
}

function showHelp(pages) {
    const rows = [
        ...pages.map((page) => [["g", page.letter], page.title]),
        [["/"], "Search or filter"],
        [["j", "k"], "Next row, row before"],
        [["n", "p"], "Next page, page before"],
        [["l"], "Records: follow live"],
        [["w"], "Records: write one"],
        [["d"], "Colours"],
        [["Esc"], "Leave a field"],
    ];
    const dialog = make("dialog", {
        "aria-labelledby": "help-title",
        close: () => dialog.remove(),
    });
    dialog.append(
        make("h2", { id: "help-title" }, "Keyboard"),
        make(
            "dl",
            {},
            rows.map(([keys, meaning]) => [
                make(
                    "dt",
                    {},
                    keys.map((key) => [make("kbd", {}, key), " "]),
                ),
                make("dd", {}, meaning),
            ]),
        ),
        make("div", { class: "buttons" }, make("button", { click: () => dialog.close() }, "Close")),
    );
    document.body.append(dialog);
    dialog.showModal();
}
