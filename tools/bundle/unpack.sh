#!/usr/bin/env bash
# Trifold's programs for a machine with an NVIDIA driver, made by tools/gpu_bundle.sh: this script, a decoder and an
# archive in one file.
#
#   bash gpu_bundle.run [--only REGEX ...] first|speed|final|meshes|use   unpacks and runs tests/gpu.sh so
#   bash gpu_bundle.run --check                                unpacks and starts every program
#
# Unpacks once, into a folder next to this file with its name (without .run), or the one that TRIFOLD_BUNDLE names.
# Results go into the folder that OUT names, else into build/gpu there.
set -eu
decoder_bytes=@DECODER_BYTES@
header_bytes=@HEADER_BYTES@
id=@ID@
case ${OUT:-/} in
  /*) ;;
  *) export OUT=$PWD/$OUT ;;
esac
into=${TRIFOLD_BUNDLE:-${0%.run}}
if [ "$into" = "$0" ]; then into=$0.d; fi
if [ "$(cat "$into/id" 2>/dev/null)" != "$id" ]; then
  rm -rf "$into"
  mkdir -p "$into"
  tail -c +$((header_bytes + 1)) "$0" 2>/dev/null | head -c $decoder_bytes >"$into/unzstd"
  chmod +x "$into/unzstd"
  tail -c +$((header_bytes + decoder_bytes + 1)) "$0" | "$into/unzstd" | tar -x -C "$into"
  bash "$into/run.sh" --prepare
  echo $id >"$into/id"  # last: a folder that lacks it is unpacked again
fi
exec bash "$into/run.sh" "$@"
