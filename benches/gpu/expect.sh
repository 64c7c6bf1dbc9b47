#!/usr/bin/env bash
# Computes on the CPU what run.sh compares on the GPU: the results of the fixed cases, and the losses of training.
#
#   expect.sh PROGRAMS OUT     PROGRAMS is the folder of the programs, OUT receives cases.json and losses-*.json
set -eu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=$1 out=$2
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

mkdir -p "$out"
env -u KILN_DEVICE "$programs/kit" expect "$out/cases.json"
for DRY_RUN in '' 1; do
  . "$here/flags.sh"
  for ranks in 1 2; do
    # shellcheck disable=SC2086 # Flags without blanks.
    "$programs/kiln" train $parity_flags --ranks $ranks --out "$runs/$parity_name-$ranks" > "$runs/log" 2>&1 || {
      cat "$runs/log" >&2
      exit 1
    }
    python3 "$here/tables.py" expect "$runs/$parity_name-$ranks" > "$out/losses-$parity_name-$ranks.json"
  done
done
du -sk "$out"
