"""The server side of the control-plane APIs: the embedded control plane, which serves Linkerd's gRPC APIs from manifests.

The client side is the package control. A sidecar never imports this one.

The way of a manifest, from left to right:

    store.folder → store.file → manifests.reading → store.store → store.snapshot → answers.topics → rpc
    which files     chunks       Values, schema,     last good     immutable,       a question is     bytes
    have changed    that changed kind.read → model   per object    indexed          answered once     to streams

- **A kind** is one file of `kinds/`: a `Kind` (manifests/kind.py) with group, versions, schema, reader and tables. The
  reader turns a `Document` that is valid by its schema into a frozen dataclass derived from `Resource`.
  `kinds/catalog.py` lists all kinds, those passed over, and those refused because the proxies would not enforce them.
- **A table** is an index of one kind: it says under which keys an object is found. `View.one(KIND, key)` and
  `View.found(TABLE, key)` are the only ways in which an answer may look at the state.
- **A question** (answers/question.py) is what a client asked, as a frozen dataclass. `answer(view)` is its answer in one
  state, a value; `messages(previous, now)` are the messages that lead a client from one answer to another. The view notes
  what an answer read, so that after a change only the questions that it concerns are answered again, and a stream is sent
  something only if its answer has changed.
- **An error** is a `Fault` with line and path. It affects only its own object, whose last good state stays. A kind that
  `restricts` is an exception at the start: without its last good state more would be let in, so the start is refused.

Reading happens in a thread (store/manifests.py). Topics and what follows them belong to the loop, except for answers and
messages that take long, which threads make from a snapshot (answers/work.py).
"""
