#!/bin/sh
# Runs every fuzz target over its corpus and over mutations of it.
set -eu
corpus=${srcdir:-.}/tests/fuzz/corpus
for folder in "$corpus"/*; do
    name=${folder##*/}
    echo "$name"
    tests/fuzz/fuzz_"$name" "$folder"
done
