# shellcheck shell=bash
# What users do with a card beyond training once: save and resume, change the mesh, evaluate elsewhere, keep tables in the
# memory of the host or in files; for tests/gpu.sh.
# shellcheck disable=SC2154,SC2317  # variables of tests/gpu.sh and parts.sh; functions called through part()

# same_steps HEADLINE FIRST SECOND: the two logs have the same losses and gradient norms, to the last bit, for every step
# of the second; and it has some.
same_steps() {
  local text status
  text=$(python3 - "$1" "$2" "$3" <<'PY'
import json, sys
def steps(path):
    lines = [json.loads(line) for line in open(path)]
    return {line["step"]: (line["loss"], line.get("grad_norm")) for line in lines if "loss" in line and "step" in line}
first, second = steps(sys.argv[2]), steps(sys.argv[3])
other = [step for step in second if first.get(step) != second[step]]
if other:
    print(f"{sys.argv[1]}: step {other[0]} has {second[other[0]]} instead of {first.get(other[0])}, "
          f"{len(other)} of {len(second)} steps differ")
else:
    print(f"{sys.argv[1]}: the same bits in {len(second)} steps")
sys.exit(bool(other) or not second)
PY
)
  status=$?
  row "$text"
  return "$status"
}

# A run that is saved after half of its steps, in the background, and one that goes on from there.
resumes() {
  local -a run=(--bf16 --attention-dropout 0.1 --hidden-dropout 0.1)
  rm -rf "$out/resumed"
  curve cuda whole 40 "${run[@]}" --save "$out/resumed" --save-interval 20 --async-save &&
    curve cuda rest 40 "${run[@]}" --load "$out/resumed/step_0000000020" || return 1
  same_steps "resumed after 20 of 40 steps" "$out/whole.jsonl" "$out/rest.jsonl"
}

# The same over two pipeline ranks on the card, and with recorded blocks.
same_on_meshes() {
  local -a run=(--bf16 --attention-dropout 0.1 --hidden-dropout 0.1 --global-batch-size 24)
  curve cuda one 30 "${run[@]}" || return 1
  curve cuda graphs 30 "${run[@]}" --enable-cuda-graph || return 1
  same_steps "with CUDA graphs" "$out/one.jsonl" "$out/graphs.jsonl" || return 1
  local schedule
  for schedule in 1f1b zb-h1; do
    curve cuda "$schedule" 30 "${run[@]}" --ranks 2 --pp 2 --schedule "$schedule" || return 1
    same_steps "over two pipeline ranks, $schedule" "$out/one.jsonl" "$out/$schedule.jsonl" || return 1
  done
}

# A checkpoint of the card is evaluated there, and on two tensor ranks of the processor.
evaluates_elsewhere() {
  local text
  local -a common=(evaluate --load "$out/elsewhere" --data-path data/tinyshakespeare.txt --split "90,10,0" --part valid)
  rm -rf "$out/elsewhere"
  curve cuda elsewhere 30 --save "$out/elsewhere" || return 1
  limited "$trifold" "${common[@]}" --device cuda >"$out/elsewhere-cuda.txt" &&
    limited "$trifold" "${common[@]}" --ranks 2 --tp 2 >"$out/elsewhere-cpu.txt" || return 1
  text=$(python3 - "$out/elsewhere-cuda.txt" "$out/elsewhere-cpu.txt" <<'PY'
import re, sys
card, processor = (float(re.search(r"validation loss ([0-9.]+)", open(path).read())[1]) for path in sys.argv[1:])
print(f"a checkpoint of the card: loss {card:.6f} there, {processor:.6f} on two tensor ranks of the processor")
sys.exit(abs(card - processor) > 1e-5 * processor)
PY
) || return 1
  row "$text"
}

# Tables of a recommender on the card, in the host's pinned memory with a cache on the card, and in files.
tables_elsewhere() {
  local name
  local -a run=(recommend --config launch/configs/dlrm-kaggle.cfg --device cuda --synthetic-samples 60000 --valid-samples 0
    --eval-interval 0 --train-iters 20 --global-batch-size 2048 --embedding-optimizer adagrad)
  local -A options=([card]="" [host]="--table-cache 0.5" [files]="--table-cache 0.5 --table-storage $out/tables")
  for name in card host files; do
    rm -rf "$out/tables-$name.jsonl" "$out/tables"
    mkdir -p "$out/tables"
    # shellcheck disable=SC2086  # several options
    limited "$trifold" "${run[@]}" ${options[$name]} --log-json "$out/tables-$name.jsonl" || return 1
    [[ $name == card ]] || same_steps "tables in the $name" "$out/tables-card.jsonl" "$out/tables-$name.jsonl" || return 1
  done
}

# The optimizer's state in the memory of the host changes no bit.
state_elsewhere() {
  curve cuda state-card 30 --bf16 && curve cuda state-host 30 --bf16 --offload host || return 1
  same_steps "optimizer state in the host" "$out/state-card.jsonl" "$out/state-host.jsonl"
}
