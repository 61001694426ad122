#!/bin/sh
# Clones $1, packs it anew, commits, merges and checks it; identical in every run.
set -eu
git clone -q "file://$1" copy
cd copy
git rev-parse HEAD
git log --oneline --stat | cksum
git gc -q --aggressive --prune=now
git fsck --full --strict 2>&1
git count-objects -v | grep -v '^size'
git rev-list --all --objects | sort | cksum
cat .git/objects/pack/*.pack | cksum
git checkout -q -b side
mkdir more
i=0
while [ $i -lt 60 ]; do
    seq $i $((i * 50 + 500)) > more/$i
    i=$((i + 1))
done
git add more
git commit -q -m "Add many"
git checkout -q -
git checkout -q -b other
seq 1 3000 > numbers
git add numbers
git commit -q -m "Add numbers"
git merge -q -m "Merge" side
git diff --stat HEAD~1 | tail -3
git log -p -2 | cksum
git archive HEAD | tar -t | sort | cksum
git grep -c 5 -- more | head -5
git blame numbers | cksum
git bundle create -q ../b.bundle --all
git clone -q --bare ../b.bundle ../bare
git -C ../bare fsck --full
git repack -q -a -d -f --depth=20
git fsck --full --strict
git rev-parse HEAD
