#!/usr/bin/env bash
# From a fresh machine to a trained recommender in a few minutes: installs what is missing, builds the program, trains a
# small DLRM on synthetic clicks over two ranks, its embedding tables spread over both, and draws its AUC next to the
# best that these clicks allow.
#
#   launch/quickstart-recommender.sh [OUT]    OUT: a new folder for the results; default quickstart_recommender
set -euo pipefail
cd "$(dirname "$0")/.."

headline() { printf '\n== %s\n' "$*"; }

# The AUC after each evaluation as bars between 0.5 and the best seen.
curve() {
  python3 - "$1" <<'PYTHON'
import json, sys
points = [(line["step"], line["valid_auc"]) for line in map(json.loads, open(sys.argv[1])) if "valid_auc" in line]
most = max(auc for _, auc in points)
for step, auc in points:
    print(f"  step {step:>6}  AUC {auc:.4f}  " + "#" * max(0, round(50 * (auc - 0.5) / (most - 0.5))))
PYTHON
}

case ${1:-} in -*) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
out=${1:-quickstart_recommender}
if [[ -e $out ]]; then
  echo "'$out' exists already: name a new folder" >&2
  exit 2
fi
trifold=build/release/launch/trifold
ranks=$(($(nproc) < 2 ? 1 : 2))

headline "Packages"
tools/install_dependencies.sh --program
headline "Building the program (a few minutes the first time; build/quickstart.log has the details)"
tools/build_program.sh
mkdir -p "$out"

headline "Training on synthetic clicks, $ranks rank(s)"
"$trifold" recommend --config launch/configs/dlrm-small.cfg --ranks "$ranks" \
  --save "$out/checkpoint" --log-json "$out/log.jsonl"

headline "AUC"
curve "$out/log.jsonl"

headline "Done in $SECONDS s"
cat <<END
  checkpoint   $out/checkpoint
  log          $out/log.jsonl, one JSON object a report

Try next:
  $trifold inspect $out/checkpoint
  $trifold recommend --config launch/configs/dlrm-small.cfg --ranks 4 --placement row,column,table,replicated,table,row,column,table
  $trifold recommend --help
END
