# shellcheck shell=bash
# Measures the speed of the GPU: products, kernels and training steps, for tests/gpu.sh.
# shellcheck disable=SC2154,SC2317  # variables of tests/gpu.sh and parts.sh; functions called through part()

found_libraries() {
  local text status
  text=$(libraries)
  status=$?
  rows "$text"
  return "$status"
}

products() {
  local text
  limited "$trifold" bench --what gemm --device cuda --bf16 --num-layers 48 --hidden-size 1600 --num-attention-heads 25 \
    --seq-length 1024 --micro-batch-size 8 --json "$out/gemm.json" || return 1
  keep "products" "$out/gemm.json"
  text=$(python3 - "$out/gemm.json" <<'PY'
import json, sys
text = json.load(open(sys.argv[1]))
shapes = text.get("gemm", text) if isinstance(text, dict) else text
best = max(shapes, key=lambda shape: shape["flops"])
print(f"products in bf16: {best['flops'] / 1e12:.0f} TFLOP/s at {best['m']} x {best['n']} x {best['k']}")
PY
) || return 1
  row "$text"
}

# The ways of computing products, attention and the output's loss; the whole report is probe.json.
probe() {
  local text
  rm -f "$results/probe.json"
  text=$(limited "$tests/cuda/cuda_probe" --seconds $((part_end - SECONDS - 10)) --json "$results/probe.json") || return 1
  rows "$text"
}

# Products of experts by warps and by warpgroups against the library's, and their operations per second.
expert_products() {
  local text status
  text=$(limited "$tests/cuda/cuda_probe" --experts)
  status=$?
  rows "$text"
  return "$status"
}

