#!/bin/bash
# Trains the golden model on one GPU, in legs: leg.sh WORK SECONDS. Run it again with the same WORK until it says that
# the plan is done; then evaluate.py's sets lie in WORK/sets and the checkpoint in WORK/out.
# Needs target/release/golden-data (cargo build --release -p karat-golden-data) and PyTorch with CUDA.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$1 seconds=$2
rows="$here/../../target/release/golden-data rows --model $here/../../golden"
mkdir -p "$work/data" "$work/sets"
if [ ! -e "$work/data/started" ]; then
  touch "$work/data/started"
  (
    nice $rows --seed 100 --length 512 --count 140000 --out "$work/data/s0"
    nice $rows --seed 101 --length 2048 --count 72000 --out "$work/data/s1"
    nice $rows --seed 102 --length 8192 --count 15000 --out "$work/data/s2"
    nice $rows --seed 103 --length 16384 --count 2200 --out "$work/data/s3"
    nice $rows --seed 900 --length 2048 --count 60 --spans --out "$work/sets/e2k"
    nice $rows --seed 901 --length 8192 --count 40 --spans --out "$work/sets/e8k"
    nice $rows --seed 902 --length 32768 --count 16 --spans --out "$work/sets/e32k"
    nice $rows --seed 903 --length 8192 --count 40 --family tally --spans --out "$work/sets/tally8k"
    nice $rows --seed 904 --length 32768 --count 24 --family needle --spans --out "$work/sets/needle32k"
  ) > "$work/data.log" 2>&1 &
fi
export PYTHONUNBUFFERED=1 TORCHINDUCTOR_CACHE_DIR="$work/compiled"
python3 -W ignore "$here/train.py" --data "$work/data" --out "$work/out" --vocab 736 --seconds "$seconds" \
  --plan 512d:90s,2048:220s,8192:290s,16384:130s
