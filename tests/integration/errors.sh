#!/bin/bash
# What goes wrong at a user's hands: the words, the exit code, and a gemsd that
# answers as before.
. "$(dirname "$0")/lib.sh"
need jq python3

start_gemsd
start_worker node1 cpu:2:1 --data-roots "$work"
write_job "$work/job.yaml"

alive() {
    kill -0 "$gemsd_pid" 2>/dev/null || fail "gemsd is gone after: $1"
    client nodes >/dev/null || fail "gemsd does not answer after: $1"
}

# fails CLASS PATTERN ARGUMENT...: the job is refused at submit (exit 2, 3 or 7), or it fails
# with that class; the pattern is in what is said.
fails() {
    local class=$1 pattern=$2 job output status
    shift 2
    output=$(client submit "$@" 2>&1)
    status=$?
    if [ $status -eq 0 ]; then
        job=$output
        wait_until 60 "job $job to end" is_over "$job"
        output=$(json '.job.state + " " + .job.failure_class + " " + .job.reason' status "$job")
        [[ $output == "FAILED $class "* ]] || fail "not FAILED by $class: $output"
    elif [ $status -ne 2 ] && [ $status -ne 3 ] && [ $status -ne 7 ]; then
        fail "submit ends with $status: $output"
    fi
    grep -Eqi -- "$pattern" <<<"$output" || fail "no '$pattern' in: $output"
    say "$output"
    alive "$*"
}

say "the job file"
expect 2 'nothere.yaml: No such file' client submit "$work/nothere.yaml"
sed 's/depth: 20/dept: 20/' "$work/job.yaml" >"$work/bad.yaml"
expect 2 'bad.yaml:2:34: model.dept: unknown key' client submit "$work/bad.yaml"
expect 2 'did you mean depth' client submit "$work/bad.yaml"
expect 2 '--set parallel.stages: 12 stages for a model of 11 layers' \
    client submit "$work/job.yaml" --set parallel.stages=12 --set parallel.schedule=layer
expect 2 'not in this version' client submit "$work/job.yaml" --set parallel.schedule=v-min
expect 2 'chimera runs on an even number of stages, not on 3' client submit "$work/job.yaml" \
    --set parallel.schedule=chimera --set parallel.stages=3
expect 2 'depth 6n\+2' client submit "$work/job.yaml" --set model.depth=21
"$bin/gems-client" plan "$work/job.yaml" --devices 2x1GiB --set data.format=idx \
    --set data.train="$work/nodata" 2>&1 | grep -q "whole batches are assumed ($work/nodata" ||
    fail "an offline plan does not say which data it lacks"
sed 's/, classes: [0-9]*//' "$work/job.yaml" >"$work/bad2.yaml"
expect 2 'model.classes: is missing' client submit "$work/bad2.yaml"
expect 7 'resources.devices: at least 4, there are 2' \
    client plan "$work/job.yaml" --devices 2x1GiB --set parallel.stages=auto \
    --set resources.devices=4 --set parallel.schedule=auto
"$bin/gems-client" --connect "unix:$sock" --json submit "$work/bad.yaml" 2>/dev/null |
    jq -e '.error | .code == "invalid" and (.message | test("unknown key")) and (.hint | length > 0)' \
        >/dev/null || fail "no error object"
alive "bad job files"

say "jobs and nodes that are not there, states that do not allow it"
expect 3 '4711' client status 4711
expect 3 '4711' client cancel 4711
expect 3 'nowhere' client drain nowhere
job=$(client submit "$work/job.yaml" --wait) || fail "the good job fails"
expect 5 'SUCCEEDED' client cancel "$job"
expect 5 '.' client resume "$job"
expect 3 '.' client fetch "$job" -o "$work/x.safetensors" --step 3
[ -e "$work/x.safetensors" ] && fail "a failed fetch leaves a file"
alive "bad requests"

