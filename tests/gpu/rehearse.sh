# shellcheck shell=bash
# One rank each of large models, alone on the card, for tests/gpu.sh.
# shellcheck disable=SC2154,SC2317  # variables of tests/gpu.sh and parts.sh; functions called through part()

# The card's name in `trifold plan --hardware`; fails if there is none.
hardware_name() {
  case $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1) in
    *H100*) echo h100 ;;
    *H200*) echo h200 ;;
    *B200*) echo b200 ;;
    *A100*) echo a100-80gb ;;
    *) return 1 ;;
  esac
}

# rehearsed CONFIG MORE...: ranks of a configuration: what each held and took, and the step of the whole mesh with these
# times, beside the plan.
rehearsed() {
  local config=$1 hardware text json=$out/rehearse-$1.json
  local -a device=(--device cuda)
  shift
  if hardware=$(hardware_name); then device+=(--hardware "$hardware"); fi
  rm -f "$json"
  limited "$trifold" rehearse --config "launch/configs/$config.cfg" --bf16 "${device[@]}" --json "$json" "$@" || return 1
  text=$(python3 - "$json" "$config" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
for rank in report["ranks"]:
    held, planned = (rank["memory"][key]["bytes"] / 2**30 for key in ("held", "planned"))
    print(f"{sys.argv[2]}, rank {rank['rank']}: {rank['micro_batches']} micro-batches in {rank['step_seconds']:.3f} s, "
          f"{held:.2f} GiB, planned {planned:.2f}")
step = report["step"]
if step:
    print(f"{sys.argv[2]}, all ranks: step of {step['seconds']:.3f} s, planned {step['planned_seconds']:.3f}; "
          f"{step['tokens_per_second']:.0f} tokens/s; MFU {100 * step['mfu']:.1f} %, planned {100 * step['planned_mfu']:.1f}")
for failure in report["failures"]:
    print(failure)
PY
) || return 1
  keep "rehearse-$config" "$json"
  rows "$text"
}
