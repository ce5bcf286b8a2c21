#!/bin/bash
# A tour on a real GPU: a server of a language model and a training loop, each with planted faults, which are found while they run.
#
#   tour.sh path/to/cudatrace [path/to/python3]     needs a GPU, PyTorch and transformers
#
# Prints each command with its output, long ones cut. ENGINE=--in-process traces without the kernel.
set -uo pipefail
cudatrace=$(realpath "$1")
python=${2:-python3}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
server='' training='' asking=''
trap 'kill $server $training $asking 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1

say() { printf '\n## %s\n\n' "$*"; }

# The first lines of a long text.
shorten() { cut -c1-110 | awk -v most="${1:-24}" 'NR <= most { print } END { if (NR > most) print "[… " NR - most " more lines]" }'; }

# begin FILE COMMAND...: a program in the background, once it says that it is ready. Its pid is in $pid.
begin() {
    local output=$1
    shift
    "$@" >"$output" 2>&1 &
    pid=$!
    until grep -q ready "$output"; do
        kill -0 $pid 2>/dev/null || { cat "$output"; exit 1; }
        sleep 0.1
    done
}

serve() {
    [ -z "$server" ] || { kill "$server"; wait "$server"; } 2>/dev/null
    begin server.out "$python" "$here/serve.py" --plant "$1"
    server=$pid
}

# trace SECONDS LINES PID ARGUMENTS...: what one sees who presses Ctrl-C after these seconds.
trace() {
    local seconds=$1 lines=$2 target=$3
    shift 3
    echo "\$ cudatrace $* -p PID     # Ctrl-C after $seconds s"
    timeout -s INT -k 20 "$seconds" "$cudatrace" ${ENGINE:-} "$@" -p "$target" 2>&1 | sed "s#$here/##g" | shorten "$lines"
    echo
}

# rate [SECONDS]: how many tokens come back.
rate() { "$python" "$here/load.py" --seconds "${1:-8}" | tail -1; }

say 'The server without faults'
serve none
rate

say 'The same with all faults: how fast, and what is slow?'
serve wait,loop,leak
rate
"$python" "$here/load.py" --seconds 90 >load.out &
asking=$!
sleep 2
trace 5 60 "$server" summary --gpu
trace 5 30 "$server" lines
trace 5 20 "$server" sync
trace 6 30 "$server" memleak --interval=3
kill $asking
grep -v mean load.out | tail -3

for left in 'loop,leak wait' 'leak loop' 'none leak'; do
    # shellcheck disable=SC2086 # two words
    set -- $left
    say "Without '$2'"
    serve "$1"
    rate
done

say 'What does it cost the server? Seconds 6 to 12 are traced'
"$python" "$here/load.py" --seconds 16 >load.out &
asking=$!
sleep 5
timeout -s INT 6 "$cudatrace" ${ENGINE:-} lines -p "$server" >/dev/null 2>&1
wait $asking
cat load.out
kill "$server"

say 'Training: without faults'
"$python" "$here/train.py" --seconds 4 | tail -3

say 'Training with faults: what is slow?'
begin train.out "$python" "$here/train.py" --seconds 60 --plant norms,text
training=$pid
sleep 2
trace 5 20 "$training" steps
trace 5 25 "$training" lines
trace 5 30 "$training" idle --sites
tail -3 train.out
