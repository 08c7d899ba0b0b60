#!/bin/bash
# Planning without gemsd: fits or not, the bytes of every rank, drawings, the
# table of schedules; and the exit codes of what cannot be planned.
. "$(dirname "$0")/lib.sh"
need jq
gems() { "$bin/gems-client" "$@"; }

check_shape() { # JQ-CONDITION COMMAND...
    local condition=$1 answer
    shift
    answer=$(gems --json "$@" 2>/dev/null)
    jq -e "$condition" >/dev/null <<<"$answer" || fail "$*: not ($condition): $answer"
}
write_job "$work/job.yaml"

say "every example can be planned"
for example in "$top_src"/examples/*.yaml; do
    gems plan "$example" --devices 2x4GiB >"$work/out" 2>&1 || fail "$example: $(cat "$work/out")"
    grep -q '^fits: ' "$work/out" || fail "$example: $(cat "$work/out")"
done

say "a plan"
check_shape '.fits and .schedule == "gems-mast" and .stages == 3 and .chains == 2 and .groups == 1 and
    .microbatch == 3 and .microbatches == 4 and .recompute == "none" and (.balance | length == 3 and add == 11) and
    .parameters > 200000 and .step_seconds > 0 and .samples_per_second > 0 and .idle_fraction >= 0 and
    .idle_fraction < 1 and (.devices | length == 3 and all(.limit_bytes == 1073741824 and
    .total_bytes == .weights_bytes + .gradients_bytes + .optimizer_bytes + .activations_bytes +
        .buffers_bytes + .workspace_bytes))' \
    plan "$work/job.yaml" --devices 3x1GiB --set parallel.schedule=gems-mast
check_shape '.balance == [4, 4, 3]' plan "$work/job.yaml" --devices 3x1GiB --set parallel.balance=[4,4,3] \
    --set parallel.schedule=layer
check_shape '.stages == 2 and .chunks == 3 and (.devices | length == 2) and .balance == [1, 2, 2, 2, 2, 2]' \
    plan "$work/job.yaml" --devices 2x1GiB --set parallel.schedule=1f1b-interleaved --set parallel.chunks=3 \
    --set parallel.balance=[1,2,2,2,2,2]
check_shape '.devices | length == 1 and .[0].limit_bytes == 52428800' plan "$work/job.yaml" \
    --devices 1GiB --set resources.memory=50MiB
gems plan "$work/job.yaml" --devices 3x1GiB --set parallel.schedule=gpipe --gantt >"$work/out" || fail "--gantt"
[ "$(grep -c '^rank [0-2]  *|[0-9a-j.RUG]*|$' "$work/out")" -eq 3 ] || fail "no drawing: $(cat "$work/out")"

say "drawings and traces of the simulated step"
gems --json plan "$work/job.yaml" --devices 2x1GiB --set parallel.schedule=gems-mast --svg "$work/step.svg" \
    --trace "$work/step.json" >"$work/plan.json" || fail "--svg, --trace"
if command -v python3 >/dev/null; then
    python3 -c 'import sys, xml.dom.minidom as m
svg = m.parse(sys.argv[1]).documentElement
texts = ["".join(c.data for c in t.childNodes) for t in svg.getElementsByTagName("text")]
assert svg.tagName == "svg" and {"rank 0", "rank 1", "forward", "backward, chain 1", "wait"} <= set(texts), texts
' "$work/step.svg" || fail "not a drawing: $(head -c 400 "$work/step.svg")"
fi
jq -e --slurpfile plan "$work/plan.json" '.otherData.source == "simulated" and .otherData.schedule == "gems-mast" and
    ([.traceEvents[] | select(.ph == "X") | .ts + .dur] | max / 1e6 - $plan[0].step_seconds | fabs < 1e-6) and
    ([.traceEvents[] | select(.ph == "X") | .pid] | unique == [0, 1]) and
    ([.traceEvents[] | .cat // empty] | unique == ["compute", "copy", "message", "reduce", "wait"]) and
    ([.traceEvents[] | select(.ph == "b")] | length == 8) and
    ([.traceEvents[] | select(.name == "FORWARD s0 m0")] | length == 1)' "$work/step.json" >/dev/null ||
    fail "not a trace: $(head -c 400 "$work/step.json")"
gems plan "$work/job.yaml" --devices 2x1GiB --svg - | grep -q '^</svg>$' || fail "--svg -"
expect 3 'nowhere/x.svg: ' gems plan "$work/job.yaml" --devices 2x1GiB --svg "$work/nowhere/x.svg"

say "what does not fit, what cannot be"
expect 7 '^gems-client: plan: does not fit: rank 0 needs ' gems plan "$work/job.yaml" --devices 2x1MiB
check_shape '.fits == false and (.advice | length > 0) and (.devices | length == 2)' \
    plan "$work/job.yaml" --devices 2x1MiB
expect 2 'job.yaml: parallel.stages: 12 stages for a model of 11 layers|--set parallel.stages: 12' \
    gems plan "$work/job.yaml" --devices 12x1GiB --set parallel.stages=12 --set parallel.schedule=layer
expect 2 "'4y16GiB' is not a group of devices" gems plan "$work/job.yaml" --devices 4y16GiB
expect 2 'not in this version' gems plan "$work/job.yaml" --cluster x
expect 6 'gemsd' gems --connect "unix:$work/nobody.sock" plan "$work/job.yaml"
expect 2 'an operand is missing' gems plan

say "a data set that is not here is no obstacle"
sed -e "s|^data:.*|data: {format: idx, train: nothere, size: [12, 12], channels: 1}|" "$work/job.yaml" \
    >"$work/idx.yaml"
expect 0 'the data set is not on this machine' gems plan "$work/idx.yaml" --devices 2x1GiB

say "schedules"
check_shape '.schedules | length == 11 and
    (map(select(.schedule == "layer"))[0] | .time == 96 and .idle_fraction == 0.75 and
        .peak_activations == [1, 1, 1, 1] and .reason == null) and
    (map(select(.schedule == "gpipe"))[0] | .time == 33 and .peak_activations == [8, 8, 8, 8]) and
    (map(select(.schedule == "single"))[0] | .time == null and (.reason | length > 0)) and
    (map(select(.schedule == "chimera"))[0] | .time == 30 and .peak_activations == [3, 4, 4, 3])' \
    schedules --stages 4 --microbatches 8
check_shape '.schedules | map(select(.schedule == "gpipe"))[0].time == 22' \
    schedules --stages 4 --microbatches 8 --backward 1
check_shape '.schedules | map(select(.schedule == "gpipe"))[0].time == 66' \
    schedules --stages 4 --microbatches 8 --forward 2
gems schedules --stages 4 --microbatches 4 --backward 1 --schedule gpipe --draw >"$work/out" || fail "--draw"
grep -qx 'rank 3   |...0123abcd...|' "$work/out" || fail "no drawing: $(cat "$work/out")"
[ "$(grep -c '^gems-mast\|^gpipe' "$work/out")" -eq 2 ] || fail "not one schedule: $(cat "$work/out")"
gems schedules --stages 4 --microbatches 4 --schedule gpipe --svg - | grep -q '^</svg>$' || fail "schedules --svg"
expect 2 "'gpip' is no schedule" gems schedules --stages 4 --microbatches 4 --schedule gpip
expect 2 'so --schedule is needed' gems schedules --stages 4 --microbatches 4 --svg -
expect 2 'needs an even number' gems schedules --stages 3 --microbatches 4 --schedule chimera --svg -
expect 2 '--stages is missing' gems schedules --microbatches 8
expect 2 "--stages: '0' is not" gems schedules --stages 0 --microbatches 8
done_ok
