# shellcheck shell=bash
# The parts of a call of tests/gpu.sh: its clock, their limits and the reports. It expects
#   only, clock, longest   the options of that name
#   call, call_end         the call that runs, and the value of SECONDS at which it is over
#   results, out           folders of the reports, and of what parts write for themselves
# and counts `parts` and lists those that `failed`.
# shellcheck disable=SC2154  # expected variables

failed=()
parts=0
exec 3>&1  # the terminal, also where a part's output goes to its log

# row TEXT: a line of the table that is a figure.
row() { printf '   %s\n' "$*" | tee -a "$results/$call.txt" >&3; }

# rows TEXT: each of its lines.
rows() { while IFS= read -r line; do row "$line"; done <<<"$1"; }

# limited COMMAND...: until the limit of the part.
limited() { timeout --kill-after=5 $((part_end > SECONDS ? part_end - SECONDS : 1)) "$@"; }

# keep NAME FILE: a file of figures, as a line of the call's.
keep() {
  python3 - "$1" "$2" >>"$results/$call.jsonl" <<'PY'
import json, sys
print(json.dumps({"name": sys.argv[1], "figures": json.load(open(sys.argv[2]))}))
PY
}

# part HEADLINE LIMIT COMMAND...: a line of the table that says whether a part is well. It fails as well when it runs
# over its limit (in seconds) or skips all its tests.
part() {
  local title=$1 limit=$(($2 < longest ? $2 : longest)) start=$SECONDS left=$((call_end - SECONDS)) log=$out/part.log verdict
  [[ $title =~ $only ]] || return 0
  parts=$((parts + 1))
  shift 2
  if ((left < 5)); then
    verdict=FAILED
    echo "left out: the call's $clock seconds are over" >"$log"
  else
    part_end=$((start + (limit < left ? limit : left)))
    if "$@" >"$log" 2>&1 && ! grep -qF '[  PASSED  ] 0 tests' "$log"; then verdict=ok; else verdict=FAILED; fi
    if ((SECONDS >= part_end)); then
      verdict=FAILED
      echo "stopped after $((SECONDS - start)) s" >>"$log"
    fi
  fi
  { echo "==== $title: $verdict, $((SECONDS - start)) s"; tail -c 262144 "$log"; } >>"$results/$call.log"
  printf '%-60s %-7s %4d s\n' "$title" "$verdict" $((SECONDS - start)) | tee -a "$results/$call.txt"
  if [[ $verdict == FAILED ]]; then
    failed+=("$title")
    tail -n 3 "$log" | cut -c1-200 | sed 's/^/      /'
  fi
}

# Runs however the script ends.
finish() {
  printf 'in all %d s, %d parts, of which %d failed\n' "$SECONDS" "$parts" "${#failed[@]}"
  if ((${#failed[@]})); then printf '   %s\n' "${failed[@]}"; fi
}
