"""What an agent's program might do; run inside the sandbox by demo.py. Plain sockets: it honours no proxy and asks nobody."""
import socket
import ssl
import sys
import time

started = time.monotonic()
print("sandbox started %.1f ms after the command was typed" % ((started - float(sys.argv[1])) * 1000))


def fetch(host, name):
    """One HTTPS request to HOST, calling it NAME."""
    context = ssl.create_default_context(cafile=sys.argv[2])
    with socket.create_connection((host, 443), 5) as raw, context.wrap_socket(raw, server_hostname=name) as tls:
        tls.sendall(b"GET /v1/models HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % name.encode())
        return tls.recv(4096).split(b"\r\n")[0].decode()


def attempt(what, action):
    start = time.monotonic()
    try:
        result = "reached: %s" % action()
    except OSError as e:
        result = "refused: %s" % (e.strerror or e)
    print("  %-52s %-44s %6.1f ms" % (what, result, (time.monotonic() - start) * 1000))


api = socket.getaddrinfo("api.openai.com", 443, socket.AF_INET)[0][4][0]
attempt("an allowed host, api.openai.com, over TLS", lambda: fetch("api.openai.com", "api.openai.com"))
attempt("a host that is not on the list, pastebin.com", lambda: fetch("pastebin.com", "pastebin.com"))
attempt("cloud metadata, 169.254.169.254:80", lambda: socket.create_connection(("169.254.169.254", 80), 5))
attempt("a raw address, 11.66.0.9:443", lambda: socket.create_connection(("11.66.0.9", 443), 5))
attempt("the allowed address %s, with another SNI" % api, lambda: fetch(api, "pastebin.com"))
