// The key of this visit. It is kept as long as the tab lives, and sent with every request.

import { field, make } from "./element.js";

const STORAGE_KEY = "headwater.key";

let asking = null;

export function authorization() {
    const key = sessionStorage.getItem(STORAGE_KEY);
    return key ? { authorization: `Bearer ${key}` } : {};
}

/** Ask for a key; those who need one at the same time share the question. False: no key is given. */
export function askForKey(reason) {
    asking ??= openDialog(reason).finally(() => {
        asking = null;
    });
    return asking;
}

function openDialog(reason) {
    return new Promise((resolve) => {
        const input = make("input", {
            type: "password",
            autocomplete: "off",
            spellcheck: "false",
            required: true,
        });
        const dialog = make("dialog", { class: "key", "aria-labelledby": "key-title" });
        const take = (event) => {
            event.preventDefault();
            sessionStorage.setItem(STORAGE_KEY, input.value.trim());
            dialog.close("given");
        };
        const forget = () => {
            sessionStorage.removeItem(STORAGE_KEY);
            dialog.close();
        };
        dialog.append(
            make(
                "form",
                { submit: take },
                make("h2", { id: "key-title" }, "API key"),
                make("p", { class: "quiet" }, reason),
                field("Key", input),
                make(
                    "p",
                    { class: "quiet" },
                    "It stays in this tab and is forgotten when the tab is closed.",
                ),
                make(
                    "div",
                    { class: "buttons" },
                    sessionStorage.getItem(STORAGE_KEY)
                        ? make("button", { type: "button", click: forget }, "Forget it")
                        : null,
                    make("button", { type: "button", click: () => dialog.close() }, "Cancel"),
                    make("button", { class: "main" }, "Use this key"),
                ),
            ),
        );
        dialog.addEventListener("close", () => {
            dialog.remove();
            resolve(dialog.returnValue === "given");
        });
        document.body.append(dialog);
        dialog.showModal();
        input.focus();
    });
}
