#!/usr/bin/env bash
# Runs every fuzzer for a while: tests/fuzz/run.sh BUILD_FOLDER TRIFOLD [SECONDS]   (60 s each by default)
# A finding is printed by the sanitizer, and its input is kept as BUILD_FOLDER/fuzz/crash-*.
set -euo pipefail
build=$1 trifold=$2 seconds=${3:-60}
here=$(dirname "$0")
work=$build/fuzz
rm -rf "$work"/seeds "$work"/found
mkdir -p "$work"
python3 "$here/seeds.py" "$work/seeds" "$trifold"
for name in manifest safetensors index pattern graph json; do
  mkdir -p "$work/found/$name"
  # The new inputs go to the first folder; only what libFuzzer says at the end is of interest.
  if "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -max_len=8192 -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 \
    -artifact_prefix="$work/crash-" "$work/found/$name" "$work/seeds/$name" >"$work/$name.log" 2>&1; then
    printf '%s: %s inputs, %s\n' "$name" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log")" \
      "$(grep -o 'cov: [0-9]*' "$work/$name.log" | tail -n 1)"
  else
    tail -n 40 "$work/$name.log"
    exit 1
  fi
done
