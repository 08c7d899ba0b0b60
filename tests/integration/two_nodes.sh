#!/bin/bash
# Two nodes in two network namespaces joined by a veth pair, gemsd in a third;
# agents and ranks come over TLS, ranks speak UCX over tcp: a job with a stage on
# each node trains, and its bytes are seen to cross the veth.
. "$(dirname "$0")/lib.sh"
need jq ip openssl
[ "$(id -u)" = 0 ] || skip "needs root for network namespaces"
spaces=()
make_space() {
    ip netns add "$1" 2>"$work/netns.out" || skip "no network namespaces: $(cat "$work/netns.out")"
    spaces+=("$1")
    ip -n "$1" link set lo up
}
at_end() {
    local space
    for space in "${spaces[@]}"; do
        ip netns del "$space"
    done
}

# d: gemsd, 10.77.0.1/.2 to a and b; a and b: 10.77.2.1 -- 10.77.2.2
d=gems-d-$$ a=gems-a-$$ b=gems-b-$$
make_space "$d"
make_space "$a"
make_space "$b"
join() { # SPACE NAME ADDRESS SPACE NAME ADDRESS
    ip link add "$2" netns "$1" type veth peer name "$5" netns "$4" || skip "no veth"
    ip -n "$1" addr add "$3" dev "$2"
    ip -n "$4" addr add "$6" dev "$5"
    ip -n "$1" link set "$2" up
    ip -n "$4" link set "$5" up
}
join "$d" to-a 10.77.0.1/24 "$a" to-d 10.77.0.2/24
join "$d" to-b 10.77.1.1/24 "$b" to-d 10.77.1.2/24
join "$a" to-b 10.77.2.1/24 "$b" to-a 10.77.2.2/24

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=gemsd \
    -addext subjectAltName=IP:10.77.0.1,IP:10.77.1.1 -keyout "$work/key.pem" -out "$work/cert.pem" \
    2>"$work/openssl.out" || fail "openssl: $(cat "$work/openssl.out")"
token=$(openssl rand -hex 32)
printf '%s\n' "$token" >"$work/token"
printf '%s worker nodes\n' "$(printf '%s' "$token" | sha256sum | cut -d' ' -f1)" >"$work/tokens"
chmod 600 "$work/token" "$work/tokens"

say "gemsd without TLS does not listen, with it it does"
ip netns exec "$d" "$bin/gemsd" --state-dir "$work/state" --socket "$sock" --listen '*:7117' \
    --tls-cert "$work/cert.pem" --tls-key "$work/key.pem" --tokens "$work/tokens" 2>"$work/gemsd.log" &
gemsd_pid=$!
wait_until 20 "gemsd" client nodes

start_node() { # SPACE NAME GEMSD DEVICE
    UCX_TLS=tcp,self UCX_NET_DEVICES=$4 ip netns exec "$1" "$bin/gems-worker" --state-dir "$work/$2" \
        --connect "tcp:$3:7117" --tls-ca "$work/cert.pem" --token-file "$work/token" --name "$2" \
        --devices cpu:1:1 2>"$work/$2.log" &
}
start_node "$a" node-a 10.77.0.1 to-b
start_node "$b" node-b 10.77.1.1 to-a
wait_until 30 "node-a" has_node node-a
wait_until 30 "node-b" has_node node-b

say "a node with a wrong token stays outside"
printf '%s\n' "$(openssl rand -hex 32)" >"$work/wrong"
ip netns exec "$b" "$bin/gems-worker" --state-dir "$work/intruder" --connect tcp:10.77.1.1:7117 \
    --tls-ca "$work/cert.pem" --token-file "$work/wrong" --name intruder --devices cpu:1:1 \
    >"$work/intruder.out" 2>&1 &
intruder=$!
sleep 2
kill $intruder 2>/dev/null
has_node intruder && fail "a wrong token lets a node in"

# both directions, as the kernel counts them
crossed() {
    ip -n "$a" -j -s link show dev to-b | jq '.[0].stats64 | .rx.bytes + .tx.bytes'
}
write_job "$work/job.yaml"
before=$(crossed)
job=$(client submit "$work/job.yaml" --set parallel.schedule=layer --set parallel.stages=2 --wait) || {
    client status "$job"
    client logs "$job" --tail 20
    fail "the job does not succeed"
}
bytes=$(($(crossed) - before))
nodes=$(json '[.ranks[].node] | sort | join(" ")' status "$job")
[ "$nodes" = "node-a node-b" ] || fail "ranks are on: $nodes"
# Every step carries an activation and its gradient of 12 samples over the cut: at
# the least 12 x 4 x 64 x 3 x 3 bytes each way, behind the last stack.
steps=$(json .job.steps_total status "$job")
least=$((steps * 2 * 12 * 4 * 64 * 3 * 3))
say "$bytes bytes crossed the veth in $steps steps, at least $least were to be expected"
[ "$bytes" -ge "$least" ] || fail "the tensors took another way"

say "the same weights as on one node"
two=$(json .job.weights_hash status "$job")
job=$(client submit "$work/job.yaml" --set parallel.schedule=single --wait) || fail "single fails"
[ "$(json .job.weights_hash status "$job")" = "$two" ] || fail "two nodes: other weights"
done_ok
