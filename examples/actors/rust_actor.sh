#!/bin/sh
# rust_actor.sh OUT.wasm SCRATCH LIB.rs ACTOR.rs: an actor in Rust, by Debian's rustc and nothing from a registry.
set -eu
out=$1 scratch=$2 lib=$3 actor=$4
# A rustup toolchain that comes first in PATH may lack the target.
rustc="/usr/bin/rustc --edition 2021 --target wasm32-unknown-unknown -O -C panic=abort -D warnings"
mkdir -p "$scratch"
$rustc --crate-type rlib --crate-name holdfast_actor -o "$scratch/libholdfast_actor.rlib" "$lib"
$rustc --crate-type cdylib -C strip=symbols -C link-arg=-zstack-size=65536 \
  --extern "holdfast_actor=$scratch/libholdfast_actor.rlib" -o "$out" "$actor"
