#!/bin/sh
# Feeds the generator schemas that must end the build, and checks that the sentence names the table.
# usage: traits_gen_test.sh TRAITS_GEN FLATC
set -eu
generator=$1
flatc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# run NAME TABLES UNION: compiles a schema, leaves the generator's exit code in $code and its words in $work/err.
run() {
    cat >"$work/$1.fbs" <<SCHEMA
namespace hf.abi;
attribute "request"; attribute "replay"; attribute "reply_max"; attribute "max_tables"; attribute "from"; attribute "kinds";
enum Kind : ubyte { None = 0, Gateway = 1, Storage = 2, Runtime = 3, Placement = 4, Drain = 5 }
$2
union Body { $3 }
table Envelope { body:Body; }
root_type Envelope;
SCHEMA
    "$flatc" --binary --schema -o "$work" "$work/$1.fbs"
    code=0
    "$generator" "$work/$1.bfbs" "$work/$1.hpp" 2>"$work/err" || code=$?
}

# refused NAME TABLES UNION WORDS...: the generator must fail, and say each of the words.
refused() {
    name=$1 tables=$2 members=$3
    shift 3
    run "$name" "$tables" "$members"
    if [ "$code" -eq 0 ]; then
        echo "$name: accepted"
        failures=$((failures + 1))
    fi
    for word in "$@"; do
        grep -q -- "$word" "$work/err" || { echo "$name: no '$word' in: $(cat "$work/err")"; failures=$((failures + 1)); }
    done
}

answer='table Taken (from:"plugin") { x:int; }'
refused request_without_replay "table Take (from:\"supervisor\", request:\"Taken\") { x:int; } $answer" 'Take, Taken' 'table Take ' replay
refused answer_that_does_not_exist 'table Take (from:"supervisor", request:"Gone", replay:"core") { x:int; }' 'Take' 'table Take ' Gone
refused one_way_with_replay 'table Tell (from:"plugin", replay:"never") { x:int; }' 'Tell' 'table Tell ' one-way
refused unknown_replay "table Take (from:\"supervisor\", request:\"Taken\", replay:\"maybe\") { x:int; } $answer" 'Take, Taken' 'table Take ' maybe
refused unknown_sender 'table Tell (from:"moon") { x:int; }' 'Tell' 'table Tell ' moon
refused nobody_sends 'table Tell { x:int; }' 'Tell' 'table Tell ' from
refused unknown_kind 'table Tell (from:"plugin", kinds:"storage,kitchen") { x:int; }' 'Tell' 'table Tell ' kitchen
refused reply_max_beyond_record "table Take (from:\"supervisor\", request:\"Taken\", replay:\"core\", reply_max:\"65537\") { x:int; } $answer" 'Take, Taken' 'table Take ' 65537
refused tables_not_a_number 'table Tell (from:"plugin", max_tables:"many") { x:int; }' 'Tell' 'table Tell ' many
refused answer_from_the_asker 'table Take (from:"plugin", request:"Taken", replay:"core") { x:int; } table Taken (from:"plugin") { x:int; }' 'Take, Taken' 'table Take ' asker
refused request_outside_the_union "table Take (from:\"supervisor\", request:\"Taken\", replay:\"core\") { x:int; } $answer" 'Taken' 'table Take ' union

run good "table Take (from:\"supervisor\", request:\"Taken\", replay:\"resend\", reply_max:\"4096\", kinds:\"storage\") { x:int; } $answer" 'Take, Taken'
if [ "$code" -ne 0 ]; then
    echo "good: refused: $(cat "$work/err")"
    failures=$((failures + 1))
fi
grep -q '{"Take", true, false, Body::Taken, Replay::Resend, 4096, 64, From::Supervisor, 4}' "$work/good.hpp" || { echo "good: row of Take is wrong"; failures=$((failures + 1)); }
grep -q '{"Taken", false, true, Body::NONE, Replay::None, 0, 64, From::Plugin, 62}' "$work/good.hpp" || { echo "good: row of Taken is wrong"; failures=$((failures + 1)); }

echo "$failures failures"
[ "$failures" -eq 0 ]
