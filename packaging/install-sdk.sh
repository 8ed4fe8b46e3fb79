#!/bin/sh
# Puts what an outside plugin author needs into a directory: headers, one static library, a pkg-config file.
#
#   packaging/install-sdk.sh BUILDDIR PREFIX
#
# BUILDDIR is a built meson directory of this source tree. Afterwards
#   pkg-config --with-path=PREFIX/lib/pkgconfig --cflags --libs holdfast-sdk
# is all that a build needs. Nothing of BUILDDIR or of this tree is needed any more.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: $0 BUILDDIR PREFIX" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
source=$(dirname "$here")
build=$(cd "$1" && pwd)
mkdir -p "$2"
prefix=$(cd "$2" && pwd)

# The headers an author may include; what these include themselves is found by the compiler.
public=
for header in abi/sdk/policy.hpp abi/sdk/plugin.hpp abi/sdk/storage.hpp abi/base/hash.hpp abi/base/clock.hpp; do
    if [ -f "$source/$header" ]; then public="$public $header"; fi
done

include="$prefix/include/holdfast"
rm -rf "$include"
mkdir -p "$include/schema" "$prefix/lib/pkgconfig"
# -M, not -MM: the schema headers are system headers to us. Everything outside the two trees is the author's system.
for header in $public; do printf '#include "%s"\n' "$source/$header"; done |
    "${CXX:-c++}" -std=c++20 -M -x c++ -I "$source" -isystem "$build/abi/schema" - |
    tr -d '\\' | tr ' ' '\n' | sort -u |
    while read -r file; do
        case $file in
        "$build/abi/schema/"*) cp "$file" "$include/schema/" ;;
        "$source/abi/"*)
            name=${file#"$source/"}
            mkdir -p "$include/$(dirname "$name")"
            cp "$file" "$include/$name"
            ;;
        esac
    done

# Meson's archives are thin: they name object files of the build directory. One real archive holds them all; the linker
# takes from it only what a plugin uses.
library="$prefix/lib/libholdfast-sdk.a"
rm -f "$library"
objects=$(
    cd "$build"
    find abi -name 'lib*.a' | sort | while read -r archive; do
        # A name without a slash would be a member that lies inside the archive; meson makes no such archives here.
        ar t "$archive"
    done
)
if [ -z "$objects" ]; then
    echo "$0: no libraries in $build/abi: build first (ninja -C $1)" >&2
    exit 1
fi
# q appends: several rooms may have a file of the same name.
(cd "$build" && echo "$objects" | sort -u | xargs ar qcs "$library")

requires=
if nm -u "$library" 2>/dev/null | grep -qw seccomp_init; then requires=libseccomp; fi
version=$(sed -n "s/^ *version: *'\(.*\)',*$/\1/p" "$source/meson.build" | head -n 1)
sed -e "s/@VERSION@/$version/" -e "s/@REQUIRES@/$requires/" "$here/holdfast-sdk.pc.in" \
    >"$prefix/lib/pkgconfig/holdfast-sdk.pc"
echo "installed the SDK $version in $prefix"
