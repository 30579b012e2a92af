# The log of a client's sidecar: it starts, a service's endpoints come and go, requests fail, it ends.
manifests=$(mktemp -d)
state=$(mktemp -d)
cp examples/web.yaml "$manifests"
"$SPONSON" mesh serve --dir "$manifests" --state-dir "$state" --addr 127.0.0.1:18086 2>/dev/null &
control=$!
"$SPONSON" mesh env --state-dir "$state" --addr 127.0.0.1:18086 --service-account client --outbound-port 14140 \
    -- "$SPONSON" run &
sidecar=$!
ask() {
    curl -s -m 9 -o /dev/null --retry 9 --retry-connrefused -x http://127.0.0.1:14140 "$1"
}
ask http://web.default.svc.cluster.local/       # nobody listens at its only endpoint
ask http://webb.default.svc.cluster.local/      # a service that is not there
ask http://web.default.svc.cluster.local:8080/  # a port that the service does not have
ask http://no-such-name.invalid/
rm "$manifests/web.yaml"
sleep 2
kill "$sidecar"
wait "$sidecar"
kill "$control"
wait "$control"
rm -r "$manifests" "$state"
