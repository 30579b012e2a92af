"""The server side of the control-plane APIs: the embedded control plane, which serves Linkerd's gRPC APIs from manifests.

The client side is the package control. A sidecar never imports this one.

The way of a manifest, from left to right:

    store.folder → store.file → manifests.reading → store.store → store.snapshot → answers.topics → rpc
    which files     chunks       Values, schema,     last good     immutable,       a question is     bytes
    have changed    that changed kind.read → model   per object    indexed          answered once     to streams

- **A kind** is one file of `kinds/`: a `Kind` (manifests/kind.py) with group, versions, schema, reader and tables. The
  reader turns a `Document` that its schema found nothing wrong with into a frozen dataclass derived from `Resource`.
  `kinds/catalog.py` lists all kinds, those passed over, and those refused because nobody here would enforce them.
- **A table** is an index of one kind: it says under which keys an object is found. `View.one(KIND, key)` and
  `View.found(TABLE, key)` are the only ways in which an answer may look at the state.
- **A question** (answers/question.py) is what a client asked, a frozen dataclass. `answer(view)` is its answer by one
  state, a value; `messages(told, now)` is what to send to one who was told another. Because the view notes what an
  answer read, only questions that a change concerns are answered again, and equal answers wake nobody.
- **What is wrong** is a `Fault` with line and path; it costs no more than its object, of which the last good state
  stays. A kind that `restricts` is different at the start only: without its last good state more would be let in, so
  that the start is refused.

Reading happens in a thread (store/manifests.py). Topics and whatever follows belong to the loop, but for answers and
messages that take long, which threads make from a snapshot (answers/work.py).
"""
