// Following topics live. `EventSource` cannot send a key, so the stream is fetched and read here.

import { LostError, post, send } from "./api.js";
import { whenReachable } from "./connection.js";
import { pause } from "./live.js";

/** The events of a stream, as `{name, data}`. Comments and half frames are passed over. */
export async function* events(stream, parse = JSON.parse) {
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        rest += value;
        const frames = rest.split("\n\n");
        rest = frames.pop();
        for (const frame of frames) {
            const event = parsed(frame, parse);
            if (event) yield event;
        }
    }
}

function parsed(frame, parse) {
    let name = "message";
    const lines = [];
    for (const line of frame.split("\n")) {
        if (line.startsWith("event: ")) name = line.slice(7);
        else if (line.startsWith("data: ")) lines.push(line.slice(6));
    }
    return lines.length ? { name, data: parse(lines.join("\n")) } : null;
}

/**
 * Follow one topic from a seq on until the signal ends, through restarts of the server: a stream
 * that ended is opened again behind the last record that came.
 */
export async function follow(topic, fromSeq, { match, parse, signal }, onEvent) {
    let seq = fromSeq;
    while (!signal.aborted) {
        try {
            await whenReachable();
            const options = { topics: { [topic]: { from_seq: seq } }, include_tags: true };
            if (match) options.match = match;
            const watch = await post("/v0/watch", options, { signal });
            const answer = await send("GET", watch.stream_url, undefined, {
                signal,
                headers: { accept: "text/event-stream" },
            });
            onEvent({ name: "open" });
            for await (const event of events(answer.body, parse)) {
                if (event.name === "record") seq = event.data.to_seq;
                if (event.name === "caught-up") seq = Math.max(seq, event.data.seq);
                onEvent(event);
            }
        } catch (error) {
            if (signal.aborted) return;
            if (!(error instanceof LostError || error instanceof TypeError)) throw error;
        }
        onEvent({ name: "closed" });
        await pause(500, signal);
    }
}
