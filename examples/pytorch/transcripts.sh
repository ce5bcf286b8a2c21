#!/bin/bash
# Writes examples/transcripts/h200-scripts.txt and h200-record.txt anew, and the page of a recording: transcripts.sh CUDATRACE FOLDER
#
# Runs each bundled script on train.py, several at once. Needs a GPU and PyTorch; PYTHON is the interpreter (python3). Lines are
# cut at 150 columns, and long outputs in the middle.
set -uo pipefail
cudatrace=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

# The first and last lines of a long text, and how many are between them.
shorten() {
    awk '{ line[NR] = substr($0, 1, 150) } END {
        cut = NR > 60
        for (n = 1; n <= NR; n++)
            if (!cut || n <= 30 || n > NR - 15) print line[n]
            else if (n == 31) print "[… " NR - 45 " more lines]" }'
}

# transcript FILE SECONDS ARGUMENTS…: one command with its output, into FILE.
transcript() {
    local file=$1 seconds=$2
    shift 2
    { echo "\$ cudatrace $*"
      (cd "$parts" && timeout "$seconds" "$cudatrace" "${@/#python3/$python}" 2>&1) | shorten
      echo; } | sed "s#$here/##g; s#$parts/##g" >"$file"
}

heading() { echo "PyTorch $("$python" -c 'import torch; print(torch.__version__)') on $("$python" -c 'import torch; print(torch.cuda.get_device_name())'): examples/pytorch/train.py, 30 steps. Lines are cut at 150 columns."; echo; }

train=(-- python3 "$here/train.py" 30)
names=(summary top kernels launchgap graphs latency sync streams modules memleak oom doublefree churn bandwidth memcpy memory
    errors silent calls events "memleak kernels bandwidth --interval=5")
for n in "${!names[@]}"; do
    # shellcheck disable=SC2086 # several words are several scripts
    transcript "$parts/$(printf %02d "$n")" 120 ${names[n]} "${train[@]}" &
    [ $((n % 4)) != 3 ] || wait
done
wait
{ heading; cat "$parts"/[0-9]*; } >"$out/h200-scripts.txt"

{ heading
  transcript "$parts/record" 120 record --out "$parts/traces" "${train[@]}"
  transcript "$parts/report" 120 report "$parts/traces"/*.arrows
  transcript "$parts/kernel" 120 record --kernel --out "$parts/kernel-traces" -- python3 "$here/train.py" 5
  cat "$parts/record" "$parts/report" "$parts/kernel" | sed "s#$parts/##g"; } >"$out/h200-record.txt"
"$cudatrace" report "$parts"/traces/*.arrows --html "$out/report.html"