# Each kernel's share of the copy; those under 0.8 are named and fail the part.
kernels() {
  limited "$tests/conformance/op_bench" cuda | tee "$out/kernels.txt" || return 1
  local name us rate share slow=()
  while read -r name us rate share; do
    [[ $name == operation ]] && continue
    if [[ $share == TFLOP/s ]]; then row "$(printf '%-30s %9s us %9s TFLOP/s' "$name" "$us" "$rate")"; continue; fi
    row "$(printf '%-30s %9s us %9s GB/s  %s of the copy' "$name" "$us" "$rate" "$share")"
    awk -v share="$share" 'BEGIN { exit !(share < 0.8) }' && slow+=("$name")
  done <"$out/kernels.txt"
  ((${#slow[@]} == 0)) || { echo "under 0.8 of the copy: ${slow[*]}"; return 1; }
}

# The five operations that are slowest beside the copy, each once under Nsight Compute: what they reach of memory and of
# the multiprocessors, how full those are, and registers.
profile() {
  command -v ncu >/dev/null || { row "ncu is not on this machine"; return 0; }
  local slowest metrics text
  limited "$tests/conformance/op_bench" cuda | tee "$out/kernels.txt" || return 1
  read -ra slowest < <(awk 'NR > 2 && $4 != "TFLOP/s" { print $4, $1 }' "$out/kernels.txt" | sort -n | head -n 5 | cut -d' ' -f2 | xargs)
  metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread
  metrics+=,sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active
  limited ncu --clock-control none --csv --metrics "$metrics" "$tests/conformance/op_bench" cuda 1 "${slowest[@]}" |
    tee "$out/profile.csv" || return 1
  text=$(python3 - "$out/profile.csv" <<'PY'
import csv, sys
kernels = {}
for line in csv.DictReader(line for line in open(sys.argv[1]) if line.startswith('"')):
    kernels.setdefault((line["ID"], line["Kernel Name"].split("(")[0][-70:]), []).append(
        f"{line['Metric Name'].split('.')[0]} {line['Metric Value']} {line['Metric Unit']}")
for (_, name), values in kernels.items():
    print(f"{name}: {', '.join(values)}")
PY
) || return 1
  rows "$text"
}

# ---- training steps ----

# watched COMMAND...: runs it; `peak` is then the most memory of the card that was in use meanwhile, in MiB.
watched() {
  local samples=$out/memory.txt watcher status
  nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --loop-ms=100 >"$samples" 2>/dev/null &
  watcher=$!
  "$@"
  status=$?
  kill "$watcher" 2>/dev/null
  wait "$watcher" 2>/dev/null
  peak=$(sort -n "$samples" | tail -1)
  peak=${peak:-0}
  return "$status"
}

# Checks that training runs at all.
three_steps() {
  bench_step 12 768 12 8 "$out/three.json" --warmup-iters 1 --iters 2 || return 1
  row "$(sed -n 's/.*"loss": \([0-9.]*\),*/GPT-2 124M after 3 steps: loss \1/p' "$out/three.json")"
}

# bench_step LAYERS WIDTH HEADS BATCH JSON MORE...: with 1024 positions, or as many as `positions` says.
bench_step() {
  local layers=$1 width=$2 heads=$3 batch=$4 json=$5
  shift 5
  limited "$trifold" bench --what step --device cuda --bf16 --num-layers "$layers" --hidden-size "$width" \
    --num-attention-heads "$heads" --seq-length "${positions:-1024}" --max-position-embeddings "${positions:-1024}" \
    --vocab-size 50257 --micro-batch-size "$batch" --attention-dropout 0 --hidden-dropout 0 --json "$json" "$@"
}

step() {
  local name=$1 json=$out/$1.json
  shift
  rm -f "$json"
  watched bench_step "$1" "$2" "$3" "$4" "$json" --warmup-iters 3 --iters 10 "${@:5}" || return 1
  local text
  text=$(python3 - "$json" "$name" "$peak" <<'PY'
import json, sys
b = json.load(open(sys.argv[1]))
b = b.get("step", b)
if b["capture_note"]:
    sys.exit(f"{sys.argv[2]}: --enable-cuda-graph: {b['capture_note']}")
print(f"{sys.argv[2]}: {b['tokens_per_second']:.0f} tokens/s, {100 * b['share']:.1f} % of the product rate "
      f"{b['gemm_flops'] / 1e12:.0f} TFLOP/s, peak {int(sys.argv[3]) / 1024:.1f} GiB")
PY
) || return 1
  keep "$name" "$json"
  row "$text"
}

# forecast NAME LAYERS WIDTH HEADS BATCH MORE...: what a plan expects of that step of the `speed` call from the times of
# its blocks, measured one by one; the time it took.
forecast() {
  local name=$1 layers=$2 width=$3 heads=$4 batch=$5 text
  shift 5
  local -a model=(--bf16 --num-layers "$layers" --hidden-size "$width" --num-attention-heads "$heads" --seq-length 1024
    --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size "$batch" --attention-dropout 0 --hidden-dropout 0 "$@")
  limited "$trifold" bench --what blocks --device cuda "${model[@]}" --json "$out/blocks.json" &&
    limited "$trifold" plan --device cuda "${model[@]}" --ranks 1 --costs "$out/blocks.json" --json "$out/plan.json" || return 1
  text=$(python3 - "$out/plan.json" "$out/$name.json" "$name" <<'PY'
import json, sys
forecast = json.load(open(sys.argv[1]))["step_seconds"]
step = json.load(open(sys.argv[2]))
measured = step.get("step", step)["seconds"]
print(f"{sys.argv[3]}: step of {1e3 * measured:.2f} ms, forecast from its blocks {1e3 * forecast:.2f} ms "
      f"({100 * (forecast / measured - 1):+.1f} %)")
PY
) || return 1
  row "$text"
}

# fits BATCH: whether a step of GPT-2 355M with that many samples does. Anything but a lack of memory is a failure.
fits() {
  local log=$out/largest.txt
  if bench_step 24 1024 16 "$1" "$out/largest.json" --warmup-iters 1 --iters 1 >"$log" 2>&1; then return 0; fi
  grep -q 'out of memory' "$log" || { cat "$log"; return 2; }
  return 1
}

# The largest micro-batch that fits, to an eighth of it: doubled while it does, then halfway twice. The same steps as
# tools/reference/gpt_speed_torch.py --largest.
largest() {
  local batch=32 step status
  while
    fits "$batch"
    status=$?
    ((status == 0))
  do batch=$((batch * 2)); done
  if ((status == 2 || batch == 32)); then return 1; fi
  batch=$((batch / 2))
  for step in 2 4; do
    fits $((batch + batch / step))
    status=$?
    if ((status == 2)); then return 1; fi
    if ((status == 0)); then batch=$((batch + batch / step)); fi
  done
  row "largest micro-batch of GPT-2 355M: $batch"
}

torch_step() {
  local line status
  limited python3 -u tools/reference/gpt_speed_torch.py "$@" >"$out/torch.txt"
  status=$?
  while IFS= read -r line; do row "$line"; done <"$out/torch.txt"
  return "$status"
}
