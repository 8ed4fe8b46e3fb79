"""A proxy between storage-s3 and its store that goes wrong as a seed says. It forwards the Host header as it came, so that
signatures hold.

Faults, each for a share of the requests: slow (held back before or after), lost (cut before the store saw it), mute (done, and the
answer is dropped), half (done, and the answer is cut), late (cut now, done some time later), and answers of its own: 409, 412, 429,
500, 503, made up without asking the store; for listings also garbage with status 200.
"""
import random
import socket
import threading
import time

FAULTS = ["slow", "lost", "mute", "half", "late", "409", "412", "429", "500", "503", "garbage"]
CODES = {"409": "ConditionalRequestConflict", "412": "PreconditionFailed", "429": "TooManyRequests", "500": "InternalError",
         "503": "SlowDown"}
LATE_S = 0.3    # well after the client has begun to settle
SLOW_S = 0.05


def read_request(sock, buffer):
    """One request off a socket: (request line, all of its bytes), or None at its end."""
    while b"\r\n\r\n" not in buffer:
        piece = sock.recv(65536)
        if not piece:
            return None
        buffer += piece
    head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict((k.lower(), v.strip()) for k, v in (line.split(":", 1) for line in lines[1:]))
    size = int(headers.get("content-length", 0))
    while len(rest) < size:
        piece = sock.recv(65536)
        if not piece:
            return None
        rest += piece
    buffer[:] = rest[size:]
    return lines[0], head + b"\r\n\r\n" + rest[:size]


class Proxy:
    def __init__(self, endpoint, seed, share=0.1, faults=FAULTS, tls=None):   # tls: an ssl.SSLContext to serve with
        host, port = endpoint.removeprefix("http://").rsplit(":", 1)
        self.store = (host, int(port))
        self.share, self.faults, self.tls = share, faults, tls
        self.dice = random.Random(seed)
        self.lock = threading.Lock()
        self.made = {}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{self.listener.getsockname()[1]}"
        self.ending = threading.Event()
        self.late = 0                        # requests that are to land later
        self.landed = threading.Condition(self.lock)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.ending.set()
        self.listener.close()

    def _accept(self):
        while not self.ending.is_set():
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _fault(self, line):
        with self.lock:
            if self.dice.random() >= self.share:
                return None
            fault = self.dice.choice(self.faults)
            if fault == "garbage" and "list-type=2" not in line:
                return None
            # One that lands behind a new write of that key takes it away; nothing here writes a key again that it deleted.
            if fault == "late" and line.startswith("DELETE"):
                return None
            # A store that says so of what nobody wrote is refused at the start, rightly.
            if fault == "412" and (not line.startswith("PUT") or ".probe/" in line):
                return None
            self.made[fault] = self.made.get(fault, 0) + 1
            return fault

    def _ask(self, whole):
        """The store's whole answer, in whatever way it tells its length: it closes the connection behind it."""
        with socket.create_connection(self.store, timeout=30) as store:
            store.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            store.sendall(whole.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            answer = b""
            while piece := store.recv(65536):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        return b"\r\n".join(lines) + b"\r\n\r\n" + body if head else b""

    def _later(self, whole):
        time.sleep(LATE_S)   # the fault itself: nobody waits for it
        try:
            self._ask(whole)
        except OSError:
            pass
        with self.lock:
            self.late -= 1
            self.landed.notify_all()

    def _serve(self, client):
        buffer = bytearray()
        try:
            if self.tls:
                client = self.tls.wrap_socket(client, server_side=True)
            with client:
                while self._one(client, buffer):
                    pass
        except OSError:
            client.close()   # either side is gone: so is this connection

    def _one(self, client, buffer):
        message = read_request(client, buffer)
        if message is None:
            return False
        line, whole = message
        is_head = line.startswith("HEAD")
        if line.startswith("DELETE"):
            # A write that lands behind the delete of its key brings it back. The contract does not speak of that, and its cases
            # check that what they deleted is gone; who reads a log does not believe what a base covers.
            with self.lock:
                self.landed.wait_for(lambda: self.late == 0 or self.ending.is_set(), timeout=10)
        fault = self._fault(line)
        if fault == "lost":
            return False
        if fault == "late":
            with self.lock:
                self.late += 1
            threading.Thread(target=self._later, args=(whole,), daemon=True).start()
            return False
        if fault in CODES:
            body = f"<Error><Code>{CODES[fault]}</Code><Message>of the proxy</Message></Error>".encode()
            client.sendall(f"HTTP/1.1 {fault} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + (b"" if is_head else body))
            return True
        if fault == "garbage":
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>hi</html>")
            return True
        if fault == "slow":
            time.sleep(SLOW_S)   # the fault itself
        answer = self._ask(whole)
        if not answer or fault == "mute":
            return False
        if fault == "half":
            client.sendall(answer[:-1])
            return False
        client.sendall(answer)
        return True
