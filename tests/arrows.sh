#!/bin/sh
# The arrows of docs/ARCHITECTURE.md: who may include whom, and which folder
# may speak to which foreign library. Reads the #include lines of the tree.
set -eu

# What a user sends or a driver does must not take these down (section 1).
for program in gemsd gems-worker gems-client; do
    [ -x "$program" ] || continue
    if readelf -d "$program" | grep NEEDED |
        grep -E 'libuc[pstm]|libdnnl|libjpeg|libpng|libcuda|libcudnn'; then
        echo "$program must not be linked with these"
        exit 1
    fi
    echo "$program: linked as it should be"
done

cd "${srcdir:-.}"

sources=$(find common model plan proto worker daemon client \
    -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh')
[ -n "$sources" ] || {
    echo "no sources found"
    exit 1
}

# shellcheck disable=SC2086 # a list of file names
awk '
function fail(text) { print FILENAME ":" FNR ": " text; bad = 1 }
function folder(path,  part, n) {
    n = split(path, part, "/")
    return part[1] == "worker" ? part[1] "/" part[2] : part[1]
}
BEGIN {
    base = " common model plan proto "
    may["common"] = " common "
    may["model"] = " common model "
    may["plan"] = " common model plan "
    may["proto"] = base
    may["daemon"] = base "daemon "
    may["client"] = base "client "
    may["worker/backend"] = " common model worker/backend "
    may["worker/net"] = " common model worker/net "
    may["worker/data"] = " common model worker/data "
    may["worker/agent"] = base "worker/agent "
    may["worker/inspect"] = base "worker/inspect worker/backend worker/data "
    may["worker/rank"] = base "worker/rank worker/backend worker/net worker/data "

    # header => files that may include it
    only["^(oneapi/dnnl|dnnl)"] = "^worker/backend/cpu/"
    only["^(ucp|uct|ucs|ucm)/"] = "^worker/net/ucx"
    only["^(cuda|cudnn|cublas|nccl)"] = "^worker/backend/cuda/"
    only["^sqlite3"] = "^daemon/(store|checkpoint)"
    only["^(jpeglib|turbojpeg|png|zlib)"] = "^worker/data/"
    only["^yaml"] = "^client/"
    only["^jansson"] = "^(client|model|daemon/http)"
    only["^openssl/"] = "^common/(hash|tls|connect|listen|rpc)\\."
    only["^event2/"] = "^(common|daemon|client|worker/(agent|rank))/"
    only["^(protobuf-c/|google/)"] = "^proto/"
    only["\\.pb-c\\.h$"] = "^(proto|daemon|client|worker/(agent|inspect|rank))/"
}
FNR == 1 { own = folder(FILENAME); n_files++ }
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\"")
    target = quoted[2]
    if (target != "config.h") {
        if (target !~ /\//) {
            fail("\"" target "\" is not a path from the top of the tree")
        } else if (index(may[own], " " folder(target) " ") == 0) {
            fail(own " must not know " folder(target) " (\"" target "\")")
        }
    }
}
/^[ \t]*#[ \t]*include[ \t]*[<"]/ {
    header = $0
    sub(/^[^<"]*[<"]/, "", header)
    sub(/[>"].*/, "", header)
    for (pattern in only) {
        if (header ~ pattern && FILENAME !~ only[pattern]) {
            fail("<" header "> belongs to files " only[pattern])
        }
    }
}
END {
    print n_files " files looked at"
    exit bad
}' $sources
