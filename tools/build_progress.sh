#!/usr/bin/env bash
# Runs a build with Ninja and says how far it is: in place on a terminal, else in a line a minute.
#
#   tools/build_progress.sh LOG COMMAND...    appends the command's output to LOG; exits with its status
set -uo pipefail
if (($# < 2)); then
  sed -n '2,4s/^# \{0,1\}//p' "$0"
  exit 2
fi
log=$1
shift

# The last "[12/345]" of the log, as "12 of 345 steps".
steps() { grep -aoE '^\[[0-9]+/[0-9]+\]' "$log" 2>/dev/null | tail -n 1 | sed -E 's/\[([0-9]+)\/([0-9]+)\]/\1 of \2 steps/'; }

watch_steps() {
  local seconds=0 done_steps
  while sleep 1 >/dev/null; do
    seconds=$((seconds + 1))
    if [[ ! -t 1 ]] && ((seconds % 60)); then continue; fi
    done_steps=$(steps)
    if [[ -t 1 ]]; then
      printf '\r   %s, %d s\033[K' "${done_steps:-configuring}" "$seconds"
    else
      printf '   %s, %d s\n' "${done_steps:-configuring}" "$seconds"
    fi
  done
}

watch_steps &
watcher=$!
trap 'kill "$watcher" 2>/dev/null' EXIT
status=0
"$@" >>"$log" 2>&1 || status=$?
kill "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
if [[ -t 1 ]]; then printf '\r\033[K'; fi
exit "$status"
