#!/bin/sh
# awk, sort, grep, sed and their kin on generated text; $1 is the number of lines.
set -eu
export LC_ALL=C
mawk -v n="$1" 'BEGIN {
    for (i = 1; i <= n; i++) {
        x = (x * 1103515245 + 12345) % 2147483648
        printf "%d\t%07d\tword%d\tthe quick brown fox %x\n", x, i, x % 5003, x
    }
}' > text
cksum text
sort --parallel=2 -S 8M -T . text | cksum
sort -S 64M -k3,3 -k1,1nr text | tee by-word | cksum
sort -n -u -k1,1 --parallel=2 text | wc -l
gawk -F'\t' '{ n[$3]++; s[$3] += $1; last[$3] = $4 }
    END { c = asorti(n, k); for (i = 1; i <= c; i++) print k[i], n[k[i]], s[k[i]], last[k[i]] }' text | cksum
gawk 'BEGIN { for (i = 0; i < 20000; i++) t = t sprintf("%x", i * i); gsub(/f+/, "<&>", t); print length(t) }'
mawk '{ a[NR] = $0 } END { for (i = NR; i > 0; i -= 97) print a[i] }' text | cksum
cut -f 3 text | sort | uniq -c | sort -k1,1nr -k2 | head -5
grep -c 'fox [0-9a-f]*c0' text
grep -E '(word1[0-9]{2}|77)\b' text | wc -l
LC_ALL=C.UTF-8 grep -i -o 'QUICK B[a-z]*' text | uniq -c
sed -E 's/([a-z]+) ([a-z]+)/\2 \1/g; /word7/d; s/\t/ -> /2' text | cksum
sed -n -e '1!G;h;300{p;q}' text | tac | cksum
join -1 3 -2 3 -t "$(printf '\t')" by-word by-word | head -n 40000 | cksum
tr 'a-z' 'A-Z' < text | fold -w 33 | comm --nocheck-order -12 - text | wc -l
shuf --random-source=text text | cksum
paste text text | expand | fmt -w 60 | wc
diff text by-word > difference || true
cksum difference
xargs -n 500 echo < by-word | od -A x -t x1z | tail -2
gzip -9 < text | gzip -d | cmp - text
split -l 5000 text part- && cat part-* | md5sum
head -c 3000000 text | sha256sum
