"""The process of one reward worker on this machine.

    python -m rewards.worker_process FD      (rewards.local_worker starts it; FD is a connected socket)

The connection is its life: when it closes, because the owner has ended or has died, the process ends at once,
whatever it is doing, and its sandbox and tools with it.
"""

from __future__ import annotations

import gc
import os
import queue
import socket
import sys
import threading


def serve(connection: socket.socket) -> None:
    """Score what comes, one after another, until the owner has gone."""
    # What is imported stays: to look through it for garbage takes a fifth of the time.
    gc.disable()
    from rewards.local_worker import Answer, Call, Cancel, receive, send
    from rewards.worker import RewardWorker

    gc.freeze()
    gc.enable()
    calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
    cancelled: set[int] = set()
    rewards, execution = receive(connection)

    def listen() -> None:
        try:
            while True:
                message = receive(connection)
                if isinstance(message, Cancel):
                    cancelled.add(message.call_id)
                else:
                    calls.put(message)
        except EOFError:
            # In the middle of a score, perhaps: its processes end with this one.
            os._exit(0)

    threading.Thread(target=listen, name="owner", daemon=True).start()
    worker = RewardWorker(rewards, execution)
    while True:
        call = calls.get()
        answer = Answer(call_id=call.call_id)
        if call.call_id not in cancelled:
            try:
                value = worker.describe() if call.task is None else worker.score(call.task, call.text)
                answer = Answer(call_id=call.call_id, value=value)
            except Exception as error:
                answer = Answer(call_id=call.call_id, error=f"{type(error).__name__}: {error}")
        cancelled.discard(call.call_id)
        send(connection, answer)


def main() -> None:
    """Serve the inherited descriptor, which no child of this process shall hold."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    serve(connection)


if __name__ == "__main__":
    main()
