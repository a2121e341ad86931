"""Sends JSON to addresses that are not ours: webhooks."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.client.http.address import cause_of


class Poster:
    """One connection pool. What the addresses answer is not read."""

    def __init__(self, timeout_s: float) -> None:
        import httpx

        self._http = httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=timeout_s)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """The status; 0 and why when there was no answer."""
        import httpx

        try:
            request = self._http.build_request("POST", url, content=body, headers=dict(headers))
            response = await self._http.send(request, stream=True)
            await response.aclose()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return 0, cause_of(error)
        return response.status_code, response.reason_phrase

    async def close(self) -> None:
        await self._http.aclose()
