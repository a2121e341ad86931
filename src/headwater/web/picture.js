// A drawing the server makes, shown as a picture: nothing in it can run, whatever it says.

import { send } from "./api.js";

/** Load a drawing into an image; the one before is let go. */
export async function showPicture(image, path, signal) {
    const answer = await send("GET", path, undefined, { signal });
    const address = URL.createObjectURL(
        new Blob([await answer.arrayBuffer()], { type: "image/svg+xml" }),
    );
    const before = image.src;
    image.src = address;
    if (before.startsWith("blob:")) URL.revokeObjectURL(before);
    signal.addEventListener("abort", () => URL.revokeObjectURL(address), { once: true });
}
