#!/bin/sh
# The main job on the default model: ask a book, save it as a pot and ask that, ask and summarise a chapter.
# `make demo` runs this; BIN is the folder that holds the infinipot command.
set -e
cd "$(dirname "$0")/.."
PATH="$(pwd)/${BIN:-.venv/bin}:$PATH"
export PATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
book=examples/the-weight-of-albert-noon.pdf
chapter=examples/the-weight-of-albert-noon/01.md

show() {
    printf '\n\033[1m$ infinipot'
    for word in "$@"; do
        case $word in
        *\ *) printf ' "%s"' "$word" ;;
        "$folder"/*) printf ' %s' "${word#"$folder"/}" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\033[0m\n'
    infinipot "$@"
}

show ask "$book" "Who were the makers of the Wrackham weighbridge?"
show pot save "$book" -o "$folder/book.pot" --quiet
show pot load "$folder/book.pot" "In which town does the story happen?" --quiet
show ask "$chapter" "Where was Mr. Garside born?" --quiet
show summarize "$chapter" --length short --quiet
