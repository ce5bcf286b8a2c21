#!/bin/sh
# Do scripts print the same in the traced process as by the kernel, on a real GPU? And what does each way cost?
#
#   sh in_process.sh path/to/cudatrace [python3]
#
# A count of calls by function and call stack is compared word by word; reports are printed below each other.
cudatrace=$1
python=${2:-python3}
here=$(dirname "$0")
out=$(mktemp -d)
stacks='uprobe:libcuda:cuLaunchKernel*, uprobe:libcuda:cuMem*, uprobe:libcudart:cudaMalloc*, uprobe:libcudart:cudaLaunchKernel*
    { @[func, ustack] = count() }'

for place in kernel process; do
    option=
    [ $place = process ] && option=--in-process
    "$cudatrace" -q $option -o "$out/stacks.$place" -e "$stacks" -- "$python" "$here/small_ops.py" 2000 || exit 1
    "$cudatrace" -q $option -o "$out/report.$place" memleak errors kernels -- "$python" "$here/train.py" 20 || exit 1
    "$cudatrace" $option record --out "$out/record.$place" -- "$python" "$here/train.py" 20 2>&1 | tail -40 >"$out/summary.$place"
done

# Addresses of code without symbols differ from run to run.
paragraphs() { awk 'BEGIN { RS = "\n@"; FS = "\n" } { gsub(/0x[0-9a-f]+/, "ADDRESS"); gsub(/\n/, " | "); print }' "$1" | sort; }
for place in kernel process; do paragraphs "$out/stacks.$place" >"$out/sorted.$place"; done
if cmp -s "$out/sorted.kernel" "$out/sorted.process"; then
    echo "call stacks: the same $(wc -l <"$out/sorted.kernel") stacks"
else
    echo "call stacks differ:"
    diff "$out/sorted.kernel" "$out/sorted.process" | cut -c 1-400 | head -20
fi
for what in report summary; do
    for place in kernel process; do
        echo "--- $what, $place"
        cat "$out/$what.$place"
    done
done
rm -r "$out"