say "one gemsd a socket and a state folder"
"$bin/gemsd" --state-dir "$work/state2" --socket "$sock" >"$work/second" 2>&1
status=$?
[ $status -ne 0 ] || fail "a second gemsd on the same socket"
grep -q 'gemsd.sock: another server answers there' "$work/second" ||
    fail "no word about the socket: $(cat "$work/second")"
"$bin/gemsd" --state-dir "$work/state" --socket "$work/other.sock" >"$work/second" 2>&1 &&
    fail "a second gemsd on the same state folder"
grep -q 'gems.db: another gemsd uses this state directory' "$work/second" ||
    fail "no word about the folder: $(cat "$work/second")"
"$bin/gemsd" --state-dir "$work/state3" --socket "$work/third.sock" --listen 127.0.0.1:0 \
    >"$work/second" 2>&1 && fail "a listener without TLS"
grep -q 'refused without TLS' "$work/second" || fail "no word about TLS: $(cat "$work/second")"
alive "other gemsds"

say "ports in use"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$work/key.pem" -out "$work/cert.pem" \
    2>"$work/openssl.out" || fail "openssl: $(cat "$work/openssl.out")"
python3 - "$work/port" <<'END' &
import socket, sys, time
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
open(sys.argv[1], "w").write(str(s.getsockname()[1]))
time.sleep(30)
END
holder=$!
wait_until 10 "a port" test -s "$work/port"
"$bin/gemsd" --state-dir "$work/state3" --socket "$work/third.sock" --listen "127.0.0.1:$(cat "$work/port")" \
    --tls-cert "$work/cert.pem" --tls-key "$work/key.pem" --tls-ca "$work/cert.pem" >"$work/second" 2>&1 &&
    fail "a port in use is taken"
kill $holder
grep -Eq "$(cat "$work/port").*in use" "$work/second" || fail "no word about the port: $(cat "$work/second")"
alive "a port in use"

say "data"
python3 - "$work" <<'END'
import gzip, os, struct, sys
work = sys.argv[1]

