#!/bin/bash
# Weights come out as a safetensors file that an independent reader loads: its
# own forward pass finds the accuracy that the service reports. Logs too.
. "$(dirname "$0")/lib.sh"
need jq
python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import numpy' 2>/dev/null && python=$candidate && break
done
[ -n "$python" ] || skip "no python3 with numpy"

start_gemsd
start_worker node1 cpu:2:1
"$python" "$top_src/tests/integration/make_shapes.py" "$work" || fail "no data"
cat >"$work/job.yaml" <<END
name: shapes
model: {zoo: resnet, version: 1, depth: 20, classes: 4}
data: {format: idx, train: shapes-train, eval: shapes-eval, size: [16, 16], channels: 1, mean: 0.3, std: 0.4}
train: {epochs: 2, batch: 16, lr: 0.05, schedule: cosine}
parallel: {schedule: gems-mast, stages: 2}
checkpoint: {every_epochs: 1, keep: 5}
END
compare() { # further options of submit
    local job reported found
    job=$(client submit "$work/job.yaml" "$@" --wait) || fail "the job fails: $*"
    client fetch "$job" -o "$work/w.safetensors" || fail "fetch fails"
    "$python" "$top_src/tests/integration/safetensors_reader.py" "$work/w.safetensors" \
        "$work/shapes-eval" >"$work/found" || fail "the reader fails: $(cat "$work/found")"
    found=$(sed -n 's/^accuracy //p' "$work/found")
    reported=$(json .job.eval_accuracy status "$job")
    say "$*: reported $reported, found $found"
    # Of 200 images at most one may tip over in other arithmetic.
    awk -v a="$reported" -v b="$found" 'BEGIN { exit !(a > 0.4 && a - b <= 0.0051 && b - a <= 0.0051) }' ||
        fail "reported $reported, found $found"
    [ "$(sed -n 's/^weights_hash //p' "$work/found")" = "$(json .job.weights_hash status "$job")" ] ||
        fail "the file names another hash"
    last=$job
}
compare
compare --set model.version=2 --set parallel.schedule=single --set parallel.stages=auto

say "choice of the checkpoint"
compgen -G "$work/w.safetensors.*" >/dev/null && fail "a temporary file is left"
client fetch "$last" -o "$work/best.safetensors" --best >/dev/null || fail "fetch --best fails"
step=$(json '.checkpoints | min_by(.step).step' checkpoints "$last")
client fetch "$last" -o "$work/step.safetensors" --step "$step" >/dev/null || fail "fetch --step fails"
cmp -s "$work/step.safetensors" "$work/w.safetensors" && fail "step $step is the last one"
expect 3 . client fetch "$last" -o /nowhere/w.safetensors

say "logs"
client logs "$last" >"$work/all" || fail "logs fails"
client logs "$last" --rank 0 >"$work/rank0" || fail "logs --rank fails"
[ -s "$work/rank0" ] || fail "rank 0 has no log"
grep -q '^\[0\] ' "$work/all" || fail "lines of ranks are not marked"
[ "$(client logs "$last" --rank 0 --tail 1 | wc -l)" -eq 1 ] || fail "--tail 1 is not a line"
timeout 20 "$bin/gems-client" --connect "unix:$sock" logs "$last" -f >"$work/followed" ||
    fail "logs -f of a job that is over does not end"
cmp "$work/all" "$work/followed" || fail "logs -f differs"
done_ok
