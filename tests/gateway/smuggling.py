"""Requests and responses made to be understood differently by two parsers, and what the gateway makes of them.

The request corpus has two halves: `REFUSED` must end in an error, and nothing behind it may be read; `READ` is
unusual but has one meaning, given as (method, path, body) of each request.
"""

POST = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n"
WEBSOCKET = (
    b"GET /v1/completions HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
OLD = POST.replace(b"1.1", b"1.0")
_EMPTY = b"\r\n0\r\n\r\n"

REFUSED = {
    "both lengths": POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n" + _EMPTY,
    "both lengths turned": POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n" + _EMPTY,
    "both lengths, one zero": POST + b"content-length: 0\r\ntransfer-encoding: chunked\r\n" + _EMPTY,
    "both lengths, old version": OLD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n" + _EMPTY,
    "chunked in an old version": OLD + b"connection: keep-alive\r\ntransfer-encoding: chunked\r\n" + _EMPTY,
    "length twice": POST + b"content-length: 5\r\ncontent-length: 5\r\n\r\nhello",
    "two lengths": POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
    "length list": POST + b"content-length: 5, 5\r\n\r\nhello",
    "negative length": POST + b"content-length: -5\r\n\r\nhello",
    "signed length": POST + b"content-length: +5\r\n\r\nhello",
    "hex length": POST + b"content-length: 0x5\r\n\r\nhello",
    "length with a blank": POST + b"content-length: 5 0\r\n\r\nhello",
    "empty length": POST + b"content-length: \r\n\r\nhello",
    "superscript length": POST + b"content-length: \xb2\r\n\r\nhello",
    "endless length": POST + b"content-length: 99999999999999999999\r\n\r\nhello",
    "length that wraps to 5": POST + b"content-length: 18446744073709551621\r\n\r\nhello",
    "underscore length": POST + b"content_length: 5\r\ncontent-length : 5\r\n\r\nhello",
    "other coding": POST + b"transfer-encoding: gzip\r\n" + _EMPTY,
    "identity coding": POST + b"transfer-encoding: identity\r\n" + _EMPTY,
    "two codings": POST + b"transfer-encoding: gzip, chunked\r\n" + _EMPTY,
    "codings turned": POST + b"transfer-encoding: chunked, gzip\r\n" + _EMPTY,
    "chunked twice in one": POST + b"transfer-encoding: chunked, chunked\r\n" + _EMPTY,
    "coding with parameters": POST + b"transfer-encoding: chunked;a=b\r\n" + _EMPTY,
    "such a coding, then chunked": POST + b"transfer-encoding: chunked;a\r\ntransfer-encoding: chunked\r\n" + _EMPTY,
    "quoted coding": POST + b'transfer-encoding: "chunked"\r\n' + _EMPTY,
    "empty coding": POST + b"transfer-encoding: \r\n" + _EMPTY,
    "disguised coding": POST + b"transfer-encoding: xchunked\r\n" + _EMPTY,
    "coding behind a vertical tab": POST + b"transfer-encoding:\x0bchunked\r\n" + _EMPTY,
    "coding with NUL": POST + b"transfer-encoding: chunked\x00\r\n" + _EMPTY,
    "coding folded": POST + b"transfer-encoding:\r\n chunked\r\n" + _EMPTY,
    "coding behind a bare CR": POST + b"x: y\rtransfer-encoding: chunked\r\n" + _EMPTY,
    "coding twice": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: x\r\n" + _EMPTY,
    "chunked twice": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n" + _EMPTY,
    "blank before colon": POST + b"content-length : 5\r\n\r\nhello",
    "blank before coding's colon": POST + b"transfer-encoding : chunked\r\n" + _EMPTY,
    "blank before name": POST + b" content-length: 5\r\n\r\nhello",
    "first header folded": b"POST / HTTP/1.1\r\n host: a\r\n\r\n",
    "folded header": POST + b"x: a\r\n b\r\n\r\n",
    "name without colon": POST + b"x\r\n\r\n",
    "no name": POST + b": x\r\n\r\n",
    "name with NUL": POST + b"content-le\x00ngth: 5\r\n\r\n",
    "bare line feeds": b"POST / HTTP/1.1\nhost: a\ncontent-length: 5\n\nhello",
    "one bare line feed": POST + b"x: y\ncontent-length: 5\r\n\r\nhello",
    "head ends with bare line feeds": POST[:-2] + b"\n\nGET /a HTTP/1.1\r\nhost: a\r\n\r\n",
    "bare line feeds in chunks": CHUNKED + b"5\nhello\n0\n\n",
    "line feed in a chunk extension": CHUNKED + b"5;\nxx\r\nhello\r\n0\r\n\r\n",
    "bare CR in a chunk extension": CHUNKED + b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "prefixed chunk size": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "signed chunk size": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
    "negative chunk size": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "empty chunk size": CHUNKED + b"\r\nhello\r\n0\r\n\r\n",
    "chunk size with a blank": CHUNKED + b"5 0\r\nhello\r\n0\r\n\r\n",
    "chunk size that wraps": CHUNKED + b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "chunk longer than said": CHUNKED + b"4\r\nhello\r\n0\r\n\r\n",
    "chunk end missing": CHUNKED + b"5\r\nhello0\r\n\r\n",
    "chunk end is a bare line feed": CHUNKED + b"5\r\nhello\n0\r\n\r\n",
    "trailer with a length": CHUNKED + b"0\r\ncontent-length : 5\r\n\r\n",
    "null byte": b"GET / HTTP/1.1\r\nhost: a\x00b\r\n\r\n",
    "host twice": b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "class twice": POST + b"x-paceline-class: batch\r\nx-paceline-class: interactive\r\n\r\n",
    "key twice": POST + b"authorization: x\r\nauthorization: y\r\n\r\n",
    "bad method": b"P@ST / HTTP/1.1\r\nhost: a\r\n\r\n",
    "small method": b"post / HTTP/1.1\r\nhost: a\r\n\r\n",
    "no method": b" / HTTP/1.1\r\nhost: a\r\n\r\n",
    "no target": b"GET  HTTP/1.1\r\nhost: a\r\n\r\n",
    "target with a blank": b"GET /a b HTTP/1.1\r\nhost: a\r\n\r\n",
    "no version": b"GET /\r\nhost: a\r\n\r\n",
    "bad version": b"GET / HTTP/3.7\r\nhost: a\r\n\r\n",
    "version 2.0": b"GET / HTTP/2.0\r\nhost: a\r\n\r\n",
    "version 0.9": b"GET / HTTP/0.9\r\nhost: a\r\n\r\n",
    "version with more digits": b"GET / HTTP/1.10\r\nhost: a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "upgrade to HTTP/2": b"GET / HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    "WebSocket with a body": WEBSOCKET + b"sec-websocket-version: 13\r\ncontent-length: 5\r\n\r\nhello",
    "WebSocket of another version": WEBSOCKET + b"sec-websocket-version: 8\r\n\r\n",
    "WebSocket without a version": WEBSOCKET + b"\r\n",
    "WebSocket by POST": WEBSOCKET.replace(b"GET", b"POST") + b"sec-websocket-version: 13\r\n\r\n",
    "WebSocket with a bad key": WEBSOCKET.replace(b"AAAA", b"A") + b"sec-websocket-version: 13\r\n\r\n",
    "tunnel": b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n",
}

READ = {
    "body that looks like a request": (
        POST + b"content-length: %d\r\n\r\n" % len(GET) + GET,
        [("POST", "/v1/completions", GET)],
    ),
    "body of a GET": (GET[:-2] + b"content-length: 5\r\n\r\nhello", [("GET", "/v1/models", b"hello")]),
    "chunk that looks like the end": (
        CHUNKED + b"5\r\n0\r\n\r\n\r\n0\r\n\r\n",
        [("POST", "/v1/completions", b"0\r\n\r\n")],
    ),
    "chunk extensions": (CHUNKED + b'5;a=b;c="d"\r\nhello\r\n0;x\r\n\r\n', [("POST", "/v1/completions", b"hello")]),
    "zeros before a chunk's size": (CHUNKED + b"0005\r\nhello\r\n000\r\n\r\n", [("POST", "/v1/completions", b"hello")]),
    "zeros before a length": (POST + b"content-length: 005\r\n\r\nhello", [("POST", "/v1/completions", b"hello")]),
    "trailers": (CHUNKED + b"0\r\nauthorization: x\r\nhost: b\r\n\r\n", [("POST", "/v1/completions", b"")]),
    "coding in capitals": (POST + b"Transfer-Encoding: CHUNKED \r\n" + _EMPTY, [("POST", "/v1/completions", b"")]),
    "length as a connection option": (
        POST + b"connection: content-length\r\ncontent-length: 5\r\n\r\nhello",
        [("POST", "/v1/completions", b"hello")],
    ),
    "absolute target": (b"GET http://b/v1/models HTTP/1.1\r\nhost: a\r\n\r\n", [("GET", "/v1/models", b"")]),
    "absolute target, path in its query": (b"GET http://b?/v1/models HTTP/1.1\r\nhost: a\r\n\r\n", [("GET", "/", b"")]),
    "empty lines first": (b"\r\n\r\n" + GET, [("GET", "/v1/models", b"")]),
    "two after each other": (
        POST + b"content-length: 5\r\n\r\nhello" + GET,
        [("POST", "/v1/completions", b"hello"), ("GET", "/v1/models", b"")],
    ),
    "old and kept": (
        b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n" + GET,
        [("GET", "/a", b""), ("GET", "/v1/models", b"")],
    ),
    "upgrade that nobody asked for": (GET[:-2] + b"upgrade: h2c\r\n\r\n", [("GET", "/v1/models", b"")]),
}

OK = b"HTTP/1.1 200 OK\r\n"
_STREAM = OK + b"transfer-encoding: chunked\r\n\r\n"

RESPONSES: dict[str, tuple[bytes, bytes | None, bool]] = {
    "as it should be": (OK + b"content-length: 5\r\n\r\nhello", b"hello", True),
    "chunked": (_STREAM + b"5\r\nhello\r\n0\r\n\r\n", b"hello", True),
    "until it closes": (OK + b"\r\nhello", b"hello", False),
    "closes by its own word": (OK + b"connection: close\r\ncontent-length: 5\r\n\r\nhello", b"hello", False),
    "shorter than said": (OK + b"content-length: 6\r\n\r\nhello", None, False),
    "longer than said": (OK + b"content-length: 4\r\n\r\nhello", b"hell", False),
    "second answer": ((OK + b"content-length: 5\r\n\r\nhello") * 2, b"hello", False),
    "both lengths": (OK + b"content-length: 5\r\ntransfer-encoding: chunked\r\n" + _EMPTY, None, False),
    "two lengths": (OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!", None, False),
    "negative length": (OK + b"content-length: -5\r\n\r\nhello", None, False),
    "chunk overrun": (_STREAM + b"4\r\nhello\r\n0\r\n\r\n", None, False),
    "chunk cut": (_STREAM + b"5\r\nhel", None, False),
    "last chunk missing": (_STREAM + b"5\r\nhello\r\n", None, False),
    "coding unknown": (OK + b"transfer-encoding: gzip\r\n\r\nhello", None, False),
    "interim first": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 5\r\n\r\nhello", b"hello", True),
    "only interim": (b"HTTP/1.1 103 Early Hints\r\n\r\n", None, False),
    "switches protocol unasked": (b"HTTP/1.1 101 Other\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhello", None, False),
    "body on 204": (b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello", b"", False),
    "body on 304": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\nhello", b"", False),
    "no HTTP": (b"SSH-2.0-x\r\n", None, False),
    "nothing": (b"", None, False),
    "bare line feeds": (b"HTTP/1.1 200 OK\ncontent-length: 5\n\nhello", None, False),
}
"""Bytes, then the end: the body if the answer counts as complete, and whether the connection may be used again."""
