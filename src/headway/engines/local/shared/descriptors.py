"""Descriptors that one process hands to another through a Unix socket, one at a time.

`socket` can do this too. But it makes enums of all constants of sockets, which takes a tenth of what a short job of
Slurm may take; so the processes of a node use `_socket`, of which it is made.
"""

from __future__ import annotations

import _socket
import sys

_SIZE = 4


def send(connected: _socket.socket, said: bytes | memoryview, file: int) -> None:
    """Send a few bytes, and a descriptor with them.

    Raises:
        OSError: the other side is gone, or there is no room just now.
    """
    connected.sendmsg([said], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, file.to_bytes(_SIZE, sys.byteorder))])


def receive(connected: _socket.socket, size: int) -> tuple[bytes, int | None]:
    """At most so many bytes, none at the end; and the descriptor that came with them, which no program inherits.

    Raises:
        OSError: nothing can be received.
    """
    said, sent, _, _ = connected.recvmsg(size, _socket.CMSG_LEN(_SIZE), _socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in sent:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS) and len(content) == _SIZE:
            return said, int.from_bytes(content, sys.byteorder)
    return said, None
