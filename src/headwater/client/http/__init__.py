"""HTTP for the clients: the only package that imports httpx, and that late.

`address` has where the server is and what every request carries, and turns httpx's errors into the
package's own: whether a request may be sent again depends on whether it was sent at all.
`async_transport` sends requests and follows streams; `transport`, its blocking twin, is generated
from it. `poster` is for webhooks.

Connections are kept and used again. Proxies named in the environment are not used: a log is near,
and a variable meant for browsers should not send its records elsewhere.
"""

from headwater.client.http.address import Address
from headwater.client.http.async_transport import AsyncHttp, AsyncOpenStream
from headwater.client.http.poster import Poster
from headwater.client.http.transport import BlockingHttp, OpenStream

__all__ = ["Address", "AsyncHttp", "AsyncOpenStream", "BlockingHttp", "OpenStream", "Poster"]
