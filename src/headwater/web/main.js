// The frame: which page is shown, and what all pages share.

import { ApiError, Mistake } from "./api.js";
import { make, refill } from "./element.js";
import { startKeyboard } from "./keyboard.js";
import { askForKey } from "./key.js";
import { address, whereWeAre } from "./navigation.js";
import { watchStatus } from "./status.js";
import { startTheme } from "./theme.js";
import { openInstance } from "./page-instance.js";
import { openKafka } from "./page-kafka.js";
import { openMachine } from "./page-machine.js";
import { openMachines } from "./page-machines.js";
import { openMaintenance } from "./page-maintenance.js";
import { openOverview } from "./page-overview.js";
import { openQueue } from "./page-queue.js";
import { openQueues } from "./page-queues.js";
import { openRouters } from "./page-routers.js";
import { openTopic } from "./page-topic.js";
import { openTopics } from "./page-topics.js";
import { openWal } from "./page-wal.js";

const MENU = [
    { path: [], letter: "o", title: "Overview" },
    { path: ["topics"], letter: "t", title: "Topics" },
    { path: ["queues"], letter: "q", title: "Queues" },
    { path: ["routers"], letter: "r", title: "Routers" },
    { path: ["kafka"], letter: "k", title: "Kafka" },
    { path: ["machines"], letter: "m", title: "Machines" },
    { path: ["log"], letter: "l", title: "Write-ahead log" },
    { path: ["jobs"], letter: "j", title: "Maintenance" },
];

/** First part of the address -> what shows it, and under which entry of the menu it stands. */
const PAGES = new Map([
    ["", [openOverview, ""]],
    ["topics", [openTopics, "topics"]],
    ["topic", [openTopic, "topics"]],
    ["queues", [openQueues, "queues"]],
    ["queue", [openQueue, "queues"]],
    ["routers", [openRouters, "routers"]],
    ["kafka", [openKafka, "kafka"]],
    ["machines", [openMachines, "machines"]],
    ["machine", [openMachine, "machines"]],
    ["instance", [openInstance, "machines"]],
    ["log", [openWal, "log"]],
    ["jobs", [openMaintenance, "jobs"]],
]);

const content = document.getElementById("content");
let leaving = null;

function show() {
    if (location.hash === "#content") return; // the skip link
    leaving?.abort();
    leaving = new AbortController();
    const { parts, query } = whereWeAre();
    const [open, entry] = PAGES.get(parts[0] ?? "") ?? [openNothing, null];
    for (const anchor of document.querySelectorAll("#navigation a")) {
        if (anchor.dataset.entry === entry) {
            anchor.setAttribute("aria-current", "page");
            anchor.scrollIntoView({ block: "nearest", inline: "nearest" });
        } else anchor.removeAttribute("aria-current");
    }
    const notice = make("div", { class: "notice", role: "alert", hidden: true });
    const container = make("div");
    refill(content, notice, container);
    document.title = ["Headwater", ...parts].reverse().join(" - ");
    const reporter = reporterFor(notice);
    const problem = reporter("page");
    open({ container, parts: parts.slice(1), query, signal: leaving.signal, problem, reporter });
}

/**
 * Shows errors by their source: a refresh that succeeded does not hide the error of a button.
 */
function reporterFor(notice) {
    const errors = new Map();
    return (source) => (error) => {
        if (error) errors.set(source, explained(error));
        else errors.delete(source);
        const text = [...new Set(errors.values())].join(" ");
        notice.hidden = !text;
        if (notice.textContent !== text) notice.textContent = text;
    };
}

function explained(error) {
    if (error instanceof Mistake) return error.message;
    if (!(error instanceof ApiError)) return `Something went wrong in this page: ${error.message}`;
    if (error.status === 401) return "A key is needed. Press Key above to give one.";
    if (error.status === 403) return `${error.message}. Press Key above to use another one.`;
    return `${error.message} (${error.code})`;
}

function openNothing({ container }) {
    refill(
        container,
        make("h1", {}, "There is no such page"),
        make("p", {}, make("a", { href: "#/" }, "To the overview")),
    );
}

function start() {
    const anchors = MENU.map(({ path, title, letter }) =>
        make(
            "a",
            {
                href: address(...path),
                "data-entry": path[0] ?? "",
                "aria-keyshortcuts": `g ${letter}`,
            },
            title,
        ),
    );
    document.getElementById("navigation").append(...anchors);
    const theme = document.getElementById("theme");
    startTheme(theme);
    startKeyboard(MENU, { help: document.getElementById("shortcuts"), theme });
    document.querySelector(".skip").addEventListener("click", (event) => {
        event.preventDefault();
        content.focus();
    });
    document.getElementById("key").addEventListener("click", async () => {
        await askForKey("Requests are sent with this key from now on.");
        show();
    });
    window.addEventListener("hashchange", () => {
        show();
        window.scrollTo(0, 0);
    });
    watchStatus(document.getElementById("pulse"));
    show();
}

start();
