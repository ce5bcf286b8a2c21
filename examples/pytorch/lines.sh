#!/bin/bash
# Lines of Python of a real training step: what share of the GPU's time has a line, what lines cost, and whether results stay the same.
#
#   lines.sh path/to/cudatrace [path/to/python3]     needs PyTorch and transformers
set -u
tracer=$(realpath "$1") python=${2:-python3} here=$(dirname "$(realpath "$0")") folder=$(mktemp -d)
cd "$folder" || exit

echo "without: $("$python" "$here/lines.py" 20 2>/dev/null)"
for engine in "" --in-process; do
    echo "== started $engine"
    "$tracer" $engine lines --top=12 -- "$python" "$here/lines.py" 20 2>&1 | cut -c1-200
    echo "== running $engine"
    mkfifo "input$engine"
    "$python" "$here/lines.py" 20 wait <"input$engine" >"output$engine" 2>/dev/null &
    exec 3>"input$engine"
    until grep -q ready "output$engine"; do sleep 0.2; done
    "$tracer" $engine lines --top=8 -p $! >"lines$engine" 2>&1 &
    until grep -q Attached "lines$engine"; do sleep 0.2; done
    sleep 3
    echo go >&3
    exec 3>&-
    wait
    cut -c1-200 "lines$engine"
    cat "output$engine"
done

echo "== stacks"
"$tracer" -e 'gpu:kernel { @[ustack(python, 40)] = sum(args.duration) } END { print(@, 2); clear(@) }' -- "$python" "$here/lines.py" 5 2>&1 | tail -60
"$tracer" -e 'cuda:launch { @[ustack(60)] = count() } END { print(@, 1); clear(@) }' -- "$python" "$here/lines.py" 5 2>&1 | tail -70

echo "== price"
. "$here/price.sh"
prices 'cuda:launch { @ = count() }' \
    'cuda:launch { @[pyline] = count() }' \
    'cuda:launch { @[pyline(own)] = count() }' \
    'cuda:launch { @[ustack(python)] = count() }' \
    'cuda:launch { @[ustack(native)] = count() }' \
    'cuda:launch { @[ustack] = count() }'
