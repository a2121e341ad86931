// The public API, and nothing but it.

import { lost, notReady, whenReachable } from "./connection.js";
import { askForKey, authorization } from "./key.js";

/** The server answered that it will not: `code` is one of the documented ones. */
export class ApiError extends Error {
    constructor(status, error) {
        super(error.message ?? `the server answered ${status}`);
        this.status = status;
        this.code = error.code ?? "unknown";
        this.detail = error.detail ?? {};
    }
}

/** The server did not answer; `connection` waits for it. */
export class LostError extends Error {}

/** What was typed cannot be sent. */
export class Mistake extends Error {}

export function get(path, options) {
    return ask("GET", path, undefined, options);
}

export function post(path, body, options) {
    return ask("POST", path, body, options);
}

export function put(path, body, options) {
    return ask("PUT", path, body, options);
}

/** Part of a path: a name, whatever is in it. */
export function named(name) {
    return encodeURIComponent(name);
}

/** Send a request and read the response as JSON with `parse`. */
export async function ask(method, path, body, { signal, parse = JSON.parse } = {}) {
    const answer = await send(method, path, body, { signal });
    return parse(await whole(answer));
}

/** Send a request and return the response unread. On 401 the page asks for a key, once. */
export async function send(method, path, body, { signal, headers = {} } = {}) {
    for (let turn = 0; ; turn += 1) {
        await whenReachable();
        const key = authorization().authorization;
        const answer = await fetched(method, path, body, { signal, headers });
        if (answer.ok) return answer;
        const error = await errorOf(answer);
        if (error.status === 401 && turn < 5) {
            // Another key was given while this one was on its way: nobody has refused that one.
            if (authorization().authorization !== key) continue;
            if (await askForKey(reasonFor(error))) continue;
        }
        if (error.code === "not_ready" || error.code === "shutting_down") {
            lost(notReady(error));
            throw new LostError(error.message);
        }
        throw error;
    }
}

async function fetched(method, path, body, { signal, headers }) {
    const options = {
        method,
        signal,
        cache: "no-store",
        headers: { ...authorization(), ...headers },
    };
    if (body !== undefined) {
        options.body = JSON.stringify(body);
        options.headers["content-type"] = "application/json";
    }
    try {
        return await fetch(path, options);
    } catch (error) {
        throw gone(error, signal);
    }
}

async function whole(answer) {
    try {
        return await answer.text();
    } catch (error) {
        throw gone(error);
    }
}

function gone(error, signal) {
    if (signal?.aborted || error.name === "AbortError") return error;
    lost("The server does not answer.");
    return new LostError(String(error));
}

async function errorOf(answer) {
    try {
        return new ApiError(answer.status, (await answer.json()).error ?? {});
    } catch {
        return new ApiError(answer.status, {});
    }
}

function reasonFor(error) {
    return error.message.includes("not known")
        ? "The server does not know the key that was sent."
        : "This server needs a key. A key that may read shows most pages.";
}
