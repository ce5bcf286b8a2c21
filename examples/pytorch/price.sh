# Sourced: prices SCRIPT... prints the best step of lines.py alone and under each script, by both engines, twice. Needs `tracer`, `python`, `here`.
price() { echo "$1: $("${@:2}" "$python" "$here/lines.py" 40 2>/dev/null | grep best)"; }
prices() {
    for round in 1 2; do
        price nothing env
        for engine in "" --in-process; do
            for script in "$@"; do
                price "$engine $script" "$tracer" $engine -q -e "$script" --
            done
        done
    done
}
