#!/bin/sh
# The main job on the default model: read a book into a pot, ask it three questions, summarise it.
# `make demo` runs this; BIN is the folder that holds the infinipot command.
set -e
cd "$(dirname "$0")/.."
PATH="$(pwd)/${BIN:-.venv/bin}:$PATH"
export PATH
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT INT TERM
book=examples/the-weight-of-albert-noon.pdf

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

show pot save "$book" -o "$folder/book.pot"
show pot load "$folder/book.pot" "Who is the dead man?" --quiet
show pot load "$folder/book.pot" "In which town does the story happen?" --quiet
show pot load "$folder/book.pot" "What is the name of the inspector?" --quiet
show summarize "$folder/book.pot" --length short
