#!/bin/bash
# Operators of a real training step: counts and times beside torch.profiler's, the lines of the backward pass, what it costs, whether results stay
# the same, and what remains after a tracer that was killed.
#
#   operators.sh path/to/cudatrace [path/to/python3]     needs PyTorch and transformers
set -u
tracer=$(realpath "$1") python=${2:-python3} here=$(dirname "$(realpath "$0")") folder=$(mktemp -d)
cd "$folder" || exit
work() { "$python" "$here/operators.py" "$@" 2>/dev/null; }

echo "without: $(work 10)"
work 10 profile profiled
for engine in "" --in-process; do
    echo "== operators $engine"
    "$tracer" $engine -f json -e '
        gpu:operator { @all[args.name] = count(); }
        gpu:kernel, gpu:memcpy, gpu:memset { @ns[torch_op] = sum(args.duration); @total = sum(args.duration); }' \
        -- "$python" "$here/operators.py" 10 >"traced$engine" 2>"messages$engine"
    cat "messages$engine"
    grep best "traced$engine"
    "$python" "$here/operators_compare.py" profiled "traced$engine" 10
    echo "== lines $engine"
    "$tracer" $engine lines --top=14 -- "$python" "$here/lines.py" 20 2>&1 | cut -c1-220
done
"$tracer" gpu --by=op --top=12 -- "$python" "$here/lines.py" 5 2>&1 | cut -c1-150
"$tracer" -e 'cuda:alloc { @[torch_op, pyline(forward)] = sum(args.bytes) } END { print(@, 8); clear(@) }' -- "$python" "$here/lines.py" 5 2>&1 | cut -c1-150

echo "== price"
. "$here/price.sh"
prices 'gpu:kernel { @ = count() }' \
    'gpu:kernel { @[torch_op] = count() }' \
    'gpu:kernel { @[pyline(own)] = count() }' \
    'gpu:kernel { @[pyline(forward)] = count() }' \
    'gpu:operator { @[args.name] = count() }'

echo "== killed"
mkfifo input
"$python" "$here/lines.py" 600 wait <input >output 2>/dev/null &
job=$!
exec 3>input
until grep -q ready output; do sleep 0.2; done
echo go >&3
for kill in $(seq 20); do
    "$tracer" -q -e 'gpu:kernel { @[torch_op, pyline(forward)] = count() }' -p $job >/dev/null 2>&1 &
    sleep "0.$((RANDOM % 9))"
    kill -9 $!
    wait $! 2>/dev/null
done
exec 3>&-
wait $job
echo "status $?: $(cat output)"
