#!/bin/bash
# Recordings of real programs: ranges of NVTX are counted, two ranks compared, the price measured beside other recorders and part by part.
#
#   recordings.sh path/to/cudatrace [path/to/python3] [ranges] [ranks] [prices] [parts]
#
# Needs PyTorch and transformers; the ranks need two GPUs. NSYS is the nsys to compare with, ROUNDS how often each price is
# taken (3), PARTS whose (decode train).
set -u
tracer=$(realpath "$1") python=${2:-python3} here=$(dirname "$(realpath "$0")") folder=$(mktemp -d)
cd "$folder" || exit
rounds=${ROUNDS:-3}
shift $(($# < 2 ? $# : 2))
program() { "$@" "$python" "$here/recordings.py" $part; }
price() { echo "$part, $1: $(program "${@:2}" 2>/dev/null | grep best)"; }

ranges() {
    local part=ranges
    for engine in "" --in-process; do
        program "$tracer" record -q --gpu $engine --export jsonl=ranges.jsonl --
        echo "ranges $engine: outer, inner, tick 200 each, job 1"
        grep -o '"name":"\(outer\|inner\|tick\|job\)","probe":"gpu:range"' ranges.jsonl | sort | uniq -c
    done
}

ranks() {
    local part=rank
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511
    for rank in 0 1; do RANK=$rank program "$tracer" record -q --gpu --in-process --out ranks -- & done
    wait
    echo "ranks: 1 is the last in all of 60 collectives"
    "$tracer" report ranks/*.arrows
}

# What each recorder adds to decoding and to a step of a training, and how large its file is.
prices() {
    local nsys part round engine
    nsys=$(command -v "${NSYS:-nsys}")
    for part in ${PARTS:-decode train}; do
        for round in $(seq "$rounds"); do
            price nothing env
            for engine in --in-process ""; do
                price "gpu $engine" "$tracer" $engine gpu --
                price "record $engine" "$tracer" record -q $engine --export "arrow=record$engine.$part.arrows" --
                price "record --gpu $engine" "$tracer" record -q --gpu $engine --export "arrow=gpu$engine.$part.arrows" --
            done
            [ -z "$nsys" ] || price nsys "$nsys" profile -t cuda -f true -o "nsys.$part"
            part="$part profiler" price torch.profiler env
        done
    done
    stat -c '%s %n' ./*.arrows ./nsys.*
}

# The script of `record --gpu`, and parts of it.
parts() {
    local part=decode round engine kernels
    local calls='cuda:launch { span(corr = corr) } cuda:alloc, cuda:free, cuda:memcpy, cuda:memset, cuda:sync, cuda:call, cudart:call { span() }'
    kernels='gpu:kernel { span(device = args.device, stream = args.stream, corr = args.corr) }'
    for round in $(seq "$rounds"); do
        for engine in --in-process ""; do
            price "calls $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$calls" --
            price "kernels $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$kernels" --
            price "calls, kernels $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$calls $kernels" --
            price "calls, kernels, idle $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$calls $kernels gpu:idle { span(\"idle\", device = args.device) }" --
            price "calls, kernels, ranges $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$calls $kernels gpu:range { span() }" --
        done
    done
}

[ $# -gt 0 ] || set -- ranges ranks prices parts
for what; do "$what"; done
