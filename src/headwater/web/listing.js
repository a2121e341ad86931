// A page of topics, by part of a name and by type.

import { get } from "./api.js";

const PAGE_SIZE = 100;

/**
 * Topics after a cursor, and the cursor after them. The server scans so many names at a time: a
 * search with few matches goes on until there is enough to show, or no more.
 */
export async function listTopics({ contains, type, cursor }, signal) {
    const topics = [];
    do {
        const wishes = new URLSearchParams({ page_size: PAGE_SIZE });
        for (const [name, value] of Object.entries({ contains, type, cursor })) {
            if (value) wishes.set(name, value);
        }
        const page = await get(`/v0/topics?${wishes}`, { signal });
        topics.push(...page.topics);
        cursor = page.next_cursor ?? null;
    } while (cursor !== null && topics.length < PAGE_SIZE);
    return { topics, next: cursor };
}
