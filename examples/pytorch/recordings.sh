#!/bin/bash
# Recordings of real programs: ranges of NVTX are counted, two ranks compared, the price measured part by part.
#
#   recordings.sh path/to/cudatrace [path/to/python3]     needs PyTorch and transformers; the ranks need two GPUs
set -u
tracer=$(realpath "$1") python=${2:-python3} here=$(dirname "$(realpath "$0")") folder=$(mktemp -d)
cd "$folder" || exit
program() { "$@" "$python" "$here/recordings.py" "$part"; }

part=ranges
for engine in "" --in-process; do
    program "$tracer" record -q --gpu $engine --export jsonl=ranges.jsonl --
    echo "ranges $engine: outer, inner, tick 200 each, job 1"
    grep -o '"name":"\(outer\|inner\|tick\|job\)","probe":"gpu:range"' ranges.jsonl | sort | uniq -c
done

part=rank
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511
for rank in 0 1; do RANK=$rank program "$tracer" record -q --gpu --in-process --out ranks -- & done
wait
echo "ranks: 1 is the last in all of 60 collectives"
"$tracer" report ranks/*.arrows

# The script of `record --gpu`, and parts of it.
part=decode calls='cuda:launch { span(corr = corr) } cuda:alloc, cuda:free, cuda:memcpy, cuda:memset, cuda:sync, cuda:call, cudart:call { span() }'
kernels='gpu:kernel { span(device = args.device, stream = args.stream, corr = args.corr) }'
price() { echo "$1: $(program "${@:2}" 2>/dev/null | grep best)"; }
for round in 1 2 3; do
    price nothing env
    for engine in --in-process ""; do
        price "gpu $engine" "$tracer" $engine gpu --
        price "calls $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$calls" --
        price "kernels $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$kernels" --
        price "calls, kernels $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$calls $kernels" --
        price "calls, kernels, idle $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$calls $kernels gpu:idle { span(\"idle\", device = args.device) }" --
        price "calls, kernels, ranges $engine" "$tracer" -q $engine --export arrow=part.arrows -e "$calls $kernels gpu:range { span() }" --
        price "record --gpu $engine" "$tracer" record -q --gpu $engine --export arrow=all.arrows --
    done
done
ls -l "$folder"
