#!/bin/sh
# grpc_bench.sh OUTPUT PRIVATE_DIR PROTO SOURCE: gRPC is 100 MB of packages, so it is looked for when this runs, not when the
# tree is configured.
set -eu
output=$1 private=$2 proto=$3 source=$4
mkdir -p "$private"
protoc -I "$(dirname "$proto")" --cpp_out="$private" --grpc_out="$private" --plugin=protoc-gen-grpc="$(command -v grpc_cpp_plugin)" "$proto"
name=$(basename "$proto" .proto)
# Words of their own: flags.
g++ -std=c++17 -O2 -I "$private" $(pkg-config --cflags grpc++ protobuf) -o "$output" "$source" \
  "$private/$name.pb.cc" "$private/$name.grpc.pb.cc" $(pkg-config --libs grpc++ protobuf) -lpthread
