//! C sources that give a compiler work.

use std::fmt::Write;

/// A C file of `functions` functions of some forty lines, each different.
pub fn large_c(functions: usize) -> String {
    let mut s = String::from(
        "#include <stddef.h>\n#include <stdint.h>\nstruct node { struct node *next; int64_t key; double w[4]; };\n",
    );
    let mut x = 1_u64;
    let mut random = |n: u64| {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % n
    };
    for f in 0..functions {
        let (a, b, c) = (random(97) + 2, random(1009), random(31));
        let _ = writeln!(
            s,
            "static const int32_t table{f}[] = {{ {} }};",
            (0..40)
                .map(|_| random(1 << 20).to_string())
                .collect::<Vec<_>>()
                .join(", ")
        );
        let _ = writeln!(
            s,
            "int64_t f{f}(struct node *n, int64_t k, const uint8_t *text, size_t len)\n{{\n\
             \tint64_t sum = {b};\n\tdouble d = {c}.5;\n\
             \tfor (size_t i = 0; i < len; i++) {{\n\
             \t\tswitch (text[i] % {a}) {{"
        );
        for case in 0..(8 + random(10)).min(a) {
            let _ = writeln!(
                s,
                "\t\tcase {case}: sum += (int64_t)text[i] * {} + table{f}[i % 40]; {}break;",
                random(1000),
                if random(3) == 0 {
                    "k ^= sum << 3; "
                } else {
                    ""
                }
            );
        }
        let _ = writeln!(
            s,
            "\t\tdefault: sum ^= k + (int64_t)i; d *= 1.0 + sum % 7;\n\t\t}}\n\t}}\n\
             \twhile (n) {{\n\t\tif (n->key % {a} == {c}) {{\n\
             \t\t\tfor (int j = 0; j < 4; j++) n->w[j] = n->w[3 - j] * d + table{f}[j];\n\
             \t\t\tsum += (int64_t)n->w[{}];\n\t\t}} else if (n->key > k) {{ sum -= n->key / {a}; }}\n\
             \t\tn = n->next;\n\t}}",
            random(4)
        );
        if f > 2 {
            let _ = writeln!(
                s,
                "\tif (sum & {}) sum += f{}(0, sum, text, len / 2);",
                1 << random(9),
                random(f as u64)
            );
        }
        let _ = writeln!(s, "\treturn sum + (int64_t)d;\n}}");
    }
    s
}

/// The files of a project with `units` small programs' worth of objects, and its Makefile: all
/// compiles, links, runs, and the sums are shown in order at the end.
pub fn project(units: usize) -> Vec<(String, String)> {
    let mut files: Vec<_> = (0..units)
        .map(|u| {
            let text = large_c(3).replace("f0", &format!("u{u}_0"));
            let main = format!(
                "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n{text}\n\
                 int main(void)\n{{\n\tint64_t sum = {u};\n\
                 \tfor (int i = 1; i < 2000; i++) {{\n\
                 \t\tuint8_t *p = malloc((size_t)i * {}), *q;\n\t\tmemset(p, i, (size_t)i * {});\n\
                 \t\tq = realloc(p, (size_t)i * 40);\n\t\tsum += f1(0, i, q, (size_t)i % 50);\n\
                 \t\tfree(q);\n\t}}\n\tprintf(\"{u} %lld\\n\", (long long)sum);\n\treturn 0;\n}}\n",
                u % 7 + 1,
                u % 7 + 1
            );
            (format!("unit{u}.c"), main)
        })
        .collect();
    files.push((
        "Makefile".to_string(),
        format!(
            "UNITS := $(foreach n,{},unit$(n))\n\
             all: $(UNITS:=.txt)\n\t@cat $^ | sort -n\n\t@cat $(UNITS:=.o) | cksum\n\
             %.txt: %.run\n\t@./$< > $@\n\
             %.run: %.o\n\t@gcc -o $@ $<\n\
             %.o: %.c\n\t@gcc -O1 -c -o $@ $<\n\
             .SECONDARY:\n",
            (0..units)
                .map(|u| u.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        ),
    ));
    files
}
