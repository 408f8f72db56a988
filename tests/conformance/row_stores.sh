#!/usr/bin/env bash
# Runs row_store_bench with each store in turn, in a control group that limits memory.
#
#   row_stores.sh PROGRAM FOLDER [--stores "ours rocksdb mapped announced"] [--rounds N] [--room GIB] [OPTION...]
#
# FOLDER is on the disk that is measured; files made there are deleted after each run. --room is the memory of a store, in
# addition to the simulated cache in the program: 0.3 GiB unless given. The other options are the program's. Needs the right to
# make a control group, of version 2 or 1. Exit status: 0; 1 after an error; 2 for invalid arguments.
#
# A table of 1 GB, and one of 20 GB as in docs/measurements/tables_in_files.json, with a cache of 3.2 GiB in 3.72; a mapped file has no log that fills:
#
#   row_stores.sh PROGRAM FOLDER --stores "ours rocksdb" --room 0.23 --churn 600
#   row_stores.sh PROGRAM FOLDER --stores "announced mapped" --room 0.23 --warm-up 50 --steps 100
#   row_stores.sh PROGRAM FOLDER --stores "ours rocksdb" --rows 294000000 --cache-rows 50000000 --room 0.52 --churn 5600
#   row_stores.sh PROGRAM FOLDER --stores "announced mapped" --rows 294000000 --cache-rows 50000000 --room 0.52 --warm-up 100
set -euo pipefail

(($# >= 2)) || { sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2; }
program=$1 folder=$2
shift 2
stores="ours rocksdb mapped announced" rounds=1 room=0.3 options=()
while (($# > 0)); do
  case $1 in
    --stores) stores=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --room) room=$2; shift 2 ;;
    *) options+=("$1"); shift ;;
  esac
done

bookkeeping=$("$program" --bookkeeping "${options[@]}")
limit=$(awk -v own="$bookkeeping" -v room="$room" 'BEGIN { printf "%.0f", own + room * 2 ^ 30 }')
group=
for at in "/sys/fs/cgroup memory.max" "/sys/fs/cgroup/memory memory.limit_in_bytes"; do
  read -r root file <<<"$at"
  [[ -e $root/cgroup.procs ]] || continue
  mkdir "$root/row-stores-$$" 2>/dev/null || continue
  if echo "$limit" 2>/dev/null >"$root/row-stores-$$/$file"; then group=$root/row-stores-$$; break; fi
  rmdir "$root/row-stores-$$"
done
[[ -n $group ]] || { echo "row_stores.sh: no control group with a limit of memory can be made" >&2; exit 1; }
running=
clean_up() {
  set +e
  if [[ -n $running ]]; then
    kill "$running" 2>/dev/null
    wait "$running" 2>/dev/null
    rm -rf "$folder/row_store_bench-$running" # a program that was killed has not deleted its database
  fi
  rmdir "$group"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

echo "limit of memory: $limit bytes, of which $bookkeeping are for the simulated cache"
for ((round = 1; round <= rounds; ++round)); do
  for store in $stores; do
    # The shell of the brackets enters the group, and the program replaces it.
    (echo "$BASHPID" >"$group/cgroup.procs" && exec "$program" --store "$store" --folder "$folder" "${options[@]}") &
    running=$!
    wait "$running"
    running=
  done
done
