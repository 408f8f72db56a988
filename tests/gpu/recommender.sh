# shellcheck shell=bash
# Recommenders on the GPU: their losses compared with the processor's, and their speed; for tests/gpu.sh.
# shellcheck disable=SC2154,SC2317  # variables of tests/gpu.sh and parts.sh; functions called through part()

# Random clicks as MLPerf stores them: 2^20 samples of 160 bytes. Dense numbers are below 256, as most of the
# real ones are: with logarithms near 20 training makes the last bit of a sum 1e-3 of the loss in 50 steps.
random_clicks() {
  if [[ -s $out/clicks.bin ]]; then return; fi
  limited python3 - "$out/clicks.bin" <<'PY'
import random, sys
draw, record, samples = random.Random(7), 160, 1 << 16
with open(sys.argv[1], "wb") as file:
    for _ in range(16):
        block = bytearray(draw.randbytes(record * samples))
        block[3::4] = bytes(byte & 0x3f for byte in block[3::4])  # no number is negative
        for column in range(1, 14):
            for byte in (1, 2, 3):
                block[4 * column + byte::record] = bytes(samples)
        for first in range(0, len(block), record):
            block[first:first + 4] = bytes((draw.random() < 0.25, 0, 0, 0))
        file.write(block)
PY
}

# clicks DEVICE NAME STEPS MORE...: steps of DLRM's Kaggle configuration on them.
clicks() {
  local device=$1 name=$2 steps=$3
  shift 3
  rm -f "$out/$name.jsonl"
  limited "$trifold" recommend --config launch/configs/dlrm-kaggle.cfg --device "$device" \
    --train-data "$out/clicks.bin" --id-policy modulo --valid-samples 0 --eval-interval 0 --train-iters "$steps" \
    --log-json "$out/$name.jsonl" "$@"
}

recommender_follows() {
  random_clicks && clicks cuda gpu-dlrm 50 --global-batch-size 2048 --lr 0.01 &&
    clicks cpu cpu-dlrm 50 --global-batch-size 2048 --lr 0.01 && same_losses dlrm 1e-4 1
}

# The rate with clicks from the file, by the type of the MLPs' products; and where a step goes, on clicks that it draws.
recommender_speed() {
  local text line status type
  random_clicks || return 1
  for type in f32 tf32 bf16; do
    local -a option=()
    if [[ $type != f32 ]]; then option=("--$type"); fi
    clicks cuda "gpu-dlrm-speed-$type" 60 --global-batch-size 32768 "${option[@]}" || return 1
    text=$(python3 - "$out/gpu-dlrm-speed-$type.jsonl" "$type" <<'PY'
import json, statistics, sys
seconds = [json.loads(line)["step_seconds"] for line in open(sys.argv[1])][20:]
print(f"DLRM, Kaggle configuration, batch 32768, {sys.argv[2]}: {32768 / statistics.median(seconds):.0f} samples/s")
PY
) || return 1
    row "$text"
  done
  limited "$trifold" plan --config launch/configs/dlrm-kaggle.cfg --device cuda --global-batch-size 32768 \
    --measure-steps 30 >"$out/dlrm-plan.txt"
  status=$?
  while IFS= read -r line; do row "$line"; done < <(sed -n '/^rates/,$p' "$out/dlrm-plan.txt")
  return "$status"
}
