#!/bin/bash
# Builtins, arrays, subshells, process substitution, pipelines, traps; $1 is the scale.
set -euo pipefail
scale=$1

declare -A count
for ((i = 0; i < 6000 * scale; i++)); do
    key=k$((i * 7919 % 997))
    count[$key]=$((${count[$key]:-0} + i))
done
for key in "${!count[@]}"; do echo "$key ${count[$key]}"; done | sort | cksum

long=
for ((i = 0; i < 1500 * scale; i++)); do long+="piece $i, "; done
echo "${#long} ${long//piece/part}" | cksum
words=($long)
echo "${#words[@]} ${words[@]: -4}"

sum=0
while read -r a b; do sum=$((sum + a * ${#b})); done < <(seq 1 2000 | sed 's/.*/& line&/')
echo "$sum"

for i in $(seq 1 $((25 * scale))); do
    (
        trap 'echo "bye $i"' EXIT
        words+=("$i")
        echo "$i ${#words[@]} $(echo "${words[-1]}" | tr 0-9 a-j)"
    )
done | cksum

diff <(seq 1 500) <(seq 1 500 | grep -v 7) | wc -l || true
seq 1 20000 | tee copy | tail -n +5 | sort -rn | sed -n 1,3p
cmp copy <(seq 1 20000) && wc -l < copy
cat <<< "${long:0:100000}" | rev | cut -c 1-50
{ seq 1 5; exit 9; } | cat || echo "status ${PIPESTATUS[*]}"
mapfile -t lines < <(yes "the same line" | head -n 5000)
printf '%s\n' "${lines[@]}" | uniq -c
eval "f() { echo \"\$# \${*: -1}\"; }"
f "${lines[@]}"
bash -c 'exit 7' || echo "status $?"
