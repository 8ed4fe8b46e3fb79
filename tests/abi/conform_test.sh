#!/bin/sh
# Holds the schemas to every frozen release under abi/frozen/N/: flatc --conform, and no frozen name may vanish (conform
# accepts a removed last field and a rename). Proves on changed copies of today's schemas that it would notice.
# usage: conform_test.sh FLATC SCHEMA_DIRECTORY FROZEN_DIRECTORY
set -eu
flatc=$1
schemas=$2
frozen=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# names DIRECTORY: every table.field, enum.value and union member, one a line, as flatc itself sees them.
names() {
    rm -rf "$work/json"
    mkdir -p "$work/json"
    "$flatc" --jsonschema -I "$1" -o "$work/json" "$1/envelope.fbs"
    # One line for each opened object; it ends with the name of the next one. Enum values stand within a line.
    tr -d ' \n' <"$work/json/envelope.schema.json" | tr '{' '\n' | awk '
        {
            if (match($0, /"enum":\[[^]]*\]/)) {
                count = split(substr($0, RSTART + 8, RLENGTH - 9), values, ",")
                for (i = 1; i <= count; i++) print table "." values[i]
            }
            if (match($0, /"[A-Za-z0-9_$]*":$/)) {
                name = substr($0, RSTART + 1, RLENGTH - 3)
                if (name ~ /^hf_/) table = name; else print table "." name
            }
        }' | sort -u
}

# conforms OLD NEW: new schemas may stand in for the old ones.
conforms() {
    "$flatc" --conform "$1/envelope.fbs" --conform-includes "$1" -I "$2" "$2/envelope.fbs" >"$work/words" 2>&1 || return 1
    names "$1" >"$work/old"
    names "$2" >"$work/new"
    gone=$(comm -23 "$work/old" "$work/new")
    [ -z "$gone" ] || { echo "vanished: $gone" >"$work/words"; return 1; }
}

failures=0
for release in "$frozen"/*/; do
    [ -f "$release/envelope.fbs" ] || continue
    conforms "$release" "$schemas" || { echo "does not conform to $release: $(cat "$work/words")"; failures=$((failures + 1)); }
done

# must_fail NAME SED_EXPRESSION FILE: today's schemas with one change must not pass as today's.
must_fail() {
    rm -rf "$work/changed"
    cp -r "$schemas" "$work/changed"
    sed -i "$2" "$work/changed/$3"
    cmp -s "$schemas/$3" "$work/changed/$3" && { echo "$1: the change changed nothing"; failures=$((failures + 1)); return; }
    if conforms "$schemas" "$work/changed"; then
        echo "$1: not noticed"
        failures=$((failures + 1))
    fi
}
must_fail reordered_union 's/Greet, Welcome,/Welcome, Greet,/' envelope.fbs
must_fail changed_type 's/choice:uint;/choice:ulong;/' placement.fbs
must_fail changed_default 's/weight:uint = 1;/weight:uint = 2;/' placement.fbs
must_fail removed_last_field 's/ store_time_ms:long; reason:string; }$/ store_time_ms:long; }/' storage.fbs
must_fail renamed_field 's/hand_over:\[uint\];/handover:[uint];/' drain.fbs
conforms "$schemas" "$schemas" || { echo "unchanged: $(cat "$work/words")"; failures=$((failures + 1)); }

echo "$failures failures"
[ "$failures" -eq 0 ]