def idx(name, n, labels, size=12):
    with open(f"{work}/{name}-images-idx3-ubyte", "wb") as f:
        f.write(struct.pack(">4i", 2051, n, size, size) + bytes(range(size * size)) * n)
    with open(f"{work}/{name}-labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">2i", 2049, len(labels)) + bytes(labels))

idx("good", 24, [i % 4 for i in range(24)])
idx("short", 24, [0] * 20)             # fewer labels than images
idx("range", 24, [9] * 24)             # labels that the model does not have
idx("empty", 0, [])
with open(f"{work}/magic-images-idx3-ubyte", "wb") as f:
    f.write(b"not an idx file")
os.link(f"{work}/good-labels-idx1-ubyte", f"{work}/magic-labels-idx1-ubyte")
for c in "abcd":
    os.makedirs(f"{work}/folder/{c}")
    os.makedirs(f"{work}/hollow/{c}")
END
sed -e 's/^data:.*/data: {format: idx, train: good, size: [12, 12], channels: 1}/' "$work/job.yaml" \
    >"$work/idx.yaml"
client submit "$work/idx.yaml" --wait >/dev/null || fail "the good idx job fails"
fails data "$work/nothere.*(No such file|not found|missing)" "$work/idx.yaml" --set "data.train=$work/nothere"
fails data 'short-labels-idx1-ubyte.*20.*24|24.*20' "$work/idx.yaml" --set "data.train=$work/short"
fails data 'range-labels-idx1-ubyte.*9' "$work/idx.yaml" --set "data.train=$work/range"
fails data 'empty-images-idx3-ubyte|no images|0 images' "$work/idx.yaml" --set "data.train=$work/empty"
fails data 'magic-images-idx3-ubyte' "$work/idx.yaml" --set "data.train=$work/magic"

say "data that the node does not let jobs read"
ln -s /usr "$work/elsewhere"
for path in "${work%/*}" "${work}x/good" "$work/../good" "$work/elsewhere/good"; do
    expect 4 "data $path: not under the data_roots of this node: $work" \
        client submit "$work/idx.yaml" --set "data.train=$path"
done
expect 4 'set data_roots in gems-worker.conf' \
    client submit "$work/idx.yaml" --set "data.eval=/usr/share/good"
alive "data elsewhere"

say "a truncated JPEG, folders without images"
# 24x24 pixels, whole
base64 -d >"$work/whole.jpg" <<'END'
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAYEBQYFBAYGBQYHBwYIChAKCgkJChQODwwQFxQYGBcUFhYaHSUfGhsjHBYWICwgIyYn
KSopGR8tMC0oMCUoKSj/2wBDAQcHBwoIChMKChMoGhYaKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgo
KCgoKCgoKCj/wAARCAAYABgDASIAAhEBAxEB/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUF
BAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVW
V1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi
4+Tl5ufo6erx8vP09fb3+Pn6/8QAHwEAAwEBAQEBAQEBAQAAAAAAAAECAwQFBgcICQoL/8QAtREAAgECBAQDBAcFBAQAAQJ3AAEC
AxEEBSExBhJBUQdhcRMiMoEIFEKRobHBCSMzUvAVYnLRChYkNOEl8RcYGRomJygpKjU2Nzg5OkNERUZHSElKU1RVVldYWVpjZGVm
Z2hpanN0dXZ3eHl6goOEhYaHiImKkpOUlZaXmJmaoqOkpaanqKmqsrO0tba3uLm6wsPExcbHyMnK0tPU1dbX2Nna4uPk5ebn6Onq
8vP09fb3+Pn6/9oADAMBAAIRAxEAPwDwnSNCV0DuuFHU101jokeF2wjPbcMk/gK39L0oeTENvON2COp6D+tdHY6TuBJ5Bwckfr/9
avThWowowSim2vLXS/Xp0023ehGT5w7rU5yz0ePKERrggcADk/r/ADor0Gz0r7u5SM+3v0/X/wDVRXlVMZHnfKvw/wCA/wBD9Owe
b/ulqM07S/3KBkBGMDjk8Z/kTXRWWl8htgOPr+n6fp6UUV4lTFVFC19rfkv8z+cMmxE7rU6Gy0pSqAR5B4AHTH+f84ySUUVxqcqz
bk9rdF2T6o/TMJiaiprU/9k=
END
for class in a b c d; do
    cp "$work/whole.jpg" "$work/folder/$class/1.jpg"
    cp "$work/whole.jpg" "$work/folder/$class/2.jpg"
done
sed -e 's/^data:.*/data: {format: imagefolder, train: folder, size: [12, 12], channels: 3}/' \
    -e 's/batch: 12/batch: 4/' "$work/job.yaml" >"$work/folder.yaml"
client submit "$work/folder.yaml" --wait >/dev/null || fail "the good folder fails"
head -c 700 "$work/whole.jpg" >"$work/folder/c/2.jpg"
fails data 'folder/c/2.jpg' "$work/folder.yaml"
fails data 'hollow' "$work/folder.yaml" --set "data.train=$work/hollow"
fails data "3|4" "$work/folder.yaml" --set model.classes=3

say "a batch smaller than the number of stages"
job=$(client submit "$work/job.yaml" --set train.batch=1 --set parallel.microbatch=auto \
    --set parallel.schedule=gems-mast --set parallel.stages=2 --set train.epochs=1 --wait) ||
    fail "a batch of one fails"
single=$(client submit "$work/job.yaml" --set train.batch=1 --set parallel.microbatch=auto \
    --set parallel.schedule=single --set train.epochs=1 --wait) || fail "a batch of one fails"
[ "$(json .job.weights_hash status "$job")" = "$(json .job.weights_hash status "$single")" ] ||
    fail "a batch of one: other weights on two stages"
alive "all of it"
done_ok
