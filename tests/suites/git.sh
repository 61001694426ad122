# git's operations on a clone of the repository $1, by several threads. Prints what must be the
# same whatever the packs look like, then "N checks".
set -eu
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL="$PWD/config" GIT_PAGER=cat
git config --global user.name A
git config --global user.email a@example.org
git config --global safe.directory '*'
git config --global pack.threads 4
git config --global gc.auto 0
checks=0
check() { "$@" >said 2>&1 || { echo "failed: $*"; cat said; exit 1; }; checks=$((checks + 1)); }

# What is committed meanwhile to the repository changes nothing: later runs take what the first took.
[ -e "$1/.git" ] || [ -e "$1/HEAD" ]
frozen=$PWD/../frozen
[ -e "$frozen" ] || git clone -q --bare "$1" "$frozen"
check git clone -q --no-local "$frozen" tree
cd tree
check git fsck --full --strict
check git repack -q -a -d -f --depth=50 --window=50
check git fsck --full
check git multi-pack-index write
check git multi-pack-index verify
check git commit-graph write --reachable
check git commit-graph verify
head=$(git rev-parse HEAD)
git rev-list --objects HEAD | cut -d' ' -f1 | sort | sha256sum
git log -p --stat -M --format=%H | sha256sum
git ls-files '*.rs' | head -12 | while read -r file; do git blame --porcelain "$file"; done | sha256sum
git grep -n -E 'unsafe|SAFETY' -- '*.rs' | sha256sum
git archive HEAD | sha256sum
check git bundle create -q ../bundle HEAD
check git bundle verify ../bundle
check git checkout -q -b side HEAD~5
for n in 1 2 3 4 5; do
    seq $n 20000 >"large$n"
    check git add "large$n"
    export GIT_AUTHOR_DATE="2020-01-0${n}T00:00:00Z" GIT_COMMITTER_DATE="2020-01-0${n}T00:00:00Z"
    check git commit -q -m "large $n"
done
unset GIT_AUTHOR_DATE
export GIT_COMMITTER_DATE=2020-02-01T00:00:00Z
check git rebase -q "$head"
git rev-parse HEAD
check git merge-base --is-ancestor "$head" HEAD
check git gc -q --aggressive --prune=now
check git fsck --full --strict
git status --porcelain | grep -v -x '?? said' || true
git count-objects -v | grep -E '^(count|in-pack|garbage)'
echo "$checks checks"
